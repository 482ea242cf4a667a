"""Phrase structure from a dependency parse: labelled brackets in the Penn Treebank's style, any UD language.

The tree holds no information beyond the parse: each word projects its phrases, dependents join them at their
heights, and punctuation is put in last. It is deterministic and needs no model; nothing here recurses.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, pairwise

from syntaxformer.trees.constituency import (
    Tree,
    events,
    format_tree,
    leaf_of,
    parse_tree,
    strip_functions,
    strip_root,
)
from syntaxformer.trees.dependency import check_governors, children_of, projective_governors, top_down
from syntaxformer.trees.sentence import ROOT, Sentence

NEEDED_COLUMNS = ("upos", "governors", "deprels")
"""Columns of a `Sentence` that the conversion reads."""

# Taggers that were not trained on the Penn Treebank's quotes take `` for a noun.
_ONLY_PUNCTUATION = re.compile(r"[`'\"“”‘’«»„‚‹›,;:.!?…()\[\]{}–—-]+")
_ONE_NAME = frozenset({"flat", "fixed", "goeswith"})
_AUXILIARIES = frozenset({"aux", "cop"})


class Phrase:
    """A phrase under construction: a label and parts, which are phrases or words (their index)."""

    __slots__ = ("children", "end", "is_coordination", "is_parenthetical", "label", "start")

    def __init__(self, label: str, children: list[Phrase | int]) -> None:
        self.label = label
        self.children = children
        self.start = _first_word(children[0])
        self.end = _after_word(children[-1])
        self.is_coordination = False
        self.is_parenthetical = False


def _first_word(constituent: Phrase | int) -> int:
    return constituent.start if isinstance(constituent, Phrase) else constituent


def _after_word(constituent: Phrase | int) -> int:
    return constituent.end if isinstance(constituent, Phrase) else constituent + 1


class Height(IntEnum):
    """Heights in the projection of a word, from the inside out; auxiliaries count up from `AUXILIARY`."""

    NAME = 1
    BASE = 2
    MODIFIED = 3
    COORDINATED = 4
    CASE = 5
    CASE_COORDINATED = 6
    VERB_PHRASE = 7
    VERB_COORDINATED = 8
    AUXILIARY = 9
    FINITE_COORDINATED = 1_000_001
    CLAUSE = 1_000_002
    CLAUSE_COORDINATED = 1_000_003
    SUBORDINATE = 1_000_004
    SUBORDINATE_COORDINATED = 1_000_005


NOMINAL_TAGS = frozenset({"NOUN", "PROPN", "PRON", "NUM", "SYM", "X", "DET"})
CLAUSAL_TAGS = frozenset({"VERB", "AUX"})

_SUBJECTS = frozenset({"nsubj", "csubj", "expl"})
_OBJECTS = frozenset({"obj", "iobj"})
_OF_CLAUSES = _SUBJECTS | {"parataxis", "discourse", "vocative", "list", "dislocated"}
_OF_ADJECTIVES = frozenset({"obl", "xcomp", "ccomp", "nmod"})
_OF_NOUNS = frozenset({"nmod", "acl", "appos", "amod", "det"})
_MAY_BE_WH = _SUBJECTS | _OBJECTS | {"obl", "advmod", "advcl", "xcomp", "nmod"}
_INSIDE_WORD_GROUP = frozenset({"compound", "det", "amod", "nummod"})

_LEFT = {
    "case": Height.CASE,
    "conj": Height.COORDINATED,
    "mark": Height.SUBORDINATE,
    **dict.fromkeys([*_OF_CLAUSES, "advcl", "ccomp", "dep"], Height.CLAUSE),
}
_RIGHT = {
    **dict.fromkeys(_ONE_NAME, Height.NAME),
    # A possessive ending or a postposition stands inside: (NP (DET the) (NOUN king) (PART 's)).
    "case": Height.BASE,
    "cc": Height.COORDINATED,
    "mark": Height.SUBORDINATE,
    **dict.fromkeys(_OF_CLAUSES, Height.CLAUSE),
}

# A `Sentence` has no universal features, so wh-words are recognised by their form.
_QUESTIONS_EN = "who whom whose which what whatever whoever whichever when where why how whenever wherever"
_QUESTIONS_DE = "wer wen wem wessen was wo wohin woher wann warum weshalb wie welche welcher welches welchen"
_RELATIVES = "that der die das den dem dessen deren denen"
_QUESTION_WORDS = frozenset(f"{_QUESTIONS_EN} {_QUESTIONS_DE}".split())
_RELATIVE_PRONOUNS = frozenset(_RELATIVES.split())
_MAY_BE_WH_TAGS = frozenset({"PRON", "DET", "ADV", "SCONJ", "ADJ"})


class _Heights:
    """Chooses the heights of a word's dependents by its properties, which are looked up once.

    `left` and `right` are its dependents before and after it, the nearest first, whose phrases are known.
    """

    def __init__(self, projection: _Projection, word: int, left: Sequence[int], right: Sequence[int]) -> None:
        self.projection, self.word, self.left, self.right = projection, word, left, right
        self.relations = projection.relations
        self.is_verb = projection.upos[word] in CLAUSAL_TAGS
        self.is_nominal = projection.upos[word] in NOMINAL_TAGS
        self.is_clausal = projection.is_clausal(word)
        # Auxiliaries nest: those after the verb ("gelesen haben wird") inside those before it.
        inner = [child for child in right if self.relations[child] in _AUXILIARIES]
        outer = [
            child for child in left if self.relations[child] in _AUXILIARIES or projection.is_particle(child)
        ]
        self.auxiliaries = {child: Height.AUXILIARY + nth for nth, child in enumerate([*inner, *outer])}
        self.first_subject = min(
            (child for child in left if self.relations[child] in _SUBJECTS), default=word
        )
        self.first_object = min((child for child in left if self.relations[child] in _OBJECTS), default=word)
        conjuncts = [child for child in right if self.relations[child] == "conj"]
        heights = {child: self._of_conjunct(child) for child in conjuncts}
        # Nouns of one list stand side by side, whether or not they have modifiers.
        in_list = [height for height in heights.values() if height <= Height.COORDINATED]
        self.conjuncts = {
            child: max(in_list) if height <= Height.COORDINATED else height
            for child, height in heights.items()
        }

    def of_all(self) -> dict[int, int]:
        """Height of each dependent, never lower than that of a nearer one: phrases do not cross."""
        heights: dict[int, int] = {}
        for dependents, height_of in ((self.left, self._of_left), (self.right, self._of_right)):
            height = 0
            for child in dependents:
                heights[child] = height = max(height, height_of(child))
        return heights

    def _of_left(self, child: int) -> int:
        relation = self.relations[child]
        if child in self.auxiliaries:
            return self.auxiliaries[child]
        may_open = self.is_clausal and child == self.left[-1] and relation in _MAY_BE_WH
        if may_open and self.projection.starts_with_wh(child, self.word):
            return Height.SUBORDINATE
        if relation in _LEFT:
            return _LEFT[relation]
        if relation == "cc":
            return Height.CLAUSE if self.is_clausal else Height.BASE
        if self.is_verb or (self.is_clausal and relation in _OBJECTS | {"obl", "xcomp"}):
            return self._before_verb(child)
        if self.is_clausal and relation == "advmod":
            return self._before_predicate(child)
        return Height.BASE

    def _of_right(self, child: int) -> int:
        relation = self.relations[child]
        if child in self.auxiliaries:
            return self.auxiliaries[child]
        if child in self.conjuncts:
            return self.conjuncts[child]
        if relation in _RIGHT:
            return _RIGHT[relation]
        if self.is_verb:
            return Height.VERB_PHRASE
        # A number alone, such as the year of "Nov. 30 , 1989".
        is_bare_number = self.projection.upos[child] == "NUM" and not self.projection.children[child]
        if relation in ("compound", "nummod") or is_bare_number:
            return Height.BASE
        if not self.is_clausal:
            return Height.MODIFIED
        inside = _OF_NOUNS if self.is_nominal else _OF_ADJECTIVES
        return Height.MODIFIED if relation in inside else Height.VERB_PHRASE

    def _before_verb(self, child: int) -> int:
        """Before a verb, adverbs stand beside the auxiliary that they follow, others before the clause.

        Objects that follow the subject or an auxiliary are in the verb phrase, and so are the words that
        follow them ("dass er das Buch gestern las").
        """
        relation = self.relations[child]
        if relation in _INSIDE_WORD_GROUP:
            return Height.BASE
        if auxiliary := self._auxiliary_before(child):
            return auxiliary if relation == "advmod" else Height.VERB_PHRASE
        follows_subject = relation in _OBJECTS and self.first_subject < child
        return Height.VERB_PHRASE if follows_subject or self.first_object < child else Height.CLAUSE

    def _before_predicate(self, child: int) -> int:
        """Adverbs belong to an adjective, "is very old", but not to a noun, "is still a child"."""
        if auxiliary := self._auxiliary_before(child):
            is_outside = self.is_nominal or self.projection.upos[child] == "PART"
            return auxiliary if is_outside else Height.BASE
        return Height.CLAUSE if self.first_subject < child else Height.BASE

    def _auxiliary_before(self, child: int) -> int:
        """Height of the nearest auxiliary further left, 0 for none."""
        before = [auxiliary for auxiliary in self.auxiliaries if auxiliary < child]
        return self.auxiliaries[max(before)] if before else 0

    def _of_conjunct(self, child: int) -> int:
        """A second clause joins as high as its own parts require: a subject, a conjunction, an auxiliary."""
        projection, below = self.projection, self.projection.children[child]
        if projection.is_clausal(child):
            if not self.is_clausal or projection.has(child, *_SUBJECTS):
                return Height.CLAUSE_COORDINATED
            if projection.has_mark(child):
                are_marked = projection.has_mark(self.word)
                return Height.SUBORDINATE_COORDINATED if are_marked else Height.CLAUSE_COORDINATED
            has_auxiliary = projection.has(child, *_AUXILIARIES) or any(
                projection.is_particle(word) for word in below
            )
            return Height.FINITE_COORDINATED if has_auxiliary else Height.VERB_COORDINATED
        if self.is_clausal:
            return Height.COORDINATED
        has_preposition = any(word < child and self.relations[word] == "case" for word in below)
        if has_preposition and projection.has(self.word, "case"):
            return Height.CASE_COORDINATED
        is_bare = all(self.relations[word] == "cc" for word in below)
        return Height.BASE if is_bare else Height.COORDINATED


_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_CLOSING_BRACKETS = frozenset(_BRACKETS.values())
_DASHES = frozenset({"--", "-", "–", "—"})
_OPENING_QUOTES = frozenset({"``", "“", "„", "«", "‘", "‚", "‹"})
_CLOSING_QUOTES = frozenset({"''", "”", "»", "’", "›"})
_EITHER_QUOTE = '"'
_SENTENCE_END = frozenset({".", "!", "?", "…", "..."}) | _CLOSING_QUOTES | _CLOSING_BRACKETS
_PAIRED_COMMA_IN = frozenset({"NP", "PP", "ADJP", "ADVP"})


@dataclass(slots=True)
class _Gap:
    """Punctuation from `start` to `end`, before the part at `index` of a phrase or after its last part."""

    start: int
    end: int
    phrase: Phrase
    index: int
    ending: list[Phrase]
    """Phrases that end right before the gap, the highest first."""


def insert_punctuation(tops: list[Phrase | int], words: Sequence[str]) -> Phrase:
    """Put all words that are in no phrase yet into the phrases, and return one phrase over all words.

    `tops` are phrases side by side over some of the words; they are changed in place.
    """
    if not tops:
        return Phrase("FRAG", list(range(len(words))))
    clauses = [_as_clause(constituent) for constituent in tops]
    if len(clauses) > 1:
        top = Phrase("S", clauses)
    else:
        top = clauses[0] if isinstance(clauses[0], Phrase) else Phrase("FRAG", clauses)
    phrases, gaps = _phrases_below(top), list[_Gap]()
    for phrase in phrases:
        for index, (before, child) in enumerate(pairwise(phrase.children), 1):
            if _after_word(before) < _first_word(child):
                gaps.append(
                    _Gap(_after_word(before), _first_word(child), phrase, index, _ending_with(before))
                )
    gaps.append(_Gap(top.end, len(words), top, len(top.children), _ending_with(top.children[-1])))
    punctuation = _Punctuation(words)
    for gap in sorted(gaps, key=lambda gap: gap.start):
        for mark in range(gap.start, gap.end):
            punctuation.assign(mark, gap, gap.phrase is top and len(tops) > 1)
    for phrase in phrases:
        punctuation.fill(phrase)
    top.children = [*range(top.start), *top.children]
    for phrase in phrases:
        _make_parentheticals(phrase, words)
    return top


def _as_clause(constituent: Phrase | int) -> Phrase | int:
    """Put a verb phrase under an S; others stay as they are."""
    is_verb_phrase = isinstance(constituent, Phrase) and constituent.label == "VP"
    return Phrase("S", [constituent]) if is_verb_phrase else constituent


def _ending_with(constituent: Phrase | int) -> list[Phrase]:
    """A part, its last part, the last part of that, and so on down to the word."""
    phrases: list[Phrase] = []
    while isinstance(constituent, Phrase):
        phrases.append(constituent)
        constituent = constituent.children[-1]
    return phrases


class _Punctuation:
    """Marks by the phrase and the part before which they stand (its id, and the index of the part)."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.marks: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.openings: dict[str, Phrase] = {}

    def assign(self, mark: int, gap: _Gap, is_between_sentences: bool) -> None:
        """Assign a mark to the phrase of its partner, or else to the lowest phrase over its neighbours."""
        word = self.words[mark]
        phrase = self._phrase_of_pair(word, gap)
        if phrase is None and is_between_sentences and word in _SENTENCE_END and gap.ending:
            phrase = gap.ending[0]
        if phrase is not None:
            self.marks[id(phrase), len(phrase.children)].append(mark)
            # Later marks in this gap may not go below this phrase, so that the order is kept.
            gap.ending = gap.ending[: 1 + [id(ending) for ending in gap.ending].index(id(phrase))]
            return
        gap.ending = []
        self.marks[id(gap.phrase), gap.index].append(mark)
        if word in _BRACKETS:
            self.openings[_BRACKETS[word]] = gap.phrase
        elif word in _OPENING_QUOTES or word == _EITHER_QUOTE:
            self.openings["quote"] = gap.phrase

    def _phrase_of_pair(self, word: str, gap: _Gap) -> Phrase | None:
        """The phrase that ends here and holds the opening mark of the pair that this mark closes."""
        if word in _CLOSING_BRACKETS or word in _CLOSING_QUOTES or word == _EITHER_QUOTE:
            opened = self.openings.pop(word if word in _CLOSING_BRACKETS else "quote", None)
            return opened if any(phrase is opened for phrase in gap.ending) else None
        for phrase in gap.ending:
            begun = [self.words[mark] for mark in self.marks[id(phrase), len(phrase.children) - 1]]
            is_pair = phrase.label in _PAIRED_COMMA_IN and not phrase.is_coordination
            if word == "," and "," in begun and is_pair:
                return phrase
            if word in _DASHES and not _DASHES.isdisjoint(begun):
                return phrase
        return None

    def fill(self, phrase: Phrase) -> None:
        """Put the marks that were assigned to a phrase between its parts."""
        parts: list[Phrase | int] = []
        for index in range(len(phrase.children) + 1):
            parts += [*self.marks[id(phrase), index], *phrase.children[index : index + 1]]
        phrase.children = parts


