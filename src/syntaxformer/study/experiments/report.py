"""The report of an experiment: results, comparisons with baseline and paper, and their origin.

`write_report` reads only the store; the same store gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from syntaxformer.base.files import write_text
from syntaxformer.base.statistics import seed_interval, spread
from syntaxformer.encoders.tasks import missed_note
from syntaxformer.study.document import Block, Code, Figure, Heading, Paragraph, Table, to_html, to_markdown
from syntaxformer.study.experiments.cell import UNKNOWN, value_at
from syntaxformer.study.experiments.groups import (
    NONE,
    ONE_CLASS,
    Difference,
    Group,
    compare_groups,
    effects,
    group_runs,
    is_constant,
    metric_names,
    paper_gain,
    paper_number,
    planned_blocks,
    shown_interval,
    shown_p,
)
from syntaxformer.study.experiments.spec import SEED, TRIAL, Cell, Spec, in_words, without_seed
from syntaxformer.study.experiments.store import (
    DONE,
    WAITING,
    RunStore,
    StoredRun,
    best_trial,
    choices,
    own_runs,
    study_trials,
    trial_value,
    tuned,
)
from syntaxformer.study.plots import Curve, draw_curves, draw_points

_TRAINS = ("torch", "transformers")
_TABLE = "model.share_source_embedding"
MOST_NAMED = 3
"""Largest number of runs that a warning names for each value."""

_SCORED = "one way of scoring for all runs that are compared"
_EMBEDDED = f"one kind, shared or own, unless the settings differ in {_TABLE}"
CHECKS = {
    "data": ("one content for the same settings", "Restore the old content"),
    "recipes": ("one value for all seeds", "Restore the old recipe"),
    "precision": ("one value unless the settings differ in it", "Set training.precision in the settings"),
    "code": ("one version for all runs that are compared", "Check out the commit of the other runs"),
    "embedding tables": (_EMBEDDED, f"Set {_TABLE}: false for the baseline too"),
    "scoring": (_SCORED, "Compare only systems that are scored in the same way"),
}
"""What runs that belong together should share → what is expected, and the remedy."""


def content_hashes(run: StoredRun) -> dict[str, str]:
    """Data that a run read → its sha256, if the run stored it."""
    hashes = dict(run.result.get("data_sha256") or {})
    hashes |= {f"test {side}": value for side, value in (run.result.get("test_sha256") or {}).items()}
    model = run.result.get("model_sha256")
    return hashes | ({"model": model} if model else {})


def mixtures(spec: Spec, runs: Sequence[StoredRun]) -> Iterator[tuple[str, list[str], str]]:
    """Find differences between finished runs that should not differ: a title, sentences and a remedy each."""
    keys = dict.fromkeys(key for run in runs for key in run.result.get("recipe") or ())
    shared: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for run in runs:
        for check, what, group, value in _properties(spec, run, keys):
            shared.setdefault((check, what, group), {}).setdefault(value, []).append(run.cell.name)
    for title, (expected, remedy) in CHECKS.items():
        sentences = []
        for (check, what, _), values in shared.items():
            if check == title and len(values) > 1:
                sides = []
                for value, names in values.items():
                    rest = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
                    sides.append(f"{value} in {', '.join(names[:MOST_NAMED])}{rest}")
                sentences.append(f"{what}: expected {expected}, got {len(values)}: {'; '.join(sides)}.")
        if sentences:
            yield title, sentences, remedy


def _properties(
    spec: Spec, run: StoredRun, recipe_keys: Iterable[str]
) -> Iterator[tuple[str, str, str, str]]:
    """The check, the name, the group of runs that should share it, and the value of a run's properties."""
    cell, result = run.cell, run.result
    for what, digest in content_hashes(run).items():
        yield "data", what, _data_settings(cell, what), f"sha256 {digest[:12]}"
    # Seeds of the same settings have one recipe; other settings may decide any key (as a preset does).
    same = _as_json({**cell.settings, SEED: None})
    for key in recipe_keys:
        value = value_at(result.get("recipe") or {}, key)
        if key.split(".")[-1] != SEED and value is not UNKNOWN:
            yield "recipes", key, same, _as_json(value)
    outside = {SEED, TRIAL}.union(spec.report.baseline, *spec.report.controls)
    compared = {axis: level for axis, level in cell.labels.items() if axis not in outside}

    def group(setting: str = "") -> str:
        return json.dumps([compared, cell.settings.get(setting)])

    if precision := result.get("precision"):
        yield "precision", "training.precision", group("training.precision"), precision
    if commit := result.get("commit"):
        versions = result.get("versions") or {}
        libraries = [f"{name} {versions[name]}" for name in _TRAINS if name in versions]
        yield "code", "code", group(), ", ".join([commit, *libraries])
    if table := result.get("source_table"):
        yield "embedding tables", "table of source words", group(_TABLE), table
    if scoring := result.get("scoring"):
        references = result.get("references")
        yield "scoring", "scoring", group(), _as_json(scoring) + (f" {references}" if references else "")


