"""Words a second of an annotator against its own spaCy pipeline run bare, on the same lines.

    python benchmarks/annotation.py [TEXT_FILE] [--annotator en] [--lines 2000] [--rounds 5]

Both run in one process and one thread, in turns, with the same components and batch size; medians are
compared. Writing to Parquet is timed apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import timeit
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from timing import turns

from syntaxformer.annotate import load_annotator, write_annotations
from syntaxformer.annotate.backends.spacy import BATCH_SIZE, SpacyParser
from syntaxformer.base.files import read_lines

_SENTENCES = (
    "A man in a blue shirt is standing on a ladder cleaning a window.",
    "Two young guys with shaggy hair look at their hands while hanging out in the yard.",
    "John slipped in front of anyone who was there, but nobody laughed.",
    "The little girl climbs into a wooden playhouse; her brother waits outside.",
)


def annotation_speed(lines: list[str], annotator: str = "en", rounds: int = 5) -> dict[str, Any]:
    """Measure an annotator against its bare pipeline.

    Args:
        lines: Text, a line each.
        annotator: A bundled language or "spacy:NAME".
        rounds: Times that each is run.

    Returns:
        Words a second of both (medians), their ratio, and the share of the time that writing adds.
    """
    loaded = load_annotator(annotator)
    if not isinstance(getattr(loaded, "parser", None), SpacyParser):
        raise ValueError(f"annotator: expected one that runs spaCy, got {annotator!r}.")

    def bare() -> None:
        for _ in loaded.parser.nlp.pipe(lines, batch_size=BATCH_SIZE):
            pass

    works = {"bare": bare, "ours": partial(loaded.annotate, lines)}
    seconds = turns(works, rounds, time.perf_counter)
    sentences = loaded.annotate(lines)
    n_words = sum(map(len, sentences))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "annotator": f"{loaded.name} {loaded.version}",
        "lines": len(lines),
        "words": n_words,
        "bare_words_per_s": round(n_words / medians["bare"]),
        "words_per_s": round(n_words / medians["ours"]),
        "ratio": round(medians["bare"] / medians["ours"], 3),
        "writing_share": round(_time_writing(sentences) / medians["ours"], 3),
    }


def sample_lines(path: str | None, n_lines: int) -> list[str]:
    """Return lines of a file, or of four sentences over and over."""
    if path:
        return list(islice(read_lines(path), n_lines))
    return [_SENTENCES[number % len(_SENTENCES)] for number in range(n_lines)]


def _time_writing(sentences: list[Any]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        about = {"annotator": "benchmark", "version": "0", "content_hash": ""}
        write_annotations(path, sentences[:1], **about)  # the first write loads Arrow's compute kernels
        return timeit.timeit(lambda: write_annotations(path, sentences, **about), number=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", help="text, plain or .gz")
    parser.add_argument("--annotator", default="en")
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    lines = sample_lines(options.file, options.lines)
    print(json.dumps(annotation_speed(lines, options.annotator, options.rounds), indent=2))


if __name__ == "__main__":
    main()
