"""Small samples of Multi30k and of the news test sets, with tags of the source words, real and permuted.

    python experiments/little_data.py ../shared/data runs/little

It writes OUTPUT/multi30k (1,450 pairs, one in twenty) and OUTPUT/news (5,000 pairs), each as
SPLIT.{en,de,tag,permuted} for train, dev and test. The tags are the parts of speech of the bundled English
annotator, one for each of its words. The permuted ones are the same tags in a random order within the
sentence: a control with the same values in each sentence, which say nothing about the words they stand on.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import syntaxformer as sf
from syntaxformer.base.files import atomic_file, read_lines

SEED, N_DEV, N_TEST = 20261125, 500, 1000
NEWS_YEARS = ("2008", "2009", "2010", "2011", "2012", "2015", "2016", "2017", "2018", "2020", "2020-deen")
CORPORA = {
    "multi30k": ({"train": ["train"], "dev": ["val"], "test": ["test2016"]}, "multi30k", 1450),
    "news": (
        {
            "train": ["newssyscomb2009", *(f"newstest{year}" for year in NEWS_YEARS)],
            "dev": ["newstest2013"],
            "test": ["newstest2014"],
        },
        "wmt",
        5000,
    ),
}
"""Name → files of each split, their folder, and the number of training pairs."""


def sample_pairs(folder: Path, files: list[str], n: int, chosen: random.Random) -> list[tuple[str, str]]:
    """Draw n pairs of some files, without replacement and without empty sides."""
    pairs = []
    for name in files:
        sides = (read_lines(folder / f"{name}.{language}.gz") for language in ("en", "de"))
        pairs += [(" ".join(one.split()), " ".join(other.split())) for one, other in zip(*sides, strict=True)]
    return chosen.sample([pair for pair in pairs if all(pair)], n)


def main(data: Path, output: Path) -> None:
    """Read DATA/{multi30k,wmt}, write OUTPUT/CORPUS/SPLIT.{en,de,tag,permuted}."""
    annotator = sf.load_annotator("en")
    for name, (splits, folder, n_train) in CORPORA.items():
        chosen = random.Random(SEED)
        for split, files in splits.items():
            n = {"train": n_train, "dev": N_DEV, "test": N_TEST}[split]
            pairs = sample_pairs(data / folder, files, n, chosen)
            tags = [list(one.upos or ()) for one in annotator.annotate([source for source, _ in pairs])]
            permuted = [chosen.sample(one, len(one)) for one in tags]
            columns = {
                "en": [source for source, _ in pairs],
                "de": [target for _, target in pairs],
                "tag": map(" ".join, tags),
                "permuted": map(" ".join, permuted),
            }
            for ending, lines in columns.items():
                with atomic_file(output / name / f"{split}.{ending}") as temporary:
                    temporary.write_text("".join(f"{line}\n" for line in lines), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
