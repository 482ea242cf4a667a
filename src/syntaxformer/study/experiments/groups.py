"""Groups the runs of an experiment, and tests the differences between groups.

A group is all seeds of one combination of levels. This module computes numbers; `report` writes them.
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

    def values(self, metric: str, seeds: Sequence[str] | None = None) -> list[float]:
        """The values of one metric, in the order of the seeds, from the runs that have it."""
        wanted = self.runs if seeds is None else seeds
        found = (self.runs[seed].metrics.get(metric) for seed in wanted)
        return [float(value) for value in found if value is not None]

    def spread(self, metric: str) -> Spread:
        """Mean and standard deviation of one metric."""
        return spread(self.values(metric))

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
    if written := run.result.get("dev_predictions"):
        return len(set(written["found"].split())) == 1
    return any(run.metrics.get(name) == 0 for name in ("matthews", "pearson", "spearman"))


def group_runs(spec: Spec, runs: Mapping[str, StoredRun]) -> list[Group]:
    """Groups in the order of the grid, including those without finished runs."""
    planned: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for cell in spec.cells():
        labels = tuple((axis, level) for axis, level in cell.labels.items() if axis != SEED)
        planned.setdefault(labels, {})[cell.labels.get(SEED, "")] = cell.key
    done = {key: run for key, run in runs.items() if run.state == DONE}
    return [
        Group(dict(labels), {seed: done[key] for seed, key in keys.items() if key in done}, len(keys))
        for labels, keys in planned.items()
    ]


def metric_names(spec: Spec, groups: Sequence[Group]) -> list[str]:
    """Columns of the report: those of the specification, or else BLEU, chrF++ and TER, or else all metrics.

    Older runs have chrF in place of chrF++ and TER.

    A metric that only a number of the paper names also gets a column.
    """
    if spec.report.metrics:
        return spec.report.metrics
    found = [run.metrics for group in groups for run in group.runs.values()]
    names = dict.fromkeys(name for one in found for name, value in one.items() if value is not None)
    of_text = ("bleu", "chrf++", "ter") if "chrf++" in names else ("bleu", "chrf")
    preferred = [name for name in of_text if name in names]
    of_paper = [one.metric for one in spec.report.paper if one.metric is not None]
    return list(dict.fromkeys([*(preferred or names or spec.metrics()[:1]), *of_paper]))


def compare_groups(
    spec: Spec, store: RunStore, group: Group, groups: Sequence[Group], metric: str, levels: Mapping[str, str]
) -> Difference | None:
    """Compare a group with the one that has these levels (baseline or control) and is otherwise the same.

    The result is None if there is no such group, if it is the same group, or if they share no seed.
    """
    wanted = {**group.labels, **levels}
    other = next((one for one in groups if one.labels == wanted), None)
    if not levels or other is None or wanted == group.labels:
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
    rest = [{axis: level for axis, level in one.labels.items() if axis not in axes} for one in groups]
    chosen = [
        dict(zip(names, levels, strict=True))
        for size in range(1, len(axes) + 1)
        for names in combinations(axes, size)
        for levels in product(*(axes[name][1:] for name in names))
    ]
    for place, among in enumerate(rest):
        for effect in chosen if among not in rest[:place] else ():
            parts: list[tuple[float, Group]] = []
            for one in groups:
                weight = math.prod(_weight(axes[axis], one.labels[axis], effect.get(axis)) for axis in axes)
                if weight and matches(one.labels, among):
                    parts.append((weight, one))
            n_needed = math.prod(2 if axis in effect else len(levels) for axis, levels in axes.items())
            size = _contrast(spec, store, parts, metric) if len(parts) == n_needed else None
            yield " × ".join(f"{axis} {level}" for axis, level in effect.items()), among, size


def _weight(levels: Sequence[str], level: str, chosen: str | None) -> float:
    """The weight of an axis' level in the effect of a chosen one, or in that of other axes (None)."""
    return 1 / len(levels) if chosen is None else float(level == chosen) - float(level == levels[0])


