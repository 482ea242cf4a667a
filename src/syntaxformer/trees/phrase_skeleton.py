"""What the conversion to phrases sees of a sentence: its words without punctuation, in a projective tree.

`Phrase` is the tree while it grows; `trees.Tree` is what comes out in the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from syntaxformer.trees.dependency import check_governors, children_of, projective_governors, top_down
from syntaxformer.trees.sentence import ROOT, Sentence

__all__ = ["Phrase", "Skeleton"]

# Taggers that never saw the Penn Treebank's quotes take `` for a noun.
_ONLY_PUNCTUATION = re.compile(r"[`'\"“”‘’«»„‚‹›,;:.!?…()\[\]{}–—-]+")
_ONE_NAME = frozenset({"flat", "fixed", "goeswith"})
_AUXILIARIES = frozenset({"aux", "cop"})


class Phrase:
    """A phrase under construction: a label and parts, which are phrases or words (their index).

    Args:
        label: Category.
        parts: At least one, left to right.
    """

    __slots__ = ("end", "is_coordination", "is_parenthetical", "label", "parts", "start")

    def __init__(self, label: str, parts: list[Phrase | int]) -> None:
        self.label = label
        self.parts = parts
        self.start = first_word(parts[0])
        self.end = after_word(parts[-1])
        self.is_coordination = False
        self.is_parenthetical = False


def first_word(part: Phrase | int) -> int:
    """Index of a part's first word."""
    return part.start if isinstance(part, Phrase) else part


def after_word(part: Phrase | int) -> int:
    """Index after a part's last word."""
    return part.end if isinstance(part, Phrase) else part + 1


class Skeleton:
    """The words of a sentence that are no punctuation, numbered anew.

    Words of one name or fixed expression hang from its first word, and so does what hung from a later one;
    what hung from an auxiliary hangs from its verb.

    Args:
        sentence: With governors, deprels and upos.

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
        """Whether a word governs one in any of these relations."""
        return any(self.relations[child] in relations for child in self.children[word])


def _move_up(
    governors: Sequence[int], relations: Sequence[str], is_left_out: Sequence[bool]
) -> dict[int, int]:
    """Governor of each word once nothing hangs from punctuation or from a later word of a name."""
    moved: dict[int, int] = {}
    for word, governor in enumerate(governors):
        while governor != ROOT and (
            is_left_out[governor] or _passes_on(governor, word, governors, relations)
        ):
            governor = governors[governor]
        moved[word] = governor
    return moved


def _passes_on(governor: int, word: int, governors: Sequence[int], relations: Sequence[str]) -> bool:
    """Later words of a name govern nothing but names; auxiliaries nothing at all, whatever a parser says."""
    if governors[governor] == ROOT:
        return False
    is_later = relations[governor] in _ONE_NAME and relations[word] not in _ONE_NAME
    return is_later or relations[governor] in _AUXILIARIES