def _data_settings(cell: Cell, what: str) -> str:
    """The settings that decide which data a run reads; `data.fraction` concerns only the training set."""
    if what == "model":
        return str(cell.settings.get("model"))
    if what.startswith("test "):
        return _as_json(cell.test)
    if what == "annotation":
        settings = {key: value for key, value in cell.settings.items() if not key.startswith("training.")}
        return _as_json([cell.recipe, {**settings, SEED: None}])
    data = {key: value for key, value in cell.settings.items() if key.partition(".")[0] == "data"}
    if what != "train":
        data.pop("data.fraction", None)
    return _as_json([cell.recipe, cell.settings.get("task"), data])


def _as_json(content: Any) -> str:
    return json.dumps(content, sort_keys=True, default=str)


def write_report(spec: Spec, store: RunStore, folder: Path) -> Path:
    """Write `report.md`, its PNG figures and `report.html` into a folder, and return the path of `report.md`.

    Raises:
        DataError: The store cannot be read, or a file cannot be written.
        CheckpointError: The store's bootstrap.json is not JSON.
    """
    runs = store.runs()
    spec = tuned(spec, runs)
    results = _search_blocks(spec, runs, folder) if spec.search else _grid_blocks(spec, store, runs, folder)
    stored = own_runs(spec, runs)
    waiting = {cell.key: StoredRun(cell, WAITING, 0, 0.0, None, {}) for cell in spec.cells()}
    members = list((waiting | stored).values())  # in the order of the grid
    if (tuning := spec.tuning()) is not None:
        members = [*own_runs(tuning, runs).values(), *members]
    counts = Counter(run.state for run in members)
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    done = [run for run in members if run.state == DONE]
    missing = [[_title(run.cell), run.state, run.error or ""] for run in members if run.state != DONE]
    blocks: list[Block] = [
        Heading(spec.title or spec.name, 1),
        *([Paragraph(spec.question)] if spec.question else []),
        Paragraph(f"Experiment `{spec.name}` has {len(members)} runs{states and f': {states}'}."),
        *_warning_blocks(spec, done),
        *results,
        *_tuning_blocks(spec, runs),
        *map(Paragraph, spec.report.notes),
        *([Heading("Not measured"), Table(["run", "state", "why"], missing)] if missing else []),
        *_origin_blocks(spec, store, done),
    ]
    write_text(folder / "report.md", to_markdown(blocks))
    write_text(folder / "report.html", to_html(blocks, folder))
    return folder / "report.md"


def _warning_blocks(spec: Spec, done: Sequence[StoredRun]) -> list[Block]:
    blocks: list[Block] = []
    for what, sentences, remedy in mixtures(spec, done):
        last = f"{remedy}, or run the whole experiment under another name."
        blocks += [Heading(f"Warning: runs with different {what}"), *map(Paragraph, [*sentences, last])]
    unlearned: dict[str, list[str]] = {}
    unturned: dict[str, list[StoredRun]] = {}
    for run in done:
        missed = run.result.get("never_predicted")
        if missed or is_constant(run):
            what = missed_note(missed) if missed else "all predictions are the same"
            unlearned.setdefault(what, []).append(_title(run.cell))
        if TRIAL not in run.cell.labels and _is_best_at_end(run):
            unturned.setdefault(without_seed(run.cell.labels) or spec.name, []).append(run)
    if unlearned:
        lines = [f"{what}: {'; '.join(titles)}." for what, titles in unlearned.items()]
        lines += [
            "Differences from runs of one class mean nothing, and get no p. Train longer or at another rate."
        ]
        blocks += [Heading("Warning: classes never predicted"), *map(Paragraph, lines)]
    if unturned:
        rows, scale = [], 1.0 if spec.verb == "train" else spec.report.scale  # a loss is not scaled
        for name, runs in unturned.items():
            ends = [run.result["curve"][-2:] for run in runs if len(run.result.get("curve", [])) > 1]
            slope = spread([scale * (last["value"] - before["value"]) for before, last in ends])
            rows.append([name, str(len(runs)), f"{slope.mean:+.3f}" if ends else NONE])
        what = "loss" if spec.verb == "train" else "score"
        n_runs = sum(TRIAL not in run.cell.labels for run in done)
        note = (
            f"The best evaluation of {sum(map(len, unturned.values()))} of {n_runs} runs was their last. A "
            "difference between such runs may say only that one of them learns faster. Train them longer."
        )
        table = Table(["runs", "number", f"change of {what} on dev in the last interval"], rows)
        heading = Heading("Warning: runs that were best at their last evaluation")
        blocks += [heading, Paragraph(note), table]
    return blocks


