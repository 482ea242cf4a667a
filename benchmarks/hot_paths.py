"""Where the time of each hot path goes, stage by stage: annotation, a batch of training, translation.

    OMP_NUM_THREADS=1 python benchmarks/hot_paths.py [--data DIR] [--model FOLDER ...]

Sentences are Multi30k's. Stages run over all lines before the next begins, so shares are exact, and what
runs side by side in use (translation tags while it decodes) is not. `--model` takes folders that `train` or
`export` wrote, trained well enough to end their sentences; without any, translation is left out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import training
from timing import best_seconds

from syntaxformer.annotate import load_annotator, write_annotations
from syntaxformer.annotate.annotator import join_parsed
from syntaxformer.annotate.backends.spacy import BATCH_SIZE, DocReader, SpacyParser
from syntaxformer.base.files import read_lines
from syntaxformer.runs.processes import pick_precision
from syntaxformer.syntax import SyntaxInputs, TreeOptions, WordColumns, build_vocabularies
from syntaxformer.translation.batches import TokenBudgetBatches
from syntaxformer.translation.decoding import Search
from syntaxformer.translation.source import SourceEncoder, source_batch
from syntaxformer.translation.subwords import SubwordConfig, train_subwords
from syntaxformer.translation.translator import Translator

FACTORS = ["pos", "case", "subword"]
BATCH_PIECES = 2048
UPDATES = 16


class Stages:
    """Seconds of stages that follow one another."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        """Do the work of a stage and keep its time."""
        start = time.perf_counter()
        result = work()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        return result


def annotation(lines: list[str]) -> dict[str, float]:
    """Seconds of each component of the bundled pipeline, of reading its documents, of writing them."""
    annotator = load_annotator("en")
    assert isinstance(annotator.parser, SpacyParser)
    annotator.annotate(lines[:BATCH_SIZE])
    stages, nlp = Stages(), annotator.parser.nlp
    reader = DocReader(nlp.vocab.strings, annotator.provides)
    with nlp.memory_zone():
        docs = stages("split into words", lambda: [nlp.make_doc(line) for line in lines])
        for name, component in nlp.pipeline:
            docs = stages(name, partial(_through, component, docs))
        sentences = stages(
            "make sentences",
            lambda: [
                join_parsed(line, [reader.read(doc, line)], annotator.provides)
                for line, doc in zip(lines, docs, strict=True)
            ],
        )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "annotated.parquet"
        stages(
            "write Parquet",
            lambda: write_annotations(out, sentences, annotator="en", version="", content_hash=""),
        )
    return stages.seconds


def _through(component: Any, docs: list[Any]) -> list[Any]:
    return list(component.pipe(docs, batch_size=BATCH_SIZE))


def training_batch(lines: list[str], data: Path | None) -> dict[str, float]:
    """Seconds of one update, and of what prepares a batch for it."""
    sentences = load_annotator("en+phrases").annotate(lines)
    words = WordColumns.from_sentences(sentences)
    encoder = SourceEncoder(
        train_subwords(lines, SubwordConfig(vocab_size=4000)),
        build_vocabularies([words], FACTORS),
        syntax=SyntaxInputs(trees=TreeOptions()),
    )
    stages = Stages()
    text = stages("encode the lines", lambda: encoder.encode(lines, words))
    lengths = text.lengths
    batches = list(TokenBudgetBatches(lengths, lengths, BATCH_PIECES, seed=1))
    assert text.syntax is not None
    trees, splits, plain = text.syntax, text.splits, replace(text, syntax=None)
    pairs = training.pairs_like_multi30k(data)
    precision = pick_precision("auto")
    updates = training.seconds_of_ours(pairs, training.WARM_UP + UPDATES, precision) / UPDATES
    n_batches = len(batches)
    return {
        "order of batches": best_seconds(
            lambda: list(TokenBudgetBatches(lengths, lengths, BATCH_PIECES, seed=1))
        )
        / n_batches,
        "pad pieces and factors": best_seconds(lambda: [source_batch(plain, rows, 0) for rows in batches])
        / n_batches,
        "relations of both trees": best_seconds(lambda: [trees.batch(rows, splits) for rows in batches])
        / n_batches,
        f"forward, backward, update ({precision})": updates,
    }


def translation(folder: Path, lines: list[str]) -> dict[str, float]:
    """Seconds of tagging, of pieces and factors, of beam search, and of text out of pieces."""
    translator = Translator.load(folder)
    list(translator.translate(lines[:64]))
    stages, search = Stages(), Search(**translator.info.decoding.model_dump())
    annotator = translator.annotator
    words = None
    if annotator is not None:
        words = stages("tag", lambda: WordColumns.from_sentences(annotator.annotate(lines)))
    source = stages("pieces and factors", lambda: translator.encoder.encode(lines, words))
    order = range(len(lines))
    found = stages("beam search", lambda: translator.decoder.decode(source, order, search))
    stages("text", lambda: translator.encoder.target_tokenizer.batch_decode([one[0].pieces for one in found]))
    return stages.seconds


def table(title: str, seconds: dict[str, float], per: int, unit: str) -> str:
    """Rows of microseconds a unit, and shares."""
    total = sum(seconds.values())
    rows = [f"{title}: {1e6 * total / per:,.0f} µs a {unit}"]
    rows += [
        f"  {name:<36}{1e6 * value / per:>12,.0f} {value / total:>8.1%}" for name, value in seconds.items()
    ]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", type=Path, action="append", default=[])
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--json", type=Path, help="also write the seconds here")
    arguments = parser.parse_args()
    multi30k = arguments.data / "multi30k"
    lines = list(read_lines(multi30k / "train.en.gz"))[: arguments.lines]
    test = list(read_lines(multi30k / "test2016.en.gz"))
    results = {
        "annotation": (annotation(lines), len(lines), "line"),
        "training": (training_batch(lines, arguments.data), 1, "batch"),
        **{
            f"translation by {folder.name}": (translation(folder, test), len(test), "line")
            for folder in arguments.model
        },
    }
    for name, (seconds, per, unit) in results.items():
        print(table(name, seconds, per, unit))
    if arguments.json:
        arguments.json.write_text(
            json.dumps({name: row[0] for name, row in results.items()}, indent=1), "utf-8"
        )


if __name__ == "__main__":
    main()
