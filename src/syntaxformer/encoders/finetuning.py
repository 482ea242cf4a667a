"""Fine-tunes a pretrained encoder for a task: the steps in order, from labelled text to a model folder."""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Sampler
from transformers import PreTrainedModel, Trainer, set_seed

from syntaxformer.annotate.annotator import annotator_for
from syntaxformer.annotate.registry import keep_annotator, stored_name
from syntaxformer.base.config import sections_in_words
from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.base.files import (
    BAD_ROWS,
    HELD_OUT,
    MANIFEST,
    TRAINED_ON,
    read_json,
    verify_manifest,
    write_json,
)
from syntaxformer.base.languages import BUNDLED, choose_annotator, language_of_texts, split_name
from syntaxformer.base.statistics import spread
from syntaxformer.encoders.classifier import (
    annotate_examples,
    annotator_name,
    batch_outputs,
    is_base_model,
    load_for,
    needed_columns,
)
from syntaxformer.encoders.collator import SyntaxCollator, SyntaxExample
from syntaxformer.encoders.examples import TextSet, fingerprints, hash_examples
from syntaxformer.encoders.finetune_config import FinetuneConfig
from syntaxformer.encoders.metrics import CLASSIFICATION_METRICS, REGRESSION_METRICS
from syntaxformer.encoders.pretrained import has_decoder, load_pretrained, load_tokenizer, new_parameters
from syntaxformer.encoders.tables import for_spreadsheet
from syntaxformer.encoders.task_data import FinetuneData, read_finetune_data
from syntaxformer.encoders.task_types import Score, TaskType
from syntaxformer.encoders.tasks import CLASSIFIER, ClassifierInfo, Task, missed_note
from syntaxformer.nn import Dropout
from syntaxformer.runs.checkpoints import (
    WEIGHTS,
    average_weights,
    complete_checkpoints,
    last_with_its_best,
    load_tensors,
    load_weights,
    step_of,
)
from syntaxformer.runs.run_folder import RUN, Run, check_run, running, same_data
from syntaxformer.runs.trainer import RunTrainer, TallyBook, exponential, linear, run_arguments

_log = logging.getLogger("syntaxformer.finetune")

PACKAGES = ("syntaxformer", "torch", "transformers", "tokenizers", "spacy", "scipy")
DATA = "data.json"  # hashes of the data, in the folder of the checkpoints
TRIAL = "trial.json"  # the result of one learning rate, next to its checkpoints, when it is finished
CLOSED = 0.05  # a gate below this lets so little syntax in that the model is nearly the plain one
POOL_BATCHES = 50  # are sorted by length together: enough to save padding, few enough to vary epochs
_N_IDENTIFIED = 500  # most examples whose language is looked at


@dataclass(frozen=True)
class _Inputs:
    """Everything that the trials of a run share."""

    data: FinetuneData
    train: list[SyntaxExample]
    dev: list[SyntaxExample]
    lengths: list[int]
    collator: SyntaxCollator
    info: ClassifierInfo
    n_truncated: dict[str, int]
    annotators: tuple[str, ...]
    class_weights: dict[str, float] | None = None

    @property
    def sha256(self) -> dict[str, str]:
        """Hashes of texts, trees and labels, of the annotators and of the classes in their order."""
        classes = () if isinstance(self.info.task_type, Score) else self.info.task_type.names
        order = {"labels": hashlib.sha256(repr(classes).encode()).hexdigest()} if classes else {}
        return {
            "train": hash_examples(self.data.train.examples),
            "dev": hash_examples(self.data.dev.examples),
            "annotation": hashlib.sha256("\0".join(self.annotators).encode()).hexdigest(),
            **order,
        }

    def save(self, folder: Path) -> None:
        """Write the collator and the record of the task, which a model folder has beside its network."""
        self.collator.save_pretrained(folder)
        (folder / CLASSIFIER).write_text(self.info.model_dump_json(indent=1), "utf-8")


