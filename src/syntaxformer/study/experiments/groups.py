"""Groups the runs of an experiment, tests the differences between groups, and says what planned ones found.

A group is all seeds of one combination of levels. `report` writes the other tables.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from pydantic import ValidationError

from syntaxformer.base.files import hash_file, read_json, read_lines, write_text
from syntaxformer.base.statistics import (
    Spread,
    bootstrap_rows,
    detectable_effect,
    holm,
    paired_t_test,
    seed_interval,
    sign_test_p,
    spread,
)
from syntaxformer.encoders.metrics import CLASSIFICATION_METRICS, REGRESSION_METRICS, score_predictions
from syntaxformer.study.document import Block, Heading, Paragraph, Table
from syntaxformer.study.experiments.cell import HYPOTHESES, RATE, REFERENCES, unpacked
from syntaxformer.study.experiments.spec import (
    SEED,
    Contrast,
    PaperNumber,
    Spec,
    in_words,
    matches,
    without_seed,
)
from syntaxformer.study.experiments.store import DONE, RunStore, StoredRun, choices
from syntaxformer.translation.scoring import bootstrap_gain, compare_translations

NONE = "–"
ONE_CLASS = ", one class"
"""What tables say of a run that predicts one class only, and so has learned nothing."""

FEWEST_SEEDS = 5
"""Fewer get no bootstrap over seeds: it would be far too narrow."""


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
        of_seeds: The difference of each seed.
    """

    mean: float
    sd: float
    n: int
    p_seeds: float
    p_sentences: list[float]
    agree: bool
    interval: tuple[float, float] | None = None
    n_constant: int = 0
    of_seeds: tuple[float, ...] = ()

    def exact_p(self, direction: str) -> float:
        """P of the permutation test over seeds; NaN where a run predicts one class only."""
        return math.nan if self.n_constant else sign_test_p(self.of_seeds, direction)

    @property
    def bootstrap(self) -> tuple[float, float]:
        """95 % interval of the mean by bootstrap over seeds; NaN for a few."""
        rng, values = np.random.default_rng(12345), np.array(self.of_seeds)
        if len(values) < FEWEST_SEEDS or self.n_constant:
            return math.nan, math.nan
        means = values[rng.integers(0, len(values), (10_000, len(values)))].mean(1)
        low, high = np.percentile(means, [2.5, 97.5]).tolist()
        return low, high

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
    metrics = chain.from_iterable(run.metrics.items() for run in runs)
    names = list(dict.fromkeys(name for name, value in metrics if value is not None))
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
    of_seeds = ([group.runs.get(seed) for group in groups] for seed in groups[0].runs)
    rows = [row for row in of_seeds if all(run and run.metrics.get(metric) is not None for run in row)]
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
        elif all(metric in run.result.get("lines", ()) for row in rows for run in row):
            p_sentences, interval = _bootstrap_lines(store, rows, metric, weights)
        elif spec.verb == "finetune":
            p_sentences, interval = _bootstrap_predictions(store, rows, metric, weights)
    numbers = gains.mean, gains.sd, gains.n, p_seeds, p_sentences, agree
    return Difference(*numbers, interval, n_constant, tuple(per_seed))


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
    return path, read_json(path) if path.exists() else {}


def _resampled(
    store: RunStore,
    content: Any,
    score: Callable[[np.ndarray, np.ndarray], float],
    gold: np.ndarray,
    rows: Sequence[Sequence[np.ndarray]],
    weights: Sequence[float],
) -> Resampled:
    """`bootstrap_rows`, now or before for the same content; an interval only for several seeds."""
    path, known = _read_known(store)
    key = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
    if key not in known:
        p_values, gain = bootstrap_rows(score, gold, rows, weights=weights)
        known[key] = [p_values, gain.low, gain.high]
        write_text(path, json.dumps(known, indent=1, sort_keys=True))
    p_values, low, high = known[key]
    return p_values, (low, high) if len(rows) > 1 else None