def _is_best_at_end(run: StoredRun) -> bool:
    """Whether the best evaluation is the last; by scores if it was fine-tuned before steps were stored."""
    if "best_step" in run.result or run.cell.verb == "train":
        return run.result.get("best_step") == run.result.get("last_step", math.nan)
    *before, last = [-math.inf, *(point["value"] for point in run.result.get("curve", ()))]
    return last > max(before, default=math.inf)


def _tuning_blocks(spec: Spec, runs: dict[str, StoredRun]) -> list[Block]:
    tuning, tune = spec.tuning(), spec.tune
    if tuning is None:
        return []
    search = tuning.search
    axes = [axis for axis in tuning.axes if axis != SEED]
    rows, labels_of = [], {without_seed(labels): labels for labels in tuning.combinations()}
    for name, choice in choices(spec, runs).items():
        shown = []
        for values, trials in choice.trials.items():
            score = _number(choice.means.get(values), spec.report.scale)
            notes = ONE_CLASS * any(map(is_constant, trials)) + " (chosen)" * (values == choice.best)
            shown.append(f"{values}: {score}{notes}")
        rows.append([*(labels_of[name][axis] for axis in axes), "; ".join(shown) or NONE])
    how = "Each was tried once, with" if len(tune.seeds) < 2 else "Each is a mean over"
    return [
        Heading("Settings chosen on dev"),
        Table([*axes, f"{', '.join(search.space)}: {search.metric}"], rows),
        Paragraph(f"{how} {tune.in_words}."),
    ]


def _grid_blocks(spec: Spec, store: RunStore, runs: dict[str, StoredRun], folder: Path) -> list[Block]:
    groups, scale = group_runs(spec, runs), spec.report.scale
    axes = [axis for axis in spec.axes if axis != SEED]
    metrics = metric_names(spec, groups)
    first = metrics[0]

    differences = [
        compare_groups(spec, store, group, groups, first, spec.report.baseline) for group in groups
    ]
    planned = len(spec.report.planned) > 1
    blocks = [
        *planned_blocks(spec, store, runs, groups, first),
        Heading("Results; other differences than those above were not planned" if planned else "Results"),
        _result_table(spec, groups, differences, metrics, axes),
        Paragraph(_reading(spec, metrics, differences)),
        *_effect_blocks(spec, store, groups, first),
    ]
    for levels in spec.report.controls:
        # The rows that share seeds with the control.
        gains = [(group, compare_groups(spec, store, group, groups, first, levels)) for group in groups]
        gains = [(group, gain) for group, gain in gains if gain is not None]
        names, cells = _columns(first, [gain for _, gain in gains], scale)
        rows = [
            [*(group.labels[axis] for axis in axes), _seeds(gain.n, gain.n_constant), *row]
            for (group, gain), row in zip(gains, cells, strict=True)
        ]
        table = Table([*axes, "seeds", *names], rows) if rows else Paragraph("Not measured.")
        blocks += [Heading(f"Against {in_words(levels)}"), table]
    return [
        *blocks,
        *x_figures(spec, groups, differences, first, folder),
        *named_test_figures(spec, groups, folder),
        *curve_figures(spec, groups, folder),
    ]


