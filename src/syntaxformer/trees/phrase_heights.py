"""Where each dependent joins the phrases of its governor: at a height, from beside the word up to the clause.

A word projects a chain of phrases, each around the one before: base noun phrase, noun phrase with modifiers,
prepositional phrase; verb phrase, one more for each auxiliary, clause, subordinate clause. Only the order of
the heights matters. The phrases follow the Penn Treebank, the relations Universal Dependencies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum

from syntaxformer.trees.dependency import check_governors, children_of, projective_governors, top_down
from syntaxformer.trees.sentence import ROOT, Sentence

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
        self.start = first_word(children[0])
        self.end = after_word(children[-1])
        self.is_coordination = False
        self.is_parenthetical = False


def first_word(part: Phrase | int) -> int:
    """Index of a part's first word."""
    return part.start if isinstance(part, Phrase) else part


def after_word(part: Phrase | int) -> int:
    """Index after a part's last word."""
    return part.end if isinstance(part, Phrase) else part + 1


class Skeleton:
    """The words of a sentence without its punctuation, renumbered.

    The first word of a name or fixed expression governs its other words and their dependents; the dependents
    of an auxiliary are given to its verb.

    Raises:
        TreeError: The governors hold a cycle.
    """

    def __init__(self, sentence: Sentence) -> None:
        upos, deprels, governors = sentence.upos, sentence.deprels, sentence.governors
        assert upos is not None
        assert deprels is not None
        assert governors is not None
        relations = [deprel.partition(":")[0] for deprel in deprels]
        is_left_out = [
            tag == "PUNCT" or _ONLY_PUNCTUATION.fullmatch(word) is not None
            for word, tag in zip(sentence.words, upos, strict=True)
        ]
        check_governors(governors, sentence.words)
        self.places = [place for place, left_out in enumerate(is_left_out) if not left_out]
        self.words = [sentence.words[place].lower() for place in self.places]
        self.upos = [upos[place] for place in self.places]
        self.relations = [relations[place] for place in self.places]
        self.subtypes = [deprels[place].partition(":")[2] for place in self.places]
        moved = _move_up(governors, relations, is_left_out)
        number_of = {place: number for number, place in enumerate(self.places)} | {ROOT: ROOT}
        self.governors = projective_governors([number_of[moved[place]] for place in self.places])
        self.children = children_of(self.governors)
        self.order = top_down(self.governors, self.children)

    def has(self, word: int, relations: frozenset[str]) -> bool:
        """Whether a word governs another one by any of these relations."""
        return any(self.relations[child] in relations for child in self.children[word])


def _move_up(
    governors: Sequence[int], relations: Sequence[str], is_left_out: Sequence[bool]
) -> dict[int, int]:
    """Governor of each word after nothing is governed by punctuation or by a later word of a name."""
    moved: dict[int, int] = {}
    for word, governor in enumerate(governors):
        while governor != ROOT and (
            is_left_out[governor] or _passes_on(governor, word, governors, relations)
        ):
            governor = governors[governor]
        moved[word] = governor
    return moved


def _passes_on(governor: int, word: int, governors: Sequence[int], relations: Sequence[str]) -> bool:
    """Whether a governor gives up a word: later words of a name govern only names, auxiliaries nothing."""
    if governors[governor] == ROOT:
        return False
    is_later = relations[governor] in _ONE_NAME and relations[word] not in _ONE_NAME
    return is_later or relations[governor] in _AUXILIARIES


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
_OF_CLAUSES = _SUBJECTS | _AUXILIARIES
_CASE = frozenset({"case"})
_OF_ADJECTIVES = frozenset({"obl", "xcomp", "ccomp", "nmod"})
_OF_NOUNS = frozenset({"nmod", "acl", "appos", "amod", "det"})
_MAY_BE_WH = _SUBJECTS | _OBJECTS | {"obl", "advmod", "advcl", "xcomp", "nmod"}
_INSIDE_WORD_GROUP = frozenset({"compound", "det", "amod", "nummod"})

_LEFT = {
    "case": Height.CASE,
    "conj": Height.COORDINATED,
    "mark": Height.SUBORDINATE,
    **dict.fromkeys([*_SUBJECTS, "advcl", "ccomp", "dep"], Height.CLAUSE),
    **dict.fromkeys(["parataxis", "discourse", "vocative", "list", "dislocated"], Height.CLAUSE),
}
_RIGHT = {
    **dict.fromkeys(["flat", "fixed", "goeswith"], Height.NAME),
    # A possessive ending or a postposition stands inside: (NP (DET the) (NOUN king) (PART 's)).
    "case": Height.BASE,
    "cc": Height.COORDINATED,
    "mark": Height.SUBORDINATE,
    **dict.fromkeys(_SUBJECTS, Height.CLAUSE),
    **dict.fromkeys(["parataxis", "discourse", "vocative", "list", "dislocated"], Height.CLAUSE),
}

