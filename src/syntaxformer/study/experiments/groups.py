"""Groups the runs of an experiment, and tests and draws the differences between groups.

A group is all seeds of one combination of levels. `report` writes the tables.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from syntaxformer.base.files import hash_file, read_lines, write_text
from syntaxformer.base.statistics import Spread, bootstrap_rows, paired_t_test, seed_interval, spread
from syntaxformer.encoders.metrics import CLASSIFICATION_METRICS, REGRESSION_METRICS, score_predictions
from syntaxformer.study.document import Block, Figure, Heading
from syntaxformer.study.experiments.cell import HYPOTHESES, REFERENCES
from syntaxformer.study.experiments.spec import SEED, PaperNumber, SearchConfig, Spec, in_words, matches
from syntaxformer.study.experiments.store import DONE, RunStore, StoredRun, trial_value
from syntaxformer.study.plots import Curve, draw_curves
from syntaxformer.translation.scoring import bootstrap_gain, compare_translations


@dataclass(frozen=True)
class Group:
    """The finished seeds of one combination ("" without a seed axis), and the number that the grid has."""

    labels: dict[str, str]
    runs: dict[str, StoredRun]
    n_planned: int

    def spread(self, metric: str) -> Spread:
        """Mean and standard deviation of one metric, over the runs that have it."""
        values = (run.metrics.get(metric) for run in self.runs.values())
        return spread([float(value) for value in values if value is not None])

    @property
    def n_constant(self) -> int:
        """The number of runs that predict one class only."""
        return sum(map(is_constant, self.runs.values()))


@dataclass(frozen=True)
class Difference:
    """The difference of a group from its baseline or a control, or an effect, over the seeds that all have.

    Args:
        mean: Mean difference of the first metric.
        sd: Standard deviation of the differences.
        n: Number of seeds.
        p_seeds: Paired t-test over seeds; NaN for fewer than two.
        p_sentences: Paired bootstrap over sentences for each seed, ascending by seed; empty without outputs.
        agree: Whether all seeds differ in the same direction; if not, the p-value of one does not count.
        interval: 95 % interval of the mean, by bootstrap over seeds and sentences; None without outputs.
        n_constant: Seeds in which a run predicts one class only; if there is one, there is no p or interval.
    """

    mean: float
    sd: float
    n: int
    p_seeds: float
    p_sentences: list[float]
    agree: bool
    interval: tuple[float, float] | None = None
    n_constant: int = 0

    @property
    def over_seeds(self) -> tuple[float, float]:
        """95 % interval of the mean by Student's t over seeds; NaN where `p_seeds` is."""
        sd = math.nan if math.isnan(self.p_seeds) else self.sd
        return seed_interval(Spread(self.mean, sd, self.n))


def is_constant(run: StoredRun) -> bool:
    """Whether a fine-tuned run predicts one class, or one number, for all rows of dev.

    Runs of an earlier version have no predictions: there it is a correlation of exactly 0.
    """
    if predictions := run.result.get("dev_predictions"):
        return len(set(predictions["found"].split())) == 1
    return any(run.metrics.get(name) == 0 for name in ("matthews", "pearson", "spearman"))


def group_runs(spec: Spec, runs: Mapping[str, StoredRun]) -> list[Group]:
    """Groups in the order of the grid, including those without finished runs."""
    groups: dict[str, Group] = {}
    for cell in spec.cells():
        labels = {axis: level for axis, level in cell.labels.items() if axis != SEED}
        group = groups.setdefault(json.dumps(labels), Group(labels, {}, 0))
        if cell.key in runs and runs[cell.key].state == DONE:
            group.runs[cell.labels.get(SEED, "")] = runs[cell.key]
        groups[json.dumps(labels)] = Group(labels, group.runs, group.n_planned + 1)
    return list(groups.values())


