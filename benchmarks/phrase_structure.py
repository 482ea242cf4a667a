"""Agreement of phrases converted from dependency parses with phrases annotated by hand, and the speed of it.

Run: OMP_NUM_THREADS=1 python benchmarks/phrase_structure.py [--split held_out|development] [--annotator en]

Unlabelled bracket F1 over distinct spans of two words or more, the whole sentence and punctuation counted;
beside it without punctuation, and for right-branching trees. Penn sample: traces and function tags removed,
gold words, parsed by the bundled pipeline; the last 414 trees are held out, the rules were made on the
others. SNLI: the Stanford parses of both sentences of the development pairs, themselves made by a parser;
their score was watched, not their trees. SYNTAXFORMER_DATA, by default ../shared/data.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from bracket_score import bracket_score
from syntaxformer.annotate import load_annotator
from syntaxformer.trees import (
    Tree,
    leaves_of,
    parse_tree,
    phrase_structure,
    read_ptb,
    remove_traces,
    strip_functions,
)

DATA = Path(os.environ.get("SYNTAXFORMER_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
N_HELD_OUT = 414


def penn_trees(data: Path, split: str = "held_out") -> list[Tree]:
    trees = [strip_functions(remove_traces(tree)) for tree in read_ptb(data / "ptb_sample" / "trees.mrg.gz")]
    return trees[-N_HELD_OUT:] if split == "held_out" else trees[:-N_HELD_OUT]


def snli_trees(data: Path) -> list[Tree]:
    return [parse_tree(text) for text in _snli_parses(data)]


def _snli_parses(data: Path) -> Iterator[str]:
    with gzip.open(data / "snli" / "dev_subset_parsed.jsonl.gz", "rt", encoding="utf-8") as file:
        for pair in map(json.loads, file):
            yield from (pair["sentence1_parse"], pair["sentence2_parse"])


def right_branching(words: tuple[str, ...]) -> Tree:
    tree = Tree("X", (words[-1],))
    for word in reversed(words[:-1]):
        tree = Tree("X", (word, tree))
    return tree


def agreement(gold: list[Tree], annotator: Any) -> dict[str, Any]:
    sentences = annotator.annotate_words([leaves_of(tree) for tree in gold])
    start = time.perf_counter()
    found = [phrase_structure(sentence) for sentence in sentences]
    seconds = time.perf_counter() - start
    pairs = list(zip(found, gold, strict=True))
    score = bracket_score(pairs)
    branching = [(right_branching(leaves_of(tree)), tree) for tree in gold]
    return {
        "trees": len(gold),
        "f1": round(100 * score.f1, 2),
        "precision": round(100 * score.precision, 2),
        "recall": round(100 * score.recall, 2),
        "f1_without_punctuation": round(100 * bracket_score(pairs, punctuation=False).f1, 2),
        "right_branching_f1": round(100 * bracket_score(branching).f1, 2),
        "right_branching_f1_without_punctuation": round(
            100 * bracket_score(branching, punctuation=False).f1, 2
        ),
        "words_per_sentence": round(sum(map(len, sentences)) / len(sentences), 1),
        "conversion_sentences_per_s": round(len(sentences) / seconds),
    }


def run(data: Path = DATA, split: str = "held_out", annotator: str = "en") -> dict[str, Any]:
    parser = load_annotator(annotator)
    return {
        f"penn_{split}": agreement(penn_trees(data, split), parser),
        "snli": agreement(snli_trees(data), parser),
    }


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--split", choices=("held_out", "development"), default="held_out")
    arguments.add_argument("--annotator", default="en")
    given = arguments.parse_args()
    print(json.dumps(run(split=given.split, annotator=given.annotator), indent=2))
