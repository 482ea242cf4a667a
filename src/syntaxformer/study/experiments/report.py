"""The report of an experiment: results, comparisons with baseline and paper, and their origin.

`write_report` reads only the store; the same store gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from syntaxformer.base.files import write_text
from syntaxformer.base.statistics import Spread, detectable_effect, seed_interval, spread
from syntaxformer.encoders.tasks import missed_note
from syntaxformer.study.document import Block, Code, Heading, Paragraph, Table, to_html, to_markdown
from syntaxformer.study.experiments.cell import UNKNOWN, value_at
from syntaxformer.study.experiments.groups import (
    Difference,
    Group,
    compare_groups,
    curve_figures,
    effects,
    file_names,
    group_runs,
    is_constant,
    metric_names,
    paper_gain,
    paper_number,
    trial_figures,
    x_figures,
)
from syntaxformer.study.experiments.spec import SEED, TRIAL, Cell, Spec, in_words, matches, without_seed
from syntaxformer.study.experiments.store import (
    DONE,
    WAITING,
    RunStore,
    StoredRun,
    best_trial,
    own_runs,
    study_trials,
    trial_value,
    tuned,
)

_TRAINS = ("torch", "transformers")
_TABLE = "model.share_source_embedding"
MOST_NAMED = 3
"""Largest number of runs that a warning names for each value."""

Found = Iterable[tuple[str, str, str, StoredRun]]
"""Name of a property, key of the runs that should share it, its value, and a run with this value."""


def content_hashes(run: StoredRun) -> dict[str, str]:
    """Data that a run read → its sha256, if the run stored it."""
    found = dict(run.result.get("data_sha256") or {})
    found |= {f"test {side}": value for side, value in (run.result.get("test_sha256") or {}).items()}
    if run.result.get("model_sha256"):
        found["model"] = run.result["model_sha256"]
    return found


def mixtures(spec: Spec, runs: Sequence[StoredRun]) -> Iterator[tuple[str, list[str], str]]:
    """Find differences between finished runs that should not differ: a title, sentences and a remedy each."""
    for check in CHECKS:
        found: dict[tuple[str, str], dict[str, list[str]]] = {}
        for what, group, value, run in check.find(spec, runs):
            found.setdefault((what, group), {}).setdefault(value, []).append(run.cell.name)
        sentences = [
            f"{what}: expected {check.expected}, got {len(sides)}: "
            f"{'; '.join(f'{value} in {_names(names)}' for value, names in sides.items())}."
            for (what, _), sides in found.items()
            if len(sides) > 1
        ]
        if sentences:
            yield check.title, sentences, check.remedy


def _names(repeated: Sequence[str]) -> str:
    names = list(dict.fromkeys(repeated))
    rest = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + rest


def _contents(_: Spec, runs: Sequence[StoredRun]) -> Found:
    for run in runs:
        for part, value in content_hashes(run).items():
            yield part, _setting(run.cell, part), f"sha256 {value[:12]}", run


def _recipes(_: Spec, runs: Sequence[StoredRun]) -> Found:
    """Seeds of the same settings have one recipe; other settings may decide any place (as a preset does)."""
    places = dict.fromkeys(key for run in runs for key in run.result.get("recipe") or ())
    for place, run in product([one for one in places if one.split(".")[-1] != SEED], runs):
        value = value_at(run.result.get("recipe") or {}, place)
        if value is not UNKNOWN:
            same = json.dumps({**run.cell.settings, SEED: None}, sort_keys=True, default=str)
            yield place, same, json.dumps(value, sort_keys=True), run


def _compared(
    what: str, key: str, value: Callable[[StoredRun], str] | None = None, setting: str = ""
) -> Callable[[Spec, Sequence[StoredRun]], Found]:
    """Make a check of the values at a key for runs that are compared; runs may differ if `setting` does."""

    def find(spec: Spec, runs: Sequence[StoredRun]) -> Found:
        outside = {SEED, TRIAL}.union(spec.report.baseline, *spec.report.controls)
        for run in (one for one in runs if one.result.get(key)):
            shared = {axis: level for axis, level in run.cell.labels.items() if axis not in outside}
            group = json.dumps([shared, run.cell.settings.get(setting)])
            yield what, group, value(run) if value else run.result[key], run

    return find


def _code(run: StoredRun) -> str:
    """The commit and the versions of the libraries that train."""
    versions = run.result.get("versions") or {}
    libraries = [f"{name} {versions[name]}" for name in _TRAINS if name in versions]
    return ", ".join([run.result["commit"], *libraries])


def _scored(run: StoredRun) -> str:
    """How a run was scored, and how its references were changed."""
    way = json.dumps(run.result["scoring"], sort_keys=True)
    return f"{way} {note}" if (note := run.result.get("references")) else way


@dataclass(frozen=True, slots=True)
class Check:
    """A property that runs which belong together should share."""

    title: str
    expected: str
    remedy: str
    find: Callable[[Spec, Sequence[StoredRun]], Found]


CHECKS = (
    Check("data", "one content for the same settings", "Restore the old content", _contents),
    Check("recipes", "one value for all seeds", "Restore the old recipe", _recipes),
    Check(
        "precision",
        "one value unless the settings differ in it",
        "Set training.precision in the settings",
        _compared("training.precision", "precision", setting="training.precision"),
    ),
    Check(
        "code",
        "one version for all runs that are compared",
        "Check out the commit of the other runs",
        _compared("code", "commit", _code),
    ),
    Check(
        "embedding tables",
        f"one kind, shared or own, unless the settings differ in {_TABLE}",
        f"Set {_TABLE}: false for the baseline too",
        _compared("table of source words", "source_table", setting=_TABLE),
    ),
    Check(
        "scoring",
        "one way of scoring for all runs that are compared",
        "Compare only systems that are scored in the same way",
        _compared("scoring", "scoring", _scored),
    ),
)


def _setting(cell: Cell, part: str) -> str:
    """The settings that decide which data a run reads; `data.fraction` concerns only the training set."""
    if part == "model":
        return str(cell.settings.get("model"))
    if part.startswith("test "):
        return json.dumps(cell.test, sort_keys=True)
    if part == "annotation":
        own = {name: value for name, value in cell.settings.items() if not name.startswith("training.")}
        return json.dumps([cell.recipe, {**own, "seed": None}], sort_keys=True, default=str)
    data = {key: value for key, value in cell.settings.items() if key.partition(".")[0] == "data"}
    if part != "train":
        data.pop("data.fraction", None)
    return json.dumps([cell.recipe, cell.settings.get("task"), data], sort_keys=True, default=str)


NONE = "–"
ONE_CLASS = ", one class"
"""What tables say of a run that predicts one class only, and so has learned nothing."""


def write_report(spec: Spec, store: RunStore, folder: Path) -> Path:
    """Write `report.md`, its PNG figures and `report.html` into a folder, and return the path of `report.md`.

    Raises:
        DataError: The store cannot be read, or a file cannot be written.
    """
    runs = store.runs()
    spec = tuned(spec, runs)
    results = _search_blocks(spec, runs, folder) if spec.search else _grid_blocks(spec, store, runs, folder)
    mine = _wanted(spec, runs)
    counts = Counter(one.state for one in mine)
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    blocks: list[Block] = [
        Heading(spec.title or spec.name, 1),
        *([Paragraph(spec.question)] if spec.question else []),
        Paragraph(f"Experiment `{spec.name}` has {len(mine)} runs{states and f': {states}'}."),
        *_warning_blocks(spec, mine),
        *_unlearned_blocks(mine),
        *_unturned_blocks(spec, mine),
        *results,
        *_tuning_blocks(spec, runs),
        *map(Paragraph, spec.report.notes),
        *_missing_blocks(mine),
        *_origin_blocks(spec, store, mine),
    ]
    write_text(folder / "report.md", to_markdown(blocks))
    write_text(folder / "report.html", to_html(blocks, folder))
    return folder / "report.md"


def _wanted(spec: Spec, runs: dict[str, StoredRun]) -> list[StoredRun]:
    """The stored runs of this specification, and the planned runs that were not started."""
    mine = own_runs(spec, runs)
    if spec.search is not None:
        return list(mine.values())
    before = [] if (tuning := spec.tuning()) is None else own_runs(tuning, runs).values()
    grid = [mine.get(cell.key) or StoredRun(cell, WAITING, 0, 0.0, None, {}) for cell in spec.cells()]
    return [*before, *grid]


def _warning_blocks(spec: Spec, runs: Sequence[StoredRun]) -> list[Block]:
    """Warnings, before any numbers, about runs that do not belong together."""
    blocks: list[Block] = []
    for what, sentences, remedy in mixtures(spec, [one for one in runs if one.state == DONE]):
        last = f"{remedy}, or run the whole experiment under another name."
        blocks += [Heading(f"Warning: runs with different {what}"), *map(Paragraph, [*sentences, last])]
    return blocks


def _unlearned_blocks(runs: Sequence[StoredRun]) -> list[Block]:
    """Warnings about runs that never predict a class of dev."""
    found: dict[str, list[str]] = {}
    for run in (one for one in runs if one.state == DONE):
        missed = run.result.get("never_predicted")
        what = missed_note(missed) if missed else "all predictions are the same" * is_constant(run)
        found.setdefault(what, []).append(_title(run.cell))
    note = "Differences from runs of one class mean nothing, and get no p. Train longer or at another rate."
    lines = [f"{what}: {'; '.join(titles)}." for what, titles in found.items() if what]
    return [Heading("Warning: classes never predicted"), *map(Paragraph, [*lines, note])] if lines else []


def _unturned_blocks(spec: Spec, runs: Sequence[StoredRun]) -> list[Block]:
    """A warning about runs whose best evaluation is their last: with more updates they might still gain."""
    of_grid = [one for one in runs if one.state == DONE and TRIAL not in one.cell.labels]
    found: dict[str, list[StoredRun]] = {}
    for run in of_grid:
        if _is_best_at_end(run):
            found.setdefault(without_seed(run.cell.labels) or spec.name, []).append(run)
    if not found:
        return []
    rows, scale = [], 1.0 if spec.verb == "train" else spec.report.scale  # a loss is not scaled
    for name, members in found.items():
        ends = [one.result["curve"][-2:] for one in members if len(one.result.get("curve", [])) > 1]
        slope = spread([scale * (last["value"] - before["value"]) for before, last in ends])
        rows.append([name, str(len(members)), f"{slope.mean:+.3f}" if ends else NONE])
    what = "loss" if spec.verb == "train" else "score"
    note = (
        f"The best evaluation of {sum(map(len, found.values()))} of {len(of_grid)} runs was their last. "
        "A difference between such runs may say only that one of them learns faster. Train them longer."
    )
    table = Table(["runs", "number", f"change of {what} on dev in the last interval"], rows)
    return [Heading("Warning: runs that were best at their last evaluation"), Paragraph(note), table]


def _is_best_at_end(run: StoredRun) -> bool:
    """Whether the best evaluation is the last; by scores if it was fine-tuned before steps were stored."""
    if "best_step" in run.result or run.cell.verb == "train":
        return run.result.get("best_step") == run.result.get("last_step", math.nan)
    *before, last = [-math.inf, *(one["value"] for one in run.result.get("curve", ()))]
    return last > max(before, default=math.inf)


def _tuning_blocks(spec: Spec, runs: dict[str, StoredRun]) -> list[Block]:
    """A table of the settings that were tried on dev for each combination, and which were chosen."""
    if (tuning := spec.tuning()) is None or (search := tuning.search) is None:
        return []
    axes, rows, scale = list(tuning.axes), [], spec.report.scale
    for labels in tuning.combinations():
        trials = study_trials(tuning, search, runs, labels)
        best = best_trial(search, trials)
        shown = []
        for one in trials:
            values = ", ".join(str(one.cell.settings[name]) for name in search.space)
            text = f"{values}: {_number(trial_value(search, one), scale)}{ONE_CLASS * is_constant(one)}"
            shown.append(f"{text} (chosen)" if one is best else text)
        rows.append([*(labels[axis] for axis in axes), "; ".join(shown) or NONE])
    tried = ", ".join(search.space)
    return [
        Heading("Settings chosen on dev"),
        Table([*axes, f"{tried}: {search.metric}"], rows),
        Paragraph(f"Each was tried once, with {json.dumps(spec.tune.settings)[1:-1]}." if spec.tune else ""),
    ]


def _primary_blocks(
    spec: Spec, store: RunStore, groups: Sequence[Group], metric: str, scale: float
) -> list[Block]:
    """The one comparison that the experiment was made for, with what it could have shown."""
    if (primary := spec.report.primary) is None:
        return []
    group = next((one for one in groups if matches(one.labels, primary.cell)), None)
    found = compare_groups(spec, store, group, groups, metric, primary.against) if group else None
    effect = detectable_effect(primary.seeds, primary.sd)
    others = [one for one in groups if group and one.labels == {**group.labels, **primary.against}]
    before = [
        (run.result.get("primary") or {}).get(spec.name, ...)
        for one in (group, *others)
        if one
        for run in one.runs.values()
    ]
    is_planned = all(one == primary.model_dump() for one in before)
    plan = (
        f"Chosen{' before the first run' * is_planned}: {in_words(primary.cell)} against "
        f"{in_words(primary.against)}, {primary.seeds} seeds. If their difference has a standard deviation "
        f"of {primary.sd:g} over seeds, a difference of {effect:.2f} {metric} is found with a probability "
        "of 80 %."
    )
    measured = "Not measured yet."
    if found is not None:
        sure = ""
        if found.interval is not None:
            sure = f", over seeds and sentences {_interval(found.interval, scale)}"
        if not math.isnan(found.p_seeds):
            ends = seed_interval(Spread(found.mean, found.sd, found.n))
            sure = f", 95 % interval over seeds {_interval(ends, scale)}{sure}"
        seeds = f"{found.n} seeds{ONE_CLASS * bool(found.n_constant)}"
        measured = (
            f"Measured over {seeds}: {found.mean * scale:+.2f} {metric}{sure}, p (seeds) "
            f"{_p(found.p_seeds)}; standard deviation over seeds {found.sd * scale:.2f}."
        )
    if any(one is not ... and one != primary.model_dump() for one in before):
        measured += " **It was written or changed after runs were made, so it was not planned.**"
    elif not is_planned:
        measured += " These runs do not record whether it was chosen before them."
    return [Heading("The comparison that was planned"), Paragraph(f"{plan} {measured}")]


def _seeds(n: int | str, n_constant: int) -> str:
    """A number of seeds, and in how many of them a run predicts one class only."""
    return f"{n}, {n_constant} of one class" if n_constant else str(n)


def _p(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:.3f}"


def _interval(interval: tuple[float, float], scale: float) -> str:
    return NONE if math.isnan(interval[0]) else f"{interval[0] * scale:+.2f} to {interval[1] * scale:+.2f}"


def _grid_blocks(spec: Spec, store: RunStore, runs: dict[str, StoredRun], folder: Path) -> list[Block]:
    """The table of results, a table for each control, and figures."""
    groups, axes = group_runs(spec, runs), [axis for axis in spec.axes if axis != SEED]
    metrics, scale, controls = metric_names(spec, groups), spec.report.scale, []
    first = metrics[0]
    differences, *others = (
        [compare_groups(spec, store, one, groups, first, levels) for one in groups]
        for levels in (spec.report.baseline, *spec.report.controls)
    )
    for levels, found in zip(spec.report.controls, others, strict=True):
        # The rows that share seeds with the control.
        known = [(group, one) for group, one in zip(groups, found, strict=True) if one is not None]
        names, cells = _columns(first, [one for _, one in known], scale)
        rows = [
            [*(group.labels[axis] for axis in axes), _seeds(one.n, one.n_constant), *row]
            for (group, one), row in zip(known, cells, strict=True)
        ]
        table = Table([*axes, "seeds", *names], rows) if rows else Paragraph("Not measured.")
        controls += [Heading(f"Against {in_words(levels)}"), table]
    return [
        *_primary_blocks(spec, store, groups, first, scale),
        Heading("Results"),
        _result_table(spec, groups, differences, metrics, axes),
        Paragraph(_reading(spec, metrics, differences)),
        *_effect_blocks(spec, store, groups, first),
        *controls,
        *x_figures(spec, groups, differences, first, folder),
        *curve_figures(spec, groups, folder),
    ]


def _effect_blocks(spec: Spec, store: RunStore, groups: Sequence[Group], metric: str) -> list[Block]:
    """The table of main effects and interactions, and how to read it."""
    if not spec.effects:
        return []
    found, scale = list(effects(spec, store, groups, metric)), spec.report.scale
    names, cells = _columns(metric, [one for *_, one in found], scale)
    names.insert(1, "95 % over seeds")
    rows = []
    for (name, labels, one), cell in zip(found, cells, strict=True):
        cell.insert(1, NONE if one is None else _interval(one.over_seeds, scale))
        rows.append([name, *labels.values(), NONE if one is None else _seeds(one.n, one.n_constant), *cell])
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
    first, scale = metrics[0], spec.report.scale
    of_paper = {one.metric or first for one in spec.report.paper}
    printed = {one: "paper" if one == first else f"paper {one}" for one in metrics if one in of_paper}
    names, cells = _columns(first, differences, scale) if spec.report.baseline else ([], [[]] * len(groups))
    of_printed = [column for name in printed.values() for column in (name, f"Δ {name}")]
    header = [*axes, "seeds", *metrics, *names, *of_printed, "parameters", "minutes"]
    rows = []
    for group, cell in zip(groups, cells, strict=True):
        n_seeds = _seeds(f"{len(group.runs)} of {group.n_planned}", group.n_constant)
        row = [*(group.labels[axis] for axis in axes), n_seeds]
        row += [*(_spread(group.spread(metric), scale) for metric in metrics), *cell]
        for metric in printed:
            own, gain = (find(spec, group.labels, metric, first) for find in (paper_number, paper_gain))
            row += [NONE if own is None else f"{own.value:.2f}", NONE if gain is None else f"{gain:+.2f}"]
        done = group.runs.values()
        sizes = {run.result["n_parameters"] for run in done if "n_parameters" in run.result}
        row.append(" / ".join(f"{count / 1e6:.2f}M" for count in sorted(sizes)) or NONE)
        row.append(f"{spread([run.seconds / 60 for run in done]).mean:.1f}" if done else NONE)
        rows.append(row)
    return Table(header, rows)


def _spread(one: Spread, scale: float) -> str:
    if not one.n:
        return NONE
    mean = f"{one.mean * scale:.2f}"
    return mean if math.isnan(one.sd) else f"{mean} ± {one.sd * scale:.2f}"


def _columns(
    metric: str, differences: Sequence[Difference | None], scale: float
) -> tuple[list[str], list[list[str]]]:
    """Names and rows of the columns of differences; p over sentences is a column if any row has it."""
    has_sentences = any(one and one.p_sentences for one in differences)
    has_intervals = any(one and one.interval for one in differences)
    names = [f"Δ {metric}", "p (seeds)", *(["p (sentences)"] if has_sentences else [])]
    names += ["95 % interval"] if has_intervals else []
    rows = []
    for one in differences:
        row = [NONE] * len(names)
        if one is not None:
            row[:2] = f"{one.mean * scale:+.2f}", _p(one.p_seeds)
            if one.p_sentences:
                row[2] = f"{max(one.p_sentences):.3f}" if one.agree else "seeds disagree"
            if one.interval:
                row[-1] = _interval(one.interval, scale)
        rows.append(row)
    return names, rows


def _reading(spec: Spec, metrics: Sequence[str], differences: Sequence[Difference | None]) -> str:
    parts = ["Scores are means ± standard deviations over seeds"]
    parts += ["A lower ter is better"] * ("ter" in metrics)
    if spec.report.baseline:
        levels = in_words(spec.report.baseline)
        parts += [f"Δ is the mean difference from {levels} over shared seeds; p (seeds): a paired t-test"]
        if any(one and one.p_sentences for one in differences):
            split = "test" if metrics[0].startswith("test_") else "dev"
            by, made = f"over examples of {split}", "predictions"
            if spec.verb == "train":
                by, made = "of BLEU by sacreBLEU, nearly one-sided", "translations"
            parts += [f"p (sentences) is from a paired bootstrap {by}, run for each seed"]
            parts += [f"The largest p is shown, if all seeds have {made} and differ in one direction"]
        if any(one and one.interval for one in differences):
            parts += ["The 95 % interval is from a bootstrap over seeds and sentences together"]
            parts += ["With fewer than ten seeds, it is too narrow"]
    if spec.report.paper:
        parts += [f"The paper's numbers: {spec.report.paper_source or 'as printed'}"]
        if spec.report.baseline:
            parts += ["Δ paper is the paper's own gain over its own baseline, not our gain over the paper"]
    return ". ".join(parts) + ". Minutes are by the clock and count all attempts of a run."


def _search_blocks(spec: Spec, runs: dict[str, StoredRun], folder: Path) -> list[Block]:
    """A table of trials for each study, in which the best is marked."""
    search, names = spec.search, list(spec.search.space)
    studies = {in_words(labels) or "Trials": labels for labels in spec.combinations()}
    files = file_names([f"{title}_{name}" for title in studies for name in names])
    blocks: list[Block] = []
    for title, labels in studies.items():
        trials = study_trials(spec, search, runs, labels)
        best = best_trial(search, trials)
        metrics = dict.fromkeys([search.metric, *(name for one in trials for name in one.metrics)])
        rows = [
            [
                one.cell.labels["trial"] + (" (best)" if one is best else ""),
                *(str(one.cell.settings[name]) for name in names),
                *(_number(one.metrics.get(metric), spec.report.scale) for metric in metrics),
                one.state + ONE_CLASS * is_constant(one),
            ]
            for one in trials
        ]
        blocks += [Heading(title), Table(["trial", *names, *metrics, "state"], rows)]
        blocks += trial_figures(spec, search, title, trials, folder, files)
    return blocks


def _number(value: float | None, scale: float = 1.0) -> str:
    return NONE if value is None else f"{scale * value:.4g}"


def _missing_blocks(runs: Sequence[StoredRun]) -> list[Block]:
    rows = [[_title(one.cell), one.state, one.error or ""] for one in runs if one.state != DONE]
    return [Heading("Not measured"), Table(["run", "state", "why"], rows)] if rows else []


def _origin_blocks(spec: Spec, store: RunStore, runs: Sequence[StoredRun]) -> list[Block]:
    """The run, commit and command behind each number."""
    done = [one for one in runs if one.state == DONE]
    if not done:
        return []
    rows = []
    for one in done:
        scores = {name: value for name, value in one.metrics.items() if value is not None}
        metrics = ", ".join(f"{name} {_number(value)}" for name, value in scores.items())
        metrics += ONE_CLASS * is_constant(one)
        place = str(store.cell_folder(one.cell).relative_to(store.folder))
        made = [one.result.get("commit", NONE), one.result.get("precision", NONE)]
        rows.append([place, metrics, *made, f"{one.seconds:.0f}", str(one.attempts)])
    shared = [f"Signature {text}" for one in done for text in one.result.get("signatures", {}).values()]
    shared += [f"Versions {json.dumps(one.result.get('versions', {}), sort_keys=True)}" for one in done]
    shared += [f"Data {_hashes(one)}" for one in done]
    content = json.dumps(spec.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return [
        Heading("Where the numbers come from"),
        Paragraph(
            f"Specification sha256 {digest}. Folders are inside the store. OUTPUT is FOLDER/model. "
            "A command is for the code of its commit; later code may have other defaults."
        ),
        Table(["folder", "metrics", "commit", "precision", "seconds", "attempts"], rows),
        Code("\n".join(one.result.get("command") or one.cell.command() for one in done)),
        *map(Paragraph, dict.fromkeys(shared)),
    ]


def _hashes(run: StoredRun) -> str:
    return ", ".join(f"{part} sha256 {value[:12]}" for part, value in content_hashes(run).items()) or NONE


def _title(cell: Cell) -> str:
    return in_words(cell.labels) or cell.name