def finetune(
    config: FinetuneConfig, resume: bool = False, overwrite: bool = False, data: FinetuneData | None = None
) -> Path:
    """Fine-tune a checkpoint, write a model folder and return it.

    `resume` continues from the last complete checkpoint of an interrupted run, or begins where nothing was
    begun; `overwrite` deletes an older run in the output folder. `data` are what `read_finetune_data` read
    with these settings, if that was done before.

    Raises:
        ConfigError: The output folder holds another run, the checkpoint cannot be read or infused, a file is
            missing, or outputs are not finite.
        DataError: The data cannot be used, or the disk is full.
        BackendMissingError: The annotator is not installed.
    """
    with running(config, resume, overwrite) as run:
        config = run.settings
        if run.resume and (config.output / MANIFEST).exists():
            _log.info("%s: already finished", config.output)
            return config.output
        with run.team.main_process_first():  # the other processes then find the parses in the cache
            inputs = _prepare(config, data or read_finetune_data(config))
        _log.info("%s", _describe(config, inputs, _build(config, inputs)))
        if config.infusion.warning is not None:
            _log.warning("%s", config.infusion.warning)
        if run.writes:
            _open(run, inputs)
        run.team.wait_for_everyone()
        trials = [_try_rate(config, inputs, rate) for rate in config.training.rates]
        if run.writes:
            _finish(run, inputs, trials)
        return config.output


def finetune_seeds(
    configs: Sequence[FinetuneConfig],
    resume: bool = False,
    overwrite: bool = False,
    data: FinetuneData | None = None,
) -> dict[str, Any]:
    """Fine-tune with settings that differ in seed and output, and write `seeds.json` beside the folders.

    Errors are those of `finetune`.

    Returns:
        `seeds`: seed → its `model` folder and scores on `dev`; `mean` and `sd` of each score, None for
        the sd of one seed.
    """
    runs: dict[str, dict[str, Any]] = {}
    for config in configs:
        check_run(config, resume, overwrite)  # before the first one is trained for hours
    for config in configs:
        folder = finetune(config, resume, overwrite, data)
        runs[str(config.seed)] = {"model": str(folder), "dev": read_json(folder / RUN)["dev"]}
    names = next(iter(runs.values()))["dev"]
    spreads = {name: spread([run["dev"][name] for run in runs.values()]).as_dict() for name in names}
    summary = {"seeds": runs} | {
        statistic: {name: run[statistic] for name, run in spreads.items()} for statistic in ("mean", "sd")
    }
    write_json(configs[0].output.parent / "seeds.json", summary)
    return summary


def _open(run: Run[FinetuneConfig], inputs: _Inputs) -> None:
    """Prepare the output folder; a resumed run must have the same data."""
    stored = run.settings.output / "checkpoints" / DATA
    if run.resume and stored.exists():
        hashes, before = inputs.sha256, read_json(stored)
        if hashes.get("labels") != before.get("labels"):
            problem = "labels: expected the order of the interrupted run, got another."
            raise ConfigError(f"{problem} Begin anew with --overwrite.")
        same_data(hashes, before)
    run.open()
    keep_annotator(inputs.info.annotator and run.settings.annotation.annotator, run.settings.output)
    if bad := inputs.data.bad_rows:
        rows = [
            (str(of_file.source), str(row.number), problem, json.dumps(row.cells, default=str))
            for of_file in bad
            for row, problem in of_file.rows
        ]
        _write_csv(run.settings.output / BAD_ROWS, [("file", "line", "reason", "row"), *rows])
        _log.warning("%s: left out %d rows that cannot be used", run.settings.output / BAD_ROWS, len(rows))
    for record in sorted(stored.parent.glob(f"*/{TRIAL}")):
        try:
            for checkpoint in _checkpoints(record.parent, read_json(record)):
                verify_manifest(checkpoint)
        except CheckpointError as error:  # the best checkpoint of this rate is lost
            _log.warning("training learning rate %s again: %s", record.parent.name, error)
            record.unlink()
    write_json(stored, inputs.sha256)


def _checkpoints(folder: Path, trial: Mapping[str, Any]) -> list[Path]:
    """The checkpoints whose mean is the result of a learning rate; most often one."""
    return [folder / name for name in trial.get("averaged", [trial["checkpoint"]])]


