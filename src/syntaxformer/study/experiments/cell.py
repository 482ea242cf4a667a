"""Does one run of an experiment: its recipe or fine-tuning config, training, scores, and checks before."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import BaseModel

from syntaxformer import __version__
from syntaxformer.annotate.wrappers import SPLIT
from syntaxformer.base.config import corpus_path
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import MANIFEST, hash_file, read_json, read_lines, write_text
from syntaxformer.base.languages import choose_annotator, language_of_side
from syntaxformer.encoders.finetune_config import FinetuneConfig, load_finetune
from syntaxformer.encoders.tables import TextSet, hash_examples
from syntaxformer.encoders.task_data import read_any_split
from syntaxformer.encoders.tasks import OWN_TASKS, find_task
from syntaxformer.runs.checkpoints import WEIGHTS, load_tensors
from syntaxformer.runs.run_folder import NO_EFFECT, Stopwatch
from syntaxformer.study.experiments.spec import Cell, ScoredText, SearchConfig, Spec, TuneConfig, in_words
from syntaxformer.study.experiments.store import StoredRun, own_runs
from syntaxformer.translation.recipe import Recipe, load_recipe


def resolve(cell: Cell, output: Path = Path("OUTPUT")) -> Recipe | FinetuneConfig:
    """The recipe or fine-tuning config of a cell.

    Raises:
        ConfigError: Lists all problems of recipe and settings together.
        DataError: The recipe cannot be read.
    """
    settings = [*cell.overrides(), f"output={json.dumps(str(output), ensure_ascii=False)}"]
    if cell.verb == "train":
        return load_recipe(cell.recipe or "", settings)
    return load_finetune({}, str(cell.settings.get("infuse", "none")), settings)


VERSIONS = "code.json"
UNKNOWN = object()
"""The value of a setting that a version of this package does not have."""


def code_version() -> str:
    """The last commit of this package's sources, with "+" if they were changed since, or else the version.

    Commits that touch only other files do not count.
    """
    package = Path(__file__).resolve().parents[2]
    log = ["log", "-1", "--format=%h", "--abbrev=12", "--", package]
    commands = (log, ["status", "--porcelain", "-uno", "--", package])
    try:
        commit, changes = (
            subprocess.run(
                ["git", "-C", package, *command], capture_output=True, text=True, check=True, timeout=30
            ).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.SubprocessError):
        return __version__
    if not commit:  # installed below another project's repository
        return __version__
    return f"{commit}+" if changes else commit


def code_versions(folder: Path) -> list[str]:
    """The code versions of all processes of a run, in order; this process's version is added to its folder.

    Raises:
        CheckpointError: The file of versions cannot be read.
        DataError: The folder cannot be written.
    """
    path, now = folder / VERSIONS, code_version()
    before: list[str] = read_json(path)["versions"] if path.exists() else []
    versions = list(dict.fromkeys([*before, now]))
    if versions != before:
        write_text(path, json.dumps({"versions": versions}))
    return versions


def checkpoint_sha256(model: str) -> str | None:
    """The hash of weights and settings in a checkpoint's folder; None for a name on the Hub."""
    names = ("*.safetensors", "*.bin", "*.json", "*.txt")
    files = sorted(file for name in names for file in Path(model).glob(name) if file.is_file())
    if not files:
        return None
    return hashlib.sha256("\n".join(f"{file.name} {hash_file(file)}" for file in files).encode()).hexdigest()


def recipe_settings(recipe: Recipe | FinetuneConfig) -> dict[str, Any]:
    """All settings that decide the result of a run: `section.key` (short form of a recipe's key) → value."""
    found = _flat(recipe)
    if isinstance(recipe, Recipe):
        found = {Recipe.short(key): value for key, value in found.items()}
    return {key: value for key, value in found.items() if key not in NO_EFFECT}


def _flat(section: BaseModel, prefix: str = "") -> dict[str, Any]:
    """Flatten sections; a mapping that is not a section, even an empty one, stays one value."""
    found: dict[str, Any] = {}
    for name, value in section.model_dump(mode="json").items():
        part = getattr(section, name)
        found |= _flat(part, f"{prefix}{name}.") if isinstance(part, BaseModel) else {prefix + name: value}
    return found


