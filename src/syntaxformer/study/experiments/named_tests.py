"""Named test sets of an experiment, scored line by line: shipped metrics, and functions of the user's own."""

from __future__ import annotations

import base64
import math
import runpy
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from syntaxformer.annotate.annotator import annotator_for
from syntaxformer.base.config import corpus_path
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import hash_file, read_lines
from syntaxformer.encoders.tables import number_of, read_table
from syntaxformer.study.experiments.spec import OWN_METRIC, TEST_SCORES, NamedTest, ScoredText, metric_name

if TYPE_CHECKING:
    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.translation.translator import Translator

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
    """The values of the user's own metric for hypotheses and references."""
    function, values = own_metric(metric, folder), list[float]()
    for number, (source, (hypothesis, reference), row) in enumerate(
        zip(sources, texts, columns, strict=True), 1
    ):
        try:
            value = float(function(source, hypothesis, reference, row))
        except Exception as error:  # the user's own
            message = f"{metric}: expected a number for line {number}, got {type(error).__name__}: {error}."
            raise ConfigError(message) from error
        if not math.isfinite(value):
            raise ConfigError(f"{metric}: expected a finite number for line {number}, got {value}.")
        values.append(value)
    return values


def _columns(test: NamedTest, n_lines: int) -> list[dict[str, str]]:
    """The properties of each line, nothing without a table of them.

    Raises:
        DataError: The table has another number of rows than the text, or a broken one.
    """
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
    of_table = table["systems"][""]
    return {
        "bleu": scored.scores.bleu,
        "chrf": scored.scores.chrf,
        "chrf++": of_table["chrF++"],
        "ter": of_table["TER"],
    }


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
