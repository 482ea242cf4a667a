"""A classifier in PyTorch against its ONNX export: processor time on one thread, same batches, same run.

    HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 python benchmarks/classifier_export.py CHECKPOINT --data glue/CoLA

The checkpoint gets a random head and, with masks, random new parameters: time does not depend on them.
Parsing is not timed; it is the same for both. With --latency, whole calls of `predict` are timed instead,
from text to label: single texts and batches of 32, all four classifiers in turn, medians.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification

from syntaxformer import InfusionConfig, SyntaxCollator, SyntaxExample, infuse, load_annotator
from syntaxformer.base.files import write_manifest
from syntaxformer.encoders.classifier import Classifier, needed_columns
from syntaxformer.encoders.export_onnx import export_classifier
from syntaxformer.encoders.official_data import read_any_split
from syntaxformer.encoders.pretrained import load_tokenizer
from syntaxformer.encoders.tasks import ClassifierInfo, find_task
from syntaxformer.runs.loading import load_written

N_TEXTS, N_ROUNDS, LONG = 256, 3, 14


def make_folder(folder, checkpoint, infusion):
    """A classifier with random new parameters."""
    config = InfusionConfig.parse(infusion) if infusion else InfusionConfig()
    torch.manual_seed(1)
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()
    if infusion:
        infuse(model, config)
        with torch.no_grad():
            for parameter in model.infusion.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    SyntaxCollator(load_tokenizer(str(checkpoint), 128), config).save_pretrained(folder)
    needs = tuple(sorted(needed_columns(config)))
    info = ClassifierInfo(
        type="label",
        task="cola", labels=("0", "1"), metrics=("matthews",), n_texts=1, annotator="en+phrases",
        annotator_version=load_annotator("en+phrases").version, needs=needs,
    )  # fmt: skip
    (folder / "classifier.json").write_text(info.model_dump_json())
    write_manifest(folder)
    return folder


def batches_of(collator, texts):
    """Single sentences, batches of 32, one batch of eight long texts."""
    annotator = load_annotator("en+phrases")
    found = annotator.annotate(sorted(texts, key=len, reverse=True))
    joined = [" ".join(texts[start:stop]) for start, stop in pairwise(range(0, 9 * LONG, LONG))]
    make = {"1": [found[::4][place : place + 1] for place in range(64)]}
    make["32"] = [found[start : start + 32] for start in range(0, N_TEXTS, 32)]
    make["8 long"] = [annotator.annotate(joined)]
    return {
        name: [collator([SyntaxExample((one,)) for one in batch]) for batch in parts]
        for name, parts in make.items()
    }


@torch.inference_mode()
def measure(networks, parts):
    """Milliseconds a text of each network, the best of some rounds, and the largest difference of a logit."""
    best = dict.fromkeys(networks, float("inf"))
    n_texts = sum(len(one["input_ids"]) for one in parts)
    for _ in range(N_ROUNDS):
        for name, network in networks.items():
            start = time.process_time()
            for one in parts:
                network(**one)
            best[name] = min(best[name], (time.process_time() - start) * 1000 / n_texts)
    first, second = networks.values()
    return best, max(float((first(**one).logits - second(**one).logits).abs().max()) for one in parts)


def latency(classifiers, texts):
    """Medians of milliseconds a text, by the clock and of the processor; all classifiers in turn."""
    for size in (1, 32):
        found = {name: [] for name in classifiers}
        calls = [texts[start : start + size] for start in range(0, len(texts) if size > 1 else 64, size)]
        for batch in [calls[0], *calls]:  # the first call of each is thrown away
            for name, one in classifiers.items():
                start = time.perf_counter(), time.process_time()
                one.predict(batch)
                ends = time.perf_counter(), time.process_time()
                found[name].append(
                    [1000 * (end - begin) / size for begin, end in zip(start, ends, strict=True)]
                )
        for name, times in found.items():
            clock, processor = np.median(times[1:], axis=0)
            fast, slow = np.percentile([one for _, one in times[1:]], [10, 90])
            shown = (
                f"{clock:.1f} ms by the clock, {processor:.1f} of the processor ({fast:.1f} to {slow:.1f})"
            )
            print(f"  {name}, {size} at a time: {shown}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--data", required=True, help="folder of CoLA")
    parser.add_argument("--latency", action="store_true", help="time whole calls of predict")
    given = parser.parse_args()
    torch.set_num_threads(1)
    task = find_task("cola")
    texts = [one.texts[0] for one in read_any_split(task, given.data, "dev").examples][:N_TEXTS]
    if given.latency:
        with TemporaryDirectory() as home:
            classifiers = {}
            for infusion in ("", "masks"):
                folder = make_folder(Path(home) / f"model{infusion}", given.checkpoint, infusion)
                exported = export_classifier(folder, Path(home) / f"onnx{infusion}")
                name = infusion or "plain"
                classifiers |= {
                    name: Classifier.from_folder(folder),
                    f"{name}, ONNX": Classifier.from_folder(exported),
                }
            latency(classifiers, texts)
        return
    for infusion in ("", "masks"):
        with TemporaryDirectory() as home:
            start = time.process_time()
            folder = make_folder(Path(home) / "model", given.checkpoint, infusion)
            output = export_classifier(folder, Path(home) / "onnx")
            seconds = time.process_time() - start
            size = (output / "model.onnx").stat().st_size / 1e6
            print(f"{infusion or 'plain'}: export {seconds:.0f} s, {size:.0f} MB", flush=True)
            exported = Classifier.from_folder(output)
            networks = {"pytorch": load_written(folder, exported.task_type.loader), "onnx": exported.model}
            for name, parts in batches_of(exported.collator, texts).items():
                best, difference = measure(networks, parts)
                shown = ", ".join(f"{key} {value:.2f}" for key, value in best.items())
                length = parts[0]["input_ids"].shape[1]
                print(f"  batch {name} (to {length} pieces): ms a text {shown}; {difference:.1e}", flush=True)


if __name__ == "__main__":
    main()
