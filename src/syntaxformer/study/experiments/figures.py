"""Figures of a report: score by data size, gain by data size, learning curves, trials of a search."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from syntaxformer.base.statistics import spread
from syntaxformer.study.charts import Curve, draw_curves
from syntaxformer.study.document import Block, Figure, Heading
from syntaxformer.study.experiments.groups import Difference, Group, paper_gain, paper_number
from syntaxformer.study.experiments.search import trial_value
from syntaxformer.study.experiments.spec import SearchConfig, Spec
from syntaxformer.study.experiments.store import StoredRun

__all__ = ["curve_figures", "file_names", "gain_figure", "size_figure", "trial_figures"]


def size_figure(spec: Spec, groups: Sequence[Group], metric: str, folder: Path) -> list[Block]:
    """The first metric along the x axis, a line for each combination of the other axes, and the paper's."""
    if spec.report.x is None:
        return []
    curves: dict[str, Curve] = {}
    for name, members in _lines(spec, groups).items():
        points = [(_x(spec, one), one.spread(metric)) for one in members if one.runs]
        curves |= _curve(name, [(x, y.mean, y.sd) for x, y in points], spec.report.scale)
        paper = [(_x(spec, one), paper_number(spec, one.labels, metric, metric)) for one in members]
        curves |= _curve(f"{name} (paper)", [(x, y, math.nan) for x, y in paper if y is not None], 1.0)
    return _drawn(
        spec, curves, folder / "by_size.png", metric, f"{metric} by {spec.report.x}, mean and deviation"
    )


def gain_figure(
    spec: Spec, groups: Sequence[Group], differences: Sequence[Difference | None], metric: str, folder: Path
) -> list[Block]:
    """Differences to the baseline along the x axis, ours and the paper's."""
    if spec.report.x is None or not spec.report.baseline:
        return []
    of_group = {id(group): one for group, one in zip(groups, differences, strict=True)}
    curves: dict[str, Curve] = {}
    for name, members in _lines(spec, groups).items():
        ours = [(_x(spec, group), of_group[id(group)]) for group in members]
        points = [(x, one.mean, one.sd) for x, one in ours if one is not None]
        curves |= _curve(name, points, spec.report.scale)
        curves |= _curve(f"{name} (paper)", _paper_gains(spec, members, metric), 1.0)
    caption = f"gain in {metric} over the baseline by {spec.report.x}"
    return _drawn(spec, curves, folder / "gain_by_size.png", f"Δ {metric}", caption)


def curve_figures(spec: Spec, groups: Sequence[Group], folder: Path) -> list[Block]:
    """Learning curves on dev, mean over seeds; systems that are compared share a figure."""
    compared = set(spec.report.baseline) or {axis for axis in spec.axes if axis != "seed"}
    panels: dict[str, dict[str, Curve]] = {}
    for group in groups:
        panel = ", ".join(level for axis, level in group.labels.items() if axis not in compared)
        name = ", ".join(level for axis, level in group.labels.items() if axis in compared)
        panels.setdefault(panel, {}).update(_curve(name or "run", _mean_curve(group), 1.0))
    files = file_names([panel or "all" for panel, curves in panels.items() if curves])
    blocks: list[Block] = []
    for panel, curves in panels.items():
        if curves:
            file = f"curve_{files[panel or 'all']}.png"
            axis, unit = ("loss on dev", "update") if spec.verb == "train" else ("score on dev", "epoch")
            draw_curves(curves, folder / file, unit, axis)
            shown = f"{axis} {panel}" if panel else axis
            blocks.append(Figure(file, f"{shown}, mean over seeds, up to where the first of them stopped"))
    return [Heading("Learning curves"), *blocks] if blocks else []


def _mean_curve(group: Group) -> list[tuple[float, float, float]]:
    """Points that all seeds have: a later one would be the mean of those that happened to go on."""
    runs = [{one["step"]: one["value"] for one in run.result.get("curve", [])} for run in group.runs.values()]
    drawn = [run for run in runs if run]
    shared = set[float]().union(*drawn).intersection(*drawn)
    return [(step, spread([run[step] for run in drawn]).mean, math.nan) for step in sorted(shared)]


def trial_figures(
    search: SearchConfig, title: str, trials: Sequence[StoredRun], folder: Path, files: Mapping[str, str]
) -> list[Block]:
    """The judged metric against each searched setting that is a number.

    Args:
        search: What is searched.
        title: Of the study.
        trials: Of the study.
        folder: Gets the figures.
        files: "TITLE_SETTING" → name of its file.
    """
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
            draw_curves(_curve("trials", points, 1.0), folder / file, name, search.metric, space.log)
            blocks.append(Figure(file, f"{search.metric} by {name}"))
    return blocks


def _paper_gains(spec: Spec, members: Sequence[Group], metric: str) -> list[tuple[float, float, float]]:
    points = []
    for group in members:
        if (gain := paper_gain(spec, group.labels, metric, metric)) is not None:
            points.append((_x(spec, group), gain, math.nan))
    return points


def _lines(spec: Spec, groups: Sequence[Group]) -> Mapping[str, list[Group]]:
    lines: dict[str, list[Group]] = {}
    for group in groups:
        name = ", ".join(level for axis, level in group.labels.items() if axis != spec.report.x)
        lines.setdefault(name or spec.name, []).append(group)
    return lines


def _x(spec: Spec, group: Group) -> float:
    return spec.report.x_number(group.labels[spec.report.x or ""])


def _curve(name: str, points: Sequence[tuple[float, float, float]], scale: float) -> dict[str, Curve]:
    if not points:
        return {}
    x, y, error = (list(side) for side in zip(*sorted(points), strict=True))
    errors = (
        None if all(map(math.isnan, error)) else [0.0 if math.isnan(one) else one * scale for one in error]
    )
    return {name: Curve(x, [one * scale for one in y], errors)}


def _drawn(spec: Spec, curves: Mapping[str, Curve], path: Path, y_label: str, caption: str) -> list[Block]:
    if not curves:
        return []
    values = [x for curve in curves.values() for x in curve.x]
    log_x = min(values) > 0 and max(values) >= 10 * min(values)
    draw_curves(curves, path, spec.report.x_label or spec.report.x or "", y_label, log_x)
    return [Figure(path.name, caption)]


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text).strip("-") or "all"


def file_names(texts: Sequence[str]) -> dict[str, str]:
    """Text → name of a file; texts that come to one name, in any case of letters, are numbered."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for text in dict.fromkeys(texts):
        name, number = _file_name(text), 1
        while name.casefold() in taken:
            number += 1
            name = f"{_file_name(text)}-{number}"
        taken.add(name.casefold())
        names[text] = name
    return names