def metric_names(spec: Spec, groups: Sequence[Group]) -> list[str]:
    """Columns of the report: those of the specification, or else BLEU, chrF++ and TER, or else all metrics.

    Older runs have chrF in place of chrF++ and TER.
    """
    if spec.report.metrics:
        return spec.report.metrics
    runs = (run for group in groups for run in group.runs.values())
    names = list(
        dict.fromkeys(name for run in runs for name, value in run.metrics.items() if value is not None)
    )
    of_text = ("bleu", "chrf++", "ter") if "chrf++" in names else ("bleu", "chrf")
    return [name for name in of_text if name in names] or names or spec.metrics()[:1]


def compare_groups(
    spec: Spec, store: RunStore, group: Group, groups: Sequence[Group], metric: str, levels: Mapping[str, str]
) -> Difference | None:
    """Compare a group with the one that has these levels (baseline or control) and is otherwise the same.

    The result is None if there is no such group, if it is the same group, or if they share no seed.
    """
    labels = {**group.labels, **levels}
    other = next((other for other in groups if other.labels == labels), None)
    if not levels or other is None or labels == group.labels:
        return None
    return _contrast(spec, store, [(-1.0, other), (1.0, group)], metric)


def effects(
    spec: Spec, store: RunStore, groups: Sequence[Group], metric: str
) -> Iterator[tuple[str, dict[str, str], Difference | None]]:
    """Main effects and interactions of the axes `spec.effects`, for each combination of the other axes.

    With y the score of a combination in one seed, the main effect of a level is y(level) − y(first level),
    averaged over all levels of the other axes of `effects`. The interaction of two levels is the difference
    between the effects of one with and without the other, (y₁₁ − y₀₁) − (y₁₀ − y₀₀), averaged likewise; that
    of three is the difference between two such, and so on.

    Yields:
        The name of the effect, the combination, and the size over the seeds that all its groups have; None
        if a group is missing or they share no seed.

    Source: Box, Hunter and Hunter (2005), chapter 5. Differs: their interactions are half of ours.
    """
    axes = {axis: list(spec.levels(axis)) for axis in spec.effects}
    contrasts = [
        dict(zip(names, levels, strict=True))
        for size in range(1, len(axes) + 1)
        for names in combinations(axes, size)
        for levels in product(*(axes[name][1:] for name in names))
    ]
    among: dict[str, list[Group]] = {}
    for group in groups:
        rest = {axis: level for axis, level in group.labels.items() if axis not in axes}
        among.setdefault(json.dumps(rest), []).append(group)
    for text, members in among.items():
        for effect in contrasts:
            weighted = []
            for group in members:
                weight = 1.0
                for axis, levels in axes.items():
                    level = group.labels[axis]
                    is_in = float(level == effect.get(axis)) - float(level == levels[0])
                    weight *= is_in if axis in effect else 1 / len(levels)
                if weight:
                    weighted.append((weight, group))
            n_needed = math.prod(2 if axis in effect else len(levels) for axis, levels in axes.items())
            size = _contrast(spec, store, weighted, metric) if len(weighted) == n_needed else None
            yield " × ".join(f"{axis} {level}" for axis, level in effect.items()), json.loads(text), size


def _contrast(
    spec: Spec, store: RunStore, weighted: Sequence[tuple[float, Group]], metric: str
) -> Difference | None:
    """The sum of weighted scores of groups, for each seed that all of them have; None if there is none."""
    weights, groups = zip(*weighted, strict=True)
    has_metric = [
        {seed for seed, run in group.runs.items() if run.metrics.get(metric) is not None} for group in groups
    ]
    seeds = [seed for seed in groups[0].runs if seed in set.intersection(*has_metric)]
    rows = [[group.runs[seed] for group in groups] for seed in seeds]
    if not rows:
        return None
    scores = [[float(run.metrics[metric] or 0) for run in row] for row in rows]
    minus, plus = (
        [math.fsum(max(0.0, sign * w) * y for w, y in zip(weights, row, strict=True)) for row in scores]
        for sign in (-1, 1)
    )
    per_seed = [after - before for before, after in zip(minus, plus, strict=True)]
    gains, agree = spread(per_seed), min(per_seed) >= 0 or max(per_seed) <= 0
    n_constant = sum(any(map(is_constant, row)) for row in rows)
    p_seeds, p_sentences, interval = math.nan, [], None
    if not n_constant:
        p_seeds = paired_t_test(minus, plus)
        if metric == "bleu" and len(weights) == 2:
            p_sentences, interval = _bootstrap_texts(spec, store, rows)
        elif spec.verb == "finetune":
            p_sentences, interval = _bootstrap_predictions(store, rows, metric, weights)
    return Difference(gains.mean, gains.sd, gains.n, p_seeds, p_sentences, agree, interval, n_constant)