def _contrast(
    spec: Spec, store: RunStore, parts: Sequence[tuple[float, Group]], metric: str
) -> Difference | None:
    """The sum of weighted scores of groups, for each seed that all of them have; None if there is none."""
    measured = [
        {seed for seed, run in group.runs.items() if run.metrics.get(metric) is not None}
        for _, group in parts
    ]
    seeds = [seed for seed in parts[0][1].runs if all(seed in one for one in measured)]
    if not seeds:
        return None
    columns = [(weight, group.values(metric, seeds)) for weight, group in parts]
    minus, plus = (
        [
            math.fsum(max(0.0, sign * weight) * one[place] for weight, one in columns)
            for place in range(len(seeds))
        ]
        for sign in (-1, 1)
    )
    per_seed = [gained - one for one, gained in zip(minus, plus, strict=True)]
    gains, agree = spread(per_seed), min(per_seed) >= 0 or max(per_seed) <= 0
    rows = [[group.runs[seed] for _, group in parts] for seed in seeds]
    n_constant = sum(any(map(is_constant, row)) for row in rows)
    p_seeds, p_sentences, interval = math.nan, [], None
    if not n_constant:
        p_seeds = paired_t_test(minus, plus)
        if metric == "bleu" and len(parts) == 2:
            p_sentences, interval = _bootstrap(spec, store, [(one, other) for one, other in rows])
        elif spec.verb == "finetune":
            weights = [weight for weight, _ in parts]
            p_sentences, interval = _bootstrap_rows(store, rows, metric, weights)
    return Difference(gains.mean, gains.sd, gains.n, p_seeds, p_sentences, agree, interval, n_constant)


def paper_number(spec: Spec, labels: Mapping[str, str], metric: str, first: str) -> PaperNumber | None:
    """The number that the paper reports for a group; a number without a metric belongs to the first."""
    numbers = (one for one in spec.report.paper if (one.metric or first) == metric)
    return next((one for one in numbers if matches(labels, one.cell)), None)


def paper_gain(spec: Spec, labels: Mapping[str, str], metric: str, first: str) -> float | None:
    """The gain that the paper reports for a group over its own baseline; None for a baseline."""
    own = paper_number(spec, labels, metric, first)
    if own is None or matches(labels, spec.report.baseline):
        return None
    if own.baseline is not None:
        return own.value - own.baseline
    baseline = paper_number(spec, {**labels, **spec.report.baseline}, metric, first)
    return None if baseline is None else own.value - baseline.value


def _bootstrap_rows(
    store: RunStore, rows: Sequence[Sequence[StoredRun]], metric: str, weights: Sequence[float]
) -> tuple[list[float], tuple[float, float] | None]:
    """As `_bootstrap`, over examples; nothing where a run has no predictions, as in earlier stores.

    The runs of each seed have these weights. Metrics that begin with `test_` are those of the test split.
    """
    name = metric.removeprefix("test_")
    split = "dev_predictions" if name == metric else "test_predictions"
    sides: list[Any] = [one.result.get(split) for row in rows for one in row]
    own = [one for one in rows[0][0].metrics if one in CLASSIFICATION_METRICS | REGRESSION_METRICS]
    if None in sides or len({one["gold"] for one in sides}) > 1 or name not in ("score", "mean", *own):
        return [], None
    read = [np.array(one["found"].split(), float) for one in sides]
    gold, names = np.array(sides[0]["gold"].split(), float), [name] if name in own else own
    path = store.folder / "bootstrap.json"
    known: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    content = [metric, *sides] if weights == [-1.0, 1.0] else [metric, weights, *sides]
    if (key := hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]) not in known:

        def score(labels: np.ndarray, found: np.ndarray) -> float:
            return fmean(score_predictions(names, labels, found)[one] for one in names)

        of_seeds = [read[start : start + len(weights)] for start in range(0, len(read), len(weights))]
        p_values, gain = bootstrap_rows(score, gold, of_seeds, weights=weights)
        known[key] = [p_values, gain.low, gain.high]
        write_text(path, json.dumps(known, indent=1, sort_keys=True))
    p_values, low, high = known[key]
    return p_values, (low, high) if len(rows) > 1 else None


