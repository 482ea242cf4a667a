"""Does one run of an experiment: its recipe or fine-tuning config, training, scores, and checks before.

Named test sets are scored line by line, by shipped metrics and by functions of the user's own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import runpy
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from filelock import FileLock
from pydantic import BaseModel

from syntaxformer import __version__
from syntaxformer.annotate.annotator import SPLIT, annotator_for
from syntaxformer.annotate.registry import load_annotator
from syntaxformer.base.config import corpus_path
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import MANIFEST, hash_file, read_json, read_lines, write_text
from syntaxformer.base.languages import choose_annotator, language_of_side
from syntaxformer.encoders.examples import TextSet, hash_examples
from syntaxformer.encoders.finetune_config import FinetuneConfig, load_finetune
from syntaxformer.encoders.official_data import read_any_split
from syntaxformer.encoders.tables import number_of, read_table
from syntaxformer.encoders.tasks import OWN_TASKS, find_task
from syntaxformer.runs.checkpoints import WEIGHTS, load_tensors
from syntaxformer.runs.run_folder import NO_EFFECT, Stopwatch
from syntaxformer.study.experiments.spec import (
    OWN_METRIC,
    TEST_SCORES,
    Cell,
    Contrast,
    NamedTest,
    ScoredText,
    Spec,
    in_words,
    metric_name,
)
from syntaxformer.study.experiments.store import DONE, StoredRun, own_runs, tuned
from syntaxformer.translation.recipe import Recipe, load_recipe

if TYPE_CHECKING:
    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.translation.translator import Translator

CELL, RESULT, MODEL, HYPOTHESES = "cell.json", "result.json", "model", "hypotheses.txt"
REFERENCES, VERSIONS, ALONG = "references.txt", "code.json", "along.json"
UNKNOWN = object()
"""The value of a setting that a version of this package does not have."""


def resolve(cell: Cell, output: Path = Path("OUTPUT")) -> Recipe | FinetuneConfig:
    """The recipe or fine-tuning config of a cell.

    Raises:
        ConfigError: Lists all problems of recipe and settings together.
        DataError: The recipe cannot be read.
    """
    settings = {**cell.settings, "output": str(output)}
    infuse = settings.pop("infuse", "none") if cell.verb == "finetune" else ""
    overrides = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    if cell.verb == "train":
        return load_recipe(cell.recipe or "", overrides)
    return load_finetune({}, str(infuse), overrides)


def code_version() -> str:
    """The last commit of this package's sources, with "+" if they were changed since, or else the version."""
    package = Path(__file__).resolve().parents[2]
    log = ["log", "-1", "--format=%h", "--abbrev=12", "--", package]
    outputs = []
    for command in (log, ["status", "--porcelain", "-uno", "--", package]):
        try:
            git = ["git", "-C", package, *command]
            done = subprocess.run(git, capture_output=True, text=True, check=True, timeout=30)
        except (OSError, subprocess.SubprocessError):
            return __version__
        outputs.append(done.stdout.strip())
    commit, changes = outputs  # no commit below another project's repository
    return f"{commit}{'+' if changes else ''}" if commit else __version__


def checkpoint_sha256(model: str) -> str | None:
    """The hash of weights and settings in a checkpoint's folder; None for a name on the Hub."""
    names = ("*.safetensors", "*.bin", "*.json", "*.txt")
    files = sorted(file for name in names for file in Path(model).glob(name) if file.is_file())
    hashes = "\n".join(f"{file.name} {hash_file(file)}" for file in files)
    return hashlib.sha256(hashes.encode()).hexdigest() if files else None