def _bootstrap_predictions(
    store: RunStore, rows: Sequence[Sequence[StoredRun]], metric: str, weights: Sequence[float]
) -> Resampled:
    """Resample examples; nothing where a run has no predictions, as in earlier stores."""
    name = metric.removeprefix("test_")  # of the test split
    split = "dev_predictions" if name == metric else "test_predictions"
    sides: list[Any] = [run.result.get(split) for row in rows for run in row]
    known_metrics = CLASSIFICATION_METRICS | REGRESSION_METRICS
    of_task = [metric for metric in rows[0][0].metrics if metric in known_metrics]
    if None in sides or len({side["gold"] for side in sides}) > 1 or name not in ("score", "mean", *of_task):
        return [], None
    names = [name] if name in of_task else of_task

    def score(labels: np.ndarray, predicted: np.ndarray) -> float:
        return fmean(score_predictions(names, labels, predicted)[name] for name in names)

    gold = np.array(sides[0]["gold"].split(), float)
    predictions = [[np.array(run.result[split]["found"].split(), float) for run in row] for row in rows]
    content = [metric, *sides] if list(weights) == [-1.0, 1.0] else [metric, list(weights), *sides]
    return _resampled(store, content, score, gold, predictions, weights)


def _bootstrap_lines(
    store: RunStore, rows: Sequence[Sequence[StoredRun]], metric: str, weights: Sequence[float]
) -> Resampled:
    """Resample the lines of a named test; nothing where runs scored different numbers of lines."""
    texts = [[run.result["lines"][metric] for run in row] for row in rows]
    values = [[np.array(unpacked(text)) for text in row] for row in texts]
    if len({len(of_run) for row in values for of_run in row}) > 1:
        return [], None
    content = [metric, list(weights), texts]
    return _resampled(store, content, lambda _, of_run: of_run.mean(), values[0][0], values, weights)


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


def shown_p(value: float) -> str:
    """A p-value in a table."""
    if math.isnan(value):
        return NONE
    return f"{value:.3f}" if value >= 0.0005 else "<0.001"


def shown_interval(interval: tuple[float, float], scale: float) -> str:
    """An interval in a table."""
    return NONE if math.isnan(interval[0]) else f"{interval[0] * scale:+.2f} to {interval[1] * scale:+.2f}"


def planned_blocks(
    spec: Spec, store: RunStore, runs: dict[str, StoredRun], groups: Sequence[Group], first: str
) -> list[Block]:
    """The comparisons that were planned, with what they could have shown and p corrected for their number."""
    planned, scale = spec.report.planned, spec.report.scale
    if not planned:
        return []
    title = "The comparison that was planned" if len(planned) == 1 else "The comparisons that were planned"
    blocks: list[Block] = [Heading(title)]
    has_table = len(planned) > 1 or planned[0].direction != "either"
    rows, p_values = [], []
    for contrast in planned:
        metric = contrast.metric or first
        group = next((group for group in groups if matches(group.labels, contrast.cell)), None)
        gain = compare_groups(spec, store, group, groups, metric, contrast.against) if group else None
        blocks.append(Paragraph(_planned_words(spec, runs, groups, contrast, metric, gain)))
        if has_table:
            p_values.append(math.nan if gain is None else gain.exact_p(contrast.direction))
        cells = [NONE] * 3
        if gain is not None:
            cells = [str(gain.n), f"{gain.mean * scale:+.2f}", shown_interval(gain.bootstrap, scale)]
        rows.append([contrast.words, metric, contrast.direction, *cells])
    if has_table:
        for row, p, corrected in zip(rows, p_values, holm(p_values), strict=True):
            row += [shown_p(p), shown_p(corrected)]
        header = ["comparison", "metric", "direction", "seeds", "Δ", "95 % interval", "p", "p (Holm)"]
        note = (
            "p is exact, by the paired permutation test over all signs of the differences of seeds; p (Holm) "
            f"is corrected for all {len(planned)} of them. The interval is a bootstrap over seeds."
        )
        blocks += [Table(header, rows), Paragraph(note)]
    return blocks


