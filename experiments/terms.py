"""Lists of terms from parallel text, for `data.terms` and for a test with other terms than those of training.

    python experiments/terms.py runs/tatoeba/train en de runs/terms

For a target language that writes nouns with a capital. A term is a source word of three letters or more, in 5
to 1,000 pairs; its translation is the noun, not first in a line, that occurs with it most, with a coefficient
of Dice of 0.4 or more. A fifth is held out, by a hash of its first four letters, so that all forms of a word
are on one side: train.tsv and test.tsv.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections import Counter
from pathlib import Path

from syntaxformer.base.files import atomic_text, plain_or_packed, read_lines

FEWEST, MOST, DICE = 5, 1000, 0.4
_WORD = re.compile(r"[^\W\d_]{3,}")
_NOUN = re.compile(r"(?<=[\w,] )[^\W\d_a-zäöü][^\W\d_]{2,}")


def terms_of(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Source word → target noun."""
    both, n_source, n_target = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    for source, target in pairs:
        words, nouns = {word.lower() for word in _WORD.findall(source)}, {*_NOUN.findall(target)}
        n_source.update(words)
        n_target.update(nouns)
        both.update((word, noun) for word in words for noun in nouns)
    chosen: dict[str, tuple[float, str]] = {}
    for (word, noun), n in both.items():
        dice = 2 * n / (n_source[word] + n_target[noun])
        if FEWEST <= n_source[word] <= MOST and word != noun.lower() and dice >= DICE:
            chosen[word] = max(chosen.get(word, (dice, noun)), (dice, noun))
    return {word: noun for word, (_, noun) in sorted(chosen.items())}


def main(text: str, src: str, tgt: str, output: Path) -> None:
    """Read TEXT.SRC and TEXT.TGT, plain or packed, and write both lists."""
    sides = (read_lines(plain_or_packed(Path(f"{text}.{side}")) or text) for side in (src, tgt))
    with atomic_text(output / "train.tsv") as train, atomic_text(output / "test.tsv") as test:
        for word, noun in terms_of([*zip(*sides, strict=True)]).items():
            (test if zlib.crc32(word[:4].encode()) % 5 == 0 else train).write(f"{word}\t{noun}\n")


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
