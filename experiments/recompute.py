"""Compute the numbers of the result pages a second time, from the stores and with nothing of this package.

    python experiments/recompute.py

Each number of seeds, mean, standard deviation, difference, p-value and interval in the tables of a page and
in its planned comparison is compared with what SQLite, NumPy, SciPy and sacreBLEU give. Samples are drawn in
another stream, and may differ by as much as two streams do. Where a store has no outputs, p-values and
intervals over sentences cannot be computed again, and are only counted. It ends with status 1 if a number
differs.
"""

from __future__ import annotations

import ast
import json
import re
import sqlite3
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from scipy.stats import ttest_1samp, ttest_rel

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "docs" / "results"
CONTRASTS = "All comparisons with three seeds or more"
"""Heading of their table in docs/results/index.md."""
EFFECTS = "Main effects and interactions"
INFUSIONS = ("embedding", "masks", "relation_bias", "lisa")
"""Axes whose list holds sections of an infusion, and not values of a key."""

PLANNED = re.compile(
    r"Chosen(?: before the first run)?: (.+?) against (.+?), \d+ seeds\. .* "
    r"Measured over (\d+) seeds[^:]*: (\S+) (\S+?)"
    r"(?:, 95 % interval over seeds (\S+ to \S+))?"
    r"(?:, over seeds and sentences (\S+ to \S+))?"
    r", p \(seeds\) (\S+); standard deviation over seeds (\S+?)\.(?:\s|$)"
)
"""The sentence about the comparison that was planned."""

Drawn = tuple[list[float], float, float]
Runs = dict[str, dict[str, Any]]
"""Seed → result of a run, with the place of its translations."""


def listed(name: str) -> Any:
    """A constant of pages.py, such as PAGES: experiment → its store and its page."""
    tree = ast.parse((HERE / "pages.py").read_text("utf-8"))
    (found,) = [
        one.value for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == name
    ]
    return ast.literal_eval(found)


def levels_of(axis: str, levels: Any) -> dict[str, dict[str, Any]]:
    """Level → settings of an axis; a list holds values of its key, or sections of an infusion."""
    if isinstance(levels, dict):
        return levels
    if axis not in INFUSIONS:
        return {str(value): {axis: value} for value in levels}
    names = {
        "none"
        if one is None
        else ", ".join(
            f"{key} {' '.join(map(str, value)) if isinstance(value, list) else value}"
            for key, value in one.items()
        )
        or "default": one
        for one in levels
    }
    return {name: {f"infusion.{axis}": one} for name, one in names.items()}


