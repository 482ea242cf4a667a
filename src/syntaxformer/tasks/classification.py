"""Fine-tuning a pretrained encoder for a task: the steps in order, from labelled text to a model folder."""

from __future__ import annotations

import json
import logging
import platform
import shutil
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel, set_seed
from transformers.utils import logging as hf_logging

from syntaxformer.data.nlu_collator import SyntaxCollator, SyntaxExample
from syntaxformer.evaluation.classification import score_predictions
from syntaxformer.folders import PARTIAL, disk_errors, read_json, write_manifest
from syntaxformer.models import infusion_parameters
from syntaxformer.tasks.annotated_examples import (
    annotate_examples,
    annotator_name,
    load_for,
    needed_columns,
)
from syntaxformer.tasks.classifier_folder import CLASSIFIER, ClassifierInfo
from syntaxformer.tasks.finetune_data import FinetuneData, read_finetune_data
from syntaxformer.tasks.pretrained import load_pretrained, load_tokenizer
from syntaxformer.tasks.run_folder import check_run, open_run
from syntaxformer.tasks.text_sets import TextSet, hash_examples
from syntaxformer.training.checkpoints import WEIGHTS, complete_checkpoints, load_tensors
from syntaxformer.training.finetune_config import FinetuneConfig
from syntaxformer.training.finetune_trainer import FinetuneTrainer
from syntaxformer.training.logits import batch_logits, decide
from syntaxformer.training.trainer import load_weights, pick_precision

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator

__all__ = ["finetune"]

_log = logging.getLogger("syntaxformer.finetune")

PACKAGES = ("syntaxformer", "torch", "transformers", "tokenizers", "spacy", "scikit-learn", "scipy")
TRIAL = "trial.json"
"""Result of one learning rate, beside its checkpoints; there is one when it is finished."""


@dataclass(frozen=True)
class _Prepared:
    """Everything that the trials of a run share."""

    data: FinetuneData
    train: list[SyntaxExample]
    dev: list[SyntaxExample]
    lengths: list[int]
    collator: SyntaxCollator
    info: ClassifierInfo
    n_truncated: dict[str, int]


@dataclass(frozen=True)
class _Trial:
    """What came of one learning rate."""

    rate: float
    score: float
    checkpoint: Path
    epochs: list[dict[str, float]]


def finetune(config: FinetuneConfig, resume: bool = False, overwrite: bool = False) -> Path:
    """Fine-tune a checkpoint and write a model folder.

    Args:
        config: Settings.
        resume: Go on from the last complete checkpoint of an interrupted run.
        overwrite: Delete an older run in the output folder.

    Returns:
        The output folder.

    Raises:
        ConfigError: The output folder holds another run, the checkpoint cannot be read or infused, a file is
            missing, or outputs are not finite.
        DataError: The data cannot be used, or the disk is full.
        BackendMissingError: The annotator is not installed.
    """
    start = time.monotonic()
    hf_logging.disable_progress_bar()
    check_run(config, resume, overwrite)
    prepared = _prepare(config)
    _log.info("%s", _describe(config, prepared, _build(config, prepared)))
    open_run(config, resume, overwrite)
    trials = [_try_rate(config, prepared, rate) for rate in config.training.rates]
    best = max(trials, key=lambda trial: trial.score)
    model = _build(config, prepared)
    load_weights(model, load_tensors(best.checkpoint / WEIGHTS), best.checkpoint)
    scores = _final_scores(model, prepared)
    _write(config, prepared, model, _report(config, prepared, trials, best, scores, start))
    _log.info("%s: %s", config.output, _shown(scores))
    return config.output