def _bootstrap(
    spec: Spec, store: RunStore, pairs: Sequence[tuple[StoredRun, StoredRun]]
) -> tuple[list[float], tuple[float, float] | None]:
    """The p-value of each pair, and the interval of the mean gain; computed once and kept with the store.

    They remain if translations are deleted, or are not published with the store. Where one is missing, the
    p-values are an empty list and the interval is None.
    """
    if spec.test is None:
        return [], None
    path = store.folder / "bootstrap.json"
    known: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    found, names, n_known, texts = [], [], len(known), []
    for baseline, system in pairs:
        pair = f"{baseline.cell.key} {system.cell.key}"
        files = [store.cell_folder(one.cell) / HYPOTHESES for one in (baseline, system)]
        if not any(file.exists() for file in files):
            # Use the value from when both had translations, unless there are several for different ones.
            kept = [name for name in known if name.startswith(f"{pair} ") and ", " not in name]
            names.append(kept[0] if len(kept) == 1 else "")
            found.append(known.get(names[-1], math.nan))
            continue
        prepared = [file.with_name(REFERENCES) for file in files]  # in the form of the systems' output
        references = prepared[1] if prepared[1].exists() else spec.test.ref
        hashes = [hash_file(file)[:12] if file.exists() else "none" for file in (*files, Path(references))]
        names.append(" ".join([pair, *hashes]))
        # Scores with different forms of references, or different options, have no common test over sentences.
        alike = len({hash_file(file) for file in prepared if file.exists()}) < 2
        alike = alike and baseline.result.get("scoring") == system.result.get("scoring")
        if all(file.exists() for file in files) and alike:
            lines = [list(read_lines(file)) for file in (*files, references)]
            texts.append((lines, system.result.get("scoring") or {}))
            if names[-1] not in known:
                known[names[-1]] = compare_translations(*lines, **texts[-1][1]).p_value
        found.append(known.get(names[-1], math.nan))
    whole = ", ".join(names)
    if len(pairs) > 1 and len(texts) == len(pairs) and whole not in known:
        (*_, references), options = texts[0]
        if all(lines[2] == references and other == options for lines, other in texts):
            gain = bootstrap_gain([(lines[0], lines[1]) for lines, _ in texts], references, **options)
            known[whole] = [gain.low, gain.high]
    if len(known) > n_known:
        write_text(path, json.dumps(known, indent=1, sort_keys=True))
    interval = known.get(whole) if len(pairs) > 1 else None
    return [] if any(map(math.isnan, found)) else found, interval and (interval[0], interval[1])


def x_figures(
    spec: Spec, groups: Sequence[Group], differences: Sequence[Difference | None], metric: str, folder: Path
) -> list[Block]:
    """Figures of the first metric along the x axis and of its gain over the baseline, ours and the paper's.

    Each combination of the other axes is a line.
    """
    x_axis, scale = spec.report.x, spec.report.scale
    if x_axis is None:
        return []
    lines: dict[str, list[tuple[float, Group, Difference | None]]] = {}
    for group, difference in zip(groups, differences, strict=True):
        name = ", ".join(level for axis, level in group.labels.items() if axis != x_axis)
        x = spec.report.x_number(group.labels[x_axis])
        lines.setdefault(name or spec.name, []).append((x, group, difference))
    scores: dict[str, Curve] = {}
    gains: dict[str, Curve] = {}
    for name, members in lines.items():
        spreads = [(x, group.spread(metric)) for x, group, _ in members if group.runs]
        printed = [(x, paper_number(spec, group.labels, metric, metric)) for x, group, _ in members]
        gained = [(x, paper_gain(spec, group.labels, metric, metric)) for x, group, _ in members]
        scores |= _curve(name, [(x, one.mean, one.sd) for x, one in spreads], scale)
        scores |= _curve(f"{name} (paper)", [(x, one.value, math.nan) for x, one in printed if one])
        gains |= _curve(name, [(x, one.mean, one.sd) for x, _, one in members if one], scale)
        points = [(x, gain, math.nan) for x, gain in gained if gain is not None]
        gains |= _curve(f"{name} (paper)", points)
    caption = f"{metric} by {x_axis}, mean and deviation"
    blocks = _drawn(spec, scores, folder / "by_size.png", metric, caption)
    if spec.report.baseline:
        caption = f"gain in {metric} over the baseline by {x_axis}"
        blocks += _drawn(spec, gains, folder / "gain_by_size.png", f"Δ {metric}", caption)
    return blocks


