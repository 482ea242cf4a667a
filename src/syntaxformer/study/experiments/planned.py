"""The comparisons that an experiment was made for: what they can find, and what they found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress

from pydantic import ValidationError

from syntaxformer.base.statistics import detectable_effect, holm, spread
from syntaxformer.study.document import Block, Heading, Paragraph, Table
from syntaxformer.study.experiments.cell import RATE
from syntaxformer.study.experiments.groups import (
    NONE,
    ONE_CLASS,
    Difference,
    Group,
    compare_groups,
    shown_interval,
    shown_p,
)
from syntaxformer.study.experiments.spec import SEED, Contrast, Spec, in_words, matches, without_seed
from syntaxformer.study.experiments.store import RunStore, StoredRun, choices


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
    """What was chosen, what it can find, what was measured, and whether it was planned at all."""
    of_sides = {
        in_words(group.labels): [*group.runs.values()] for group in groups if group.labels in contrast.sides
    }
    was_planned = [_was_planned(spec, contrast, run) for of_side in of_sides.values() for run in of_side]
    sd = contrast.sd or expected_sd(spec, runs, contrast, metric)
    power = "The choosing seeds that would tell how much it varies are not all done."
    if sd is not None:
        power = (
            f"If their difference has a standard deviation of {sd:g} over seeds, a difference of "
            f"{detectable_effect(contrast.seeds, sd):.2f} {metric} is found with a probability of 80 %."
        )
    verdict = ""
    if False in was_planned:
        verdict = " **It was written or changed after runs were made, so it was not planned.**"
    elif None in was_planned:
        verdict = " These runs do not record whether it was chosen before them."
    return (
        f"Chosen{' before the first run' * all(was_planned)}: {in_words(contrast.cell)} against "
        f"{in_words(contrast.against)}, {contrast.seeds} seeds. {power}"
        f"{_rate_words(spec, of_sides) if was_planned else ''} "
        f"{_measured_words(gain, metric, spec.report.scale)}{verdict}"
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


def _measured_words(gain: Difference | None, metric: str, scale: float) -> str:
    if gain is None:
        return "Not measured yet."
    intervals = (
        "" if gain.interval is None else f", over seeds and sentences {shown_interval(gain.interval, scale)}"
    )
    if not math.isnan(gain.p_seeds):
        intervals = f", 95 % interval over seeds {shown_interval(gain.over_seeds, scale)}{intervals}"
    return (
        f"Measured over {gain.n} seeds{ONE_CLASS * bool(gain.n_constant)}: {gain.mean * scale:+.2f} "
        f"{metric}{intervals}, p (seeds) {shown_p(gain.p_seeds)}; standard deviation over seeds "
        f"{gain.sd * scale:.2f}."
    )


def _rate_words(spec: Spec, sides: Mapping[str, Sequence[StoredRun]]) -> str:
    """Which learning rates the sides of a comparison have."""
    rates = {
        name: ", ".join(sorted({str((run.result.get("recipe") or {}).get(RATE, NONE)) for run in runs}))
        for name, runs in sides.items()
        if runs
    }
    if len({*rates.values()}) == 1 and len(rates) == len(sides):
        return f" Both sides have the learning rate {next(iter(rates.values()))}."
    how = f" chosen on dev with {spec.tune.in_words}" if spec.tune else ""
    return f" Learning rates{how}: {'; '.join(f'{rate} for {name}' for name, rate in rates.items())}."


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
        if choice is None or choice.settings is None:
            return None
        of_seeds = next(
            trials
            for trials in choice.trials.values()
            if choice.settings == {key: trials[0].cell.settings[key] for key in choice.settings}
        )
        sides.append({run.cell.settings.get(SEED): run.metrics.get(metric) for run in of_seeds})
    pairs = [(before, sides[1].get(seed)) for seed, before in sides[0].items()]
    gains = [after - before for before, after in pairs if before is not None and after is not None]
    sd = spread(gains).sd * spec.report.scale
    return sd if sd > 0 else None  # NaN for fewer than two
