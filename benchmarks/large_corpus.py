"""Training on millions of pairs: peak memory, time to the first update, updates a second, from pairs on disk.

Pairs are drawn from a real corpus of short sentences: `--distinct` of its lines, over and over in new orders,
so that annotating them takes minutes and not hours. All else is what `syntaxformer train` does: text,
subwords, annotation and pairs of `--pairs` lines go through the cache, and a process of its own trains.

python benchmarks/large_corpus.py FOLDER SRC.gz TGT.gz [--pairs 10000000] [--distinct 100000]
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np


def write_corpus(folder: Path, sources: tuple[Path, Path], n_pairs: int, n_distinct: int) -> None:
    """`train.en`, `train.de` of so many pairs, and 200 for `dev`."""
    from syntaxformer.base.files import read_lines

    random = np.random.default_rng(1)
    pairs = [pair for pair in zip(*map(read_lines, sources), strict=True) if all(map(str.strip, pair))]
    pairs = pairs[-n_distinct - 200 :]
    dev, train = pairs[:200], pairs[200:]
    folder.mkdir(parents=True, exist_ok=True)
    for side, ending in enumerate(("en", "de")):
        (folder / f"dev.{ending}").write_text("".join(f"{pair[side]}\n" for pair in dev), "utf-8")
    with (folder / "train.en").open("w") as src, (folder / "train.de").open("w") as tgt:
        for start in range(0, n_pairs, len(train)):
            order = random.permutation(len(train))[: n_pairs - start]
            src.writelines(f"{train[row][0]}\n" for row in order)
            tgt.writelines(f"{train[row][1]}\n" for row in order)


def annotate_by_repetition(folder: Path) -> float:
    """Put the annotation of `train.en` where `annotate_cached` looks; distinct lines are annotated once.

    Returns:
        The seconds that annotating them took.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from syntaxformer.annotate import annotate_cached, load_annotator
    from syntaxformer.annotate.annotator import hash_lines
    from syntaxformer.annotate.shards import SourceLines
    from syntaxformer.annotate.store import cache_path

    cache, lines, annotator = folder / "cache", SourceLines(str(folder / "train.en")), load_annotator("en")
    distinct = list(dict.fromkeys(lines))
    start = time.monotonic()
    corpus = annotate_cached(distinct, annotator, cache, progress=False)
    seconds = time.monotonic() - start
    table = pq.read_table(corpus.path)
    number = {line: row for row, line in enumerate(distinct)}
    content_hash = hash_lines(lines)
    header = asdict(corpus.header)
    n_words = np.diff(corpus.columns().row_offsets)
    rows = np.fromiter((number[line] for line in lines), np.int32)
    header |= {"content_hash": content_hash, "n_lines": len(rows), "n_words": int(n_words[rows].sum())}
    target = cache_path(cache, annotator, content_hash)
    metadata = {**(table.schema.metadata or {}), b"syntaxformer": json.dumps(header).encode()}
    with pq.ParquetWriter(
        target, table.schema.with_metadata(metadata), compression="zstd", write_page_checksum=True
    ) as writer:
        for first in range(0, len(rows), 65_536):
            writer.write_table(table.take(pa.array(rows[first : first + 65_536])), row_group_size=4096)
    return seconds


def encode_by_repetition(n_distinct: int) -> None:
    """Encode the first lines, among which all distinct ones are, and take the others from them."""
    from syntaxformer.translation.batches import EncodedPairs
    from syntaxformer.translation.prepare import PairEncoding

    real = PairEncoding.chunks

    def chunks(pairs: PairEncoding) -> Iterator[EncodedPairs]:
        text, first = pairs.text, pairs.text.select(range(n_distinct))
        PairEncoding.chunks = real
        distinct = replace(pairs, text=first, max_pieces=None).in_memory()
        src, tgt = distinct.src, distinct.tgt
        number = {pair: row for row, pair in enumerate(zip(first.src, first.tgt, strict=True))}
        for start in range(0, len(text), 10_000):
            lines = (text.src[start : start + 10_000], text.tgt[start : start + 10_000])
            rows = np.array([number[pair] for pair in zip(*lines, strict=True)])
            yield EncodedPairs(src.select(rows), tgt.select(rows))

    PairEncoding.chunks = chunks


def train(folder: Path, kind: str, updates: int) -> None:
    """In a process of its own: train and print what it took."""
    from transformers import TrainerCallback

    from syntaxformer.translation import training as translation
    from syntaxformer.translation.recipe import Recipe

    start, first = time.monotonic(), []

    class FirstUpdate(TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            first.append(time.monotonic())

    class Trainer(translation.SyntaxTrainer):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)
            self.add_callback(FirstUpdate())

    translation.SyntaxTrainer = Trainer
    recipe = Recipe.model_validate(
        {
            "output": folder / "run",
            "data": {"dir": folder, "cache": folder / "cache", "max_pieces": 128, "on_disk": True},
            "subwords": {"vocab_size": 8000},
            "infusion": {"kind": kind},
            "model": {"d_model": 256, "d_ff": 512, "n_heads": 4, "encoder_layers": 3, "decoder_layers": 3},
            "training": {"max_steps": updates, "max_batch_tokens": 2048, "eval_every": updates},
        }
    )
    translation.train_translator(recipe, overwrite=True)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(
        json.dumps(
            {
                "first_update_s": round(first[0] - start, 1),
                "updates_per_s": round((len(first) - 1) / (first[-1] - first[0]), 2),
                "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "anonymous_mb_at_end": int(status["RssAnon"].split()[0]) // 1024,
                "all_s": round(time.monotonic() - start, 1),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sources", type=Path, nargs="*")
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--distinct", type=int, default=100_000)
    parser.add_argument("--kind", default="sum_then_concat")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument(
        "--corpus-only", action="store_true", help="write and annotate the corpus, no training"
    )
    parser.add_argument("--train-only", action="store_true", help="the corpus and its annotation are there")
    parser.add_argument("--repeat-encoded", action="store_true", help="encode distinct lines only")
    arguments = parser.parse_args()
    if arguments.repeat_encoded:
        encode_by_repetition(arguments.distinct)
    if arguments.train_only:
        train(arguments.folder, arguments.kind, arguments.updates)
        return
    shutil.rmtree(arguments.folder, ignore_errors=True)
    write_corpus(arguments.folder, tuple(arguments.sources), arguments.pairs, arguments.distinct)
    print(json.dumps({"annotation_of_distinct_lines_s": round(annotate_by_repetition(arguments.folder), 1)}))
    if arguments.corpus_only:
        return
    for _ in ("subwords, pairs, training", "training from the cache"):
        command = [sys.executable, __file__, str(arguments.folder), "--kind", arguments.kind, "--train-only"]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
