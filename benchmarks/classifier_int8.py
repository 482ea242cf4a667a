"""A fine-tuned classifier exported in float32 and in eight bits: score on dev, and time on the same batches.

    OMP_NUM_THREADS=2 python benchmarks/classifier_int8.py runs/plain runs/masks --data glue/SST-2

Annotation is not timed. Times are medians of rounds in which both graphs read the same batches in turns.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from timing import turns

from syntaxformer.encoders.classifier import Classifier, annotate_examples
from syntaxformer.encoders.export_onnx import GRAPH, export_classifier
from syntaxformer.encoders.prediction import read_split_for

KINDS = ("float32", "int8")


def clocks():
    """Seconds of the processor and of the clock."""
    return np.array([time.process_time(), time.perf_counter()])


def read(network, batches):
    for batch in batches:
        network(**batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--data", required=True, help="folder of the task's files")
    parser.add_argument("--rounds", type=int, default=5)
    settings = parser.parse_args()
    for model in settings.models:
        with TemporaryDirectory() as home:
            folders = {kind: export_classifier(model, Path(home) / kind, quantization=kind) for kind in KINDS}
            classifiers = {kind: Classifier.from_folder(folder) for kind, folder in folders.items()}
            first = classifiers["float32"]
            _, texts = read_split_for(first.info, None, settings.data, "dev")
            unlabelled = [replace(example, label=None) for example in texts.examples]
            examples = annotate_examples(unlabelled, first.annotator, False)
            examples.sort(key=lambda example: -len(example.segments[0].text))
            answers = {kind: classifier.predict_set(texts) for kind, classifier in classifiers.items()}
            for kind, predictions in answers.items():
                size = (folders[kind] / GRAPH).stat().st_size / 2**20
                print(f"{model} {kind}: {size:.0f} MB, {first.score(texts, predictions)}", flush=True)
            pairs = zip(*(answers[kind].labels for kind in KINDS), strict=True)
            print(f"{sum(len({*pair}) > 1 for pair in pairs)} of {len(texts)} answers differ", flush=True)
            for size, n in ((32, len(examples)), (1, 200)):
                some = examples[:: len(examples) // n]
                batches = [first.collator(some[start : start + size]) for start in range(0, len(some), size)]
                works = {kind: partial(read, classifiers[kind].model, batches) for kind in KINDS}
                taken = turns(works, settings.rounds, clocks).values()
                medians = [np.median(seconds, axis=0) * 1000 / len(some) for seconds in taken]
                print(f"{size} at a time, {torch.get_num_threads()} threads; ms of the processor (clock):")
                for kind, values in zip(KINDS, medians, strict=True):
                    print(f"  {kind} {values[0]:.2f} ({values[1]:.2f})")
                ratio = medians[0] / medians[1]
                print(f"  {ratio[0]:.2f} ({ratio[1]:.2f}) times as fast", flush=True)


if __name__ == "__main__":
    main()
