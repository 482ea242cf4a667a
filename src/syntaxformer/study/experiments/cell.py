"""The settings of a run as its verb reads them: the recipe or the fine-tuning that a cell comes to."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import BaseModel

from syntaxformer import __version__
from syntaxformer.base.config import read_yaml
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.files import MANIFEST, atomic_file, hash_file, read_json, read_lines
from syntaxformer.encoders.finetune_config import FinetuneConfig, load_finetune
from syntaxformer.runs.checkpoints import numbered_checkpoints
from syntaxformer.runs.run_folder import NO_EFFECT
from syntaxformer.runs.stopwatch import Stopwatch
from syntaxformer.study.experiments.spec import Cell
from syntaxformer.study.experiments.store import StoredRun
from syntaxformer.translation.recipe import Recipe, load_recipe

__all__ = [
    "CELL",
    "HYPOTHESES",
    "REFERENCES",
    "RESULT",
    "UNKNOWN",
    "check_recipe",
    "checkpoint_sha256",
    "code_versions",
    "count_parameters",
    "differing_settings",
    "finetune_config",
    "recipe_settings",
    "resolve",
    "run_cell",
    "translator_recipe",
    "value_at",
    "write_cell",
]


def translator_recipe(cell: Cell, output: Path) -> Recipe:
    """What a cell of the verb `train` trains.

    Raises:
        ConfigError: All problems of recipe and settings together.
        DataError: The recipe cannot be read.
    """
    return load_recipe(cell.recipe or "", _settings(cell, output))


def finetune_config(cell: Cell, output: Path) -> FinetuneConfig:
    """What a cell of the verb `finetune` trains.

    Raises:
        ConfigError: All problems of its settings together.
    """
    return load_finetune({}, str(cell.settings.get("infuse", "none")), _settings(cell, output))


def resolve(cell: Cell) -> Recipe | FinetuneConfig:
    """What a cell trains, for a look at its settings.

    Raises:
        ConfigError: All problems of recipe and settings together.
        DataError: The recipe cannot be read.
    """
    make = translator_recipe if cell.verb == "train" else finetune_config
    return make(cell, Path("OUTPUT"))


def _settings(cell: Cell, output: Path) -> list[str]:
    return [*cell.overrides(), f"output={json.dumps(str(output), ensure_ascii=False)}"]


VERSIONS = "code.json"
UNKNOWN = object()
"""Stands for a setting that a version of this package does not have."""


def code_version() -> str:
    """The last commit of this package's sources, "+" if they were changed since; else the version.

    Commits that touch other files only make no other code.
    """
    folder = Path(__file__).resolve().parent
    log = ["log", "-1", "--format=%h", "--abbrev=12", "--", folder.parent]
    commands = (log, ["status", "--porcelain", "-uno", "--", folder.parent])
    try:
        commit, changes = (
            subprocess.run(
                ["git", "-C", folder, *command], capture_output=True, text=True, check=True, timeout=30
            ).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.SubprocessError):
        return __version__
    if not commit:  # installed below another project's repository
        return __version__
    return f"{commit}+" if changes else commit


def code_versions(folder: Path) -> list[str]:
    """The versions of the code that the processes of a run had, in order; this one is noted in its folder.

    Raises:
        CheckpointError: The note is not one.
        DataError: The folder cannot be written.
    """
    path, now = folder / VERSIONS, code_version()
    before: list[str] = read_json(path)["versions"] if path.exists() else []
    versions = list(dict.fromkeys([*before, now]))
    if versions != before:
        with atomic_file(path) as temporary:
            temporary.write_text(json.dumps({"versions": versions}), "utf-8")
    return versions


def count_parameters(folder: Path) -> int:
    """Numbers in a folder's safetensors files; a tied table is stored, and counted, once."""
    from safetensors import safe_open

    total = 0
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "np") as tensors:
            total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    return total


def checkpoint_sha256(model: str) -> str | None:
    """Hash of the weights and settings in a checkpoint's folder; None for a name on the Hub."""
    names = ("*.safetensors", "*.bin", "*.json", "*.txt")
    files = sorted(file for name in names for file in Path(model).glob(name) if file.is_file())
    if not files:
        return None
    return hashlib.sha256("\n".join(f"{file.name} {hash_file(file)}" for file in files).encode()).hexdigest()


def recipe_settings(recipe: Recipe | FinetuneConfig) -> dict[str, Any]:
    """All settings that decide what a run finds: `section.key`, the short one of a recipe, → value."""
    found = _flat(recipe)
    if isinstance(recipe, Recipe):
        found = {Recipe.short(key): value for key, value in found.items()}
    return {key: value for key, value in found.items() if key not in NO_EFFECT}


def _flat(section: BaseModel, prefix: str = "") -> dict[str, Any]:
    """Sections are taken apart; a mapping with keys of its own, also an empty one, is one value."""
    found: dict[str, Any] = {}
    for name, value in section.model_dump(mode="json").items():
        part = getattr(section, name)
        found |= _flat(part, f"{prefix}{name}.") if isinstance(part, BaseModel) else {prefix + name: value}
    return found


def check_recipe(runs: Iterable[StoredRun]) -> None:
    """Hold that finished runs come from recipe and defaults as they are now: an experiment must not mix two.

    Raises:
        ConfigError: They changed since, in a setting that the experiment itself does not give.
    """
    for run in runs:
        stored: Mapping[str, Any] | None = run.result.get("recipe")
        if stored is None:
            continue  # of an earlier version
        now = recipe_settings(resolve(run.cell))
        for key, (expected, got) in differing_settings(stored, now).items():
            raise ConfigError(
                f"{run.cell.recipe or run.cell.verb}: expected {key}={expected!r}, as in the "
                f"finished run {run.cell.name}, got {got!r}. Set it back, or give the experiment "
                "another name."
            )


def differing_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Setting → its two values, where they differ; of a section that only one of them has, the whole.

    What one of them does not know at all is of another version of this package, and left out.

    Args:
        first: As `recipe_settings` has it.
        second: Likewise.
    """
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted(first.keys() | second.keys()):
        for place in accumulate(key.split("."), "{}.{}".format):
            if place in first or place in second:
                values = value_at(first, place), value_at(second, place)
                if UNKNOWN not in values and values[0] != values[1]:
                    found[place] = values
    return found


def value_at(settings: Mapping[str, Any], place: str) -> Any:
    """What `recipe_settings` has at a place: a value, the section below it, or UNKNOWN."""
    if place in settings:
        return settings[place]
    start = f"{place}."
    section = {key.removeprefix(start): value for key, value in settings.items() if key.startswith(start)}
    return section or UNKNOWN


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