def _effect_blocks(spec: Spec, store: RunStore, groups: Sequence[Group], metric: str) -> list[Block]:
    if not spec.effects:
        return []
    contrasts, scale = list(effects(spec, store, groups, metric)), spec.report.scale
    names, cells = _columns(metric, [size for *_, size in contrasts], scale)
    names.insert(1, "95 % over seeds")
    rows = []
    for (name, labels, size), cell in zip(contrasts, cells, strict=True):
        cell.insert(1, NONE if size is None else shown_interval(size.over_seeds, scale))
        n_seeds = NONE if size is None else _seeds(size.n, size.n_constant)
        rows.append([name, *labels.values(), n_seeds, *cell])
    others = [axis for axis in spec.axes if axis not in (*spec.effects, SEED)]
    note = (
        "The effect of a level is its score less that of the first level of its axis, averaged over the "
        f"levels of the other axes of the table ({', '.join(spec.effects)}). The effect of A × B is how much "
        "that of A grows when B goes from its first level to the named one. Effects are computed for each "
        "seed; p (seeds) and the interval over seeds are by Student's t. If an interval contains 0, these "
        "runs cannot tell."
    )
    table = Table(["effect", *others, "seeds", *names], rows)
    return [Heading("Main effects and interactions"), table, Paragraph(note)]


def _result_table(
    spec: Spec,
    groups: Sequence[Group],
    differences: Sequence[Difference | None],
    metrics: Sequence[str],
    axes: Sequence[str],
) -> Table:
    rows, names, cells = [], [], [[]] * len(groups)
    if spec.report.baseline:
        names, cells = _columns(metrics[0], differences, spec.report.scale)
    of_paper = ["paper", "Δ paper"] if spec.report.paper else []
    for group, cell in zip(groups, cells, strict=True):
        n_seeds = _seeds(f"{len(group.runs)} of {group.n_planned}", group.n_constant)
        row = [*(group.labels[axis] for axis in axes), n_seeds]
        for metric in metrics:
            score, scale = group.spread(metric), spec.report.scale
            deviation = "" if math.isnan(score.sd) else f" ± {score.sd * scale:.2f}"
            row.append(f"{score.mean * scale:.2f}{deviation}" if score.n else NONE)
        row += cell
        if of_paper:
            number, gain = paper_number(spec, group.labels), paper_gain(spec, group.labels)
            row.append(NONE if number is None else f"{number.value:.2f}")
            row.append(NONE if gain is None else f"{gain:+.2f}")
        done = group.runs.values()
        sizes = {run.result["n_parameters"] for run in done if "n_parameters" in run.result}
        row.append(" / ".join(f"{count / 1e6:.2f}M" for count in sorted(sizes)) or NONE)
        row.append(f"{spread([run.seconds / 60 for run in done]).mean:.1f}" if done else NONE)
        rows.append(row)
    return Table([*axes, "seeds", *metrics, *names, *of_paper, "parameters", "minutes"], rows)


def _columns(
    metric: str, differences: Sequence[Difference | None], scale: float
) -> tuple[list[str], list[list[str]]]:
    """Names and rows of the columns of differences; p over sentences is a column if any row has it."""
    has_sentences = any(gain and gain.p_sentences for gain in differences)
    has_intervals = any(gain and gain.interval for gain in differences)
    names = [f"Δ {metric}", "p (seeds)", *(["p (sentences)"] if has_sentences else [])]
    names += ["95 % interval"] if has_intervals else []
    rows = []
    for gain in differences:
        row = [NONE] * len(names)
        if gain is not None:
            row[:2] = f"{gain.mean * scale:+.2f}", shown_p(gain.p_seeds)
            if gain.p_sentences:
                row[2] = shown_p(max(gain.p_sentences)) if gain.agree else "seeds disagree"
            if gain.interval:
                row[-1] = shown_interval(gain.interval, scale)
        rows.append(row)
    return names, rows