def _make_parentheticals(phrase: Phrase, words: Sequence[str]) -> None:
    """Make a phrase of parts between brackets or dashes, and of a clause between commas (", he said ,")."""
    start = 0
    while start < len(phrase.children):
        end = _parenthetical_end(phrase.children, start, words)
        if end and (start, end) != (0, len(phrase.children)):
            phrase.children[start:end] = [Phrase("PRN", phrase.children[start:end])]
        start += 1


def _parenthetical_end(parts: list[Phrase | int], start: int, words: Sequence[str]) -> int | None:
    """The end (exclusive) of the parenthetical that begins at an index; None if there is none."""
    mark = parts[start]
    if isinstance(mark, Phrase):
        return None
    word = words[mark]
    closing = {_BRACKETS[word]} if word in _BRACKETS else _DASHES if word in _DASHES else None
    if closing is not None:
        ends = (end for end in range(start + 2, len(parts)) if _is_word(parts[end], closing, words))
        return next((end + 1 for end in ends), None)
    inside = parts[start + 1 : start + 3]
    is_clause = len(inside) == 2 and isinstance(inside[0], Phrase) and inside[0].is_parenthetical
    is_between = 0 < start < len(parts) - 3
    if word == "," and is_clause and is_between and _is_word(inside[1], {","}, words):
        return start + 3
    return None