# A `Sentence` has no universal features, so wh-words are recognised by their form.
_QUESTIONS_EN = "who whom whose which what whatever whoever whichever when where why how whenever wherever"
_QUESTIONS_DE = "wer wen wem wessen was wo wohin woher wann warum weshalb wie welche welcher welches welchen"
_RELATIVES = "that der die das den dem dessen deren denen"
_QUESTION_WORDS = frozenset(f"{_QUESTIONS_EN} {_QUESTIONS_DE}".split())
_RELATIVE_PRONOUNS = frozenset(_RELATIVES.split())
_MAY_BE_WH_TAGS = frozenset({"PRON", "DET", "ADV", "SCONJ", "ADJ"})


def heights_of(
    skeleton: Skeleton, word: int, left: Sequence[int], right: Sequence[int], firsts: Sequence[int]
) -> dict[int, int]:
    """Choose the height of each dependent of a word, never lower than that of a nearer dependent.

    `left` and `right` are its dependents before and after it, the nearest first; `firsts` are the first words
    of the phrases of all words, as far as they are known, `[words]`.
    """
    chooser = _Chooser(skeleton, word, left, right, firsts)
    return _outward(left, chooser.of_left) | _outward(right, chooser.of_right)


def is_clausal(skeleton: Skeleton, word: int) -> bool:
    """Whether a word is a predicate: a verb, or anything with a subject, a copula or an auxiliary."""
    return skeleton.upos[word] in CLAUSAL_TAGS or skeleton.has(word, _OF_CLAUSES)


def is_particle(skeleton: Skeleton, word: int) -> bool:
    """Whether a word is an infinitive particle, such as English "to"."""
    return skeleton.relations[word] == "mark" and skeleton.upos[word] == "PART"


def starts_with_wh(skeleton: Skeleton, first: int, clause: int) -> bool:
    """Whether a phrase that starts at word `first` opens a question or relative clause: "who", "to whom"."""
    if skeleton.relations[first] == "case" and first + 1 < clause:
        first += 1
    if skeleton.upos[first] not in _MAY_BE_WH_TAGS:
        return False
    word = skeleton.words[first]
    return word in _QUESTION_WORDS or (word in _RELATIVE_PRONOUNS and skeleton.relations[clause] == "acl")


def is_case_marked(skeleton: Skeleton, word: int) -> bool:
    """Whether a preposition stands before a word."""
    return any(child < word and skeleton.relations[child] == "case" for child in skeleton.children[word])


def _outward(dependents: Sequence[int], height: Callable[[int], int]) -> dict[int, int]:
    """Heights from the nearest dependent outward, never falling: phrases do not cross."""
    heights: dict[int, int] = {}
    reached = 0
    for dependent in dependents:
        reached = max(reached, height(dependent))
        heights[dependent] = reached
    return heights


