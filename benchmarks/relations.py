"""Speed of building relation matrices of 25-word sentences, on one core.

Run: OMP_NUM_THREADS=1 python benchmarks/relations.py

The first 2,000 English EWT training sentences of 23 to 27 words if they are there (SYNTAXFORMER_DATA, by
default ../shared/data), else random trees. The constituency tree is the one that the governors span: a
phrase for each word that governs others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import best_seconds

from syntaxformer.syntax import (
    PhraseColumns,
    WordTrees,
    batch_dependency_relations,
    piece_relations,
    word_relations,
)
from syntaxformer.syntax.relations import batch_constituency_relations, phrase_columns
from syntaxformer.trees import Tree, children_of, projective_governors, read_conllu

DATA = Path(os.environ.get("SYNTAXFORMER_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
N_SENTENCES, SHORTEST, LONGEST, BATCH = 2_000, 23, 27, 64


def read_governors() -> tuple[str, list[tuple[int, ...]]]:
    for path in sorted(DATA.glob("ud/**/en_ewt-ud-train.conllu*")):
        rows = (sentence.governors for sentence in read_conllu(path))
        sized = (row for row in rows if row and SHORTEST <= len(row) <= LONGEST)
        fitting = [row for row in sized if projective_governors(row) == row]
        return "UD English EWT train, projective", fitting[:N_SENTENCES]
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(N_SENTENCES):
        n_words = int(rng.integers(SHORTEST, LONGEST + 1))
        rows.append((-1, *(int(rng.integers(max(0, word - 3), word)) for word in range(1, n_words))))
    return "random trees", rows


def phrases_of(governors: tuple[int, ...]) -> PhraseColumns:
    children = children_of(governors)

    def phrase(word: int) -> tuple[int, Tree | str]:
        if not children[word]:
            return word, f"w{word}"
        parts = sorted([(word, f"w{word}"), *map(phrase, children[word])], key=lambda part: part[0])
        return word, Tree("X", tuple(part for _, part in parts))

    roots = [phrase(word)[1] for word, governor in enumerate(governors) if governor == -1]
    return phrase_columns(Tree("S", tuple(roots)), governors)


def run() -> dict[str, Any]:
    """Sentences per second, best of five passes, in batches of 64 as a collator sees them.

    Returns:
        `sentences_per_s`, both trees from stored integers to padded `[batch, 2, words, words]`;
        `with_pieces_per_s`, carried on to as many pieces as 1.3 a word; and each kind of tree by itself.
    """
    name, rows = read_governors()
    examples = [WordTrees.of_sentence(len(row), row, phrases_of(row)) for row in rows]
    batches = [examples[start : start + BATCH] for start in range(0, len(examples), BATCH)]
    rng = np.random.default_rng(1)
    pieces = [
        np.sort(rng.integers(0, SHORTEST, (len(batch), round(1.3 * LONGEST))), axis=1) for batch in batches
    ]
    padded = [_padded(batch) for batch in batches]
    jobs: dict[str, Callable[[], Any]] = {
        "sentences_per_s": lambda: [word_relations(batch) for batch in batches],
        "with_pieces_per_s": lambda: [
            piece_relations(word_relations(batch), words, np.zeros(len(batch)))
            for batch, words in zip(batches, pieces, strict=True)
        ],
        "dependency_per_s": lambda: [batch_dependency_relations(arrays[0], arrays[-1]) for arrays in padded],
        "constituency_per_s": lambda: [batch_constituency_relations(*arrays[1:]) for arrays in padded],
    }
    return {
        "trees": name,
        "sentences": len(rows),
        "words_per_sentence": round(sum(map(len, rows)) / len(rows), 1),
        **{job: round(len(rows) / best_seconds(work)) for job, work in jobs.items()},
    }


def _padded(batch: list[WordTrees]) -> tuple[np.ndarray, ...]:
    arrays = [np.zeros((len(batch), LONGEST), np.int64) for _ in range(4)]
    for row, trees in enumerate(batch):
        phrases = trees.phrases
        columns = (trees.governors, phrases.word_depths, phrases.gap_depths, phrases.gap_heads)
        for array, column in zip(arrays, columns, strict=True):
            array[row, : len(trees)] = column
    return (*arrays, np.array([len(trees) for trees in batch]))


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
