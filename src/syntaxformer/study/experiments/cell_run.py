"""One run of an experiment, in a process of its own: train, score, write `result.json`.

Whatever kills the process, the next one goes on where it stopped. Two processes on one run take turns.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from syntaxformer.base.atomic import atomic_file
from syntaxformer.base.config import read_yaml
from syntaxformer.base.folders import MANIFEST, hash_file, read_json
from syntaxformer.base.textfile import read_lines
from syntaxformer.runs.checkpoints import numbered_checkpoints
from syntaxformer.runs.stopwatch import Stopwatch
from syntaxformer.study.experiments.cell_config import finetune_config, translator_recipe
from syntaxformer.study.experiments.provenance import (
    checkpoint_sha256,
    code_versions,
    count_parameters,
    recipe_settings,
)
from syntaxformer.study.experiments.spec import Cell

__all__ = ["CELL", "HYPOTHESES", "REFERENCES", "RESULT", "run_cell", "write_cell"]

_log = logging.getLogger("syntaxformer.experiments")

CELL, RESULT, MODEL, HYPOTHESES = "cell.json", "result.json", "model", "hypotheses.txt"
REFERENCES = "references.txt"
_FACTS = (
    *("seed", "versions", "data_sha256", "processor", "threads", "precision", "source_table"),
    *("best_step", "last_step", "seconds", "seconds_per_epoch", "processor_seconds_per_epoch"),
    "never_predicted",
)


def write_cell(cell: Cell, folder: Path, keep: str) -> None:
    """Store what a run is to do."""
    content = {name: getattr(cell, name) for name in ("verb", "recipe", "labels", "settings", "test")}
    with atomic_file(folder / CELL) as temporary:
        temporary.write_text(json.dumps({**content, "keep": keep}, indent=1, default=str), "utf-8")


def run_cell(folder: Path) -> dict[str, Any]:
    """Do what `write_cell` stored, or what is left of it.

    Returns:
        Metrics, curve, parameters, seconds (`process_seconds`: of all attempts), hashes, versions, command
        and commit; several where an attempt had another.

    Raises:
        SyntaxformerError: Whatever training or scoring raises.
    """
    with FileLock(folder / "lock"):
        if (folder / RESULT).exists():
            return read_json(folder / RESULT)
        stored = read_json(folder / CELL)
        keep = stored.pop("keep")
        cell = Cell(**stored)
        commits = code_versions(folder)  # before the work: the source tree may change meanwhile
        with Stopwatch(folder) as watch:
            result = VERBS[cell.verb](cell, folder)
        result |= {"process_seconds": watch.seconds, "commit": ", ".join(commits)}
        result["command"] = cell.command()
        with atomic_file(folder / RESULT) as temporary:
            temporary.write_text(json.dumps(result, indent=1), "utf-8")
        _clear(folder / MODEL, keep)
        return result


def _train(cell: Cell, folder: Path) -> dict[str, Any]:
    """A translator, and its scores on the test set."""
    from syntaxformer.translation.training import train_translator

    model = folder / MODEL
    recipe = translator_recipe(cell, model)
    if not (model / MANIFEST).exists():
        train_translator(recipe, resume=_has_begun(model))
    found = _facts(model, _loss_curve(model))
    found["recipe"] = recipe_settings(recipe)
    found["metrics"] = {"dev_loss": read_json(model / "run.json").get("dev_loss")}
    if cell.test is not None:
        found["metrics"] = {**_translate(cell, folder, found), **found["metrics"]}
    return found


def _translate(cell: Cell, folder: Path, found: dict[str, Any]) -> dict[str, float]:
    """Translate and score the test set; the translations stay, for tests over sentences."""
    from syntaxformer.syntax import read_user_values
    from syntaxformer.translation.scoring import reference_note, score_translator, scoring
    from syntaxformer.translation.translator import Translator

    test = dict(cell.test or {})
    translator = Translator.load(folder / MODEL, test.pop("annotator", None), trust_annotator=True)
    found["scoring"], found["references"] = scoring(translator.info), reference_note(translator.info)
    found["test_sha256"] = {side: hash_file(Path(file)) for side, file in test.items()}
    own = {
        name: read_user_values(Path(test[f"factors.{name}"]))
        for name in translator.encoder.factors
        if f"factors.{name}" in test
    }
    lines = (list(read_lines(test[side])) for side in ("src", "ref"))
    scored = score_translator(translator, *lines, user_factors=own)
    for name, lines in ((HYPOTHESES, scored.hypotheses), (REFERENCES, scored.references)):
        with atomic_file(folder / name) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    scores = scored.scores
    found["signatures"] = {"bleu": scores.bleu_signature, "chrf": scores.chrf_signature}
    return {"bleu": scores.bleu, "chrf": scores.chrf}


def _finetune(cell: Cell, folder: Path) -> dict[str, Any]:
    """A fine-tuned encoder, and its scores on the development set."""
    from syntaxformer.encoders.finetuning import finetune

    model = folder / MODEL
    config = finetune_config(cell, model)
    if not (model / MANIFEST).exists():
        finetune(config, resume=_has_begun(model))
    run = read_json(model / "run.json")
    rates = {trial["learning_rate"]: trial["epochs"] for trial in run["trials"]}
    best = rates.get(run["learning_rate"], [])
    curve = [{"step": place, "value": point["score"]} for place, point in enumerate(best, 1)]
    dev = run["dev"]
    score = dev.get("mean", next(iter(dev.values())))
    found = {
        **_facts(model, curve),
        "metrics": {"score": score, **dev},
        "learning_rate": run["learning_rate"],
    }
    return {**found, "recipe": recipe_settings(config), "model_sha256": checkpoint_sha256(config.model)}


VERBS: dict[str, Callable[[Cell, Path], dict[str, Any]]] = {"train": _train, "finetune": _finetune}


def _has_begun(model: Path) -> bool:
    """Whether an earlier process stored its settings, so that there may be something to resume."""
    return (model / "recipe.yaml").exists() and bool(read_yaml(model / "recipe.yaml"))


def _facts(model: Path, curve: list[dict[str, float]]) -> dict[str, Any]:
    """What is known of any run once its model is written."""
    run = read_json(model / "run.json")
    facts: dict[str, Any] = {name: run[name] for name in _FACTS if name in run}
    return {**facts, "n_parameters": count_parameters(model), "curve": curve}


def _loss_curve(model: Path) -> list[dict[str, float]]:
    """Loss on dev at each evaluation, out of the newest checkpoint."""
    checkpoints = numbered_checkpoints(model / "checkpoints")
    if not checkpoints:
        return []
    history = read_json(checkpoints[-1] / "trainer_state.json").get("log_history", [])
    return [{"step": one["step"], "value": one["eval_loss"]} for one in history if "eval_loss" in one]


def _clear(model: Path, keep: str) -> None:
    """Leave of a finished run what is wanted."""
    if keep == "scores":
        shutil.rmtree(model, ignore_errors=True)
    elif keep == "model":
        shutil.rmtree(model / "checkpoints", ignore_errors=True)