def _planned_words(
    spec: Spec,
    runs: dict[str, StoredRun],
    groups: Sequence[Group],
    contrast: Contrast,
    metric: str,
    gain: Difference | None,
) -> str:
    sides = {
        in_words(group.labels): [*group.runs.values()] for group in groups if group.labels in contrast.sides
    }
    was_planned = [_was_planned(spec, contrast, run) for run in chain.from_iterable(sides.values())]
    sd = contrast.sd or expected_sd(spec, runs, contrast, metric)
    power = "The choosing seeds that would tell how much it varies are not all done."
    if sd is not None:
        power = (
            f"If their difference has a standard deviation of {sd:g} over seeds, a difference of "
            f"{detectable_effect(contrast.seeds, sd):.2f} {metric} is found with a probability of 80 %."
        )
    rates = {
        name: ", ".join(sorted({str((run.result.get("recipe") or {}).get(RATE, NONE)) for run in side}))
        for name, side in sides.items()
        if side
    }
    how = f" chosen on dev with {spec.tune.in_words}" if spec.tune else ""
    chosen = f" Learning rates{how}: {'; '.join(f'{rate} for {name}' for name, rate in rates.items())}."
    if len({*rates.values()}) == 1 and len(rates) == len(sides):
        chosen = f" Both sides have the learning rate {next(iter(rates.values()))}."
    measured, scale = "Not measured yet.", spec.report.scale
    if gain is not None:
        intervals = ""
        if not math.isnan(gain.p_seeds):
            intervals = f", 95 % interval over seeds {shown_interval(gain.over_seeds, scale)}"
        if gain.interval is not None:
            intervals += f", over seeds and sentences {shown_interval(gain.interval, scale)}"
        measured = (
            f"Measured over {gain.n} seeds{ONE_CLASS * bool(gain.n_constant)}: {gain.mean * scale:+.2f} "
            f"{metric}{intervals}, p (seeds) {shown_p(gain.p_seeds)}; standard deviation over seeds "
            f"{gain.sd * scale:.2f}."
        )
    verdict = ""
    if False in was_planned:
        verdict = " **It was written or changed after runs were made, so it was not planned.**"
    elif None in was_planned:
        verdict = " These runs do not record whether it was chosen before them."
    return (
        f"Chosen{' before the first run' * all(was_planned)}: {in_words(contrast.cell)} against "
        f"{in_words(contrast.against)}, {contrast.seeds} seeds. {power}"
        f"{chosen if was_planned else ''} {measured}{verdict}"
    )


def _was_planned(spec: Spec, contrast: Contrast, run: StoredRun) -> bool | None:
    """Whether a run was made when the comparison had been written as it is now; None if it does not say."""
    is_first = contrast is spec.report.primary
    recorded = run.result.get("primary" if is_first else "secondary") or {}
    if spec.name not in recorded:
        return None
    plans = [recorded[spec.name]] if is_first else recorded[spec.name] or []
    for plan in filter(None, plans):
        with suppress(ValidationError):  # the plan of another version of this package is another plan
            if Contrast.model_validate(plan) == contrast:
                return True
    return False


def power_in_words(spec: Spec, runs: dict[str, StoredRun], contrast: Contrast) -> str:
    """What a planned comparison can find, by the spread of the choosing seeds or else by the plan's own."""
    metric = contrast.metric or (spec.report.metrics or spec.metrics())[0]
    measured, start = expected_sd(spec, runs, contrast, metric), f"planned: {contrast.words}, {metric}"
    sd = contrast.sd if measured is None else measured
    if sd is None:
        return f"{start}: what {contrast.seeds} seeds can find is known when those of tune are done"
    origin = "as planned" if measured is None else "over the choosing seeds"
    size = detectable_effect(contrast.seeds, sd)
    return f"{start}: deviation {sd:.2f} {origin}; {contrast.seeds} seeds find {size:.2f} in 80 %"


def expected_sd(spec: Spec, runs: dict[str, StoredRun], contrast: Contrast, metric: str) -> float | None:
    """Standard deviation of a planned difference over the seeds of `tune`, at the chosen settings, scaled.

    None before these runs are done, or without several of them.
    """
    tried, sides = choices(spec, runs), []
    for labels in contrast.sides:
        choice = tried.get(without_seed(labels))
        if choice is None or choice.best is None:
            return None
        of_seeds = choice.trials[choice.best]
        sides.append({run.cell.settings.get(SEED): run.metrics.get(metric) for run in of_seeds})
    pairs = [(before, sides[1].get(seed)) for seed, before in sides[0].items()]
    gains = [after - before for before, after in pairs if before is not None and after is not None]
    sd = spread(gains).sd * spec.report.scale
    return sd if sd > 0 else None  # NaN for fewer than two
