"""Speed of aligning pieces with words and of the factors that they inherit, on one core.

Run: OMP_NUM_THREADS=1 python benchmarks/alignment.py

Multi30k's English training lines if they are there (SYNTAXFORMER_DATA, by default ../shared/data), else lines
made up here. Words are runs of letters or single other characters; the tags are arbitrary.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timing import best_seconds
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from syntaxformer.syntax import (
    WordColumns,
    batch_word_of_piece,
    build_vocabularies,
    encoding_offsets,
    piece_factors,
    subword_codes,
)
from syntaxformer.trees import Sentence

DATA = Path(os.environ.get("SYNTAXFORMER_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
FACTORS = ("pos", "case", "subword", "predicate", "deprel", "depth")


def read_lines() -> tuple[str, list[str]]:
    path = DATA / "multi30k" / "train.en.gz"
    if path.is_file():
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return "multi30k train.en", file.read().splitlines()
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlucmfw", k=rng.randint(1, 9))) for _ in range(8_000)]
    return "synthetic", [" ".join(rng.choices(words, k=rng.randint(5, 20))) + "." for _ in range(29_000)]


def annotate(line: str) -> Sentence:
    spans = tuple(match.span() for match in re.finditer(r"\w+|[^\w\s]", line))
    words = tuple(line[start:end] for start, end in spans)
    tags = tuple(("NOUN", "VERB", "DET", "ADP", "PUNCT")[len(word) % 5] for word in words)
    governors = tuple((place - 1) // 2 if place else -1 for place in range(len(words)))
    return Sentence(line, words, spans, upos=tags, governors=governors, deprels=tuple(map(str.lower, tags)))


def train_bpe(lines: list[str], vocab_size: int = 8_000) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("isolated")]
    )
    bytes_ = [f"<0x{number:02X}>" for number in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<unk>", *bytes_], show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def run() -> dict[str, Any]:
    """Pieces per second, best of five passes over the whole corpus.

    Returns:
        `pieces_per_s` from `Encoding` objects to the word of every piece; its two parts `offsets_per_s` and
        `numpy_per_s`; `subword_per_s`; `factors_per_s`, all six factors from words of pieces to ids.
    """
    name, lines = read_lines()
    encodings = train_bpe(lines).encode_batch(lines)
    columns = WordColumns.from_sentences([annotate(line) for line in lines])
    offsets, splits = encoding_offsets(encodings)
    word_offsets = columns.offsets
    owners = batch_word_of_piece(offsets, splits, word_offsets, columns.row_splits)
    vocabularies = build_vocabularies([columns], FACTORS)
    jobs: dict[str, Callable[[], Any]] = {
        "pieces_per_s": lambda: batch_word_of_piece(
            *encoding_offsets(encodings), word_offsets, columns.row_splits
        ),
        "offsets_per_s": lambda: encoding_offsets(encodings),
        "numpy_per_s": lambda: batch_word_of_piece(offsets, splits, word_offsets, columns.row_splits),
        "subword_per_s": lambda: subword_codes(owners, splits),
        "factors_per_s": lambda: piece_factors(columns, owners, splits, vocabularies),
    }
    n_pieces = len(offsets)
    return {
        "corpus": name,
        "lines": len(lines),
        "words": columns.n_words,
        "pieces": n_pieces,
        **{job: round(n_pieces / best_seconds(work)) for job, work in jobs.items()},
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
