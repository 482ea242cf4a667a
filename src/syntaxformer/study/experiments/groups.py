"""Runs of an experiment put together by what they share, and what their differences are worth.

A group is all seeds of one combination of levels. Numbers only; `report` writes them down.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syntaxformer.base.files import atomic_file, hash_file, read_lines
from syntaxformer.base.statistics import Spread, paired_t_test, spread
from syntaxformer.study.document import Block, Figure, Heading
from syntaxformer.study.experiments.cell import HYPOTHESES, REFERENCES
from syntaxformer.study.experiments.plan import trial_value
from syntaxformer.study.experiments.spec import SEED, PaperNumber, SearchConfig, Spec, matches
from syntaxformer.study.experiments.store import DONE, RunStore, StoredRun
from syntaxformer.study.plots import Curve, draw_curves
from syntaxformer.translation.scoring import compare_translations


@dataclass(frozen=True)
class Group:
    """All seeds of one combination.

    Args:
        labels: Axis → level, without the seed.
        runs: Seed → finished run; "" where the experiment has no seeds.
        n_planned: Runs that the grid has.
    """

    labels: dict[str, str]
    runs: dict[str, StoredRun]
    n_planned: int

    def values(self, metric: str, seeds: Sequence[str] | None = None) -> list[float]:
        """One metric of the runs that have it, in the order of the seeds."""
        wanted = self.runs if seeds is None else seeds
        found = (self.runs[seed].result.get("metrics", {}).get(metric) for seed in wanted)
        return [float(value) for value in found if value is not None]

    def spread(self, metric: str) -> Spread:
        """Mean and standard deviation of one metric."""
        return spread(self.values(metric))


@dataclass(frozen=True)
class Difference:
    """A group against its baseline, or a control, over the seeds that both have.

    Args:
        mean: Mean difference of the first metric.
        sd: Of the differences.
        n: Seeds.
        p_seeds: Paired t-test over seeds; NaN for fewer than two.
        p_sentences: Paired bootstrap over sentences for each seed, ascending by seed; empty without outputs.
        agree: Whether the seeds differ in one direction: no p-value of one of them speaks for all otherwise.
    """

    mean: float
    sd: float
    n: int
    p_seeds: float
    p_sentences: list[float]
    agree: bool


def group_runs(spec: Spec, runs: Mapping[str, StoredRun]) -> list[Group]:
    """Groups in the order of the grid, also those of which nothing is done."""
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
    """Columns of the report: what the specification names, else bleu and chrf, else all that there are.

    A metric that only a number of the paper names has a column, too.
    """
    if spec.report.metrics:
        return spec.report.metrics
    found = [
        name
        for group in groups
        for run in group.runs.values()
        for name, value in run.result.get("metrics", {}).items()
        if value is not None
    ]
    names = list(dict.fromkeys(found))
    preferred = [name for name in ("bleu", "chrf") if name in names]
    of_paper = [one.metric for one in spec.report.paper if one.metric is not None]
    return list(dict.fromkeys([*(preferred or names or spec.metrics()[:1]), *of_paper]))


def compare_groups(
    spec: Spec, store: RunStore, group: Group, groups: Sequence[Group], metric: str, levels: Mapping[str, str]
) -> Difference | None:
    """A group against the one that has these levels (baseline or control) and is otherwise the same.

    Returns:
        None where there is no such group, where it is the group itself, or where they share no seed.
    """
    wanted = {**group.labels, **levels}
    if not levels or wanted == group.labels:
        return None
    other = next((one for one in groups if one.labels == wanted), None)
    if other is None:
        return None
    seeds = [one for one in other.runs if one in group.runs]
    seeds = [one for one in seeds if other.values(metric, [one]) and group.values(metric, [one])]
    if not seeds:
        return None
    first, second = other.values(metric, seeds), group.values(metric, seeds)
    per_seed = [gained - one for one, gained in zip(first, second, strict=True)]
    gains, agree = spread(per_seed), min(per_seed) >= 0 or max(per_seed) <= 0
    pairs = [(other.runs[seed], group.runs[seed]) for seed in seeds]
    p_sentences = _bootstrap(spec, store, pairs) if metric == "bleu" else []
    return Difference(gains.mean, gains.sd, gains.n, paired_t_test(first, second), p_sentences, agree)


def paper_number(spec: Spec, labels: Mapping[str, str], metric: str, first: str) -> float | None:
    """What the paper reports for a group."""
    found = _of_paper(spec, labels, metric, first)
    return None if found is None else found.value


def paper_gain(spec: Spec, labels: Mapping[str, str], metric: str, first: str) -> float | None:
    """What the paper gains with a group over what it compares it with; None for a baseline."""
    own = _of_paper(spec, labels, metric, first)
    if own is None or matches(labels, spec.report.baseline):
        return None
    if own.baseline is not None:
        return own.value - own.baseline
    baseline = paper_number(spec, {**labels, **spec.report.baseline}, metric, first)
    return None if baseline is None else own.value - baseline


def _of_paper(spec: Spec, labels: Mapping[str, str], metric: str, first: str) -> PaperNumber | None:
    def fits(one: PaperNumber) -> bool:
        return matches(labels, one.cell) and (one.metric or first) == metric

    return next(filter(fits, spec.report.paper), None)


def _bootstrap(spec: Spec, store: RunStore, pairs: Sequence[tuple[StoredRun, StoredRun]]) -> list[float]:
    """p-value of each pair, none where one has none; computed once and kept beside the store.

    A store whose translations were thrown away, or left out of what is published, still has them.
    """
    if spec.test is None:
        return []
    path = store.folder / "bootstrap.json"
    known: dict[str, float] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    found, n_known = [], len(known)
    for baseline, system in pairs:
        files = [store.cell_folder(one.cell) / HYPOTHESES for one in (baseline, system)]
        if not any(file.exists() for file in files):
            found.append(_kept(known, f"{baseline.cell.key} {system.cell.key} "))
            continue
        prepared = [file.with_name(REFERENCES) for file in files]  # as the systems' output is
        references = prepared[1] if prepared[1].exists() else spec.test.ref
        read = [*files, Path(references)]
        hashes = [hash_file(file)[:12] if file.exists() else "none" for file in read]
        name = " ".join([baseline.cell.key, system.cell.key, *hashes])
        alike = _same_text(prepared) and baseline.result.get("scoring") == system.result.get("scoring")
        if name not in known and all(file.exists() for file in files) and alike:
            known[name] = _p_value(*files, references, system.result.get("scoring") or {})
        found.append(known.get(name, math.nan))
    if len(known) > n_known:
        with atomic_file(path) as temporary:
            temporary.write_text(json.dumps(known, indent=1, sort_keys=True), "utf-8")
    return [] if any(map(math.isnan, found)) else found


def _kept(known: Mapping[str, float], pair: str) -> float:
    """What was computed while both had their translations; NaN where nothing was, or for different ones."""
    found = [value for name, value in known.items() if name.startswith(pair)]
    return found[0] if len(found) == 1 else math.nan


def _same_text(files: Sequence[Path]) -> bool:
    """Scores against references of two forms have no common test over sentences."""
    return len({hash_file(file) for file in files if file.exists()}) < 2


def _p_value(baseline: Path, system: Path, reference: Path, scoring: Mapping[str, Any]) -> float:
    lines = (list(read_lines(file)) for file in (baseline, system, reference))
    return compare_translations(*lines, **scoring).p_value


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
