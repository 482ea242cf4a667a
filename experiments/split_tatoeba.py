"""Tatoeba's pairs into train, dev and test, so that no English sentence stands in two of them.

    syntaxformer data get tatoeba -o data/tatoeba
    python experiments/split_tatoeba.py data/tatoeba runs/tatoeba

With a mirror in SYNTAXFORMER_DATA this is the state of 2018, that of all our figures; else it is today's.
The corpus is ordered by length and repeats its English side: it is shuffled, and split by English sentence.
Dev and test have each English sentence once, with one of its translations; train has all pairs of the others.
Other English sentences may have the same German one, and so train has 217 of the 2,000 German test lines:
the recipe `tatoeba` leaves out pairs that share either side (`data.exclude`).
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from syntaxformer.base.files import atomic_file, read_lines

SEED, N_DEV, N_TEST = 20190919, 1000, 2000


def split_pairs(pairs: list[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Split by the first side of each pair."""
    chosen = random.Random(SEED)
    by_source: dict[str, list[str]] = {}
    for source, target in pairs:
        by_source.setdefault(source, []).append(target)
    sources = sorted(by_source)
    chosen.shuffle(sources)
    test, dev, train = sources[:N_TEST], sources[N_TEST : N_TEST + N_DEV], sources[N_TEST + N_DEV :]
    whole = [(source, target) for source in train for target in by_source[source]]
    chosen.shuffle(whole)
    held = {
        name: [(one, chosen.choice(by_source[one])) for one in part]
        for name, part in (("dev", dev), ("test", test))
    }
    return {"train": whole, **held}


def main(corpus: Path, output: Path) -> None:
    """Read DIR/anki_2018.{en,de}.gz or else DIR/anki.{en,de}.gz, write OUTPUT/SPLIT.{en,de}."""
    name = "anki_2018" if (corpus / "anki_2018.en.gz").exists() else "anki"
    sides = (list(read_lines(corpus / f"{name}.{language}.gz")) for language in ("en", "de"))
    pairs = [(" ".join(one.split()), " ".join(other.split())) for one, other in zip(*sides, strict=True)]
    for split, part in split_pairs(pairs).items():
        for place, language in enumerate(("en", "de")):
            with atomic_file(output / f"{split}.{language}") as temporary:
                temporary.write_text("".join(f"{pair[place]}\n" for pair in part), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