def check_recipe(runs: Iterable[StoredRun]) -> None:
    """Check that recipe and defaults are those of the finished runs, because results must not be mixed.

    Raises:
        ConfigError: A setting that the experiment itself does not give has changed since.
    """
    for run in runs:
        stored: Mapping[str, Any] | None = run.result.get("recipe")
        if stored is None:
            continue  # stored by an earlier version
        now = recipe_settings(resolve(run.cell))
        differing = differing_settings(stored, now)
        if now.get("model.init_from"):  # whose pieces are kept
            differing.pop("subwords.vocab_size", None)
        for key, (expected, got) in differing.items():
            raise ConfigError(
                f"{run.cell.recipe or run.cell.verb}: expected {key}={expected!r}, as in the "
                f"finished run {run.cell.name}, got {got!r}. Set it back, or give the experiment "
                "another name."
            )


def differing_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Setting → its two values, if they differ; a section that only one of them has is compared as a whole.

    Settings that one of them does not know belong to another version of this package and are left out.
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
    """The content of `recipe_settings` at a place: a value, the section below it, or UNKNOWN."""
    if place in settings:
        return settings[place]
    start = f"{place}."
    section = {key.removeprefix(start): value for key, value in settings.items() if key.startswith(start)}
    return section or UNKNOWN


CELL, RESULT, MODEL, HYPOTHESES = "cell.json", "result.json", "model", "hypotheses.txt"
REFERENCES = "references.txt"
_FACTS = (
    *("seed", "versions", "data_sha256", "processor", "threads", "precision", "source_table"),
    *("best_step", "last_step", "seconds", "seconds_per_epoch", "processor_seconds_per_epoch"),
    *("never_predicted", "dev_predictions"),
)


def write_cell(cell: Cell, folder: Path, keep: str) -> None:
    """Store the settings of a run."""
    content = {name: getattr(cell, name) for name in ("verb", "recipe", "labels", "settings", "test")}
    write_text(folder / CELL, json.dumps({**content, "keep": keep}, indent=1, default=str))


def run_cell(folder: Path) -> dict[str, Any]:
    """Do the run that `write_cell` stored, or continue it.

    The result has metrics, curve, parameters, seconds (`process_seconds` of all attempts), hashes, versions,
    command and the commits of all attempts.

    Raises:
        SyntaxformerError: Any error of training or scoring.
    """
    with FileLock(folder / "lock"):
        if (folder / RESULT).exists():
            return read_json(folder / RESULT)
        stored = read_json(folder / CELL)
        keep = stored.pop("keep")
        cell = Cell(**stored)
        commits = code_versions(folder)  # before training, while which the source tree may change
        with Stopwatch(folder) as watch:
            result = VERBS[cell.verb](cell, folder)
        result |= {"process_seconds": watch.seconds, "commit": ", ".join(commits), "command": cell.command()}
        write_text(folder / RESULT, json.dumps(result, indent=1))
        if keep != "all":
            shutil.rmtree(folder / MODEL / ("" if keep == "scores" else "checkpoints"), ignore_errors=True)
        return result


def _train(cell: Cell, folder: Path) -> dict[str, Any]:
    """Train a translator and score it on the test set."""
    from syntaxformer.translation.training import train_translator

    model = folder / MODEL
    recipe: Any = resolve(cell, model)
    if not (model / MANIFEST).exists():
        train_translator(recipe, resume=True)
    run = read_json(model / "run.json")
    logged = run.get("evaluations", ())  # the dev loss at each evaluation, and BLEU where it was measured
    curve = [{"step": one["step"], "value": one["loss"]} | _only(one, "bleu") for one in logged]
    found = _facts(model, curve, recipe)
    found["metrics"] = _only(run, "dev_loss", "dev_bleu")
    if cell.test is not None:
        found["metrics"] = {**_translate(cell, folder, found), **found["metrics"]}
    return found


