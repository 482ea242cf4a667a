"""Lines that are all in capitals: read in lower case, and their translations written in capitals.

A model has seen hardly any such line, and knows neither its pieces nor, without case, its tags.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from syntaxformer.translation.augmentation import DOTTED, capitals
from syntaxformer.translation.protection import expression_of, values_of
from syntaxformer.translation.source import TextPreparation, encode_pieces, lower_case

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_OPENING, _CLOSING = "\"'“”„‘’‚«»‹›([¿¡—–-", "\"'“”‘’«»‹›)\\]!?.,:;…—–-"
_WORD = re.compile(rf"(?<!\S)[{re.escape(_OPENING)}]*+([^\W\d_]++(?:['’.-][^\W\d_]++)*+)[{_CLOSING}]*+(?!\S)")
"""Letters between spaces, perhaps with punctuation: no name of a variable, address or number."""
_SENTENCE, _START = re.compile(r"[.!?…][^\w\s]*\s+[^\w\s]*$"), re.compile(r"\W*$")
_FEWEST_LETTERS = 4
"""A line with fewer letters in words of two or more may be an abbreviation, such as "OK" or "USA"."""


def all_caps_words(line: str, preparation: TextPreparation) -> list[tuple[int, int]]:
    """Start and end of the words of a clean line that is all in capitals; none of another line.

    Addresses, names of variables, and what is protected do not count and are no such words.
    """
    words = []
    for match in _WORD.finditer(line):
        word = match[1]
        if any(letter.islower() and letter != "ß" for letter in word):
            return []
        if word.lower() != word:  # not of a script without case
            words.append(match.span(1))
    if (preparation.protect or preparation.symbols) and words:
        values = values_of([line], preparation.protect, preparation.symbols)[0]
        words = [(a, b) for a, b in words if not any(start < b and a < end for start, end, _ in values)]
    n_letters = sum(end - start for start, end in words if end - start > 1)
    return words if n_letters >= _FEWEST_LETTERS else []


def in_lower_case(
    line: str,
    words: Sequence[tuple[int, int]],
    preparation: TextPreparation,
    tokenizer: PreTrainedTokenizerFast,
) -> str:
    """Write words of a line in lower case, each of its characters at its place.

    A word that begins a sentence keeps its first capital. So does one that has fewer pieces with it, or a
    more frequent piece, as training wrote it more often: "Tom", and "Hund" in German. "NATO" may keep all.
    """
    forms = {word: _forms(word, preparation) for word in {line[start:end] for start, end in words}}
    texts = [*dict.fromkeys(form for of_word in forms.values() for form in of_word)]
    pieces: dict[str, list[int]] = {}
    if not preparation.lowercase:
        pieces = {text: cut.ids for text, cut in zip(texts, encode_pieces(tokenizer, texts), strict=True)}

    def rarity(form: str) -> tuple[int, list[int]]:
        """Fewer pieces first; of single pieces, with their end piece, those of lower numbers."""
        ids = pieces.get(form, [])
        return len(ids), ids if len(ids) == 2 else []

    letters = list(line)
    for number, (start, end) in enumerate(words):
        word = line[start:end]
        letters[start:end] = best = min(forms[word], key=rarity)
        before = line[max(0, start - 32) : start]
        if best == forms[word][0] and (_SENTENCE.search(before) or (not number and _START.match(before))):
            letters[start] = word[0]
    return "".join(letters)


def _forms(word: str, preparation: TextPreparation) -> list[str]:
    """How a word in capitals may be written otherwise, of equals the first."""
    dotted = preparation.language in DOTTED
    lower = lower_case(word.replace("I", "ı").replace("İ", "i") if dotted else word)
    if preparation.language == "en" and re.split("['’]", word)[0] == "I":
        return [word[0] + lower[1:]]
    return [lower] if len(word) == 1 else [lower, word[0] + lower[1:], word]


def in_capitals(text: str, preparation: TextPreparation) -> str:
    """Write a translation in capitals, the user's symbols as they are."""
    symbols = preparation.symbols
    kept = [match.span() for match in expression_of(symbols, True).finditer(text)] if symbols else []
    letters = capitals(text, preparation.language)
    for start, end in kept:
        letters[start:end] = text[start:end]
    return "".join(letters)