def paper_number(spec: Spec, labels: Mapping[str, str]) -> PaperNumber | None:
    """The number that the paper reports for a group."""
    return next((printed for printed in spec.report.paper if matches(labels, printed.cell)), None)


def paper_gain(spec: Spec, labels: Mapping[str, str]) -> float | None:
    """The gain that the paper reports for a group over its own baseline; None for a baseline."""
    printed = paper_number(spec, labels)
    if printed is None or matches(labels, spec.report.baseline):
        return None
    if printed.baseline is not None:
        return printed.value - printed.baseline
    baseline = paper_number(spec, {**labels, **spec.report.baseline})
    return None if baseline is None else printed.value - baseline.value


Resampled = tuple[list[float], tuple[float, float] | None]
"""The p-value of each seed, and the interval of the mean gain over several seeds."""


def _read_known(store: RunStore) -> tuple[Path, dict[str, Any]]:
    """What was resampled before: it remains if outputs are deleted, or are not published with the store."""
    path = store.folder / "bootstrap.json"
    return path, json.loads(path.read_text("utf-8")) if path.exists() else {}


def _bootstrap_predictions(
    store: RunStore, rows: Sequence[Sequence[StoredRun]], metric: str, weights: Sequence[float]
) -> Resampled:
    """Resample examples; nothing where a run has no predictions, as in earlier stores.

    The runs of each seed have these weights. Metrics that begin with `test_` are those of the test split.
    """
    name = metric.removeprefix("test_")
    split = "dev_predictions" if name == metric else "test_predictions"
    sides: list[Any] = [run.result.get(split) for row in rows for run in row]
    known_metrics = CLASSIFICATION_METRICS | REGRESSION_METRICS
    of_task = [metric for metric in rows[0][0].metrics if metric in known_metrics]
    if None in sides or len({side["gold"] for side in sides}) > 1 or name not in ("score", "mean", *of_task):
        return [], None
    path, known = _read_known(store)
    content = [metric, *sides] if list(weights) == [-1.0, 1.0] else [metric, list(weights), *sides]
    key = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
    if key not in known:
        gold, names = np.array(sides[0]["gold"].split(), float), [name] if name in of_task else of_task
        predictions = [np.array(side["found"].split(), float) for side in sides]
        n = len(weights)
        of_seeds = [predictions[start : start + n] for start in range(0, len(predictions), n)]

        def score(labels: np.ndarray, predicted: np.ndarray) -> float:
            return fmean(score_predictions(names, labels, predicted)[name] for name in names)

        p_values, gain = bootstrap_rows(score, gold, of_seeds, weights=weights)
        known[key] = [p_values, gain.low, gain.high]
        write_text(path, json.dumps(known, indent=1, sort_keys=True))
    p_values, low, high = known[key]
    return p_values, (low, high) if len(rows) > 1 else None