def _translate(cell: Cell, folder: Path, found: dict[str, Any]) -> dict[str, float]:
    """Translate and score the test set; the translations are kept for tests over sentences."""
    from syntaxformer.syntax import read_user_values
    from syntaxformer.translation.scoring import reference_note, score_table, score_translator, scoring
    from syntaxformer.translation.translator import Translator

    test = dict(cell.test or {})
    translator = Translator.load(folder / MODEL, test.pop("annotator", None), trust_annotator=True)
    test = {side: corpus_path(file) for side, file in test.items()}
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
        write_text(folder / name, "".join(f"{line}\n" for line in lines))
    more = score_table(
        {"": scored.hypotheses}, scored.references, note=found["references"], **found["scoring"]
    )
    scores, others = scored.scores, {"chrf++": "chrF++", "ter": "TER"}
    found["signatures"] = {"bleu": scores.bleu_signature, "chrf": scores.chrf_signature}
    found["signatures"] |= {key: more["signatures"][name] for key, name in others.items()}
    own = more["systems"][""]
    return {"bleu": scores.bleu, "chrf": scores.chrf} | {key: own[name] for key, name in others.items()}


def _finetune(cell: Cell, folder: Path) -> dict[str, Any]:
    """Fine-tune an encoder and score it on the development set."""
    from syntaxformer.encoders.finetuning import finetune

    model = folder / MODEL
    config: Any = resolve(cell, model)
    if not (model / MANIFEST).exists():
        finetune(config, resume=True)
    run = read_json(model / "run.json")
    rate, dev = run["learning_rate"], run["dev"]
    best = next((trial["epochs"] for trial in run["trials"] if trial["learning_rate"] == rate), [])
    curve = [{"step": place, "value": point["score"]} for place, point in enumerate(best, 1)]
    found = _facts(model, curve, config)
    found["metrics"] = {"score": dev.get("mean", next(iter(dev.values()))), **dev}
    if cell.test is not None:
        texts = _labelled_split(config.task, config.data.dir, cell.test["split"])
        scores, found["test_predictions"] = _test_scores(model, config, texts)
        found["metrics"] |= scores
        found["test_sha256"] = {texts.name: hash_examples(texts.examples)}
    return {**found, "learning_rate": rate, "model_sha256": checkpoint_sha256(config.model)}


def _test_scores(
    model: Path, config: FinetuneConfig, texts: TextSet
) -> tuple[dict[str, float], dict[str, str]]:
    """Scores on a labelled split, with the epoch that was best on dev, and labels and predictions.

    The name of each score begins with "test_".
    """
    from syntaxformer.encoders.classifier import Classifier

    classifier = Classifier.from_folder(model, trust_annotator=True)
    predictions = classifier.predict_set(texts, cache=config.data.cache)
    scores = classifier.score(texts, predictions)
    scores = {"score": scores.get("mean", next(iter(scores.values()))), **scores}
    sides = [one.label for one in texts.examples], classifier.task_type.encode(predictions.labels)
    gold, found = (" ".join(f"{value:.6g}" for value in side) for side in sides)
    return {f"test_{name}": round(value, 6) for name, value in scores.items()}, {"gold": gold, "found": found}


@lru_cache(maxsize=1)  # the cells of an experiment are checked one by one
def _labelled_split(task: str, folder: Path | None, split: str) -> TextSet:
    """A split of an official task.

    Raises:
        ConfigError: The task is no official one, or has no such split, or the split has no labels.
        DataError: It cannot be read.
    """
    if task in OWN_TASKS or folder is None:
        raise ConfigError(f"test_split: expected a task with official files in data.dir, got {task}.")
    texts = read_any_split(find_task(task), folder, split)
    if any(one.label is None for one in texts.examples):
        raise ConfigError(f"test_split: expected one with labels, got {split!r} of {task}.")
    return texts


VERBS: dict[str, Callable[[Cell, Path], dict[str, Any]]] = {"train": _train, "finetune": _finetune}


def _facts(model: Path, curve: list[dict[str, float]], recipe: Recipe | FinetuneConfig) -> dict[str, Any]:
    """The facts about any run whose model is written."""
    run = read_json(model / "run.json")
    return {
        **_only(run, *_FACTS),
        "n_parameters": sum(one.numel() for one in load_tensors(model / WEIGHTS).values()),
        "curve": curve,
        "recipe": recipe_settings(recipe),
    }