class _Chooser:
    """The properties of one word that decide the heights of its dependents, looked up once."""

    def __init__(
        self, skeleton: Skeleton, word: int, left: Sequence[int], right: Sequence[int], firsts: Sequence[int]
    ) -> None:
        self.skeleton, self.word, self.firsts = skeleton, word, firsts
        self.relations = skeleton.relations
        self.is_verb = skeleton.upos[word] in CLAUSAL_TAGS
        self.is_nominal = skeleton.upos[word] in NOMINAL_TAGS
        self.is_clausal = is_clausal(skeleton, word)
        self.leftmost = left[-1] if left else None
        # Auxiliaries nest: those after the verb ("gelesen haben wird") inside those before it.
        inner = [child for child in right if self.relations[child] in _AUXILIARIES]
        outer = [
            child for child in left if self.relations[child] in _AUXILIARIES or is_particle(skeleton, child)
        ]
        self.auxiliaries = {child: Height.AUXILIARY + nth for nth, child in enumerate([*inner, *outer])}
        self.first_subject = min(
            (child for child in left if self.relations[child] in _SUBJECTS), default=word
        )
        self.first_object = min((child for child in left if self.relations[child] in _OBJECTS), default=word)
        conjuncts = [child for child in right if self.relations[child] == "conj"]
        self.has_marked_clause = _has_mark(skeleton, word)
        self.conjuncts = {child: self._of_conjunct(child) for child in conjuncts}

    def of_left(self, child: int) -> int:
        """Height of a dependent before the word."""
        relation = self.relations[child]
        if child in self.auxiliaries:
            return self.auxiliaries[child]
        if self._opens_clause(child):
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

    def of_right(self, child: int) -> int:
        """Height of a dependent after the word."""
        relation = self.relations[child]
        if child in self.auxiliaries:
            return self.auxiliaries[child]
        if child in self.conjuncts:
            return self._together(child)
        if relation in _RIGHT:
            return _RIGHT[relation]
        if self.is_verb:
            return Height.VERB_PHRASE
        if relation in ("compound", "nummod") or self._is_bare_number(child):
            return Height.BASE
        if not self.is_clausal:
            return Height.MODIFIED
        inside = _OF_NOUNS if self.is_nominal else _OF_ADJECTIVES
        return Height.MODIFIED if relation in inside else Height.VERB_PHRASE

    def _opens_clause(self, child: int) -> bool:
        may_open = self.is_clausal and child == self.leftmost and self.relations[child] in _MAY_BE_WH
        return may_open and starts_with_wh(self.skeleton, self.firsts[child], self.word)

    def _before_verb(self, child: int) -> int:
        """Before a verb, adverbs stand beside the auxiliary that they follow, others before the clause.

        Objects that follow the subject or an auxiliary are in the verb phrase, and so are the words that
        follow them ("dass er das Buch gestern las").
        """
        relation = self.relations[child]
        if relation in _INSIDE_WORD_GROUP:
            return Height.BASE
        auxiliary = self._auxiliary_before(child)
        if auxiliary:
            return auxiliary if relation == "advmod" else Height.VERB_PHRASE
        follows_subject = relation in _OBJECTS and self.first_subject < child
        return Height.VERB_PHRASE if follows_subject or self.first_object < child else Height.CLAUSE

    def _before_predicate(self, child: int) -> int:
        """Adverbs belong to an adjective, "is very old", but not to a noun, "is still a child"."""
        auxiliary = self._auxiliary_before(child)
        if auxiliary:
            is_outside = self.is_nominal or self.skeleton.upos[child] == "PART"
            return auxiliary if is_outside else Height.BASE
        return Height.CLAUSE if self.first_subject < child else Height.BASE

    def _auxiliary_before(self, child: int) -> int:
        """Height of the nearest auxiliary further left, 0 for none."""
        before = [auxiliary for auxiliary in self.auxiliaries if auxiliary < child]
        return self.auxiliaries[max(before)] if before else 0

    def _is_bare_number(self, child: int) -> bool:
        """Whether a child is a number alone, such as the year of "Nov. 30 , 1989"."""
        return self.skeleton.upos[child] == "NUM" and not self.skeleton.children[child]

    def _together(self, child: int) -> int:
        """Nouns of one list stand side by side, whether or not they have modifiers."""
        nominal = [height for height in self.conjuncts.values() if height <= Height.COORDINATED]
        height = self.conjuncts[child]
        return max(nominal) if height <= Height.COORDINATED else height

    def _of_conjunct(self, child: int) -> int:
        child_is_clausal = is_clausal(self.skeleton, child)
        if self.is_clausal and child_is_clausal:
            return self._of_clause(child)
        if child_is_clausal:
            return Height.CLAUSE_COORDINATED
        if self.is_clausal:
            return Height.COORDINATED
        if is_case_marked(self.skeleton, child) and self.skeleton.has(self.word, _CASE):
            return Height.CASE_COORDINATED
        is_bare = all(self.relations[below] == "cc" for below in self.skeleton.children[child])
        return Height.BASE if is_bare else Height.COORDINATED

    def _of_clause(self, child: int) -> int:
        """A second clause joins as high as its own parts require: a subject, a conjunction, an auxiliary."""
        if self.skeleton.has(child, _SUBJECTS):
            return Height.CLAUSE_COORDINATED
        if _has_mark(self.skeleton, child):
            return Height.SUBORDINATE_COORDINATED if self.has_marked_clause else Height.CLAUSE_COORDINATED
        below = self.skeleton.children[child]
        has_auxiliary = any(
            self.relations[word] in _AUXILIARIES or is_particle(self.skeleton, word) for word in below
        )
        return Height.FINITE_COORDINATED if has_auxiliary else Height.VERB_COORDINATED


def _has_mark(skeleton: Skeleton, word: int) -> bool:
    return any(
        skeleton.relations[child] == "mark" and not is_particle(skeleton, child)
        for child in skeleton.children[word]
    )
