"""What must not be translated: found in a line, written as a numbered symbol, and put back afterwards.

A line's symbols go on from a number that its text decides, so that training shows all of them alike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated
from zlib import crc32

from pydantic import AfterValidator, Field

from syntaxformer.base.config import nearest

SYMBOLS = tuple(f"⟦{number}⟧" for number in range(1, 21))
"""The numbered symbols; in a line with more to protect, the rest stays text."""

_LETTER = r"[\dA-Za-z_À-ɏͰ-ԯ]"
"""Beside it a digit is no number of its own; beside Chinese it may be."""

KINDS = {
    "url": r"(?<![A-Za-z0-9_])(?i:(?:https?|ftp)://|www\.)[^\s<>\"]{1,2000}(?<![.,;:!?)\]'’“»。，、）])",
    "email": r"(?<![\w.+-])[\w.+-]{1,64}+@[\w-]{1,63}+(?:\.[\w-]{1,63}+){1,8}+",
    "markup": r"</?[A-Za-z][\w:-]{0,40}+(?:\s[^<>]{0,1000}+)?>|<[A-Za-z][\w:-]{0,40}+/>"
    r"|&(?:#\d{1,7}|#x[0-9A-Fa-f]{1,6}|[A-Za-z]\w{1,30});",
    "placeholder": r"\{\{[^{}]{0,80}\}\}|\$?\{[\w.$:!,%-]{0,80}\}|%\([\w.]{1,64}\)[-+#0-9.]{0,6}[a-zA-Z]"
    r"|(?<!\d)%(?!ig)(?:\w{2,64}%|(?:\d\$)?[-+#0]{0,2}\d{0,3}(?:\.\d{1,2})?l{0,2}[sdifgxuc@])"
    r"|(?<!\w)\$[a-z_]\w{0,64}",
    "number": rf"(?<!{_LETTER})\d{{1,40}}+(?:[.,:/-]\d{{1,40}}+){{0,10}}+(?!{_LETTER})",
    "hashtag": r"(?<![\w&])[#@]\w{1,100}+",
    "emoji": "[\U0001f1e6-\U0001f1ff]{2}|[\u2600-\u27bf\u2b50\u2b55\U0001f300-\U0001faff]"
    "[\ufe0f\U0001f3fb-\U0001f3ff]{0,2}(?:\u200d[\u2600-\u27bf\U0001f300-\U0001faff]"
    "[\ufe0f\U0001f3fb-\U0001f3ff]{0,2}){0,8}",
}
"""Kind → what it looks like. Repeats are bounded, so that the time grows with the line and not faster."""

LOST, DOUBLED, INVENTED, TOO_MANY = "lost", "doubled", "invented", "one too many"
"""Faults of a translation: a value that it lacks or has twice, a symbol of nothing, a value left as text."""

_SYMBOL = r"⟦\d{1,2}⟧"
_IN_OUTPUT = re.compile(f" ?{_SYMBOL}")
UNUSED_SYMBOL = re.compile(r"⟦(?=\d{1,2}⟧)")
"""Begins text that spells a symbol."""
_LONGEST, _MOST_TIMES = 100, 40

Span = tuple[int, int, str]
"""Start and end of what is replaced in a line, end exclusive, and the symbol that stands for it."""
Value = tuple[int, int, bool]
"""Start and end of what is found in a line, and whether it is a symbol of the user's, which stays itself."""


def _is_known(pattern: str) -> str:
    """Check a kind or a pattern, which RE2 must take: its time grows with line and pattern alone."""
    if pattern in KINDS:
        return pattern
    if re.fullmatch(r"\w*", pattern):
        kinds = ", ".join(KINDS)
        raise ValueError(f"expected {kinds} or a pattern, got {pattern!r}. {nearest(pattern, list(KINDS))}")
    times = [int(n) for braces in re.findall(r"\{[\d,]*\}", pattern) for n in re.findall(r"\d+", braces)]
    if max(times, default=0) > _MOST_TIMES:
        raise ValueError(f"expected repeats of at most {_MOST_TIMES} times, got {max(times)} in {pattern!r}.")
    if r"\C" in pattern:
        raise ValueError(rf"expected characters, got \C, which is a byte, in {pattern!r}.")
    try:
        is_empty = "\n" in _marked([""], pattern)[0]
    except ValueError as error:  # pyarrow's
        raise ValueError(f"expected a regular expression of RE2, got {pattern!r}: {error}") from error
    if is_empty:
        raise ValueError(f"expected a pattern that needs a character, got {pattern!r}.")
    return pattern


Protected = Annotated[
    tuple[Annotated[str, Field(max_length=_LONGEST), AfterValidator(_is_known)], ...], Field(max_length=20)
]


Symbols = Annotated[
    tuple[Annotated[str, Field(max_length=_LONGEST, pattern=r"^[^\s⟦⟧▁￨\x00]+$")], ...],
    Field(max_length=1000),
]
"""Texts of pieces: without spaces, and without what marks spaces, factors and protected values."""