def _only(facts: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Some of the facts, if they are there."""
    return {name: facts[name] for name in names if name in facts}


def check_experiment(spec: Spec, runs: Mapping[str, StoredRun]) -> None:
    """Check that each run would start and can be scored, and that finished runs have the same recipe.

    For a search, one value of each setting is checked.

    Raises:
        ConfigError: Lists all problems of settings and test files, or names a recipe that was edited since.
    """
    if problems := [*_cell_problems(spec), *_test_problems(spec)]:
        raise ConfigError(problems)
    check_recipe(own_runs(spec, runs).values())


def _cell_problems(spec: Spec) -> Iterator[str]:
    """Each problem once, with the first run that has it, unless all runs have it."""
    combinations = spec.combinations()
    found: dict[str, list[Mapping[str, str]]] = {}
    for labels in combinations:
        for problem in _problems(spec, spec.cell(labels, spec.searched)):
            found.setdefault(problem, []).append(labels)
    for problem, having in found.items():
        first = in_words(having[0])
        yield problem if len(having) == len(combinations) or not first else f"{first}: {problem}"


def _problems(spec: Spec, cell: Cell) -> list[str]:
    try:
        config = resolve(cell)
        if isinstance(config, FinetuneConfig):
            if config.task not in OWN_TASKS:
                find_task(config.task)
            if cell.test is not None:
                _labelled_split(config.task, config.data.dir, cell.test["split"])
            return list(_metric_problems(spec, config))
        problems = [] if spec.test is None else list(_input_problems(spec.test, config))
        place, judged = _judged(spec)
        if judged is not None and judged.metric == "dev_bleu" and config.training.best_by == "loss":
            problems.append(f"{place}.metric: expected dev_loss with training.best_by loss, got dev_bleu.")
        return problems
    except ConfigError as error:
        return error.problems
    except DataError as error:
        return [str(error)]


def _metric_problems(spec: Spec, config: FinetuneConfig) -> Iterator[str]:
    """Problems with a metric that the task does not have: no trial and no row of the report would have it."""
    place, judged = _judged(spec)
    wanted = {
        f"{place}.metric": judged and judged.metric,
        "report.metrics": next(iter(spec.report.metrics), None) if "task" in spec.settings else None,
    }
    names = (OWN_TASKS.get(config.task) or find_task(config.task)).metrics
    known = ["score", *names, *(["mean"] if len(names) > 1 else [])]
    for key, name in wanted.items():
        if name is not None and name.removeprefix("test_") not in known:
            yield f"{key}: expected a metric of {config.task}, {', '.join(known)}, got {name}."


def _judged(spec: Spec) -> tuple[str, SearchConfig | TuneConfig | None]:
    return ("search", spec.search) if spec.search else ("tune", spec.tune)


def _input_problems(test: ScoredText, recipe: Recipe) -> Iterator[str]:
    """Problems that would keep a trained model from reading the test text."""
    factors = [name for name, _ in recipe.width_plan().factors]
    if missing := [name for name in factors if name in recipe.data.factor_files and name not in test.factors]:
        yield f"test.factors: expected a file for each factor of your own, got none for {', '.join(missing)}."
    needed = factors or recipe.syntax_inputs(training=False).needs
    beside = recipe.annotation.annotator or ""
    if needed and test.annotator is None and SPLIT in beside:
        yield f"test.annotator: expected one for the test text as well as {beside}, got none."
    if needed and test.annotator not in (None, beside) and not recipe.annotation.force:
        choose_annotator(test.annotator, language_of_side(recipe.data, recipe.data.src), "test.annotator")


def _test_problems(spec: Spec) -> Iterator[str]:
    if spec.test is None:
        return
    counts, files = {}, {"src": spec.test.src, "ref": spec.test.ref}
    files |= {f"factors.{name}": file for name, file in spec.test.factors.items()}
    files = {name: corpus_path(file) for name, file in files.items()}
    for name, file in files.items():
        try:
            counts[name] = sum(1 for _ in read_lines(file))
        except DataError as error:
            yield f"test.{name}: {error}"
    n_lines = counts.pop("src", None)
    for name, count in counts.items():
        if n_lines is not None and (count != n_lines or not count):
            yield (
                f"test: expected as many lines in src as in {name}, at least one, got {n_lines} in "
                f"{files['src']} and {count} in {files[name]}."
            )