def recipe_settings(recipe: Recipe | FinetuneConfig) -> dict[str, Any]:
    """All settings that decide the result of a run: `section.key` (short form of a recipe's key) → value.

    A mapping that is not a section, even an empty one, stays one value.
    """

    def flat(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
        for name, value in section.model_dump(mode="json").items():
            if isinstance(inner := getattr(section, name), BaseModel):
                yield from flat(inner, f"{prefix}{name}.")
            else:
                yield Recipe.short(prefix + name) if isinstance(recipe, Recipe) else prefix + name, value

    return {key: value for key, value in flat(recipe) if key not in NO_EFFECT}


def value_at(settings: Mapping[str, Any], key: str) -> Any:
    """The content of `recipe_settings` at a key: a value, the section below it, or UNKNOWN."""
    if key in settings:
        return settings[key]
    start = f"{key}."
    section = {name.removeprefix(start): value for name, value in settings.items() if name.startswith(start)}
    return section or UNKNOWN


def differing_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Setting → its two values, if they differ; a section that only one of them has is compared as a whole.

    Settings that one of them does not know belong to another version of this package and are left out.
    """
    differing: dict[str, tuple[Any, Any]] = {}
    for name in sorted(first.keys() | second.keys()):
        for key in accumulate(name.split("."), "{}.{}".format):
            values = value_at(first, key), value_at(second, key)
            if (key in first or key in second) and UNKNOWN not in values and values[0] != values[1]:
                differing[key] = values
    return differing


def check_recipe(runs: Iterable[StoredRun]) -> None:
    """Check that recipe and defaults are those of the finished runs, because results must not be mixed.

    Raises:
        ConfigError: A setting that the experiment itself does not give has changed since.
    """
    for run in runs:
        if (stored := run.result.get("recipe")) is None:
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


def write_cell(cell: Cell, folder: Path, spec: Spec) -> None:
    """Store the settings of a run, and where the user's own metrics lie."""
    content = {name: getattr(cell, name) for name in ("verb", "recipe", "labels", "settings", "test")}
    content |= {"keep": spec.keep, "metrics": str(spec.folder.resolve())}
    write_text(folder / CELL, json.dumps(content, indent=1, default=str))


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
        keep, metrics = stored.pop("keep"), Path(stored.pop("metrics", "."))
        cell, versions = Cell(**stored), folder / VERSIONS
        # The code of each attempt, before training, while which the source tree may change.
        before: list[str] = read_json(versions)["versions"] if versions.exists() else []
        commits = list(dict.fromkeys([*before, code_version()]))
        write_text(versions, json.dumps({"versions": commits}))
        with Stopwatch(folder) as watch:
            result = (_train if cell.verb == "train" else _finetune)(cell, folder, metrics)
        result |= {"process_seconds": watch.seconds, "commit": ", ".join(commits), "command": cell.command()}
        write_text(folder / RESULT, json.dumps(result, indent=1))
        if keep != "all":
            shutil.rmtree(folder / MODEL / ("" if keep == "scores" else "checkpoints"), ignore_errors=True)
        return result


_FACTS = (
    *("seed", "versions", "data_sha256", "processor", "threads", "precision", "source_table"),
    *("best_step", "last_step", "seconds", "seconds_per_epoch", "processor_seconds_per_epoch"),
    *("never_predicted", "dev_predictions"),
)


def _facts(model: Path, run: Mapping[str, Any], recipe: Recipe | FinetuneConfig) -> dict[str, Any]:
    return {
        **{name: run[name] for name in _FACTS if name in run},
        "n_parameters": sum(tensor.numel() for tensor in load_tensors(model / WEIGHTS).values()),
        "recipe": recipe_settings(recipe),
    }


def named_tests(cell: Cell) -> dict[str, NamedTest]:
    """The test sets of a run that have names."""
    return {name: NamedTest(**test) for name, test in ((cell.test or {}).get("tests") or {}).items()}


def _train(cell: Cell, folder: Path, metrics: Path) -> dict[str, Any]:
    """Train a translator and score it on the test sets, during training on those that ask for it."""
    from syntaxformer.translation.training import train_translator
    from syntaxformer.translation.translator import Translator

    model, tests, along = folder / MODEL, named_tests(cell), folder / ALONG
    recipe: Any = resolve(cell, model)

    def score_along(translator: Translator, step: int) -> None:
        scores: dict[str, Any] = read_json(along) if along.exists() else {}
        scores[str(step)] = {}
        for name, test in tests.items():
            if test.along:
                scored = score_translations(translator, name, test, metrics)
                scores[str(step)] |= results_of(name, scored)["metrics"]
        write_text(along, json.dumps(scores))

    if not (model / MANIFEST).exists():
        is_along = any(test.along for test in tests.values())
        train_translator(recipe, resume=True, at_evaluation=score_along if is_along else None)
    run = read_json(model / "run.json")
    result = _facts(model, run, recipe)
    # The dev loss at each evaluation, and BLEU where it was measured.
    result["curve"] = [
        {"step": point["step"], "value": point["loss"]} | ({"bleu": point["bleu"]} if "bleu" in point else {})
        for point in run.get("evaluations", ())
    ]
    on_dev = {name: run[name] for name in ("dev_loss", "dev_bleu") if name in run}
    on_test = _translate(cell, folder, result) if "src" in (cell.test or {}) else {}
    result["metrics"] = {**on_test, **on_dev}
    if along.exists():
        steps = sorted((int(step), scores) for step, scores in read_json(along).items())
        result["along"] = {str(step): scores for step, scores in steps}
        result["metrics"] |= {f"{metric}_last": value for metric, value in steps[-1][1].items()}
    if tests:
        translator = Translator.load(model, trust_annotator=True)
        for name, test in tests.items():
            _add_test(result, name, test, score_translations(translator, name, test, metrics), metrics)
    return result


def _add_test(result: dict[str, Any], name: str, test: NamedTest, scored: Scored, metrics: Path) -> None:
    facts = results_of(name, scored) | {"test_sha256": test_hashes(name, test, metrics)}
    for key, values in facts.items():
        result[key] = {**result.get(key, {}), **values}


def _translate(cell: Cell, folder: Path, result: dict[str, Any]) -> dict[str, float]:
    """Translate and score the test set; the translations are kept for tests over sentences."""
    from syntaxformer.syntax import read_user_values
    from syntaxformer.translation.scoring import reference_note, score_table, score_translator, scoring
    from syntaxformer.translation.translator import Translator

    test = {side: file for side, file in (cell.test or {}).items() if side != "tests"}
    translator = Translator.load(folder / MODEL, test.pop("annotator", None), trust_annotator=True)
    files = {side: Path(corpus_path(file)) for side, file in test.items()}
    result["scoring"], result["references"] = scoring(translator.info), reference_note(translator.info)
    result["test_sha256"] = {side: hash_file(file) for side, file in files.items()}
    lines = [list(read_lines(files.pop(side))) for side in ("src", "ref")]
    factors = {name.removeprefix("factors."): read_user_values(file) for name, file in files.items()}
    scored = score_translator(translator, *lines, user_factors=factors)
    for name, lines in ((HYPOTHESES, scored.hypotheses), (REFERENCES, scored.references)):
        write_text(folder / name, "".join(f"{line}\n" for line in lines))
    table = score_table(
        {"": scored.hypotheses}, scored.references, note=result["references"], **result["scoring"]
    )
    signatures = table["signatures"]
    result["signatures"] = {"bleu": scored.scores.bleu_signature, "chrf": scored.scores.chrf_signature}
    result["signatures"] |= {"chrf++": signatures["chrF++"], "ter": signatures["TER"]}
    return corpus_scores(scored, table)


def _finetune(cell: Cell, folder: Path, metrics: Path) -> dict[str, Any]:
    """Fine-tune an encoder and score it on dev and, as `test_…`, on the test split if there is one."""
    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.encoders.finetuning import finetune

    model = folder / MODEL
    config: Any = resolve(cell, model)
    if not (model / MANIFEST).exists():
        finetune(config, resume=True)
    run = read_json(model / "run.json")
    rate, dev = run["learning_rate"], run["dev"]
    best = next((trial["epochs"] for trial in run["trials"] if trial["learning_rate"] == rate), [])
    result = _facts(model, run, config)
    result["curve"] = [{"step": epoch, "value": point["score"]} for epoch, point in enumerate(best, 1)]
    result["metrics"] = {"score": dev.get("mean", next(iter(dev.values()))), **dev}
    if cell.test is not None:
        classifier = Classifier.from_folder(model, trust_annotator=True)
        for name, test in named_tests(cell).items():
            _add_test(result, name, test, score_predictions(classifier, test, metrics), metrics)
    if split := (cell.test or {}).get("split"):
        texts = _labelled_split(config.task, config.data.dir, split)
        predictions = classifier.predict_set(texts, cache=config.data.cache)
        scores = classifier.score(texts, predictions)
        scores = {"score": scores.get("mean", next(iter(scores.values()))), **scores}
        result["metrics"] |= {f"test_{name}": round(value, 6) for name, value in scores.items()}
        gold = [example.label for example in texts.examples]
        answers = classifier.task_type.encode(predictions.labels)
        result["test_predictions"] = {
            side: " ".join(f"{value:.6g}" for value in values)
            for side, values in (("gold", gold), ("found", answers))
        }
        result.setdefault("test_sha256", {})[texts.name] = hash_examples(texts.examples)
    return {**result, "learning_rate": rate, "model_sha256": checkpoint_sha256(config.model)}


@lru_cache(maxsize=1)  # the cells of an experiment are checked one by one
def _labelled_split(task: str, folder: Path | None, split: str) -> TextSet:
    if task in OWN_TASKS or folder is None:
        raise ConfigError(f"test_split: expected a task with official files in data.dir, got {task}.")
    texts = read_any_split(find_task(task), folder, split)
    if any(example.label is None for example in texts.examples):
        raise ConfigError(f"test_split: expected one with labels, got {split!r} of {task}.")
    return texts


OwnMetric = Callable[[Any, str, str, Mapping[str, str]], float]
"""Source (of a pair, both texts), hypothesis, reference and the columns of a line → its value."""

MOST_VALUES = 40
"""Numeric columns of more values get no means by value."""


@dataclass(frozen=True)
class Scored:
    """Values of one test set.

    Args:
        columns: The properties of each line.
        lines: Metric → its value for each line.
        totals: Metric → its value, of those that have none for a line, as BLEU.
    """

    columns: Sequence[Mapping[str, str]]
    lines: dict[str, list[float]]
    totals: dict[str, float] = field(default_factory=dict)

    @property
    def means(self) -> dict[str, float]:
        """Metric → its value on the whole set."""
        return {name: fmean(values) for name, values in self.lines.items()} | self.totals

    def by_column(self) -> dict[str, dict[str, dict[str, list[float]]]]:
        """Metric → numeric column → value → mean of the metric and number of lines."""
        names = dict.fromkeys(name for row in self.columns for name in row)
        tables: dict[str, dict[str, dict[str, list[float]]]] = {metric: {} for metric in self.lines}
        for name in names:
            numbers = [number_of(row.get(name, "")) for row in self.columns]
            cells = [number for number in numbers if number is not None and math.isfinite(number)]
            if len(cells) < len(numbers) or len({*cells}) > MOST_VALUES:
                continue
            for metric, of_lines in self.lines.items():
                groups: dict[float, list[float]] = {value: [] for value in sorted({*cells})}
                for cell, of_line in zip(cells, of_lines, strict=True):
                    groups[cell].append(of_line)
                tables[metric][name] = {
                    f"{value:g}": [round(fmean(group), 6), len(group)] for value, group in groups.items()
                }
        return tables


def own_metric(metric: str, folder: Path) -> OwnMetric:
    """The user's own function of FILE.py:NAME, whose file lies in a folder.

    Raises:
        ConfigError: There is no such file or function, or the file fails.
    """
    file, _, name = metric.rpartition(":")
    path = (folder / file).resolve()
    expected = f"metrics: expected the function {name} in {path}"
    try:
        names = runpy.run_path(str(path), run_name=f"metrics_of_{path.stem}")
    except Exception as error:  # also the file's own
        raise ConfigError(f"{expected}, got {type(error).__name__}: {error}.") from error
    if not callable(function := names.get(name)):
        got = f"{function!r}, which is none" if name in names else f"no {name}"
        raise ConfigError(f"{expected}, got {got}.")
    return cast("OwnMetric", function)


def _values(
    metric: str,
    folder: Path,
    sources: Sequence[Any],
    texts: Sequence[tuple[str, str]],
    columns: Sequence[Mapping[str, str]],
) -> list[float]:
    function, values = own_metric(metric, folder), list[float]()
    for number, (source, pair, row) in enumerate(zip(sources, texts, columns, strict=True), 1):
        try:
            value = float(function(source, *pair, row))
        except Exception as error:  # the user's own
            message = f"{metric}: expected a number for line {number}, got {type(error).__name__}: {error}."
            raise ConfigError(message) from error
        if not math.isfinite(value):
            raise ConfigError(f"{metric}: expected a finite number for line {number}, got {value}.")
        values.append(value)
    return values


def _columns(test: NamedTest, n_lines: int) -> list[dict[str, str]]:
    """The properties of each line, nothing without a table of them; DataError if it does not fit."""
    path = test.columns or test.table
    if path is None:
        return [{}] * n_lines
    rows = read_table(corpus_path(path)).rows
    if broken := next((row for row in rows if row.problem), None):
        raise DataError(broken.problem, path, broken.number)
    if len(rows) != n_lines:
        raise DataError(f"expected {n_lines} rows, one for each line of the test, got {len(rows)}.", path)
    return [{name: row.text(name) for name in row.cells} for row in rows]


def score_translations(translator: Translator, name: str, test: NamedTest, folder: Path) -> Scored:
    """Translate a test set and score each line; own metrics lie in a folder.

    The annotator is that of the test, or else the model's; of one that has a file for each split, that of
    the split with the name of the test.

    Raises:
        ConfigError: A metric of the user's own fails.
        DataError: A file cannot be used.
    """
    from syntaxformer.syntax import read_user_values
    from syntaxformer.translation.contrast import read_contrasts
    from syntaxformer.translation.scoring import score_table, score_translator, scoring

    if translator.encoder.needs_words and translator.annotator is not None:
        annotator = test.annotator or annotator_for(translator.annotator, name)
        translator = translator.with_annotator(annotator)
    if test.contrast is not None:
        contrasts = read_contrasts(corpus_path(test.contrast))
        scores = translator.score(
            [line.source for line in contrasts], [line.translations for line in contrasts]
        )
        columns = [{key: str(value) for key, value in (line.model_extra or {}).items()} for line in contrasts]
        right = [float(all(best.log_prob > other.log_prob for other in wrong)) for best, *wrong in scores]
        return Scored(columns, dict.fromkeys(test.metrics, right))
    sources, references = (list(read_lines(corpus_path(side))) for side in (test.src, test.ref))
    factors = {factor: read_user_values(corpus_path(file)) for factor, file in test.factors.items()}
    scored = score_translator(translator, sources, references, user_factors=factors)
    texts: Any = list(zip(scored.hypotheses, scored.references, strict=True))
    columns, lines, totals = _columns(test, len(texts)), dict[str, list[float]](), dict[str, float]()
    for metric in test.metrics:
        if metric == "exact_match":
            lines[metric] = [float(hypothesis == reference) for hypothesis, reference in texts]
        elif OWN_METRIC.fullmatch(metric):
            lines[metric_name(metric)] = _values(metric, folder, sources, texts, columns)
    if of_corpus := [metric for metric in test.metrics if metric in TEST_SCORES]:
        table = score_table({"": scored.hypotheses}, scored.references, **scoring(translator.info))
        scores = corpus_scores(scored, table)
        totals = {metric: scores[metric] for metric in of_corpus}
    return Scored(columns, lines, totals)


def corpus_scores(scored: Any, table: Mapping[str, Any]) -> dict[str, float]:
    """Metric of `TEST_SCORES` → its value on a text, from `score_translator` and the table of its outputs."""
    scores, of_table = scored.scores, table["systems"][""]
    return {"bleu": scores.bleu, "chrf": scores.chrf, "chrf++": of_table["chrF++"], "ter": of_table["TER"]}


def score_predictions(classifier: Classifier, test: NamedTest, folder: Path) -> Scored:
    """Predict the rows of a labelled table and score each; own metrics lie in a folder.

    Raises:
        ConfigError: A metric of the user's own fails, or the task has no such metric.
        DataError: The table cannot be used, or a row has no label.
    """
    from syntaxformer.encoders.prediction import read_texts_for

    texts = read_texts_for(classifier.info, str(corpus_path(test.table)))
    predictions = classifier.predict_set(texts)
    of_task = classifier.score(texts, predictions)
    columns, lines, totals = _columns(test, len(texts)), dict[str, list[float]](), dict[str, float]()
    names, of_label = classifier.task_type.names, classifier.info.label_column or ""
    gold = [example.label for example in texts.examples]
    for number, label in enumerate(gold):
        if names and isinstance(label, int):  # or a class that training did not have, as the table writes it
            gold[number] = names[label] if label < len(names) else columns[number].get(of_label, "")
    labels = list(zip(map(str, predictions.labels), map(str, gold), strict=True))
    sources = [e.texts[0] if len(e.texts) == 1 else e.texts for e in texts.examples]
    for metric in test.metrics:
        if OWN_METRIC.fullmatch(metric):
            lines[metric_name(metric)] = _values(metric, folder, sources, labels, columns)
        elif metric == "accuracy":
            lines[metric] = [float(predicted == gold) for predicted, gold in labels]
        elif metric in of_task:
            totals[metric] = of_task[metric]
        else:
            known = ", ".join(of_task)
            raise ConfigError(f"tests: expected a metric of this task, {known}, got {metric}.")
    return Scored(columns, lines, totals)


def packed(values: Sequence[float]) -> str:
    """Values of lines as short text, for a store."""
    text = " ".join(f"{value:.6g}" for value in values)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(text: str) -> list[float]:
    """The values that `packed` made text of."""
    return [float(value) for value in zlib.decompress(base64.b64decode(text)).split()]


def results_of(name: str, scored: Scored) -> dict[str, dict[str, Any]]:
    """What a run stores of a test set: means, packed values of lines, and means by column."""
    return {
        "metrics": {f"{name}_{metric}": round(value, 6) for metric, value in scored.means.items()},
        "lines": {f"{name}_{metric}": packed(values) for metric, values in scored.lines.items()},
        "by_column": {f"{name}_{metric}": table for metric, table in scored.by_column().items() if table},
    }


def test_hashes(name: str, test: NamedTest, folder: Path) -> dict[str, str]:
    """What a test set read → its hash: texts, columns, factors, and files of the user's own metrics."""
    files = {side: getattr(test, side) for side in ("src", "ref", "contrast", "table", "columns")}
    if test.src is not None:  # a contrastive test reads none
        files |= {f"factors.{factor}": file for factor, file in test.factors.items()}
    hashes = {f"{name} {side}": hash_file(Path(corpus_path(file))) for side, file in files.items() if file}
    programs = {metric.rpartition(":")[0] for metric in test.metrics if OWN_METRIC.fullmatch(metric)}
    return hashes | {f"{name} {file}": hash_file(folder / file) for file in sorted(programs)}


def problems_of(name: str, test: NamedTest, folder: Path) -> Iterator[str]:
    """What would keep a test set from being scored, found without a model."""
    from syntaxformer.translation.contrast import read_contrasts

    try:
        for metric in test.metrics:
            if OWN_METRIC.fullmatch(metric):
                own_metric(metric, folder)
        if test.contrast is not None:
            read_contrasts(corpus_path(test.contrast))
        elif test.table is not None:
            if not Path(corpus_path(test.table)).exists():
                yield f"tests.{name}.table: expected a file, found none at {test.table}."
        elif problems := [*line_problems(f"tests.{name}", test)]:
            yield from problems
        else:
            _columns(test, sum(1 for _ in read_lines(corpus_path(test.src))))
    except (ConfigError, DataError) as error:
        yield f"tests.{name}: {error}"


def line_problems(key: str, test: ScoredText | NamedTest) -> Iterator[str]:
    """Problems of the files of a text, which has this key: unreadable, or of different length."""
    counts, files = {}, {"src": test.src, "ref": test.ref}
    files |= {f"factors.{name}": file for name, file in test.factors.items()}
    for side, file in files.items():
        try:
            counts[side] = sum(1 for _ in read_lines(corpus_path(file)))
        except DataError as error:
            yield f"{key}.{side}: {error}"
    n_lines = counts.pop("src", None)
    for side, count in counts.items():
        if n_lines is not None and (count != n_lines or not count):
            yield (
                f"{key}.{side}: expected as many lines as in {key}.src, at least one, got {count} in "
                f"{corpus_path(files[side])} and {n_lines} in src."
            )


def check_experiment(spec: Spec, runs: Mapping[str, StoredRun]) -> None:
    """Check that each run would start and can be scored, and that finished runs have the same recipe.

    For a search, one value of each setting is checked.

    Raises:
        ConfigError: Lists all problems of settings and test files, or names a recipe that was edited since.
    """
    combinations = spec.combinations()
    runs_of: dict[str, list[str]] = {}  # problem → names of the runs that have it
    for labels in combinations:
        try:
            of_cell = list(_cell_problems(spec, spec.cell(labels, spec.searched)))
        except ConfigError as error:
            of_cell = error.problems
        except DataError as error:
            of_cell = [str(error)]
        for problem in of_cell:
            runs_of.setdefault(problem, []).append(in_words(labels))
    # Each problem once, with the first run that has it, unless all runs have it.
    problems = [
        problem if len(names) == len(combinations) or not names[0] else f"{names[0]}: {problem}"
        for problem, names in runs_of.items()
    ]
    if spec.test is not None:
        problems += line_problems("test", spec.test)
    for name, test in spec.tests.items():
        problems += problems_of(name, test, spec.folder)
    states = {key: run.state for key, run in runs.items()}
    is_finished = all(states.get(cell.key) == DONE for cell in tuned(spec, runs).cells())
    if not problems and not is_finished:
        problems += chain.from_iterable(_rate_problems(spec, contrast) for contrast in spec.report.planned)
    if problems:
        raise ConfigError(problems)
    check_recipe(own_runs(spec, runs).values())


RATE = "training.learning_rate"
FEWEST_CHOOSING = 3
"""Seeds of `tune` at least, if it chooses the learning rates of a planned comparison."""


def _rate_problems(spec: Spec, contrast: Contrast) -> Iterator[str]:
    """Both sides have one learning rate, or each its own, chosen by one rule with several seeds."""
    if spec.tune is not None and any(RATE in key for key in spec.tune.space):
        if len(spec.tune.seeds) < FEWEST_CHOOSING:
            yield (
                f"tune.seeds: expected {FEWEST_CHOOSING} or more, as {contrast.words} is planned and its "
                f"learning rates are chosen, got {len(spec.tune.seeds)}."
            )
        return
    first = {axis: next(iter(spec.levels(axis))) for axis in spec.axes}
    cells = [spec.cell(first | side, spec.searched) for side in contrast.sides]
    rates = list(dict.fromkeys(str(recipe_settings(resolve(cell)).get(RATE)) for cell in cells))
    if rates == ["auto"] or len(rates) > 1:
        yield (
            f"{RATE}: expected one for both sides of {contrast.words}, or tune with several seeds, "
            f"got {', '.join(rates)}."
        )


def _cell_problems(spec: Spec, cell: Cell) -> Iterator[str]:
    config = resolve(cell)
    key, judged = ("search.metric", spec.search) if spec.search else ("tune.metric", spec.tune)
    if isinstance(config, FinetuneConfig):
        metrics = (OWN_TASKS.get(config.task) or find_task(config.task)).metrics
        if split := (cell.test or {}).get("split"):
            _labelled_split(config.task, config.data.dir, split)
        known = ["score", *metrics, *(["mean"] if len(metrics) > 1 else [])]
        chosen = {key: judged.metric} if judged else {}
        if "task" in spec.settings and spec.report.metrics:
            chosen["report.metrics"] = spec.report.metrics[0]
        for key, metric in chosen.items():
            if metric.removeprefix("test_") not in known and metric not in spec.test_metrics():
                yield f"{key}: expected a metric of {config.task}, {', '.join(known)}, got {metric}."
        return
    if judged is not None and judged.metric == "dev_bleu" and config.training.best_by == "loss":
        yield f"{key}: expected dev_loss with training.best_by loss, got dev_bleu."
    factors, annotator = [name for name, _ in config.width_plan().factors], config.annotation.annotator or ""
    reads_words = bool(factors or config.syntax_inputs(training=False).needs)
    tests: dict[str, Any] = {"test": spec.test} if spec.test else {}
    for key, test in (tests | {f"tests.{name}": test for name, test in spec.tests.items()}).items():
        if languages := ", ".join(config.data.directions):
            remedy = "Score it with `syntaxformer evaluate --to`."
            yield f"{key}: expected a recipe of one target language, got one of {languages}. {remedy}"
        missing = [name for name in factors if name in config.data.factor_files and name not in test.factors]
        if missing:
            names = ", ".join(missing)
            yield f"{key}.factors: expected a file for each factor of your own, got none for {names}."
        if not reads_words:
            continue
        if test.annotator is None and SPLIT in annotator:
            if isinstance(test, NamedTest):
                _parsed_file(annotator, key.removeprefix("tests."))
            else:
                yield f"{key}.annotator: expected one for the test text as well as {annotator}, got none."
        if test.annotator not in (None, annotator) and not config.annotation.force:
            language = language_of_side(config.data, config.data.src)
            choose_annotator(test.annotator, language, f"{key}.annotator")


@lru_cache(maxsize=64)  # the cells of an experiment are checked one by one
def _parsed_file(annotator: str, name: str) -> None:
    """Check that an annotator with a file for each split has one for a named test; DataError if not."""
    annotator_for(load_annotator(annotator), name)