def _bootstrap_texts(spec: Spec, store: RunStore, pairs: Sequence[Sequence[StoredRun]]) -> Resampled:
    """Resample sentences. Where a translation is missing, there are no p-values, or no interval."""
    if spec.test is None:
        return [], None
    path, known = _read_known(store)
    n_known, keys, p_values, texts = len(known), [], [], []
    for baseline, system in pairs:
        pair = f"{baseline.cell.key} {system.cell.key}"
        files = [store.cell_folder(run.cell) / HYPOTHESES for run in (baseline, system)]
        if not any(file.exists() for file in files):
            # Use the value from when both had translations, unless there are several for different ones.
            earlier = [key for key in known if key.startswith(f"{pair} ") and ", " not in key]
            keys.append(earlier[0] if len(earlier) == 1 else "")
            p_values.append(known.get(keys[-1], math.nan))
            continue
        prepared = [file.with_name(REFERENCES) for file in files]  # in the form of the systems' output
        references = prepared[1] if prepared[1].exists() else Path(spec.test.ref)
        hashes = [hash_file(file)[:12] if file.exists() else "none" for file in (*files, references)]
        keys.append(" ".join([pair, *hashes]))
        # Scores with different forms of references, or different options, have no common test over sentences.
        n_forms = len({hash_file(file) for file in prepared if file.exists()})
        options = system.result.get("scoring")
        if all(file.exists() for file in files) and n_forms < 2 and baseline.result.get("scoring") == options:
            lines = [list(read_lines(file)) for file in (*files, references)]
            texts.append((lines, options or {}))
            if keys[-1] not in known:
                known[keys[-1]] = compare_translations(*lines, **(options or {})).p_value
        p_values.append(known.get(keys[-1], math.nan))
    of_all = ", ".join(keys)
    if len(texts) == len(pairs) > 1 and of_all not in known:
        (*_, references), options = texts[0]
        if all(lines[2] == references and other == options for lines, other in texts):
            outputs = [(lines[0], lines[1]) for lines, _ in texts]
            gain = bootstrap_gain(outputs, references, **options)
            known[of_all] = [gain.low, gain.high]
    if len(known) > n_known:
        write_text(path, json.dumps(known, indent=1, sort_keys=True))
    interval = known.get(of_all) if len(pairs) > 1 else None
    return [] if any(map(math.isnan, p_values)) else p_values, interval and (interval[0], interval[1])


Point = tuple[float, float, float]
"""x, y, and half the height of the error bar or NaN."""


def _curve(name: str, points: Sequence[Point], scale: float = 1.0) -> dict[str, Curve]:
    if not points:
        return {}
    x, y, errors = zip(*sorted(points), strict=True)
    bars = None
    if not all(map(math.isnan, errors)):
        bars = [0.0 if math.isnan(error) else error * scale for error in errors]
    return {name: Curve(list(x), [value * scale for value in y], bars)}


def x_figures(
    spec: Spec, groups: Sequence[Group], differences: Sequence[Difference | None], metric: str, folder: Path
) -> list[Block]:
    """Figures of the first metric along the x axis and of its gain over the baseline, ours and the paper's.

    Each combination of the other axes is a line.
    """
    x_axis, scale = spec.report.x, spec.report.scale
    if x_axis is None:
        return []
    lines: dict[str, list[tuple[Group, Difference | None]]] = {}
    for group, difference in zip(groups, differences, strict=True):
        name = ", ".join(level for axis, level in group.labels.items() if axis != x_axis)
        lines.setdefault(name or spec.name, []).append((group, difference))
    scores: dict[str, Curve] = {}
    gains: dict[str, Curve] = {}
    for name, members in lines.items():
        points: list[list[Point]] = [[], [], [], []]
        for group, difference in members:
            x, score = spec.report.x_number(group.labels[x_axis]), group.spread(metric)
            printed, gain = paper_number(spec, group.labels), paper_gain(spec, group.labels)
            points[0] += [(x, score.mean, score.sd)] * bool(group.runs)
            points[1] += [(x, printed.value, math.nan)] if printed else []
            points[2] += [(x, difference.mean, difference.sd)] if difference else []
            points[3] += [] if gain is None else [(x, gain, math.nan)]
        scores |= _curve(name, points[0], scale) | _curve(f"{name} (paper)", points[1])
        gains |= _curve(name, points[2], scale) | _curve(f"{name} (paper)", points[3])
    figures = [(scores, "by_size.png", metric, f"{metric} by {x_axis}, mean and deviation")]
    if spec.report.baseline:
        caption = f"gain in {metric} over the baseline by {x_axis}"
        figures.append((gains, "gain_by_size.png", f"Δ {metric}", caption))
    blocks: list[Block] = []
    for curves, file, y_label, caption in figures:
        if len({x for name, curve in curves.items() if not name.endswith("(paper)") for x in curve.x}) > 1:
            values = [x for curve in curves.values() for x in curve.x]
            log_x = min(values) > 0 and max(values) >= 10 * min(values)
            draw_curves(curves, folder / file, spec.report.x_label or x_axis, y_label, log_x)
            blocks.append(Figure(file, caption))
    return blocks