def _prepare(config: FinetuneConfig) -> _Prepared:
    """Read, parse and measure the data; writes nothing but the annotation cache."""
    tokenizer = load_tokenizer(config.model)
    data = read_finetune_data(config)
    needed = needed_columns(config.infusion)
    trees = "constituency" in needed and config.annotation.gold_trees
    use_trees = trees and data.train.has_trees and data.dev.has_trees
    annotator = load_for(annotator_name(needed, config.annotation.annotator), needed)
    parsing = annotator, use_trees, config.data.cache, config.annotation.processes
    train, dev = (annotate_examples(texts.examples, *parsing) for texts in (data.train, data.dev))
    collator = SyntaxCollator(tokenizer, config.infusion, max_length=config.training.max_length)
    lengths = {texts.name: _piece_lengths(tokenizer, texts) for texts in (data.train, data.dev)}
    n_truncated = {
        name: sum(length > config.training.max_length for length in found) for name, found in lengths.items()
    }
    for texts in (data.train, data.dev):
        if n_truncated[texts.name]:
            _log.warning(
                "%s: %d of %d examples are longer than %d pieces and are cut (longest: %d). Raise "
                "training.max_length to keep more of them.",
                *(texts.source, n_truncated[texts.name], len(texts)),
                *(config.training.max_length, max(lengths[texts.name])),
            )
    info = _info(config, data, needed, annotator, use_trees)
    cut = [min(length, config.training.max_length) for length in lengths[data.train.name]]
    return _Prepared(data, train, dev, cut, collator, info, n_truncated)


def _piece_lengths(tokenizer: Any, texts: TextSet) -> list[int]:
    """Pieces of each example, uncut."""
    firsts = [one.texts[0] for one in texts.examples]
    seconds = [one.texts[1] for one in texts.examples] if len(texts.examples[0].texts) > 1 else None
    encoded = tokenizer(firsts, seconds, add_special_tokens=True, verbose=False)
    return [len(pieces) for pieces in encoded["input_ids"]]


def _info(
    config: FinetuneConfig,
    data: FinetuneData,
    needed: frozenset[str],
    annotator: Annotator | None,
    use_trees: bool,
) -> ClassifierInfo:
    return ClassifierInfo(
        task=data.task.name,
        labels=data.task.labels,
        metrics=data.task.metrics,
        n_texts=len(data.task.texts),
        score_range=data.task.score_range,
        annotator=None if annotator is None else annotator.name,
        annotator_version=None if annotator is None else annotator.version,
        needs=tuple(sorted(needed)),
        gold_trees=use_trees,
        text_column=data.columns.text,
        text_pair_column=data.columns.pair,
        label_column=data.columns.label,
        eval_batch_size=config.training.eval_batch_size,
    )


def _build(config: FinetuneConfig, prepared: _Prepared) -> PreTrainedModel:
    """The network before training; its head and new parameters depend on the seed alone."""
    set_seed(config.seed)
    infusion = config.infusion.model_copy(update={"seed": config.infusion.seed or config.seed})
    return load_pretrained(config.model, prepared.info.labels, infusion)


def _try_rate(config: FinetuneConfig, prepared: _Prepared, rate: float) -> _Trial:
    """Train with one learning rate, or take up what an interrupted run left."""
    folder = config.output / "checkpoints" / f"{rate:g}"
    if (folder / TRIAL).exists():
        stored = read_json(folder / TRIAL)
        return _Trial(rate, stored["score"], folder / stored["checkpoint"], stored["epochs"])
    model = _build(config, prepared)

    def evaluate_dev(trained: PreTrainedModel) -> dict[str, float]:
        scores = _scores(trained, prepared)
        return {**scores, "score": scores.get("mean", next(iter(scores.values())))}

    trainer = FinetuneTrainer(
        model,
        config.training,
        rate,
        [name for name, _ in infusion_parameters(model)],
        prepared.train,
        prepared.lengths,
        prepared.collator,
        evaluate_dev,
        folder,
        config.seed,
    )
    whole, problems = complete_checkpoints(folder)
    for problem in problems:
        _log.warning("skipping a checkpoint: %s", problem)
    trainer.train_from(whole[-1] if whole else None)
    state = trainer.state
    checkpoint = f"checkpoint-{state.best_global_step}"
    epochs = [
        {key.removeprefix("eval_"): value for key, value in log.items()}
        for log in state.log_history
        if "eval_score" in log
    ]
    result = {"score": state.best_metric, "checkpoint": checkpoint, "epochs": epochs}
    (folder / TRIAL).write_text(json.dumps(result), "utf-8")
    return _Trial(rate, float(state.best_metric or 0.0), folder / checkpoint, epochs)