def _reading(spec: Spec, metrics: Sequence[str], differences: Sequence[Difference | None]) -> str:
    sentences = ["Scores are means ± standard deviations over seeds"]
    sentences += ["A lower ter is better"] * ("ter" in metrics)
    if spec.report.baseline:
        levels = in_words(spec.report.baseline)
        sentences += [f"Δ is the mean difference from {levels} over shared seeds; p (seeds): a paired t-test"]
        if any(gain and gain.p_sentences for gain in differences):
            split = "test" if metrics[0].startswith("test_") else "dev"
            by, outputs = f"over examples of {split}", "predictions"
            if metrics[0] in spec.test_metrics():
                by, outputs = "over lines of the test", "values"
            elif spec.verb == "train":
                by, outputs = "of BLEU by sacreBLEU, nearly one-sided", "translations"
            sentences += [f"p (sentences) is from a paired bootstrap {by}, run for each seed"]
            sentences += [f"The largest p is shown, if all seeds have {outputs} and differ in one direction"]
        if any(gain and gain.interval for gain in differences):
            sentences += ["The 95 % interval is from a bootstrap over seeds and sentences together"]
            sentences += ["With fewer than ten seeds, it is too narrow"]
    if spec.report.paper:
        sentences += [f"The paper's numbers: {spec.report.paper_source or 'as printed'}"]
        if spec.report.baseline:
            what = "the paper's own gain over its own baseline, not our gain over the paper"
            sentences += [f"Δ paper is {what}"]
    return ". ".join(sentences) + ". Minutes are by the clock and count all attempts of a run."


def _search_blocks(spec: Spec, runs: dict[str, StoredRun], folder: Path) -> list[Block]:
    search, names, scale = spec.search, list(spec.search.space), spec.report.scale
    studies = {in_words(labels) or "Trials": labels for labels in spec.combinations()}
    files = file_names([f"{title}_{name}" for title in studies for name in names])
    blocks: list[Block] = []
    for title, labels in studies.items():
        trials = study_trials(spec, runs, labels)
        best = best_trial(search, trials)
        metrics = dict.fromkeys([search.metric, *(name for trial in trials for name in trial.metrics)])
        rows = [
            [
                trial.cell.labels[TRIAL] + " (best)" * (trial is best),
                *(str(trial.cell.settings[name]) for name in names),
                *(_number(trial.metrics.get(metric), scale) for metric in metrics),
                trial.state + ONE_CLASS * is_constant(trial),
            ]
            for trial in trials
        ]
        blocks += [Heading(title), Table([TRIAL, *names, *metrics, "state"], rows)]
        scored = [(trial, value) for trial in trials if (value := trial_value(search, trial)) is not None]
        for name, space in search.space.items():
            values = [(trial.cell.settings[name], scale * value) for trial, value in scored]
            points = [(x, y, math.nan) for x, y in values if isinstance(x, int | float)]
            if len(points) > 1:
                file = f"trials_{files[f'{title}_{name}']}.png"
                draw_curves(_curves({"trials": points}), folder / file, name, search.metric, space.log)
                blocks.append(Figure(file, f"{search.metric} by {name}"))
    return blocks


def _origin_blocks(spec: Spec, store: RunStore, done: Sequence[StoredRun]) -> list[Block]:
    if not done:
        return []
    rows = []
    for run in done:
        metrics = ", ".join(f"{n} {_number(value)}" for n, value in run.metrics.items() if value is not None)
        folder = str(store.cell_folder(run.cell).relative_to(store.folder))
        code = [run.result.get("commit", NONE), run.result.get("precision", NONE)]
        effort = [f"{run.seconds:.0f}", str(run.attempts)]
        rows.append([folder, metrics + ONE_CLASS * is_constant(run), *code, *effort])
    shared = [f"Signature {text}" for run in done for text in run.result.get("signatures", {}).values()]
    shared += [f"Versions {json.dumps(run.result.get('versions', {}), sort_keys=True)}" for run in done]
    for run in done:
        hashes = [f"{what} sha256 {digest[:12]}" for what, digest in content_hashes(run).items()]
        shared.append(f"Data {', '.join(hashes) or NONE}")
    content = json.dumps(spec.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return [
        Heading("Where the numbers come from"),
        Paragraph(
            f"Specification sha256 {digest}. Folders are inside the store. OUTPUT is FOLDER/model. "
            "A command is for the code of its commit; later code may have other defaults."
        ),
        Table(["folder", "metrics", "commit", "precision", "seconds", "attempts"], rows),
        Code("\n".join(run.result.get("command") or run.cell.command() for run in done)),
        *map(Paragraph, dict.fromkeys(shared)),
    ]


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


def _title(cell: Cell) -> str:
    return in_words(cell.labels) or cell.name


def _number(value: float | None, scale: float = 1.0) -> str:
    return NONE if value is None else f"{scale * value:.4g}"


def _seeds(n: int | str, n_constant: int) -> str:
    """A number of seeds, and in how many of them a run predicts one class only."""
    return f"{n}, {n_constant} of one class" if n_constant else str(n)
