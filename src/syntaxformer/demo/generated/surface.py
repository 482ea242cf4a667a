"""Words and phrases on their way to becoming a `Sentence`: order, dependency tree and bracketing at once.

A realiser builds nested `Phrase`s. Their left-to-right leaves are the word order, each `Word` points to its
governor, and the nesting itself is the constituency tree. Nothing here knows a language.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from syntaxformer.trees import ROOT, Sentence

__all__ = ["Part", "Phrase", "Word", "comma", "to_sentence"]


@dataclass(eq=False, slots=True)
class Word:
    """One word with its tags; `glued` words follow the previous one without a space."""

    form: str
    upos: str
    xpos: str
    lemma: str
    glued: bool = False
    governor: Word | None = None
    deprel: str = "root"

    @property
    def head(self) -> Word:
        """The word itself: words and phrases can be attached alike."""
        return self

    def attach(self, governor: Part, deprel: str) -> Word:
        """Make `governor`'s head the governor of this word and return the word."""
        self.governor, self.deprel = governor.head, deprel
        return self


@dataclass(eq=False, slots=True)
class Phrase:
    """A labelled stretch of words and phrases with one lexical head."""

    label: str
    parts: list[Part]
    head: Word

    def attach(self, governor: Part, deprel: str) -> Phrase:
        """Attach the head of this phrase and return the phrase."""
        self.head.attach(governor, deprel)
        return self

    def words(self) -> Iterator[Word]:
        """The leaves, left to right."""
        for part in self.parts:
            if isinstance(part, Word):
                yield part
            else:
                yield from part.words()


Part = Word | Phrase


def comma(governor: Part, xpos: str) -> Word:
    """A comma that depends on `governor`; it vanishes where other punctuation follows."""
    return Word(",", "PUNCT", xpos, ",", glued=True).attach(governor, "punct")


def to_sentence(phrase: Phrase, *, bracketed: bool = True) -> Sentence:
    """Lay a finished phrase out as one line: spacing, first capital, gold tags, governors and bracketing.

    Commas that clauses set at their edges are dropped before other punctuation and at the end.
    """
    words = _without_doubled_commas(list(phrase.words()))
    text, offsets = _lay_out(words)
    forms = {id(word): text[start:end] for word, (start, end) in zip(words, offsets, strict=True)}
    index = {id(word): position for position, word in enumerate(words)}
    return Sentence(
        text=text,
        words=tuple(text[start:end] for start, end in offsets),
        offsets=tuple(offsets),
        upos=tuple(word.upos for word in words),
        xpos=tuple(word.xpos for word in words),
        lemmas=tuple(word.lemma for word in words),
        governors=tuple(ROOT if word.governor is None else index[id(word.governor)] for word in words),
        deprels=tuple(word.deprel for word in words),
        constituency=_bracket(phrase, forms) if bracketed else None,
    )


def _without_doubled_commas(words: Sequence[Word]) -> list[Word]:
    kept: list[Word] = []
    for word in words:
        if word.upos == "PUNCT" and kept and kept[-1].form == ",":
            kept.pop()
        kept.append(word)
    return kept


def _lay_out(words: Sequence[Word]) -> tuple[str, list[tuple[int, int]]]:
    text = ""
    offsets: list[tuple[int, int]] = []
    for word in words:
        if text and not word.glued:
            text += " "
        form = word.form if text else word.form[0].upper() + word.form[1:]
        offsets.append((len(text), len(text) + len(form)))
        text += form
    return text, offsets


def _bracket(part: Part, forms: dict[int, str]) -> str:
    if isinstance(part, Word):
        return f"({part.xpos} {forms[id(part)]})" if id(part) in forms else ""
    children = [bracket for child in part.parts if (bracket := _bracket(child, forms))]
    return f"({part.label} {' '.join(children)})" if children else ""