def _scores(model: PreTrainedModel, prepared: _Prepared) -> dict[str, float]:
    """Official metrics on dev."""
    logits = batch_logits(model, prepared.collator, prepared.dev, prepared.info.eval_batch_size)
    found = decide(logits, prepared.info.score_range)
    gold = [float(one.label or 0) for one in prepared.data.dev.examples]
    return score_predictions(prepared.info.metrics, gold, found)


def _final_scores(model: PreTrainedModel, prepared: _Prepared) -> dict[str, float]:
    """Scores of the model as it is saved and as `predict` computes: fp32."""
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    return _scores(model, prepared)


def _describe(config: FinetuneConfig, prepared: _Prepared, model: PreTrainedModel) -> str:
    """What is about to be trained."""
    new = {name for name, _ in infusion_parameters(model)}
    n_new = sum(parameter.numel() for name, parameter in model.named_parameters() if name in new)
    n_all = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"{prepared.data.task.title}: {len(prepared.train)} training and {len(prepared.dev)} dev examples; "
        f"{model.config.model_type}, {n_all / 1e6:.2f}M parameters, {n_new / 1e6:.3f}M of them new; "
        f"annotator {prepared.info.annotator or 'none'}"
        f"{', own trees' if prepared.info.gold_trees else ''}; "
        f"learning rates {', '.join(f'{rate:g}' for rate in config.training.rates)}"
    )


def _report(
    config: FinetuneConfig,
    prepared: _Prepared,
    trials: list[_Trial],
    best: _Trial,
    scores: dict[str, float],
    start: float,
) -> dict[str, Any]:
    """Content of `run.json`."""
    data = prepared.data
    return {
        "task": data.task.name,
        "dev": {name: round(value, 6) for name, value in scores.items()},
        "learning_rate": best.rate,
        "best_checkpoint": best.checkpoint.name,
        "seconds_per_epoch": [round(epoch["epoch_seconds"], 2) for epoch in best.epochs],
        "trials": [
            {"learning_rate": trial.rate, "score": trial.score, "epochs": trial.epochs} for trial in trials
        ],
        "seconds": round(time.monotonic() - start, 1),
        "n_train": len(data.train),
        "n_dev": len(data.dev),
        "n_truncated": prepared.n_truncated,
        "left_out": {"train": data.train.left_out, "dev": data.dev.left_out},
        "data": {"train": data.train.source, "dev": data.dev.source},
        "data_sha256": {
            "train": hash_examples(data.train.examples),
            "dev": hash_examples(data.dev.examples),
        },
        "seed": config.seed,
        "precision": pick_precision(config.training.precision),
        "command": sys.argv,
        "versions": {name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "processor": platform.processor() or platform.machine(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "threads": torch.get_num_threads(),
    }


def _write(
    config: FinetuneConfig, prepared: _Prepared, model: PreTrainedModel, report: dict[str, Any]
) -> None:
    """Write the model folder; the manifest comes last."""
    output = config.output
    with disk_errors(output), TemporaryDirectory(PARTIAL, ".", output) as temporary:
        folder = Path(temporary)
        model.eval().save_pretrained(folder)
        prepared.collator.save_pretrained(folder)
        (folder / CLASSIFIER).write_text(prepared.info.model_dump_json(indent=1), "utf-8")
        (folder / "run.json").write_text(json.dumps(report, indent=1), "utf-8")
        for file in folder.iterdir():
            file.chmod(0o644)  # safetensors writes for the owner alone
            file.replace(output / file.name)
        write_manifest(output)
        if not config.training.keep_checkpoints:
            shutil.rmtree(output / "checkpoints", ignore_errors=True)


def _shown(scores: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