def _build(config: FinetuneConfig, inputs: _Inputs) -> PreTrainedModel:
    """The network before training; its head and new parameters depend only on the seed."""
    set_seed(config.seed)
    infusion = inputs.collator.config  # with the values of its factors
    longest = config.training.max_length
    model = load_pretrained(config.model, inputs.info.task_type, infusion, longest, config.head_width)
    if inputs.info.task_type.separate and not is_base_model(model):
        raise ConfigError("infusion.embedding.kind: expected add or concat for vectors of texts, got let.")
    return model


def _try_rate(config: FinetuneConfig, inputs: _Inputs, rate: float) -> dict[str, Any]:
    """Train with one learning rate, or continue what an interrupted run left; what `TRIAL` holds."""
    folder = config.output / "checkpoints" / f"{rate:g}"
    if (folder / TRIAL).exists():
        return {"learning_rate": rate, **read_json(folder / TRIAL)}
    trainer = FinetuneTrainer(_build(config, inputs), config, rate, inputs, folder)
    trainer.train_from(_last_checkpoint(folder))
    state = trainer.state
    logs = (log for log in state.log_history if "eval_score" in log)
    epochs = [{key.removeprefix("eval_"): value for key, value in log.items()} for log in logs]
    result = {"learning_rate": rate, "score": float(state.best_metric or 0.0), "epochs": epochs}
    result["checkpoint"] = f"checkpoint-{state.best_global_step}"
    if config.training.average > 1:
        best, chosen, scores = trainer.best_checkpoints()
        averaged = [path.name for path in chosen]
        result |= {"score": scores["score"], "checkpoint": best.name, "averaged": averaged}
    if trainer.is_world_process_zero():
        write_json(folder / TRIAL, result)
    return result


def _last_checkpoint(folder: Path) -> Path | None:
    """The checkpoint from which to continue; one whose best checkpoint is lost is skipped."""
    whole, problems = complete_checkpoints(folder)
    checkpoint = last_with_its_best(whole)
    if whole and checkpoint != whole[-1]:
        _log.warning("skipping %s, because the best checkpoint before it is lost", whole[-1])
    if whole or problems:
        where = checkpoint.name if checkpoint else "the beginning"
        _log.info("learning rate %s: continuing at %s", folder.name, where)
    return checkpoint


def _scores(model: Any, inputs: _Inputs) -> tuple[dict[str, float], dict[str, Any]]:
    """Official metrics on dev, and of dev for the report: classes, those never predicted, and predictions."""
    size, task_type, collator = inputs.info.eval_batch_size, inputs.info.task_type, inputs.collator
    outputs = batch_outputs(model, collator, inputs.dev, size, task_type)
    predicted = task_type.encode(task_type.predictions(outputs, 0, inputs.dev).labels)
    gold = [example.label for example in inputs.data.dev.examples]
    of_dev: dict[str, Any] = {
        "classes": task_type.class_table(gold, predicted),
        "never_predicted": task_type.never_predicted(gold, predicted),
    }
    if isinstance(gold[0], int | float):
        sides = (" ".join(f"{value:.6g}" for value in side) for side in (gold, predicted))
        of_dev["dev_predictions"] = dict(zip(("gold", "found"), sides, strict=True))
    return task_type.score(inputs.info.metrics, gold, predicted), of_dev