def _is_word(constituent: Phrase | int, forms: frozenset[str] | set[str], words: Sequence[str]) -> bool:
    return not isinstance(constituent, Phrase) and words[constituent] in forms


_OF_TAG = {
    **dict.fromkeys(NOMINAL_TAGS, "NP"),
    **dict.fromkeys(CLAUSAL_TAGS, "VP"),
    "ADJ": "ADJP",
    "ADV": "ADVP",
    "ADP": "PP",
    "CCONJ": "CONJP",
    "INTJ": "INTJ",
}
_OF_HEIGHT = {Height.SUBORDINATE: "SBAR", Height.CLAUSE: "S", Height.VERB_PHRASE: "VP", Height.CASE: "PP"}
_WH_LABELS = {"NP": "WHNP", "PP": "WHPP", "ADVP": "WHADVP", "ADJP": "WHADJP"}

# Words without a phrase of their own: (PP (ADP of) ...), never (PP (PP (ADP of)) ...).
_BARE = _AUXILIARIES | _ONE_NAME | {"mark", "cc", "case", "det", "punct"}
# Clauses, even if they consist of a verb phrase alone: (VP (VERB stop) (S (VP (VERB using) ...))).
_CLAUSES = frozenset({"xcomp", "ccomp", "advcl", "csubj", "parataxis"})
_DISSOLVING = _ONE_NAME | {"case"}
_NUMERIC_TAGS = frozenset({"NUM", "SYM"})
# Prepositions of two words, of which the second takes the noun: (PP according (PP to (NP ...))).
_GOVERNED = frozenset({"to", "of", "with", "from", "for"})
_GOVERNING = frozenset({"according", "due", "prior", "up", "thanks", "out", "next", "contrary", "owing"})


