"""The figures of an experiment's report."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from syntaxformer.base.statistics import seed_interval, spread
from syntaxformer.study.document import Block, Figure, Heading
from syntaxformer.study.experiments.groups import Difference, Group, paper_gain, paper_number
from syntaxformer.study.experiments.spec import SEED, SearchConfig, Spec, in_words
from syntaxformer.study.experiments.store import StoredRun, trial_value
from syntaxformer.study.plots import Curve, draw_curves, draw_points

Point = tuple[float, float, float]
"""x, y, and half the height of the error bar or NaN."""


def _curves(points_of: Mapping[str, Sequence[Point]]) -> dict[str, Curve]:
    curves = {}
    for name, points in points_of.items():
        if points:
            x, y, errors = zip(*sorted(points), strict=True)
            has_bars = not all(map(math.isnan, errors))
            bars = [0.0 if math.isnan(error) else error for error in errors] if has_bars else None
            curves[name] = Curve(list(x), list(y), bars)
    return curves


def _means(of_runs: Iterable[Mapping[float, float]], scale: float) -> list[Point]:
    """The mean over runs at each x that all have, and half of its 95 % interval, NaN for one run."""
    of_seeds = [values for values in of_runs if values]
    shared = set[float]().union(*of_seeds).intersection(*of_seeds)
    means = {x: spread([values[x] for values in of_seeds]) for x in shared}
    return [(x, scale * runs.mean, scale * (seed_interval(runs)[1] - runs.mean)) for x, runs in means.items()]


def x_figures(
    spec: Spec, groups: Sequence[Group], differences: Sequence[Difference | None], metric: str, folder: Path
) -> list[Block]:
    """Figures of the first metric along the x axis and of its gain over the baseline, ours and the paper's.

    Each combination of the other axes is a line.
    """
    x_axis, scale = spec.report.x, spec.report.scale
    if x_axis is None:
        return []
    scores, gains = defaultdict[str, list[Point]](list), defaultdict[str, list[Point]](list)
    for group, difference in zip(groups, differences, strict=True):
        name = ", ".join(level for axis, level in group.labels.items() if axis != x_axis) or spec.name
        x, score = spec.report.x_number(group.labels[x_axis]), group.spread(metric)
        printed, gain = paper_number(spec, group.labels), paper_gain(spec, group.labels)
        scores[name] += [(x, scale * score.mean, scale * score.sd)] if group.runs else []
        scores[f"{name} (paper)"] += [(x, printed.value, math.nan)] if printed else []
        gains[name] += [(x, scale * difference.mean, scale * difference.sd)] if difference else []
        gains[f"{name} (paper)"] += [] if gain is None else [(x, gain, math.nan)]
    figures = [(_curves(scores), "by_size.png", metric, f"{metric} by {x_axis}, mean and deviation")]
    if spec.report.baseline:
        caption = f"gain in {metric} over the baseline by {x_axis}"
        figures.append((_curves(gains), "gain_by_size.png", f"Δ {metric}", caption))
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
    scale, y_label, unit = 1.0, "loss on dev", "update"  # a loss is not scaled
    if spec.verb == "finetune":
        scale, y_label, unit = spec.report.scale, "score on dev", "epoch"
    panels: dict[str, dict[str, list[Point]]] = {}
    for group in groups:
        levels = {axis: level for axis, level in group.labels.items() if axis in compared}
        panel = ", ".join(level for axis, level in group.labels.items() if axis not in compared)
        name = in_words(levels) if len(levels) > 1 else "".join(levels.values())
        curves = [run.result.get("curve") or () for run in group.runs.values()]
        means = _means(({point["step"]: point["value"] for point in curve} for curve in curves), scale)
        panels.setdefault(panel, {})[name or "run"] = [(step, mean, math.nan) for step, mean, _ in means]
    # A curve of one point shows no more than the table.
    drawn = [panel for panel, curves in panels.items() if any(len(points) > 1 for points in curves.values())]
    files = file_names(drawn)
    blocks: list[Block] = [Heading("Learning curves")] if drawn else []
    for panel in drawn:
        file = f"curve_{files[panel]}.png"
        draw_curves(_curves(panels[panel]), folder / file, unit, y_label)
        title = f"{y_label} {panel}" if panel else y_label
        blocks.append(Figure(file, f"{title}, mean over seeds, up to where the first of them stopped"))
    return blocks


def named_test_figures(spec: Spec, groups: Sequence[Group], folder: Path) -> list[Block]:
    """Figures of planned metrics by seed, of `report.by` along a column, and of scores along training."""
    runs_of = {", ".join(group.labels.values()) or "run": [*group.runs.values()] for group in groups}
    blocks: list[Block] = []
    for metric in dict.fromkeys(contrast.metric for contrast in spec.report.planned if contrast.metric):
        points: dict[str, list[float]] = {}
        for name, runs in runs_of.items():
            scores = [score for run in runs if (score := run.metrics.get(metric)) is not None]
            points |= {name: [float(score) * spec.report.scale for score in scores]} if scores else {}
        if points:
            draw_points(points, folder / f"seeds_{metric}.png", metric)
            caption = f"{metric}: a point for each seed, a line for the mean"
            blocks.append(Figure(f"seeds_{metric}.png", caption))
    interval = "mean over seeds with its 95 % interval (Student's t)"
    for metric, column in spec.report.by.items():
        means: dict[str, list[Point]] = {}
        for name, runs in runs_of.items():
            tables = [run.result.get("by_column", {}).get(metric, {}).get(column, {}) for run in runs]
            of_runs = ({float(value): mean for value, (mean, _) in table.items()} for table in tables)
            means[name] = _means(of_runs, spec.report.scale)
        if curves := _curves(means):
            file = f"{metric}_by_{file_names([column])[column]}.png"
            draw_curves(curves, folder / file, column, metric)
            blocks.append(Figure(file, f"{metric} by {column}, {interval}"))
    along = {name: [run.result.get("along", {}) for run in runs] for name, runs in runs_of.items()}
    evaluations = chain.from_iterable(steps.values() for steps in chain.from_iterable(along.values()))
    metrics = dict.fromkeys(chain.from_iterable(evaluations))
    blocks += [Heading("Along training")] if metrics else []
    for metric in metrics:
        means = {}
        for name, runs in along.items():
            of_runs = (
                {float(step): scores[metric] for step, scores in run.items() if metric in scores}
                for run in runs
            )
            means[name] = _means(of_runs, spec.report.scale)
        banded = {name: replace(curve, is_band=True) for name, curve in _curves(means).items()}
        draw_curves(banded, folder / f"along_{metric}.png", "update", metric)
        blocks.append(Figure(f"along_{metric}.png", f"{metric} along training, {interval}"))
    return blocks


def trial_figures(
    spec: Spec, search: SearchConfig, trials: Sequence[StoredRun], folder: Path, files: Mapping[str, str]
) -> list[Block]:
    """Figures of the judged metric by each searched number; `files` maps a setting to a file's name."""
    blocks: list[Block] = []
    for name, space in search.space.items():
        points = [
            (trial.cell.settings[name], spec.report.scale * value, math.nan)
            for trial in trials
            if isinstance(trial.cell.settings[name], int | float)
            and (value := trial_value(search, trial)) is not None
        ]
        if len(points) > 1:
            file, curves = f"trials_{files[name]}.png", _curves({"trials": points})
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
