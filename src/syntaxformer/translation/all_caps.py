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

_UNTRANSLATED = expression_of(("url", "email", "markup", "placeholder", "hashtag"), False)
"""What is neither translated nor written otherwise, protected or not."""


def all_caps_words(
    line: str, preparation: TextPreparation, fewest_letters: int = _FEWEST_LETTERS
) -> list[tuple[int, int]]:
    """Start and end of the words of a clean line that is all in capitals; none of another line.

    Addresses, placeholders, markup, words with digits, and what is protected do not count and are no such
    words. A line with a letter of a script without case is none.
    """
    first = _WORD.search(line)
    if first is not None and "." not in first[1] and _is_lower(first[1]):
        return []  # which most lines are: an address would have a point
    values = [match.span() for match in _UNTRANSLATED.finditer(line)]
    if preparation.protect or preparation.symbols:
        of_line = values_of([line], preparation.protect, preparation.symbols)[0]
        values += [(start, end) for start, end, _ in of_line]
    letters = list(line)
    for start, end in values:
        letters[start:end] = " " * (end - start)
    rest = "".join(letters)
    for word in rest.split():
        has_no_case = any(letter.isalpha() and letter.lower() == letter.upper() for letter in word)
        if (has_no_case or _is_lower(word)) and not any(map(str.isdigit, word)):
            return []
    words = [match.span(1) for match in _WORD.finditer(rest)]
    return words if sum(end - start for start, end in words if end - start > 1) >= fewest_letters else []


def _is_lower(word: str) -> bool:
    """Whether any letter is a small one; "ß" has hardly a capital."""
    return any(letter.islower() and letter != "ß" for letter in word)


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
    texts = [] if preparation.lowercase else [*{form for of_word in forms.values() for form in of_word}]
    pieces = {text: cut.ids for text, cut in zip(texts, encode_pieces(tokenizer, texts), strict=True)}
    n_around = len(encode_pieces(tokenizer, [""])[0].ids)  # the end piece, codes of languages

    def rarity(form: str) -> tuple[int, list[int]]:
        """Fewer pieces first; of single pieces those of lower numbers."""
        ids = pieces.get(form, [])
        return len(ids), ids if len(ids) == n_around + 1 else []

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
    """Write a translation in capitals; the user's symbols, addresses, placeholders and markup stay."""
    letters = capitals(text, preparation.language)
    symbols = expression_of(preparation.symbols, True).finditer(text) if preparation.symbols else ()
    for match in (*_UNTRANSLATED.finditer(text), *symbols):
        letters[match.start() : match.end()] = match[0]
    return "".join(letters)
