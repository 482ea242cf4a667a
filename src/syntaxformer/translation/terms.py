"""Terms: words of a source whose translation is given beside them (Dinu et al. 2019).

`Terms` finds them in annotated lines, `WordColumns.with_injected` puts their translations into these, and the
factor `term` says which word is which. `teach` does so in training pairs; `kept_terms` counts the result.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import read_lines
from syntaxformer.syntax.columns import Injection, WordColumns
from syntaxformer.trees.sentence import NO_VALUE

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator
    from syntaxformer.translation.corpora import ParallelText

_log = logging.getLogger("syntaxformer.data")

TermStyle = Literal["append", "replace"]
"""A translation stands behind its term, or in its place."""

_LETTER = r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"
"""A character of a word, in scripts that have spaces between words."""


@dataclass(frozen=True)
class TermMatch:
    """A term in the words `first` to `stop`, exclusive, of a line, and another that overlaps it, not used."""

    row: int
    first: int
    stop: int
    source: str
    targets: tuple[str, ...]
    overlapping: str | None = None


class Terms:
    """Terms with their translations.

    A term is found in words that have its forms, or else its lemmas. In lower case it is found however a text
    is capitalised; a capital letter in it must be in the text, too. Of several terms that begin at a word the
    longest counts, and of terms that overlap the one that begins first.

    Args:
        pairs: Terms and their translations, of which the first is used. A term that stands there twice has
            the translations of both.
        name: Where they stand, for messages.

    Raises:
        ConfigError: A term or a translation is blank, or there is no term.
    """

    def __init__(self, pairs: Iterable[tuple[str, Sequence[str]]], name: str = "terms") -> None:
        self.name, self.entries = name, dict[str, tuple[str, tuple[str, ...]]]()
        for source, translations in pairs:
            targets = [" ".join(text.split()) for text in translations]
            if not (source.strip() and targets and all(targets)):
                raise ConfigError(f"{name}: expected a term and its translation, got {source!r}: {targets}.")
            key = "".join(source.split())  # whichever way an annotator cuts it into words
            before = self.entries.get(key, (source, ()))[1]
            self.entries[key] = source, tuple(dict.fromkeys((*before, *targets)))
        if not self.entries:
            raise ConfigError(f"{name}: expected at least one term, got none.")
        self._keys = sorted(self.entries)

    @classmethod
    def of(cls, terms: Terms | Mapping[str, str | Sequence[str]]) -> Terms:
        """Terms of a mapping from each to its translation, or to several."""
        if isinstance(terms, Terms):
            return terms
        return cls((source, [text] if isinstance(text, str) else text) for source, text in terms.items())

    def cleaned(self, source: Callable[[str], str], target: Callable[[str], str]) -> Terms:
        """The same terms, as the texts of each side are cleaned before they are read."""
        pairs = ((source(term), [*map(target, targets)]) for term, targets in self.entries.values())
        return Terms(pairs, self.name)

    def find(self, words: WordColumns, capitals: Container[int] = ()) -> list[TermMatch]:
        """Find the terms in annotated lines, in the order of the lines and of their words.

        The rows of `capitals` were in capitals, so that a term's own capitals stood there.
        """
        matches: list[TermMatch] = []
        for row, sentence in enumerate(words.sentences()):
            forms: list[list[str]] = []
            for word, lemma in zip(sentence.words, sentence.lemmas or sentence.words, strict=True):
                larger = [word.upper()] if row in capitals else []
                named = dict.fromkeys((word, word.lower(), lemma, lemma.lower(), *larger))
                forms.append([form for form in named if form not in ("", NO_VALUE)])
            # Words may share characters, as German "zu" and "dem" in "zum": no term ends between these.
            pairs = enumerate(zip(sentence.offsets, sentence.offsets[1:], strict=False), 1)
            shared = {word for word, ((_, end), (start, _)) in pairs if end > start}
            after = 0
            for word in range(len(forms)):
                if word < after or not (longest := self._longest(forms, shared, word)):
                    continue
                after, key = longest
                inside = [self._longest(forms, shared, later) for later in range(word + 1, after)]
                others = [self.entries[term][0] for end, term in filter(None, inside) if end > after]
                matches.append(TermMatch(row, word, after, *self.entries[key], *others[:1]))
        return matches

    def _longest(
        self, forms: Sequence[Sequence[str]], shared: set[int], first: int
    ) -> tuple[int, str] | None:
        """The word behind the longest term that begins at a word, and the term's key; forms before lemmas."""
        begun, longest = [""], None
        for stop in range(first, 0 if first in shared else len(forms)):
            texts = dict.fromkeys(start + form for start in begun for form in forms[stop])
            begun = [*filter(self._begins, texts)]
            if not begun:
                break
            if stop + 1 not in shared and (whole := next(filter(self.entries.__contains__, begun), None)):
                longest = stop + 1, whole
        return longest

    def _begins(self, text: str) -> bool:
        """Whether a term begins with these characters."""
        number = bisect_left(self._keys, text)
        return number < len(self._keys) and self._keys[number].startswith(text)