def curve_figures(spec: Spec, groups: Sequence[Group], folder: Path) -> list[Block]:
    """Figures of learning curves on dev, averaged over seeds; compared systems share a figure."""
    compared = set(spec.report.baseline) or {axis for axis in spec.axes if axis != "seed"}
    scale = 1.0 if spec.verb == "train" else spec.report.scale  # a loss is not scaled
    panels: dict[str, dict[str, Curve]] = {}
    for group in groups:
        panel = ", ".join(level for axis, level in group.labels.items() if axis not in compared)
        own = {axis: level for axis, level in group.labels.items() if axis in compared}
        name = in_words(own) if len(own) > 1 else "".join(own.values())
        panels.setdefault(panel, {}).update(_curve(name or "run", _mean_curve(group), scale))
    # A curve of one point shows no more than the table.
    drawn = {panel: some for panel, some in panels.items() if any(len(one.x) > 1 for one in some.values())}
    files = file_names([panel or "all" for panel in drawn])
    blocks: list[Block] = []
    for panel, curves in drawn.items():
        file = f"curve_{files[panel or 'all']}.png"
        axis, unit = ("loss on dev", "update") if spec.verb == "train" else ("score on dev", "epoch")
        draw_curves(curves, folder / file, unit, axis)
        shown = f"{axis} {panel}" if panel else axis
        blocks.append(Figure(file, f"{shown}, mean over seeds, up to where the first of them stopped"))
    return [Heading("Learning curves"), *blocks] if blocks else []


def _mean_curve(group: Group) -> list[tuple[float, float, float]]:
    """The mean at points that all seeds have; later points would average only seeds that trained longer."""
    runs = [{one["step"]: one["value"] for one in run.result.get("curve", [])} for run in group.runs.values()]
    drawn = [run for run in runs if run]
    shared = set[float]().union(*drawn).intersection(*drawn)
    return [(step, spread([run[step] for run in drawn]).mean, math.nan) for step in sorted(shared)]


def trial_figures(
    spec: Spec,
    search: SearchConfig,
    title: str,
    trials: Sequence[StoredRun],
    folder: Path,
    files: Mapping[str, str],
) -> list[Block]:
    """Figures of the judged metric by each searched number; `files` maps "TITLE_SETTING" to a file."""
    blocks: list[Block] = []
    for name, space in search.space.items():
        points = [
            (one.cell.settings[name], value, math.nan)
            for one in trials
            if isinstance(one.cell.settings[name], int | float)
            and (value := trial_value(search, one)) is not None
        ]
        if len(points) > 1:
            file = f"trials_{files[f'{title}_{name}']}.png"
            draw_curves(
                _curve("trials", points, spec.report.scale), folder / file, name, search.metric, space.log
            )
            blocks.append(Figure(file, f"{search.metric} by {name}"))
    return blocks


def _curve(name: str, points: Sequence[tuple[float, float, float]], scale: float = 1.0) -> dict[str, Curve]:
    if not points:
        return {}
    x, y, error = (list(side) for side in zip(*sorted(points), strict=True))
    errors = None
    if not all(map(math.isnan, error)):
        errors = [0.0 if math.isnan(one) else one * scale for one in error]
    return {name: Curve(x, [one * scale for one in y], errors)}


def _drawn(spec: Spec, curves: Mapping[str, Curve], path: Path, y_label: str, caption: str) -> list[Block]:
    measured = {x for name, curve in curves.items() if not name.endswith("(paper)") for x in curve.x}
    if len(measured) < 2:
        return []
    values = [x for curve in curves.values() for x in curve.x]
    log_x = min(values) > 0 and max(values) >= 10 * min(values)
    draw_curves(curves, path, spec.report.x_label or spec.report.x or "", y_label, log_x)
    return [Figure(path.name, caption)]


def file_names(texts: Sequence[str]) -> dict[str, str]:
    """Text → file name; texts with the same name, ignoring case, are numbered."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for text in dict.fromkeys(texts):
        name = plain = re.sub(r"[^\w.]+", "-", text).strip("-") or "all"
        number = 1
        while name.casefold() in taken:
            number += 1
            name = f"{plain}-{number}"
        taken.add(name.casefold())
        names[text] = name
    return names