def brackets_of_parse(sentence: Sentence) -> str:
    """Write the phrases of a parse on one line; a space inside a word becomes a no-break space.

    Raises:
        ValueError, TreeError: As for `phrase_structure`, or a tag holds a bracket or white space.
    """
    return format_tree(_with_words(phrases_of_parse(sentence), sentence, map(leaf_of, sentence.words)))


def phrase_structure(sentence: Sentence) -> Tree:
    """Convert a dependency parse into a phrase-structure tree.

    Every word stands in it once, in order, under its universal tag. Words whose arcs cross others move up
    until they do not. Several roots become several trees side by side under one S. The sentence needs `upos`,
    `governors` and `deprels` of Universal Dependencies.

    Returns:
        The tree; a label is one of S, SBAR, SBARQ, VP, NP, PP, ADJP, ADVP, QP, PRT, PRN, WHNP, WHPP, WHADVP,
        WHADJP, CONJP, INTJ, FRAG, X.

    Raises:
        ValueError: The sentence has no words or lacks one of those columns.
        TreeError: The governors hold a cycle.
    """
    return _with_words(phrases_of_parse(sentence), sentence, sentence.words)


def linearised(tree: Tree | str | Sentence) -> list[str]:
    """A tree as a sequence, with the tag of each word in its place: `(S`, `(NP`, `PRON`, `)`, `VERB`, `)`.

    A phrase is `(LABEL`, its parts and `)`; a word without a tag is `X`. `Sentence`s are converted first.
    Functions (NP-SBJ-1 becomes NP) and outer brackets without a phrase's label go.

    Source: Vinyals et al. (2015), "Grammar as a Foreign Language", section 3.
    """
    source = phrase_structure(tree) if isinstance(tree, Sentence) else tree
    symbols: list[str] = []
    plain = strip_functions(strip_root(parse_tree(source) if isinstance(source, str) else source))
    for event, text in events(plain):
        if event == "open":
            symbols.append(f"({text}")
        elif event == "word":
            symbols.append("")
        elif symbols[-1] == "" and symbols[-2].startswith("("):
            symbols[-2:] = [symbols[-2][1:] or "X"]  # a word with its tag
        else:
            symbols.append(")")
    return [symbol or "X" for symbol in symbols]