def read_terms(path: str | Path) -> Terms:
    """Read a list of terms: in each row a term, a tab, its translations with `|` between them.

    A third column may hold a note. Empty rows, terms that stand there twice, and terms that are a part of
    others are reported with file and line.

    Raises:
        DataError: The file cannot be read, has no term, or a row is not of this form.
    """
    rows: dict[int, tuple[str, list[str]]] = {}
    lines: dict[str, int] = {}
    faults: dict[str, list[int]] = {"are empty": [], "have the term of an earlier row": []}
    for number, line in enumerate(read_lines(path), 1):
        source, *cells = map(str.strip, line.split("\t"))
        targets = [text.strip() for text in cells[0].split("|")] if cells else []
        if not line.strip():
            faults["are empty"].append(number)
        elif not source or not targets or not all(targets) or len(cells) > 2:
            expected = "expected a term, a tab, translations with | between them, perhaps a tab and a note"
            raise DataError(f"{expected}, got {line[:60]!r}.", path, number)
        else:
            rows[number] = source, targets
            if lines.setdefault(" ".join(source.split()), number) != number:
                faults["have the term of an earlier row"].append(number)
    if not rows:
        raise DataError("expected at least one term, got none.", path)
    inner: dict[int, str] = {}
    for term in lines:
        words = term.split()
        for first, stop in combinations(range(len(words) + 1), 2):
            shorter = " ".join(words[first:stop])
            if shorter in lines and shorter != term:
                inner[lines[shorter]] = term
    if inner:
        faults[f"have a term that is a part of another, such as {inner[min(inner)]!r}"] = [*inner]
    for fault, numbers in faults.items():
        if numbers:
            _log.warning("%s:%d: %d rows %s", path, min(numbers), len(numbers), fault)
    return Terms(rows.values(), str(path))


@lru_cache(maxsize=4096)
def _pattern(target: str) -> re.Pattern[str]:
    """A translation as whole words; in scripts without spaces, anywhere."""
    return re.compile(rf"(?<!{_LETTER}){re.escape(target)}(?!{_LETTER})")


def teach(
    text: ParallelText, chunks: Sequence[WordColumns], terms: Terms, share: float, seed: int, style: TermStyle
) -> tuple[ParallelText, list[WordColumns]]:
    """Put the translations of terms into sources whose targets have them, and return pairs and annotation.

    `chunks` are the annotated sources, in order. At most a `share` of all pairs is changed, drawn by `seed`.

    Raises:
        DataError: No pair has a term on both sides.
    """
    starts = np.cumsum([0, *(len(chunk.texts) for chunk in chunks)]).tolist()
    of_chunks: list[dict[int, list[Injection]]] = []
    n_overlaps = 0
    for start, chunk in zip(starts, chunks, strict=False):
        of_chunks.append({})
        for match in terms.find(chunk):
            n_overlaps += match.overlapping is not None
            row = start + match.row
            written = (target for target in match.targets if _pattern(target).search(text.tgt[row]))
            if (target := next(written, None)) is not None:
                injection = Injection(match.row, match.first, match.stop, target)
                of_chunks[-1].setdefault(row, []).append(injection)
    rows = [row for of_chunk in of_chunks for row in of_chunk]
    if not rows:
        problem = "expected terms that training pairs have on both sides, got none."
        raise DataError(f"{problem} Check which column is the source's: the first.", terms.name)
    drawn = {*np.random.default_rng(seed).permutation(rows)[: max(1, round(share * len(text)))].tolist()}
    with_terms = [
        chunk.with_injected(
            [injection for row in of_chunk if row in drawn for injection in of_chunk[row]], style == "replace"
        )
        for chunk, of_chunk in zip(chunks, of_chunks, strict=True)
    ]
    counts = terms.name, len(rows), len(text), len(drawn), n_overlaps
    _log.info("%s: %d of %d pairs have a term on both sides, %d teach it; overlapping terms: %d", *counts)
    return replace(text, src=[line for chunk in with_terms for line in chunk.texts]), with_terms


def n_missing_terms(terms: Sequence[tuple[str, ...]], translation: str, lowercase: bool) -> int:
    """How many terms of a line are not in its translation, which needs one as often as the line has it."""
    return sum(max(0, n - _n_uses(targets, translation, lowercase)) for targets, n in Counter(terms).items())


def _n_uses(targets: Sequence[str], translation: str, lowercase: bool) -> int:
    """How often any translation of a term stands in a text; case does not count in a text in capitals."""
    same: Callable[[str], str] = str.lower if lowercase or translation.isupper() else str
    return sum(len(_pattern(same(target)).findall(same(translation))) for target in targets)


def kept_terms(
    matches: Sequence[TermMatch], translations: Sequence[str], annotator: Annotator | None, lowercase: bool
) -> dict[str, Any]:
    """Count the terms of a text whose translations are in its translation.

    The annotator, if there is one, gives lemmas of the target language.

    Returns:
        `n_terms`, how many of them have the `exact` form, and how many any form of it, `by_lemma`, None
        without an annotator.
    """
    cases = Counter((match.row, match.targets) for match in matches)
    exact = {(row, targets): _n_uses(targets, translations[row], lowercase) for row, targets in cases}
    n_exact, by_lemma = sum(min(n, exact[case]) for case, n in cases.items()), None
    if annotator is not None:
        distinct = sorted({target for _, targets in cases for target in targets})
        forms = [
            [{word.lower(), lemma.lower()} for word, lemma in zip(line.words, line.lemmas or (), strict=True)]
            for line in annotator.annotate([*translations, *distinct])
        ]
        parts = dict(zip(distinct, forms[len(translations) :], strict=True))
        by_lemma = sum(
            min(n, max(exact[row, targets], sum(_occurrences(parts[text], forms[row]) for text in targets)))
            for (row, targets), n in cases.items()
        )
    return {"n_terms": cases.total(), "exact": n_exact, "by_lemma": by_lemma}


def _occurrences(words: Sequence[set[str]], line: Sequence[set[str]]) -> int:
    """How often words that share a form or a lemma with these follow each other in a line."""
    places = range(len(line) - len(words) + 1)
    return sum(all(a & b for a, b in zip(words, line[place:], strict=False)) for place in places)
