"""Small samples of parallel text, with tags of the source words, real and permuted.

    python experiments/little_data.py ../shared/data runs/little          multi30k and news
    python experiments/little_data.py runs/tatoeba runs/little tatoeba    from what split_tatoeba.py wrote

It writes OUTPUT/multi30k (1,450 pairs, one in twenty), OUTPUT/news (5,000 pairs) and OUTPUT/tatoeba (8,280
pairs, those that `data.fraction=0.05` of the recipe `tatoeba` keeps, with all of dev and test), each as
SPLIT.{en,de,tag,permuted} for train, dev and test. The tags are the parts of speech of the bundled English
annotator, one for each of its words. The permuted ones are the same tags in a random order within the
sentence: a control with the same values in each sentence, which say nothing about the words they stand on.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import syntaxformer as sf
from syntaxformer.base.files import atomic_file, read_lines
from syntaxformer.translation.corpora import CorpusConfig, read_split, read_train
from syntaxformer.translation.prepare import nested_fraction

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


Pairs = list[tuple[str, str]]


def samples(data: Path, name: str, chosen: random.Random) -> Iterator[tuple[str, Pairs]]:
    """The splits of a corpus of DATA/{multi30k,wmt}."""
    splits, folder, n_train = CORPORA[name]
    for split, files in splits.items():
        n = {"train": n_train, "dev": N_DEV, "test": N_TEST}[split]
        yield split, sample_pairs(data / folder, files, n, chosen)


def tatoeba(folder: Path) -> Iterator[tuple[str, Pairs]]:
    """The splits that the recipe `tatoeba` reads with `data.fraction=0.05`."""
    config = CorpusConfig(dir=folder, src="en", tgt="de", exclude=["dev", "test"])
    texts = {"train": nested_fraction(read_train(config), 0.05)}
    texts |= {split: read_split(config, split) for split in ("dev", "test")}
    for split, text in texts.items():
        yield split, list(zip(text.src, text.tgt, strict=True))


def main(data: Path, output: Path, *names: str) -> None:
    """Write OUTPUT/CORPUS/SPLIT.{en,de,tag,permuted} of some corpora, by default those of `CORPORA`."""
    annotator = sf.load_annotator("en")
    for name in names or CORPORA:
        chosen = random.Random(SEED)
        for split, pairs in tatoeba(data) if name == "tatoeba" else samples(data, name, chosen):
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
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
