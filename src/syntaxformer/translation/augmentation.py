"""Training pairs in capitals, with typing errors or with noise, drawn anew for each epoch.

Tags and trees stay those of the clean line: the places of its words are carried to the altered one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING
from unicodedata import normalize

import numpy as np
from pydantic import Field, model_validator

from syntaxformer.runs.config import Section
from syntaxformer.syntax import WordColumns

if TYPE_CHECKING:
    from syntaxformer.translation.corpora import ParallelText

SYMBOLS = [chr(code) for first, stop in ((0x2600, 0x2700), (0x1F300, 0x1F600)) for code in range(first, stop)]
_FIRST, _WORD = re.compile(r"(?<!\S)[^\w\s]*(\w)"), re.compile(r"[^\W\d_]{4,}")
DOTTED = ("az", "tr")
"""Languages whose i has a dot in capitals, too."""


class AugmentConfig(Section):
    """Pairs that are altered in training alone, others in each epoch."""

    upper: float = Field(0.0, ge=0, le=1, description="share of the pairs that are in capitals on both sides")
    title: float = Field(
        0.0, ge=0, le=1, description="share of the pairs whose words all begin with a capital on both sides"
    )
    typo: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the sources with a typing error, two if they have 20 long words, and so on: "
        "letters swapped, lost or doubled",
    )
    noise: float = Field(
        0.0, ge=0, le=1, description="share of the pairs with the same one to three symbols behind both sides"
    )

    @model_validator(mode="after")
    def _one_case(self) -> AugmentConfig:
        if self.upper + self.title > 1:
            raise ValueError(f"expected upper + title up to 1, got {self.upper + self.title:g}.")
        return self


Altered = dict[int, list[str]]
"""Row of a line → what stands for each of its characters, and last what stands behind the line."""


def capitals(line: str, language: str) -> list[str]:
    """Each character in capitals: "ß" becomes "SS", and "i" in Turkish "İ"."""
    dotted = language in DOTTED
    return ["İ" if dotted and letter == "i" else normalize("NFC", letter.upper()) for letter in line]


def title(line: str, language: str) -> list[str]:
    """Each character, those that begin a word between spaces as capitals."""
    firsts = {word.start(1) for word in _FIRST.finditer(line)}
    large = capitals(line, language)
    return [
        (large[at] if letter == "i" else letter.title()) if at in firsts else letter
        for at, letter in enumerate(line)
    ]


def add_typos(line: str, letters: list[str], random: Random) -> None:
    """Swap, lose or double a letter, not the first, in a tenth of the words of four letters or more."""
    words = [word.span() for word in _WORD.finditer(line)]
    for start, end in random.sample(words, min(len(words), 1 + len(words) // 10)):
        at, error = random.randrange(start + 1, end - 1), random.randrange(3)
        if error == 0:
            letters[at : at + 2] = letters[at + 1], letters[at]
        else:
            letters[at] = "" if error == 1 else letters[at] * 2


@dataclass(frozen=True)
class Augmentation:
    """Alters pairs of a text; `languages` are those of source and target."""

    config: AugmentConfig
    seed: int
    languages: tuple[str, str]

    def draw(self, text: ParallelText, epoch: int) -> tuple[Altered, Altered]:
        """What is altered in an epoch, on both sides; the rows are the same."""
        config, sides = self.config, (Altered(), Altered())
        share = config.upper + config.title, config.typo, config.noise
        draws = np.random.default_rng((self.seed, epoch, 1)).random((len(text), 3))
        for row in np.flatnonzero((draws < share).any(1)).tolist():
            if not (text.src[row].strip() and text.tgt[row].strip()):
                continue  # such pairs are left out
            random, (case, typo, noise) = Random(f"{self.seed} {epoch} {row}"), draws[row] < share
            cased: Callable[[str, str], list[str]] = capitals if draws[row, 0] < config.upper else title
            symbols = f" {''.join(random.choices(SYMBOLS, k=random.randint(1, 3)))}" if noise else ""
            for side, (rows, lines) in enumerate(zip(sides, (text.src, text.tgt), strict=True)):
                line = lines[row]
                letters = cased(line, self.languages[side]) if case else list(line)
                if typo and side == 0:
                    add_typos(line, letters, random)
                rows[row] = [*letters, symbols]
        return sides


def with_lines(text: ParallelText, src: Altered, tgt: Altered) -> ParallelText:
    """A text with altered lines."""
    new: list[list[str]] = []
    for lines, altered in ((text.src, src), (text.tgt, tgt)):
        new.append(list(lines))
        for row, letters in altered.items():
            new[-1][row] = "".join(letters)
    return replace(text, src=new[0], tgt=new[1])


def with_words(
    chunks: Sequence[WordColumns] | None, altered: Altered, size: int
) -> Sequence[WordColumns] | None:
    """The annotation of a text, `size` lines in a chunk, with the places of its words in altered lines."""
    if chunks is None:
        return None
    new = [
        replace(words, texts=list(words.texts), starts=words.starts.astype(int), ends=words.ends.astype(int))
        for words in chunks
    ]
    for row, letters in altered.items():
        words, row = new[row // size], row % size
        of_line = slice(*words.row_splits[row : row + 2].tolist())
        places = np.cumsum([0, *map(len, letters)])
        words.texts[row] = "".join(letters)  # type: ignore[index]
        for side in (words.starts, words.ends):
            side[of_line] = places[side[of_line]]
    return new