def curve_figures(spec: Spec, groups: Sequence[Group], folder: Path) -> list[Block]:
    """Figures of learning curves on dev, averaged over seeds; compared systems share a figure.

    A mean ends at the last point that all seeds have: later ones would average only those that went on.
    """
    compared = set(spec.report.baseline) or {axis for axis in spec.axes if axis != SEED}
    scale = 1.0 if spec.verb == "train" else spec.report.scale  # a loss is not scaled
    axis, unit = ("loss on dev", "update") if spec.verb == "train" else ("score on dev", "epoch")
    panels: dict[str, dict[str, Curve]] = {}
    for group in groups:
        levels = {axis: level for axis, level in group.labels.items() if axis in compared}
        panel = ", ".join(level for axis, level in group.labels.items() if axis not in compared)
        curves = [
            {point["step"]: point["value"] for point in run.result["curve"]}
            for run in group.runs.values()
            if run.result.get("curve")
        ]
        shared = set[float]().union(*curves).intersection(*curves)
        means = [(step, spread([curve[step] for curve in curves]).mean, math.nan) for step in shared]
        name = in_words(levels) if len(levels) > 1 else "".join(levels.values())
        panels.setdefault(panel, {}).update(_curve(name or "run", means, scale))
    # A curve of one point shows no more than the table.
    panels = {
        panel: curves
        for panel, curves in panels.items()
        if any(len(curve.x) > 1 for curve in curves.values())
    }
    files = file_names([panel or "all" for panel in panels])
    blocks: list[Block] = [Heading("Learning curves")] if panels else []
    for panel, curves in panels.items():
        file = f"curve_{files[panel or 'all']}.png"
        draw_curves(curves, folder / file, unit, axis)
        title = f"{axis} {panel}" if panel else axis
        blocks.append(Figure(file, f"{title}, mean over seeds, up to where the first of them stopped"))
    return blocks


def trial_figures(
    spec: Spec, search: SearchConfig, trials: Sequence[StoredRun], folder: Path, files: Mapping[str, str]
) -> list[Block]:
    """Figures of the judged metric by each searched number; `files` maps a setting to a file's name."""
    blocks: list[Block] = []
    for name, space in search.space.items():
        points = [
            (trial.cell.settings[name], value, math.nan)
            for trial in trials
            if isinstance(trial.cell.settings[name], int | float)
            and (value := trial_value(search, trial)) is not None
        ]
        if len(points) > 1:
            file, curves = f"trials_{files[name]}.png", _curve("trials", points, spec.report.scale)
            draw_curves(curves, folder / file, name, search.metric, space.log)
            blocks.append(Figure(file, f"{search.metric} by {name}"))
    return blocks


def file_names(texts: Sequence[str]) -> dict[str, str]:
    """Text → file name; texts with the same name, ignoring case, are numbered."""
    names: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        name = plain = re.sub(r"[^\w.]+", "-", text).strip("-") or "all"
        number = 1
        while name.casefold() in map(str.casefold, names.values()):
            number += 1
            name = f"{plain}-{number}"
        names[text] = name
    return names