def _finish(run: Run[FinetuneConfig], inputs: _Inputs, trials: list[dict[str, Any]]) -> None:
    """Take the weights of the best epoch of all trials, score them in fp32 as `predict` does, and write."""
    config, best = run.settings, max(trials, key=lambda trial: trial["score"])
    chosen = _checkpoints(config.output / "checkpoints" / f"{best['learning_rate']:g}", best)
    for checkpoint in chosen:
        verify_manifest(checkpoint)
    model = _build(config, inputs)
    weights = average_weights(chosen) if len(chosen) > 1 else load_tensors(chosen[0] / WEIGHTS)
    load_weights(model, weights, chosen[0])
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    scores, of_dev = _scores(model, inputs)
    gated = model.infusion.gates.values() if hasattr(model, "infusion") else ()  # |g|, a mean over heads
    gates = [round(gate().abs().mean().item(), 4) for gate in gated]
    report, missed = _report(inputs, trials, best, scores) | of_dev, of_dev["never_predicted"]

    def save(folder: Path) -> None:
        model.eval().save_pretrained(folder)
        inputs.save(folder)
        _write_rows(folder, inputs.data)

    run.write_model(save, report | ({"gates": gates} if gates else {}), PACKAGES)
    if not config.training.keep_checkpoints:
        shutil.rmtree(config.output / "checkpoints", ignore_errors=True)
    if gates:
        shown = "  ".join(f"{gate:.3f}" for gate in gates)
        _log.info("gates of the masks, each from 0.000 (closed) to 1.000 (open): %s", shown)
    if gates and max(gates) < CLOSED:
        remedy = "Set training.infusion_learning_rate, for example to 1e-3."
        if (config.training.infusion_learning_rate or 0) >= 1e-3:
            remedy = "Train longer, or raise training.infusion_learning_rate."
        warning = "%s: the gates stayed closed, so the masks change hardly anything. %s"
        _log.warning(warning, config.output, remedy)
    _log.info("%s: %s", config.output, "  ".join(f"{name} {value:.4f}" for name, value in scores.items()))
    if missed:
        remedy = "Train longer or with another learning rate, or give more such rows."
        _log.warning("%s: %s. %s", config.output, missed_note(missed), remedy)


def _write_rows(folder: Path, data: FinetuneData) -> None:
    """Write the rows that were held out, and fingerprints of those that were trained on."""
    if data.held_out:
        _write_csv(folder / HELD_OUT, data.held_out)
    lines = (f"{fingerprint}\n" for fingerprint in sorted({*fingerprints(data.train.examples)}))
    (folder / TRAINED_ON).write_text("".join(lines), "utf-8")


def _write_csv(path: Path, rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="", errors="backslashreplace") as file:
        csv.writer(file, lineterminator="\n").writerows(map(for_spreadsheet, row) for row in rows)


def _describe(config: FinetuneConfig, inputs: _Inputs, model: PreTrainedModel) -> str:
    """One line about the run: data, model, annotator, precision, learning rates."""
    n_new = sum(parameter.numel() for parameter in new_parameters(model).values())
    n_all = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"{inputs.data.task.title}: {len(inputs.train)} training and {len(inputs.dev)} dev examples; "
        f"{model.config.model_type}, {n_all / 1e6:.2f}M parameters, {n_new / 1e6:.3f}M of them new; "
        f"infused with {sections_in_words(config.infusion.parts) or 'nothing'}; "
        f"annotator {inputs.info.annotator or 'none'}"
        f"{', own trees' if inputs.info.gold_trees else ''}; "
        f"{config.training.precision}; "
        f"learning rates {', '.join(f'{rate:g}' for rate in config.training.rates)}"
        + "".join(f"; class weight of {name} {x:.3g}" for name, x in (inputs.class_weights or {}).items())
    )


def _report(inputs: _Inputs, trials: list[Any], best: Any, scores: dict[str, float]) -> dict[str, Any]:
    """The content of `run.json`, except the environment."""
    data, epochs = inputs.data, best["epochs"]
    return {
        "task": data.task.name,
        "dev": {name: round(value, 6) for name, value in scores.items()},
        "learning_rate": best["learning_rate"],
        "best_step": step_of(Path(best["checkpoint"])),
        "last_step": epochs[-1]["step"],
        "class_weights": inputs.class_weights,
        "seconds_per_epoch": [round(epoch["epoch_seconds"], 2) for epoch in epochs],
        "processor_seconds_per_epoch": [round(epoch["epoch_processor_seconds"], 2) for epoch in epochs],
        "trials": trials,
        "n_train": len(data.train),
        "n_dev": len(data.dev),
        "n_truncated": inputs.n_truncated,
        "left_out": {"train": data.train.left_out, "dev": data.dev.left_out},
        "data": {"train": data.train.source, "dev": data.dev.source},
        "data_sha256": inputs.sha256,
        "command": sys.argv,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }


