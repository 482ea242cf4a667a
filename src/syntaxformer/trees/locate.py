"""Find words in the text that they were cut from.

Parsers store words, and texts are characters; this module gives each word its range of characters. It never
guesses: a word that cannot be found is an error that shows the position. Text that is already split into
words is cut at ASCII white space only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import normalize

from syntaxformer.base.errors import TreeError

BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}", "-LSB-": "[", "-RSB-": "]"}
BRACKET = re.compile("[][(){}]")
BACKSLASHED = re.compile(r"\\(?=[/*])")
"""Penn's words have a backslash before these two. Reading drops it; writing doubles it to keep a real one."""

TREEBANK_SPELLINGS: dict[str, tuple[str, ...]] = {
    "``": ('"', "“", "„", "«", "»", "''"),
    "''": ('"', "”", "“", "»", "«"),
    "`": ("'", "‘", "‚", "‹", "›"),
    "'": ("’", "‘", "`", "›", "‹"),
    "--": ("—", "–"),
    "...": ("…",),
    **{bracket: (escape,) for escape, bracket in BRACKETS.items()},
}
"""How Penn Treebank tokenisation respells characters; `locate_words(respelled=True)` looks for these too."""

_SHOWN = 20
_SLASH = re.compile(r"[/*]")
_RUN = re.compile(r"[^ \t\n\r\v\f]+")


_ALIKE = {
    **dict.fromkeys(map(ord, "\t\xa0\u1680\u202f\u205f\u2028\u2029\u3000"), " "),
    **dict.fromkeys(range(0x2000, 0x200B), " "),
    **dict.fromkeys(map(ord, "\xad\u200b\u2060\ufeff")),
}
"""White space → a space; soft hyphens and what else is invisible → nothing."""

_LATIN = r"\s!-\u024f\u0300-\u036f\u1e00-\u1eff"
_JOINERS = re.compile(rf"(?:^|(?<=[{_LATIN}]))[\u200c\u200d]+(?=[{_LATIN}]|$)")
"""Joiners that join nothing; between letters of Persian or of Indic scripts, and in emoji, they do."""


def plain_form(line: str) -> str:
    """A line in Unicode's normal form NFC, with plain spaces and without invisible characters."""
    if line.isascii():
        return line.replace("\t", " ")
    line = normalize("NFC", line.translate(_ALIKE))
    return normalize("NFC", _JOINERS.sub("", line))


def given_words(line: str) -> list[str]:
    """The words of a line that is already split by spaces or tabs.

    A no-break space may be part of a word ("10 000") but is not a word by itself.
    """
    return [run for run in _RUN.findall(line) if not run.isspace()]


def spans_of_given_words(line: str) -> list[tuple[int, int]]:
    """Start and end of each of the `given_words` of a line, end exclusive."""
    return [run.span() for run in _RUN.finditer(line) if not run[0].isspace()]


def locate_words(text: str, words: Sequence[str], *, respelled: bool = False) -> tuple[tuple[int, int], ...]:
    """Find each word in the text, left to right, with nothing but white space between words.

    `respelled` also accepts the Penn Treebank's spellings (two back-quotes for a double quote, a slash after
    a backslash, `-LRB-` for a bracket, one full stop both for an abbreviation and for the sentence's end).

    Returns:
        Start and end of each word, end exclusive, `[words]` pairs.

    Raises:
        TreeError: A word is not where it should be, or text is left over; the message shows the text there.
    """
    offsets: list[tuple[int, int]] = []
    position = 0
    for word in words:
        position = _skip_space(text, position)
        spelling = _spelling_at(text, position, word) if respelled else word
        if respelled and spelling is None and word == "." and text[:position].rstrip().endswith("."):
            end = len(text[:position].rstrip())
            offsets.append((end - 1, end))
            continue
        if spelling is None or not text.startswith(spelling, position):
            raise TreeError(
                f"word {len(offsets) + 1}: expected {word!r} at character {position} of the text, "
                f"got {text[position : position + _SHOWN]!r}."
            )
        offsets.append((position, position + len(spelling)))
        position += len(spelling)
    rest = _skip_space(text, position)
    if rest < len(text):
        raise TreeError(
            f"text: expected its end after {len(words)} words, got {text[rest : rest + _SHOWN]!r} "
            f"at character {rest}."
        )
    return tuple(offsets)


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _spelling_at(text: str, position: int, word: str) -> str | None:
    plain, escaped = BACKSLASHED.sub("", word), _SLASH.sub(r"\\\g<0>", word)
    bracketed = BRACKET.sub(lambda bracket: TREEBANK_SPELLINGS[bracket[0]][0], word)
    candidates = (word, *TREEBANK_SPELLINGS.get(word, ()), plain, escaped, bracketed)
    return next((spelling for spelling in candidates if text.startswith(spelling, position)), None)