def _marked(lines: Sequence[str], pattern: str) -> list[str]:
    """The lines with a line break before and behind each match of RE2."""
    import pyarrow.compute as pc

    one_line = [line.replace("\n", " ") for line in lines]
    return pc.replace_substring_regex(one_line, pattern, "\n\\0\n").to_pylist()  # type: ignore[attr-defined]


@lru_cache(maxsize=16)
def expression_of(names: tuple[str, ...], are_symbols: bool) -> re.Pattern[str]:
    """What finds symbols, the longest first, or the values of kinds."""
    if are_symbols:
        return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))
    return re.compile("|".join([_SYMBOL, *(KINDS[name] for name in names if name in KINDS)]))


def values_of(lines: Sequence[str], protect: Sequence[str], symbols: Sequence[str] = ()) -> list[list[Value]]:
    """What each line has of kinds, patterns and symbols: the first, of those that overlap, or the longer."""
    rows: list[list[Value]] = [[] for _ in lines]
    expressions = [(tuple(symbols), True)] * bool(symbols) + [(tuple(protect), False)] * bool(protect)
    for names, are_symbols in expressions:
        for row, line in zip(rows, lines, strict=True):
            matches = expression_of(names, are_symbols).finditer(line)
            row += [(*match.span(), are_symbols) for match in matches]
    for pattern in (name for name in protect if name not in KINDS):
        for row, line in zip(rows, _marked(lines, pattern), strict=True):
            at = 0
            for number, run in enumerate(line.split("\n")):
                row += [(at, at + len(run), False)] * (number % 2 and bool(run))
                at += len(run)
    apart: list[list[Value]] = [[] for _ in lines]
    for row, values in zip(rows, apart, strict=True):
        for value in sorted(row, key=lambda value: (value[0], -value[1], not value[2])):
            if not values or value[0] >= values[-1][1]:
                values.append(value)
    return apart


def numbered(line: str, values: Sequence[Value]) -> list[Span]:
    """The values of a source line, each with its symbol; those for which there is none are left out."""
    number, spans = crc32(line.encode("utf-8", "surrogatepass")), []
    last = number + len(SYMBOLS)
    for start, end, is_symbol in values:
        if is_symbol:
            spans.append((start, end, line[start:end]))
        elif number < last:
            spans.append((start, end, SYMBOLS[number % len(SYMBOLS)]))
            number += 1
    return spans


def shared_spans(
    sources: Sequence[str], targets: Sequence[str], protect: Sequence[str], symbols: Sequence[str] = ()
) -> tuple[list[list[Span]], list[list[Span]], list[int]]:
    """What is replaced on both sides of pairs: values that both have; and how many only one side has."""
    of_sides: tuple[list[list[Span]], list[list[Span]], list[int]] = ([], [], [])
    of_src, of_tgt = values_of(sources, protect, symbols), values_of(targets, protect, symbols)
    for source, target, src_values, tgt_values in zip(sources, targets, of_src, of_tgt, strict=True):
        src, tgt, waiting = numbered(source, src_values), list[Span](), dict[str, list[str]]()
        for start, end, symbol in src:
            waiting.setdefault(source[start:end], []).append(symbol)
        for start, end, is_symbol in tgt_values:
            if is_symbol or waiting.get(target[start:end]):
                text = target[start:end]
                tgt.append((start, end, text if is_symbol else waiting[text].pop(0)))
        used = {symbol for *_, symbol in tgt}
        src = [span for span in src if span[2] in used or span[2] not in SYMBOLS]
        for side, spans in zip(of_sides, (src, tgt), strict=False):
            side.append(spans)
        of_sides[2].append(len(src_values) + len(tgt_values) - len(src) - len(tgt))
    return of_sides


def put_back(
    text: str, values: Sequence[tuple[str, str]], appends: bool = True
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Write the values of a line in the place of their symbols, each once.

    Args:
        text: A translation, with symbols.
        values: Symbol and text of each value.
        appends: Put what is lost at the end of the translation.

    Returns:
        The translation, and its faults, each with the value that it concerns.
    """
    of_symbols, left = dict(values), Counter(value for _, value in values)
    faults: list[tuple[str, str]] = []

    def value_of(match: re.Match[str]) -> str:
        symbol = match[0].lstrip(" ")
        value = of_symbols.get(symbol)
        if value is None or not left[value]:
            faults.append((INVENTED, symbol) if value is None else (DOUBLED, value))
            return ""
        left[value] -= 1
        return match[0].replace(symbol, value)

    text = _IN_OUTPUT.sub(value_of, text)
    lost = list(left.elements())
    faults += ((LOST, value) for value in lost)
    return " ".join(filter(None, [text.strip(" "), *lost])) if faults and appends else text, tuple(faults)