def _named_or_bundled(config: FinetuneConfig, data: FinetuneData, needed: Collection[str]) -> str | None:
    """The annotator that is named, or else for a table the bundled one of its language, if one is needed.

    A bundled one that is named for a table of another language is warned of.
    """
    key, named = "annotation.annotator", config.annotation.annotator
    _, bundled, _ = split_name(named or "")
    if not needed or not data.task.own or (named and bundled not in BUNDLED):
        return named
    examples = data.train.examples[:: len(data.train) // _N_IDENTIFIED + 1]
    texts = language_of_texts([text for example in examples for text in example.texts])
    if named and texts.code != bundled.partition("_")[0]:
        _log.warning("%s: %s, but the language of %s, is %s", key, named, texts.told_by, texts.code)
    return named or choose_annotator(None, texts, key, f"{key}=en if they are English")


def _prepare(config: FinetuneConfig, data: FinetuneData) -> _Inputs:
    """Parse and measure the data; this writes only to the annotation cache."""
    longest = config.training.max_length
    tokenizer = load_tokenizer(config.model, longest)
    task_type = data.task.task_type.for_head(config.head, lambda: has_decoder(config.model), tokenizer)
    labels = [example.label for example in data.train.examples]
    task_type, metrics = task_type.fit(labels), _metrics(data.task, task_type, config.training.best_by)
    balanced = config.training.class_weights and task_type.balanced_weights(labels)
    needed = needed_columns(config.infusion)
    trees = "constituency" in needed and config.annotation.gold_trees
    use_trees = trees and data.train.has_trees and data.dev.has_trees
    of_words = task_type.parts == "words"
    named = config.annotation.annotator if of_words and not needed else None  # finds words when it predicts
    annotator = load_for(annotator_name(needed, _named_or_bundled(config, data, needed)) or named, needed)
    # Each split has its own annotator if it has its own parses (`conllu:parsed/{split}.conllu`).
    parser = annotator if needed else None
    chosen = [
        parser and annotator_for(parser, texts.name, texts.text_rows) for texts in (data.train, data.dev)
    ]
    train, dev = (
        annotate_examples(texts.examples, of_split, use_trees, config.data.cache, config.annotation.processes)
        for texts, of_split in zip((data.train, data.dev), chosen, strict=True)
    )
    sentences = [sentence for example in train for sentence in example.segments]
    stride = longest // 4 if config.training.stride is None else config.training.stride
    stride, tags = stride if task_type.parts else None, config.training.tagged if of_words else None
    infusion = config.infusion.fitted(sentences)
    collator = SyntaxCollator(tokenizer, infusion, max_length=longest, stride=stride, tags=tags)
    collator.separate = task_type.separate
    lengths = {texts.name: _piece_lengths(collator, texts) for texts in (data.train, data.dev)}
    windows = collator.windows([replace(example, label=task_type.target(example.label)) for example in train])
    answered = [of_text for of_text in windows if task_type.parts == "span" and of_text[0].label]
    cut = (of_text for of_text in answered if len(of_text) > 1)
    if n_cut := sum(not collator(of_text)["start_positions"].any() for of_text in cut):
        warning = "%s: %d answers are in no window as a whole and are not learned. Raise training.stride."
        _log.warning(warning, data.train.source, n_cut)
    info = ClassifierInfo(
        task=data.task.name,
        type=task_type.name,
        metrics=metrics,
        n_texts=len(data.task.texts),
        **asdict(task_type),
        annotator=annotator and stored_name(annotator.name),
        annotator_version=annotator and annotator.version,
        needs=tuple(sorted(needed)),
        gold_trees=use_trees,
        text_column=data.columns.text,
        text_pair_column=data.columns.pair,
        label_column=data.columns.label,
        quotes=data.columns.quotes,
        eval_batch_size=config.training.eval_batch_size,
    )
    return _Inputs(
        data,
        [window for of_text in windows for window in of_text],
        dev,
        [n for n, of_text in zip(lengths[data.train.name][0], windows, strict=True) for _ in of_text],
        collator,
        info,
        {name: n_long for name, (_, n_long) in lengths.items()},
        tuple(f"{of_split.name} {of_split.version}" for of_split in chosen if of_split),
        dict(zip(task_type.names, balanced, strict=True)) if balanced else None,
    )


def _metrics(task: Task, task_type: TaskType, best_by: str | None) -> tuple[str, ...]:
    """The metrics of the task, and that by which the best epoch is chosen; refuses an unknown one."""
    tables = ([*table] for table in (CLASSIFICATION_METRICS, REGRESSION_METRICS))
    like = next((table for table in tables if {*task.metrics} <= {*table}), [])  # those of the same kind
    names = [*task.metrics, *["mean"] * (len(task.metrics) > 1), *like]
    known = [metric for metric in dict.fromkeys(names) if metric != "f1" or len(task_type.names) == 2]
    known = [*task_type.choosing] or known
    if best_by is not None and best_by not in known:
        raise ConfigError(f"training.best_by: expected one of {', '.join(known)}, got {best_by!r}.")
    if task_type.choosing:
        return task.metrics
    return tuple(name for name in known if name in task.metrics or (name == best_by != "mean"))


def _piece_lengths(collator: SyntaxCollator, texts: TextSet) -> tuple[list[int], int]:
    """Number of pieces of each example as it is read, and number of cut examples, which is logged."""
    longest = collator.max_length
    lengths = collator.lengths([example.texts for example in texts.examples])
    n_long = sum(length > longest for length in lengths)
    problem = f"{texts.source}: {n_long} of {len(texts)} examples are longer than {longest} pieces"
    if n_long and collator.stride is not None:
        _log.info("%s and are read in windows", problem)
        n_long = 0
    elif n_long:
        remedy = "Raise training.max_length to keep more of them."
        _log.warning("%s and are cut to that (longest: %d). %s", problem, max(lengths), remedy)
    return [min(length, longest) for length in lengths], n_long


class FinetuneTrainer(RunTrainer, Trainer):
    """Hugging Face's Trainer with batches of similar length, and the official metrics after each epoch.

    `learning_rate` is that of the checkpoint's parameters, and `folder` the one of the checkpoints.
    """

    class_weights: torch.Tensor | None = None

    def __init__(
        self,
        model: PreTrainedModel,
        config: FinetuneConfig,
        learning_rate: float,
        inputs: _Inputs,
        folder: Path,
    ) -> None:
        training, seed = config.training, config.seed
        batches = LengthBatches(inputs.lengths, training.batch_size, seed)
        n_of_epoch = -(-len(batches) // training.accumulate)
        n_updates = n_of_epoch * training.epochs
        self.inputs, self.task_type = inputs, inputs.info.task_type
        self.infusion_names = {*new_parameters(model)}
        rate = linear(n_updates, training.warmup_frac)
        if training.decay is not None:
            rate = exponential(n_updates, training.warmup_frac, training.decay, n_of_epoch)
        arguments = run_arguments(
            training,
            folder,
            seed,
            num_train_epochs=training.epochs,
            per_device_train_batch_size=training.batch_size,
            gradient_accumulation_steps=training.accumulate,
            learning_rate=learning_rate,
            eval_strategy="epoch",
            save_strategy="epoch",
            metric_for_best_model="score",
            greater_is_better=True,
            accelerator_config={"split_batches": True, "non_blocking": torch.cuda.is_available()},
            # The loss of a process is a mean over its examples, so losses are averaged and not summed.
            average_tokens_across_devices=False,
        )
        Dropout.take_over(model)
        if inputs.class_weights is not None:
            self.class_weights = torch.tensor([*inputs.class_weights.values()], device=arguments.device)
        super().__init__(
            *(model, arguments, training, batches, rate, n_updates),
            curves=folder.parents[1] / "logs" / folder.name,
            data_collator=inputs.collator.aligned(arguments.device),
            train_dataset=inputs.train,
            eval_dataset=[],
        )
        if training.accumulate > 1:  # hosts differ in how they use a number of items: take their means
            self.model_accepts_loss_kwargs = False

    def save_beside(self, folder: Path) -> None:
        """Write what lets a checkpoint be loaded like a finished model."""
        self.inputs.save(folder)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches of similar length; the processes share each batch."""
        return self.accelerator.prepare(super().get_train_dataloader())

    def group_of(self, name: str, parameter: torch.nn.Parameter) -> tuple[int, float]:
        """Return the parameter group and the learning rate; infusion parameters may have their own rate."""
        is_new, infusion_rate = name in self.infusion_names, self.config.infusion_learning_rate
        rate = infusion_rate if is_new and infusion_rate is not None else self.args.learning_rate
        return 2 * is_new + (parameter.dim() > 1), rate

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The model's loss, in which the cross-entropy of a row is multiplied by its class's weight.

        The mean is over rows, so that it does not depend on how processes divide a batch.
        """
        if self.task_type.separate:
            return self._loss_of_pairs(model, inputs, num_items_in_batch)
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if self.class_weights is not None:
            labels = inputs["labels"]
            of_rows = cross_entropy(outputs.logits.float(), labels, reduction="none")
            loss = loss + ((self.class_weights[labels] - 1) * of_rows).mean()
        return (loss, outputs) if return_outputs else loss

    def _loss_of_pairs(self, model: Any, inputs: dict[str, Any], n_items: Any) -> Any:
        """The loss of the cosines, which no network computes, and that of pointing at governors."""
        infusion, labels = getattr(self.model, "infusion", None), inputs.pop("labels")
        self.model._has_warned_of_loss = True  # a base model leaves the second loss to its caller
        outputs = self.task_type.scorer(None)(model, inputs)
        loss = self.task_type.loss(outputs, labels)
        if infusion is not None and (of_governors := infusion.seen.governor_loss()) is not None:
            loss = loss + infusion.config.lisa.weight * of_governors
        return loss if n_items is None else loss * len(labels) / n_items

    def dev_scores(self) -> dict[str, float]:
        """Metrics on dev, whose `score` chooses the best epoch, and how long the epoch before them took."""
        clock, processor = self.batches.began
        seconds, of_processor = time.monotonic() - clock, time.process_time() - processor
        tally, infusion = TallyBook(), getattr(self.model, "infusion", None)

        def count(*_: Any) -> None:
            """Words whose annotated governor the last LISA head points at; their share is the UAS."""
            hits = infusion.seen.governor_hits()
            tally.add({"governor_accuracy": hits[max(hits)]} if hits else None)

        with nullcontext() if infusion is None else self.model.register_forward_hook(count):
            scores, _ = _scores(self.model, self.inputs)
        score = scores.get(self.config.best_by or "mean", next(iter(scores.values())))
        times = {"epoch_seconds": seconds, "epoch_processor_seconds": of_processor}
        return {**scores, **tally.take(), "score": score, **times}


class LengthBatches(Sampler[list[int]]):
    """Lists of row numbers: batches of rows of like `lengths` in pieces, in random order.

    The order depends on (seed, epoch) alone: two runs with the same seed see the same batches, whatever
    random numbers the model draws.
    """

    def __init__(self, lengths: Sequence[int] | np.ndarray, batch_size: int, seed: int) -> None:
        self.lengths = np.asarray(lengths)
        self.batch_size, self.seed, self.epoch, self.began = batch_size, seed, 0, (0.0, 0.0)

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, as it begins; the trainer calls it."""
        self.epoch, self.began = epoch, (time.monotonic(), time.process_time())

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng((self.seed, self.epoch))
        rows = random.permutation(len(self.lengths))
        pool = self.batch_size * POOL_BATCHES
        batches: list[list[int]] = []
        for start in range(0, len(rows), pool):
            of_pool = rows[start : start + pool]
            of_pool = of_pool[np.argsort(-self.lengths[of_pool], kind="stable")].tolist()
            batches += [of_pool[at : at + self.batch_size] for at in range(0, len(of_pool), self.batch_size)]
        for number in random.permutation(len(batches)).tolist():
            yield batches[number]
