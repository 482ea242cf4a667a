"""Parallel text with tags of the source words, real and permuted: small samples, and what recipes read.

    python experiments/little_data.py ../shared/data runs/little                  multi30k and news
    python experiments/little_data.py runs/tatoeba runs/little tatoeba            after split_tatoeba.py
    python experiments/little_data.py ../shared/data/multi30k runs/little multi30k_whole
    python experiments/little_data.py ../shared/data/iwslt14 runs/little iwslt14

It writes OUTPUT/NAME/SPLIT.{en,de,tag,permuted} for train, dev and test: of `multi30k` 1,450 pairs, one in
twenty, of `news` 5,000; of `tatoeba` the 8,280 pairs that `data.fraction=0.05` of its recipe keeps; of the
last two all pairs of their recipes. Lines are as a recipe hands them to the annotator, without entities. The
tags are the parts of speech of the recipe's bundled annotator, one for each of its words. The permuted ones
are the same tags in a random order within the sentence: a control with the same values in each sentence,
which say nothing about the words they stand on.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import syntaxformer as sf
from syntaxformer.annotate import prepare
from syntaxformer.base.files import read_lines, write_text
from syntaxformer.translation.corpora import read_split, read_train
from syntaxformer.translation.prepare import nested_fraction
from syntaxformer.translation.recipe import load_recipe

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
RECIPES = {
    "tatoeba": ("tatoeba", ["data.fraction=0.05"], "test"),
    "multi30k_whole": ("multi30k", [], "test2016"),
    "iwslt14": ("iwslt14_de_en", [], "test"),
}
"""Name → recipe, settings, and its test split."""


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


def of_recipe(data: Path, name: str) -> Iterator[tuple[str, Pairs]]:
    """The splits that a recipe of `RECIPES` reads from DATA."""
    recipe, settings, test = RECIPES[name]
    config = load_recipe(recipe, [f"data.dir={data}", *settings]).data
    train = nested_fraction(read_train(config), config.fraction)
    texts = {"train": train, "dev": read_split(config, config.dev), "test": read_split(config, test)}
    for split, text in texts.items():
        yield split, list(zip(text.src, text.tgt, strict=True))


def main(data: Path, output: Path, *names: str) -> None:
    """Write OUTPUT/CORPUS/SPLIT.{en,de,tag,permuted} of some corpora, by default those of `CORPORA`."""
    for name in names or CORPORA:
        chosen, sides, annotator = random.Random(SEED), ("en", "de"), sf.load_annotator("en")
        if name in RECIPES:
            recipe = load_recipe(RECIPES[name][0])
            sides = recipe.data.src, recipe.data.tgt
            annotator = prepare(recipe.annotation.annotator or "en", words_given=recipe.data.tokenized)
        for split, pairs in of_recipe(data, name) if name in RECIPES else samples(data, name, chosen):
            tags = [list(one.upos or ()) for one in annotator.annotate([source for source, _ in pairs])]
            permuted = [chosen.sample(one, len(one)) for one in tags]
            columns = {
                sides[0]: [source for source, _ in pairs],
                sides[1]: [target for _, target in pairs],
                "tag": map(" ".join, tags),
                "permuted": map(" ".join, permuted),
            }
            for ending, lines in columns.items():
                write_text(output / name / f"{split}.{ending}", "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
