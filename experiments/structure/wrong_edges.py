"""Copies of gold trees in which a share of the words hang on a wrong word: parses of a known accuracy.

    python experiments/structure/wrong_edges.py runs/structure/question runs/structure/wrong_20 --share 0.2

A word is drawn with the probability `--share`, and then hangs on a word that is drawn among those that keep
the sentence a tree, its right governor excepted. Roots stay, and so do tags and relation labels. Phrases are
left out, since they follow from the tree that is read (`conllu:PATH+phrases`).
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from pathlib import Path

from syntaxformer.trees import ROOT, Sentence
from syntaxformer.trees.conllu import read_conllu, write_conllu


def descendants(governors: list[int], word: int) -> set[int]:
    """The word and all that hang on it."""
    members, size = {word}, 0
    while len(members) > size:
        size = len(members)
        members |= {child for child, governor in enumerate(governors) if governor in members}
    return members


def with_wrong_edges(sentence: Sentence, share: float, draw: random.Random) -> Sentence:
    """The sentence without phrases, and with each governor wrong by the probability `share`."""
    governors = list(sentence.governors or ())
    for word, governor in enumerate(tuple(governors)):
        if governor != ROOT and draw.random() < share:
            allowed = set(range(len(governors))) - descendants(governors, word) - {governor}
            if allowed:
                governors[word] = draw.choice(sorted(allowed))
    return replace(sentence, governors=tuple(governors), constituency=None)


def main() -> None:
    """Write each CoNLL-U file of a folder again, and print the share of right governors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("gold", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--share", type=float, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(options.gold.glob("*.conllu")):
        draw, right = random.Random(f"{options.seed} {path.name}"), list(read_conllu(path))
        wrong = [with_wrong_edges(sentence, options.share, draw) for sentence in right]
        write_conllu(options.folder / path.name, wrong)
        pairs = [
            pair
            for a, b in zip(right, wrong, strict=True)
            for pair in zip(a.governors, b.governors, strict=True)
        ]
        same = sum(governor == other for governor, other in pairs)
        print(f"{path.name}: {same / len(pairs):.1%} of {len(pairs)} governors are right")


if __name__ == "__main__":
    main()
