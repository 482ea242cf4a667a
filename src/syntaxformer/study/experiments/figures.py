"""The figures of an experiment's report."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from syntaxformer.base.statistics import seed_interval, spread
from syntaxformer.study.document import Block, Figure, Heading
from syntaxformer.study.experiments.groups import Difference, Group, paper_gain, paper_number
from syntaxformer.study.experiments.spec import SEED, SearchConfig, Spec, in_words
from syntaxformer.study.experiments.store import StoredRun, trial_value
from syntaxformer.study.plots import Curve, draw_curves, draw_points

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
        measured, of_paper, differing, of_paper_gain = (list[Point]() for _ in range(4))
        for group, difference in members:
            x, score = spec.report.x_number(group.labels[x_axis]), group.spread(metric)
            if group.runs:
                measured.append((x, score.mean, score.sd))
            if difference is not None:
                differing.append((x, difference.mean, difference.sd))
            if (printed := paper_number(spec, group.labels)) is not None:
                of_paper.append((x, printed.value, math.nan))
            if (gain := paper_gain(spec, group.labels)) is not None:
                of_paper_gain.append((x, gain, math.nan))
        scores |= _curve(name, measured, scale) | _curve(f"{name} (paper)", of_paper)
        gains |= _curve(name, differing, scale) | _curve(f"{name} (paper)", of_paper_gain)
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
    scale, y_label, unit = 1.0, "loss on dev", "update"  # a loss is not scaled
    if spec.verb == "finetune":
        scale, y_label, unit = spec.report.scale, "score on dev", "epoch"
    panels: dict[str, dict[str, Curve]] = {}
    for group in groups:
        levels = {axis: level for axis, level in group.labels.items() if axis in compared}
        panel = ", ".join(level for axis, level in group.labels.items() if axis not in compared)
        of_seeds = [
            {point["step"]: point["value"] for point in run.result["curve"]}
            for run in group.runs.values()
            if run.result.get("curve")
        ]
        means = [(step, mean, math.nan) for step, mean, _ in _with_intervals(of_seeds)]
        name = in_words(levels) if len(levels) > 1 else "".join(levels.values())
        panels.setdefault(panel, {}).update(_curve(name or "run", means, scale))
    # A curve of one point shows no more than the table.
    drawn = [panel for panel, curves in panels.items() if any(len(curve.x) > 1 for curve in curves.values())]
    files = file_names(drawn)
    blocks: list[Block] = [Heading("Learning curves")] if drawn else []
    for panel in drawn:
        curves, file = panels[panel], f"curve_{files[panel]}.png"
        draw_curves(curves, folder / file, unit, y_label)
        title = f"{y_label} {panel}" if panel else y_label
        blocks.append(Figure(file, f"{title}, mean over seeds, up to where the first of them stopped"))
    return blocks


def _name(group: Group) -> str:
    return ", ".join(group.labels.values()) or "run"


def seed_figures(spec: Spec, groups: Sequence[Group], folder: Path) -> list[Block]:
    """A figure for each planned metric: a point for each seed, and the mean of each combination."""
    blocks: list[Block] = []
    for metric in dict.fromkeys(contrast.metric for contrast in spec.report.planned if contrast.metric):
        points = {
            _name(group): [
                float(value) * spec.report.scale
                for run in group.runs.values()
                if (value := run.metrics.get(metric)) is not None
            ]
            for group in groups
        }
        if any(points.values()):
            file = f"seeds_{metric}.png"
            draw_points({name: values for name, values in points.items() if values}, folder / file, metric)
            blocks.append(Figure(file, f"{metric}: a point for each seed, a line for the mean"))
    return blocks


def column_figures(spec: Spec, groups: Sequence[Group], folder: Path) -> list[Block]:
    """A figure for each of `report.by`: a metric by a numeric property of the lines, with intervals."""
    blocks: list[Block] = []
    for metric, column in spec.report.by.items():
        curves: dict[str, Curve] = {}
        for group in groups:
            tables = [run.result.get("by_column", {}).get(metric, {}) for run in group.runs.values()]
            of_seeds = [
                {float(value): mean for value, (mean, _) in table[column].items()}
                for table in tables
                if column in table
            ]
            curves |= _curve(_name(group), _with_intervals(of_seeds), spec.report.scale)
        if curves:
            file = f"{metric}_by_{file_names([column])[column]}.png"
            draw_curves(curves, folder / file, column, metric)
            caption = f"{metric} by {column}, mean over seeds with its 95 % interval (Student's t)"
            blocks.append(Figure(file, caption))
    return blocks


def along_figures(spec: Spec, groups: Sequence[Group], folder: Path) -> list[Block]:
    """A figure for each metric that was scored during training: means over seeds with bands."""
    metrics = dict.fromkeys(
        metric
        for group in groups
        for run in group.runs.values()
        for scores in run.result.get("along", {}).values()
        for metric in scores
    )
    blocks: list[Block] = [Heading("Along training")] if metrics else []
    for metric in metrics:
        curves: dict[str, Curve] = {}
        for group in groups:
            of_seeds = [
                {float(step): scores[metric] for step, scores in along.items() if metric in scores}
                for run in group.runs.values()
                if (along := run.result.get("along"))
            ]
            curves |= _curve(_name(group), _with_intervals(of_seeds), spec.report.scale)
        file = f"along_{metric}.png"
        banded = {name: replace(curve, is_band=True) for name, curve in curves.items()}
        draw_curves(banded, folder / file, "update", metric)
        caption = f"{metric} along training, mean over seeds with its 95 % interval (Student's t)"
        blocks.append(Figure(file, caption))
    return blocks


def _with_intervals(of_seeds: Sequence[Mapping[float, float]]) -> list[Point]:
    """The mean of y over seeds at each x that all have, and half of its 95 % interval, NaN for one seed."""
    shared = set[float]().union(*of_seeds).intersection(*of_seeds)
    means = {x: spread([curve[x] for curve in of_seeds]) for x in shared}
    return [(x, runs.mean, seed_interval(runs)[1] - runs.mean) for x, runs in means.items()]


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