def phrases_of_parse(sentence: Sentence) -> Phrase:
    """The phrases of a parse over its words' indices: `phrase_structure` without words and tags."""
    missing = [column for column in NEEDED_COLUMNS if getattr(sentence, column) is None]
    if missing or not sentence.words:
        raise ValueError(
            f"phrase structure: expected a sentence with words, {', '.join(NEEDED_COLUMNS)}, got one "
            f"without {', '.join(missing or ['words'])}."
        )
    return insert_punctuation(_Projection(sentence).tops(), sentence.words)


def _move_up(
    word: int, governors: Sequence[int], relations: Sequence[str], is_left_out: Sequence[bool]
) -> int:
    """A word's nearest ancestor that may govern it: no auxiliary, a later word of a name only names."""
    not_above = _AUXILIARIES if relations[word] in _ONE_NAME else _AUXILIARIES | _ONE_NAME
    governor = governors[word]
    while governor != ROOT and (
        is_left_out[governor] or (governors[governor] != ROOT and relations[governor] in not_above)
    ):
        governor = governors[governor]
    return governor


class _Projection:
    """The words of a sentence without its punctuation, renumbered, and their phrases, from the leaves up.

    The first word of a name or fixed expression governs its other words and their dependents; the dependents
    of an auxiliary are given to its verb.

    Raises:
        TreeError: The governors hold a cycle.
    """

    def __init__(self, sentence: Sentence) -> None:
        upos, governors, deprels = (getattr(sentence, column) for column in NEEDED_COLUMNS)
        check_governors(governors, sentence.words)
        relations = [deprel.partition(":")[0] for deprel in deprels]
        is_left_out = [
            tag == "PUNCT" or _ONLY_PUNCTUATION.fullmatch(word) is not None
            for word, tag in zip(sentence.words, upos, strict=True)
        ]
        self.positions = [position for position, left_out in enumerate(is_left_out) if not left_out]
        self.words = [sentence.words[position].lower() for position in self.positions]
        self.upos = [upos[position] for position in self.positions]
        self.relations = [relations[position] for position in self.positions]
        self.subtypes = [deprels[position].partition(":")[2] for position in self.positions]
        number_of = {position: number for number, position in enumerate(self.positions)} | {ROOT: ROOT}
        moved = (_move_up(position, governors, relations, is_left_out) for position in self.positions)
        self.governors = projective_governors([number_of[governor] for governor in moved])
        self.children = children_of(self.governors)
        self.order = top_down(self.governors, self.children)
        self.phrases: list[Phrase | int] = list(range(len(self.words)))
        # Conjunctions before a conjunct, which stand beside its phrase, not in it.
        self.beside: list[list[Phrase | int]] = [[] for _ in self.words]

    def has(self, word: int, *relations: str) -> bool:
        """Whether a word governs another one by any of these relations."""
        return any(self.relations[child] in relations for child in self.children[word])

    def is_clausal(self, word: int) -> bool:
        """Whether a word is a predicate: a verb, or anything with a subject, a copula or an auxiliary."""
        return self.upos[word] in CLAUSAL_TAGS or self.has(word, *_SUBJECTS, *_AUXILIARIES)

    def is_particle(self, word: int) -> bool:
        """Whether a word is an infinitive particle, such as English "to"."""
        return self.relations[word] == "mark" and self.upos[word] == "PART"

    def starts_with_wh(self, child: int, clause: int) -> bool:
        """Whether the phrase of a word's child opens a question or relative clause: "who", "to whom"."""
        first = _first_word(self.phrases[child])
        if self.relations[first] == "case" and first + 1 < clause:
            first += 1
        if self.upos[first] not in _MAY_BE_WH_TAGS:
            return False
        word = self.words[first]
        return word in _QUESTION_WORDS or (word in _RELATIVE_PRONOUNS and self.relations[clause] == "acl")

    def has_mark(self, word: int) -> bool:
        return any(
            self.relations[child] == "mark" and not self.is_particle(child) for child in self.children[word]
        )

    def tops(self) -> list[Phrase | int]:
        """Phrases of the roots, with the word numbers of the whole sentence."""
        for word in reversed(self.order):
            self._project(word)
        roots = [word for word, governor in enumerate(self.governors) if governor == ROOT]
        tops, positions = [self._as_phrase(root, self.phrases[root]) for root in roots], self.positions
        for phrase in _phrases_below(*tops):
            phrase.start, phrase.end = positions[phrase.start], positions[phrase.end - 1] + 1
            children = phrase.children
            phrase.children = [child if isinstance(child, Phrase) else positions[child] for child in children]
        return [top if isinstance(top, Phrase) else positions[top] for top in tops]

    def _project(self, word: int) -> None:
        children = self.children[word]
        if not children:
            return
        left = [child for child in reversed(children) if child < word]
        right = [child for child in children if child > word]
        is_inner = self.governors[word] != ROOT
        relations, subtypes = self.relations, self.subtypes
        while left and is_inner and relations[left[-1]] == "cc" and subtypes[left[-1]] != "preconj":
            self.beside[word].append(self.phrases[left.pop()])
        heights = _Heights(self, word, left, right).of_all()
        by_height: dict[int, list[int]] = {}
        for child in (*reversed(left), *right):
            by_height.setdefault(heights[child], []).append(child)
        for height in sorted(by_height):
            self._grow(word, height, by_height[height])
        phrase = self.phrases[word]
        if isinstance(phrase, Phrase):
            phrase.is_parenthetical = relations[word] == "parataxis"

    def _grow(self, word: int, height: int, children: list[int]) -> None:
        """Put the children at one height around the phrase that a word has so far."""
        parts = (self._parts(word, child, height) for child in children if child < word)
        before = list(chain.from_iterable(parts))
        core = self._core(word, height, before)  # may take the last part before it
        after = self._after(word, height, [child for child in children if child > word])
        phrase = Phrase(self._label(word, height), [*before, *core, *after])
        conjuncts = (child for child in children if self.relations[child] == "conj")
        phrase.is_coordination = any(self.has(child, "cc") for child in conjuncts)
        self.phrases[word] = phrase

    def _after(self, word: int, height: int, children: list[int]) -> list[Phrase | int]:
        """Parts after the word; an object and its predicate, "let (S it go)", form a clause."""
        parts: list[Phrase | int] = []
        previous = ""
        for child in children:
            relation, new = self.relations[child], self._parts(word, child, height)
            if relation in ("xcomp", "ccomp") and previous in ("obj", "iobj"):
                has_one_part = len(new) == 1 and len(_parts_of(new[0])) == 1
                predicate = _parts_of(new[0]) if has_one_part else new
                parts[-1:] = [Phrase("S", [parts[-1], *predicate])]
            else:
                parts += new
            previous = relation
        return parts

    def _core(self, word: int, height: int, before: list[Phrase | int]) -> list[Phrase | int]:
        """The phrase so far as a part of the next, or its own parts if they stay on one level."""
        tag = self.upos[word]
        if height <= Height.BASE or (height == Height.MODIFIED and tag in ("ADJ", "ADV")):
            return _parts_of(self.phrases[word])
        if height == Height.VERB_PHRASE and tag in CLAUSAL_TAGS:
            return [self.phrases[word]]
        phrase = self._as_phrase(word, self.phrases[word])
        words = ["" if isinstance(constituent, Phrase) else self.words[constituent] for constituent in before]
        if height == Height.CASE and len(words) == 2 and words[0] in _GOVERNING and words[1] in _GOVERNED:
            return [Phrase("PP", [before.pop(), phrase])]
        return [_as_clause(phrase) if height >= Height.SUBORDINATE else phrase]

    def _parts(self, word: int, child: int, height: int) -> list[Phrase | int]:
        """What a child adds to its governor's phrase: its phrase, or its parts if that dissolves."""
        phrase = self.phrases[child]
        if isinstance(phrase, Phrase) and self._dissolves(word, child, height):
            return [*self.beside[child], *phrase.children]
        if height > Height.BASE:
            phrase = self._as_phrase(child, phrase)
        if self.relations[child] in _CLAUSES:
            phrase = _as_clause(phrase)
        opens = height == Height.SUBORDINATE and self.starts_with_wh(child, word)
        if opens and child < word and isinstance(phrase, Phrase):
            phrase.label = _WH_LABELS.get(phrase.label, phrase.label)
        return [*self.beside[child], phrase]

    def _dissolves(self, word: int, child: int, height: int) -> bool:
        """Whether a phrase dissolves, as names, compounds and fixed expressions do in a base noun phrase."""
        relation, tags = self.relations[child], self.upos
        if relation in _DISSOLVING or height > Height.BASE:
            return relation in _DISSOLVING or relation == "mark"
        is_number = tags[child] in _NUMERIC_TAGS and tags[word] not in _NUMERIC_TAGS
        if relation == "compound" and not is_number:
            return True
        if relation == "nummod":
            return tags[word] == "SYM"
        is_flat_list = self.has(child, "conj") and not any(
            isinstance(constituent, Phrase) for constituent in _parts_of(self.phrases[child])
        )
        return (
            (relation in ("amod", "compound") and is_flat_list)
            or self.subtypes[child] == "desc"
            or (relation == "advmod" and self.has(child, "fixed"))
        )

    def _as_phrase(self, word: int, constituent: Phrase | int) -> Phrase | int:
        """Turn a single word into a phrase, unless its relation keeps it a word."""
        relation = self.relations[word]
        if isinstance(constituent, Phrase) or relation in _BARE:
            return constituent
        if relation == "compound" and self.subtypes[word] == "prt":
            return Phrase("PRT", [constituent])
        label = _OF_TAG.get(self.upos[word])
        return Phrase(label, [constituent]) if label else constituent

    def _label(self, word: int, height: int) -> str:
        for lowest, label in _OF_HEIGHT.items():
            if height >= lowest:
                if label == "S" and not self.is_clausal(word):
                    return "FRAG"
                is_question = label == "SBAR" and self.governors[word] == ROOT
                return "SBARQ" if is_question and not self.has(word, "mark") else label
        if self.upos[word] in _NUMERIC_TAGS and self.relations[word] in ("nummod", "compound"):
            return "QP"
        return _OF_TAG.get(self.upos[word], "X")


def _parts_of(phrase: Phrase | int) -> list[Phrase | int]:
    return phrase.children if isinstance(phrase, Phrase) else [phrase]


def _phrases_below(*tops: Phrase | int) -> list[Phrase]:
    """These phrases and all phrases in them, each before its parts."""
    phrases = [top for top in tops if isinstance(top, Phrase)]
    for phrase in phrases:  # grows while it is walked
        phrases.extend(child for child in phrase.children if isinstance(child, Phrase))
    return phrases


def _with_words(top: Phrase, sentence: Sentence, words: Iterable[str]) -> Tree:
    """Turn phrases into a `Tree` with a tag over each word."""
    leaves = [Tree(tag, (word,)) for word, tag in zip(words, sentence.upos or (), strict=True)]
    trees: dict[int, Tree] = {}
    for phrase in reversed(_phrases_below(top)):
        children = (
            trees[id(child)] if isinstance(child, Phrase) else leaves[child] for child in phrase.children
        )
        trees[id(phrase)] = Tree(phrase.label, tuple(children))
    return trees[id(top)]