def settings_of(spec: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    """The settings of one combination of levels."""
    found = dict(spec.get("settings", {}))
    for axis, level in labels.items():
        found |= levels_of(axis, spec["axes"][axis])[level]
    return found


def runs_of(spec: dict[str, Any], store: Path, labels: dict[str, str]) -> Runs:
    """The finished runs of one row, by seed; settings that were chosen on dev may have any value."""
    chosen = spec.get("tune", {}).get("space", {})
    connection = sqlite3.connect(f"file:{store / 'store.sqlite'}?mode=ro", uri=True)
    rows = connection.execute("SELECT name, settings, result FROM runs WHERE state = 'done'").fetchall()
    connection.close()
    found = {}
    for seed in map(str, spec["axes"].get("seed", [""])):
        wanted = settings_of(spec, {**labels, **({"seed": seed} if seed else {})})
        for name, text, result in rows:
            settings = json.loads(text)
            if {key: value for key, value in settings.items() if key not in chosen} == {
                key: value for key, value in wanted.items() if key not in chosen
            }:
                found[seed] = {**json.loads(result), "folder": store / "cells" / name}
    return found


def tables(page: Path) -> list[tuple[str, list[str], list[list[str]]]]:
    """Heading, header and rows of each table of a page."""
    found, heading, lines = [], "", []
    for line in [*page.read_text("utf-8").splitlines(), ""]:
        if line.startswith("|"):
            lines.append([cell.strip().replace("\\<", "<") for cell in line.strip("|").split(" | ")])
            continue
        if lines:
            found.append((heading, lines[0], lines[2:]))
            lines = []
        if line.startswith("#"):
            heading = line.strip("# ")
    return found


def translations(run: dict[str, Any]) -> list[str] | None:
    """The translations of a run, if the store has them."""
    path = run["folder"] / "hypotheses.txt"
    return path.read_text("utf-8").splitlines() if path.exists() else None


def interval(pairs: list[tuple[list[str], list[str]]], references: list[str]) -> tuple[float, float]:
    """95 % interval of the mean gain, from 2,000 draws of seeds and of sentences, in a stream of its own."""
    rng, bleu = np.random.default_rng(1), BLEU(effective_order=True)
    table = np.asarray(
        [
            [
                (*one.counts, *one.totals, one.sys_len, one.ref_len)
                for one in map(bleu.sentence_score, lines, [[line] for line in references])
            ]
            for pair in pairs
            for lines in pair
        ]
    )
    gains = []
    for _ in range(2000):
        drawn = table[:, rng.integers(0, len(references), len(references))].sum(1).tolist()
        scores = [BLEU.compute_bleu(one[:4], one[4:8], one[8], one[9]).score for one in drawn]
        by_seed = np.asarray(scores[1::2]) - scores[::2]
        gains.append(by_seed[rng.integers(0, len(by_seed), len(by_seed))].mean())
    low, high = np.percentile(gains, [2.5, 97.5])
    return float(low), float(high)


def shown_p(p: float) -> str:
    """A p-value as pages print it."""
    return f"{p:.3f}" if p >= 0.0005 else "<0.001"


def matthews(gold: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Matthews' correlation of labels 0 and 1 in each row, 0 where a side has one label only."""
    x, y = gold - gold.mean(-1, keepdims=True), found - found.mean(-1, keepdims=True)
    below = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return np.where(below > 1e-9, (x * y).sum(-1) / np.maximum(below, 1e-9), 0.0)


def accuracy(gold: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Share of right answers in each row."""
    return (gold == found).mean(-1)


def over_rows(sides: list[list[dict[str, Any]]], weights: list[float], metric: str) -> Drawn | None:
    """Each seed's p-value over examples, and the 95 % interval of the mean gain; None without predictions.

    `sides` are for each seed the runs whose scores have these weights in the gain.
    """
    name = metric.removeprefix("test_")
    split = "dev_predictions" if name == metric else "test_predictions"
    if any(split not in run for runs in sides for run in runs):
        return None
    gold = np.array(sides[0][0][split]["gold"].split(), float)
    found = [[np.array(run[split]["found"].split(), float) for run in runs] for runs in sides]
    pairs = [
        (run["metrics"][metric], one)
        for runs, row in zip(sides, found, strict=True)
        for run, one in zip(runs, row, strict=True)
    ]
    scores = [
        one for one in (matthews, accuracy) if all(abs(one(gold, row) - value) < 1e-5 for value, row in pairs)
    ]
    if not scores:
        return None
    rng = np.random.default_rng(1)
    rows = rng.integers(0, len(gold), (2000, len(gold)))
    gains = [
        sum(weight * scores[0](gold[rows], one[rows]) for weight, one in zip(weights, row, strict=True))
        for row in found
    ]
    measured = [
        sum(weight * scores[0](gold, one) for weight, one in zip(weights, row, strict=True)) for row in found
    ]
    p_values = [
        float((abs(one - one.mean()) >= abs(gain)).mean()) for one, gain in zip(gains, measured, strict=True)
    ]
    drawn = np.stack([np.stack(gains)[rng.integers(0, len(gains), len(gains)), one] for one in range(2000)])
    low, high = np.percentile(drawn.mean(1), [2.5, 97.5])
    return p_values, float(low), float(high)


class Page:
    """Compares one page; `problems` and `counts` say what was found."""

    def __init__(self, name: str, spec: dict[str, Any], store: Path, page: Path) -> None:
        self.name, self.spec, self.store, self.page = name, spec, store, page
        self.scale = self.spec.get("report", {}).get("scale", 1.0)
        self.problems: list[str] = []
        self.counts = {"compared": 0, "without outputs": 0}

    def check(self, where: str, printed: str, found: str) -> None:
        """Compare two texts."""
        self.counts["compared"] += 1
        if printed != found:
            self.problems.append(f"{self.name}, {where}: the page has {printed}, the store gives {found}")

    def compare(self) -> None:
        """All tables of results and of controls."""
        report = self.spec.get("report", {})
        for heading, header, rows in tables(self.page):
            if heading.startswith("Results"):
                against = report.get("baseline", {})
            elif heading == EFFECTS:
                for row in rows:
                    self.compare_effect(dict(zip(header, row, strict=True)))
                continue
            elif heading == "The comparisons that were planned":
                self.compare_planned_rows([dict(zip(header, row, strict=True)) for row in rows])
                continue
            elif heading.startswith("Against "):
                against = next(
                    one
                    for one in report["controls"]
                    if heading == "Against " + ", ".join(f"{a} {b}" for a, b in one.items())
                )
            else:
                continue
            axes = [name for name in header if name in self.spec["axes"]]
            for row in rows:
                self.compare_row(dict(zip(header, row, strict=True)), axes, against)
            if heading.startswith("Results"):
                self.compare_number(axes, {tuple(row[: len(axes)]) for row in rows})
        self.compare_planned()

    def compare_number(self, axes: list[str], printed: set[tuple[str, ...]]) -> None:
        """No combination of levels that has runs is left out."""
        for levels in product(*(levels_of(axis, self.spec["axes"][axis]) for axis in axes)):
            if levels not in printed and runs_of(self.spec, self.store, dict(zip(axes, levels, strict=True))):
                self.problems.append(f"{self.name}: the page has no row {', '.join(levels)}, the store has")

    def compare_planned(self) -> None:
        """The comparison that was written down before the first run, if it was measured."""
        primary = self.spec.get("report", {}).get("primary")
        text = self.page.read_text("utf-8")
        if primary is None or "Measured over " not in text:
            return
        cell, against, n, gain, metric, seeds, both, p, sd = PLANNED.search(text).groups()
        self.check("planned", cell, ", ".join(f"{axis} {level}" for axis, level in primary["cell"].items()))
        self.check(
            "planned, against",
            against,
            ", ".join(f"{axis} {level}" for axis, level in primary["against"].items()),
        )
        base, runs = (runs_of(self.spec, self.store, primary[one]) for one in ("against", "cell"))
        shared = [seed for seed in base if seed in runs]
        first, second = (
            np.asarray([one[seed]["metrics"][metric] for seed in shared]) for one in (base, runs)
        )
        gains = (second - first) * self.scale
        self.check("planned, seeds", n, str(len(shared)))
        self.check("planned, Δ", gain, f"{gains.mean():+.2f}")
        self.check("planned, sd", sd, f"{gains.std(ddof=1):.2f}")
        if seeds is not None:
            test = ttest_rel(second, first)
            ends = test.confidence_interval(0.95)
            self.check("planned, p", p, shown_p(test.pvalue))
            self.check(
                "planned, interval", seeds, f"{ends.low * self.scale:+.2f} to {ends.high * self.scale:+.2f}"
            )
        if both is not None:
            self.compare_sentences("planned", {"95 % interval": both}, base, runs, shared, metric)

    def compare_planned_rows(self, rows: list[dict[str, str]]) -> None:
        """The table of several planned comparisons: exact p over all signs of the differences, and Holm's."""
        report = self.spec["report"]
        contrasts = [report["primary"], *report.get("secondary", [])]
        p_values = []
        for row, contrast in zip(rows, contrasts, strict=True):
            base, runs = (runs_of(self.spec, self.store, contrast[side]) for side in ("against", "cell"))
            seeds = [seed for seed in base if seed in runs]
            if not seeds:
                self.check(f"planned, {row['comparison']}", row["Δ"], "–")
                p_values.append(1.0)
                continue
            first, second = (
                np.asarray([side[seed]["metrics"][row["metric"]] for seed in seeds]) for side in (base, runs)
            )
            gains, sums = (second - first) * self.scale, np.zeros(1)
            for gain in gains:
                sums = np.concatenate([sums + gain, sums - gain])
            observed = {"greater": gains.sum(), "less": -gains.sum(), "either": abs(gains.sum())}
            sums = np.abs(sums) if row["direction"] == "either" else sums
            p_values.append(float((sums >= observed[row["direction"]] - 1e-9).mean()))
            drawn = gains[np.random.default_rng(1).integers(0, len(gains), (10_000, len(gains)))].mean(1)
            self.check(f"planned, {row['comparison']}, seeds", row["seeds"], str(len(seeds)))
            self.check(f"planned, {row['comparison']}, Δ", row["Δ"], f"{gains.mean():+.2f}")
            self.check(f"planned, {row['comparison']}, p", row["p"], shown_p(p_values[-1]))
            if row["95 % interval"] != "–":
                ends = np.percentile(drawn, [2.5, 97.5])
                self.compare_interval(f"planned, {row['comparison']}", row["95 % interval"], *ends)
        corrected = 0.0
        for rank, number in enumerate(np.argsort(p_values, kind="stable")):
            corrected = max(corrected, min(1.0, (len(rows) - rank) * p_values[number]))
            if rows[number]["p (Holm)"] != "–":
                where = f"planned, {rows[number]['comparison']}, p (Holm)"
                self.check(where, rows[number]["p (Holm)"], shown_p(corrected))

    def compare_effect(self, row: dict[str, str]) -> None:
        """One effect: along its axes the differences from the first levels, along the others the mean."""
        axes = self.spec["axes"]
        among = {axis: row[axis] for axis in row if axis in axes}
        named = self.spec.get("report", {}).get("effects")
        wanted = [one for one in INFUSIONS if isinstance(axes.get(one), list)] if named is None else named
        crossed = {axis: list(levels_of(axis, axes[axis])) for axis in axes if axis in wanted}
        chosen = dict(part.split(" ", 1) for part in row["effect"].split(" × "))
        runs = [
            runs_of(self.spec, self.store, among | dict(zip(crossed, levels, strict=True)))
            for levels in product(*crossed.values())
        ]
        seeds = [seed for seed in runs[0] if all(seed in one for one in runs)]
        metric = next(name[2:] for name in row if name.startswith("Δ "))
        if row[f"Δ {metric}"] == "–":
            return
        scores = np.asarray([[one[seed]["metrics"][metric] for seed in seeds] for one in runs]) * self.scale
        scores = scores.reshape(*map(len, crossed.values()), len(seeds))
        self.compare_effect_rows(row, runs, seeds, crossed, chosen, metric)
        for axis, levels in crossed.items():
            scores = scores[levels.index(chosen[axis])] - scores[0] if axis in chosen else scores.mean(0)
        self.check(f"{row['effect']}, Δ", row[f"Δ {metric}"], f"{scores.mean():+.2f}")
        if row["p (seeds)"] != "–":
            test = ttest_1samp(scores, 0)
            ends = test.confidence_interval(0.95)
            self.check(f"{row['effect']}, p (seeds)", row["p (seeds)"], shown_p(test.pvalue))
            interval = f"{ends.low:+.2f} to {ends.high:+.2f}"
            self.check(f"{row['effect']}, interval", row["95 % over seeds"], interval)

    def compare_effect_rows(
        self,
        row: dict[str, str],
        runs: list[Runs],
        seeds: list[str],
        crossed: dict[str, list[str]],
        chosen: dict[str, str],
        metric: str,
    ) -> None:
        """The p-value and interval over examples of an effect, a weighted sum of scores."""
        if self.spec["verb"] != "finetune":
            return
        weights = np.ones(())
        for axis, levels in crossed.items():
            own = np.full(len(levels), 1 / len(levels))
            if axis in chosen:
                own = np.zeros(len(levels))
                own[0], own[levels.index(chosen[axis])] = -1, 1
            weights = np.multiply.outer(weights, own)
        kept = [(one, weight) for one, weight in zip(runs, weights.ravel().tolist(), strict=True) if weight]
        sides = [[one[seed] for one, _ in kept] for seed in seeds]
        self.compare_drawn(row["effect"], row, over_rows(sides, [weight for _, weight in kept], metric))

    def compare_row(self, row: dict[str, str], axes: list[str], against: dict[str, str]) -> None:
        """One row: its means, and its differences from the rows that it is compared with."""
        labels = {axis: row[axis] for axis in axes}
        where, runs = ", ".join(labels.values()), runs_of(self.spec, self.store, labels)
        if "seeds" in row:
            printed = re.match(r"\d*", row["seeds"])[0]
            shared = runs_of(self.spec, self.store, {**labels, **against}) if "minutes" not in row else runs
            self.check(f"{where}, seeds", printed, str(len(runs.keys() & shared)))
        for metric in (name for name in row if any(name in run["metrics"] for run in runs.values())):
            values = [run["metrics"].get(metric) for run in runs.values()]
            values = np.asarray([value for value in values if value is not None])
            found = f"{values.mean() * self.scale:.2f}"
            found += f" ± {values.std(ddof=1) * self.scale:.2f}" if len(values) > 1 else ""
            self.check(f"{where}, {metric}", row[metric], found)
        metric = next((name[2:] for name in row if name.startswith("Δ ")), None)
        if metric is None or row[f"Δ {metric}"] == "–":
            return
        base = runs_of(self.spec, self.store, {**labels, **against})
        both = [seed for seed in base if seed in runs]
        first, second = (np.asarray([one[seed]["metrics"][metric] for seed in both]) for one in (base, runs))
        self.check(f"{where}, Δ", row[f"Δ {metric}"], f"{(second - first).mean() * self.scale:+.2f}")
        if row["p (seeds)"] != "–":
            self.check(f"{where}, p (seeds)", row["p (seeds)"], shown_p(ttest_rel(second, first).pvalue))
        self.compare_sentences(where, row, base, runs, both, metric)

    def compare_sentences(
        self, where: str, row: dict[str, str], base: Runs, runs: Runs, seeds: list[str], metric: str
    ) -> None:
        """The p-value and interval over sentences or examples of one row."""
        wanted = [name for name in ("p (sentences)", "95 % interval") if row.get(name, "–") != "–"]
        if not wanted:
            return
        if self.spec["verb"] == "finetune":
            self.compare_drawn(
                where, row, over_rows([[base[one], runs[one]] for one in seeds], [-1, 1], metric)
            )
            return
        texts = [(translations(base[seed]), translations(runs[seed])) for seed in seeds]
        if any(None in pair for pair in texts):
            self.counts["without outputs"] += len(wanted)
            return
        references = (HERE.parent / self.spec["test"]["ref"]).read_text("utf-8").splitlines()
        if "p (sentences)" in wanted and row["p (sentences)"] != "seeds disagree":
            found = max(sentence_p(*pair, references) for pair in texts)
            self.check(f"{where}, p (sentences)", row["p (sentences)"], shown_p(found))
        if "95 % interval" in wanted:
            self.compare_interval(where, row["95 % interval"], *interval(texts, references))

    def compare_drawn(self, where: str, row: dict[str, str], found: Drawn | None) -> None:
        """The p-value and interval over examples, up to what two streams of random numbers differ by."""
        names = [one for one in ("p (sentences)", "95 % interval") if row.get(one, "–") != "–"]
        if found is None:
            self.counts["without outputs"] += len(names)
            return
        p_values, low, high = found
        if "p (sentences)" in names and row["p (sentences)"] != "seeds disagree":
            p, printed = max(p_values), float(row["p (sentences)"])
            self.counts["compared"] += 1
            if abs(printed - p) > 5 * (p * (1 - p) / 1000) ** 0.5 + 0.005:
                self.problems.append(f"{self.name}, {where}: p {printed}, the store gives {p:.3f}")
        if "95 % interval" in names:
            self.compare_interval(where, row["95 % interval"], low * self.scale, high * self.scale)

    def compare_interval(self, where: str, printed: str, low: float, high: float) -> None:
        """An interval, up to what two streams of random numbers differ by."""
        ends = [float(one) for one in printed.split(" to ")]
        self.counts["compared"] += 1
        if max(abs(ends[0] - low), abs(ends[1] - high)) > 0.1 * (high - low) + 0.01:
            self.problems.append(
                f"{self.name}, {where}: interval {printed}, the store gives {low:.2f} to {high:.2f}"
            )


def compare_contrasts(page: Path) -> tuple[int, list[str]]:
    """Number of contrasts at the top of the results, and what differs from the stores."""
    problems, n_rows = [], 0
    printed = {row[0]: row[1:5] for heading, _, rows in tables(page) if heading == CONTRASTS for row in rows}
    for unit, name, data, against, left_out in listed("FOREST"):
        store, folder = listed("PAGES")[name]
        spec = yaml.safe_load((HERE / f"{name}.yaml").read_text("utf-8"))
        scale = spec["report"].get("scale", 1.0)
        metric = (spec["report"].get("metrics") or ["bleu"])[0]
        others = [axis for axis in spec["axes"] if axis not in ("system", "seed")]
        for levels in product(spec["axes"]["system"], *(spec["axes"][axis] for axis in others)):
            labels = dict(zip(["system", *others], map(str, levels), strict=True))
            system, base = (
                runs_of(spec, HERE / "stores" / store, one) for one in (labels, {**labels, "system": against})
            )
            seeds = [seed for seed in base if seed in system]
            if len(seeds) < 3 or labels["system"] in (against, *left_out):
                continue
            first, second = ([one[seed]["metrics"][metric] for seed in seeds] for one in (base, system))
            test = ttest_rel(second, first)
            ends = test.confidence_interval(0.95)
            gain = scale * float(np.mean(second) - np.mean(first))
            what = f"[{labels['system']}, {' '.join([data, *levels[1:]])}]({folder}/report.md)"
            found = [f"{gain:+.2f} {unit}", f"{ends.low * scale:+.2f} to {ends.high * scale:+.2f}"]
            found += [str(len(seeds)), shown_p(test.pvalue)]
            n_rows += 1
            if printed.get(what) != found:
                problems.append(f"results, {what}: the page has {printed.get(what)}, the store gives {found}")
    if n_rows != len(printed):
        problems.append(f"results: the page has {len(printed)} contrasts, the stores give {n_rows}")
    return n_rows, problems


def sentence_p(baseline: list[str], system: list[str], references: list[str]) -> float:
    """The p-value of sacreBLEU's paired bootstrap."""
    outputs = [("baseline", baseline), ("system", system)]
    _, scores = PairedTest(outputs, {"BLEU": BLEU(references=[references])}, [references], "bs", 1000)()
    first, second = scores["BLEU"]
    return float(second.p_value) if second.score != first.score else 1.0


def main() -> int:
    """Compare all pages, and print what was found."""
    problems = []
    for name, (store, page) in listed("PAGES").items():
        spec = yaml.safe_load((HERE / f"{name}.yaml").read_text("utf-8"))
        if "search" in spec:  # whose page has single runs and no means
            continue
        one = Page(name, spec, HERE / "stores" / store, RESULTS / page / "report.md")
        one.compare()
        print(f"{name}: {', '.join(f'{count} {what}' for what, count in one.counts.items())}")
        problems += one.problems
    n_contrasts, wrong = compare_contrasts(RESULTS / "index.md")
    print(f"results: {n_contrasts} contrasts")
    problems += wrong
    print("\n".join(problems) or "All numbers are those of the stores.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
