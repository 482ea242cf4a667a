"""The result pages of the documentation, from the stores that lie beside this script.

    make results                       writes docs/results/PAGE/report.md and its figures, and the
                                       figure and table at the top of docs/results/index.md

A store here holds what a report needs and no text: store.sqlite, and bootstrap.json where translations
were compared. `syntaxformer experiment run SPEC --store experiments/stores/STORE` goes on with one. The
earlier runs of GLUE (docs/results/glue_minilm_earlier) no longer have a store.

A page shows what was run. Runs that are only planned stand in the YAML file of the experiment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from scipy.stats import t as student_t

from syntaxformer.study.document import Table, to_markdown
from syntaxformer.study.experiments.groups import (
    compare_groups,
    group_runs,
    metric_names,
    paper_gain,
    shown_p,
)
from syntaxformer.study.experiments.report import write_report
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.study.experiments.store import RunStore, tuned

HERE = Path(__file__).resolve().parent
PAGES = {
    "sundararaman2019_table1_tatoeba": ("tatoeba", "tatoeba_by_size"),
    "sundararaman2019_table1_multi30k": ("multi30k", "multi30k_by_size"),
    "sundararaman2019_factors_multi30k": ("multi30k", "multi30k_factors"),
    "sundararaman2019_width_multi30k": ("multi30k", "multi30k_width"),
    "bai2021_glue_minilm": ("minilm", "glue_minilm"),
    "bai2021_ablation": ("minilm", "masks_ablation"),
    "bai2021_learning_rate": ("learning_rate", "learning_rate"),
    "masks_lisa_cola": ("masks_lisa_cola", "masks_lisa_cola"),
    "backtranslation_tatoeba": ("backtranslation", "backtranslation_tatoeba"),
    "pretrained_multi30k": ("pretrained", "pretrained_multi30k"),
    "pretrained_news": ("pretrained", "pretrained_news"),
    "trial_sst": ("sst", "trial_sst"),
    "structure/question": ("structure", "structure_question"),
    "structure/quality": ("quality", "structure_quality"),
}
"""Experiment → its store, and its page."""


FOREST = [
    ("BLEU", "sundararaman2019_table1_tatoeba", "Tatoeba", "baseline, untied", ["baseline", "add"]),
    ("BLEU", "sundararaman2019_table1_multi30k", "Multi30k", "baseline, untied", ["baseline"]),
    ("BLEU", "pretrained_multi30k", "Marian captions", "plain", ["from scratch", "add, permuted tags"]),
    (
        "BLEU",
        "pretrained_multi30k",
        "Marian captions, against permuted tags",
        "add, permuted tags",
        ["from scratch", "plain", "relation_bias"],
    ),
    ("BLEU", "pretrained_news", "Marian news", "plain", ["from scratch"]),
    ("Matthews × 100", "bai2021_glue_minilm", "MiniLM", "plain", ["masks as printed"]),
    ("accuracy × 100", "trial_sst", "SST-2 trees", "plain", ["additive, trees of other sentences"]),
    (
        "accuracy × 100",
        "trial_sst",
        "SST-2 trees, against trees of other sentences",
        "additive, trees of other sentences",
        ["plain", "masks as printed"],
    ),
]
"""Unit, experiment, its data or model, the system without syntax, and systems that are left out.

These differ in more than syntax (their source table is the target's), or some seeds predict one class only.
"""

LEAST_SEEDS = 3


class Contrast(NamedTuple):
    """A system with syntax against one without: mean gain and its 95 % interval by Student's t over seeds."""

    experiment: str
    unit: str
    what: str
    gain: float
    half: float
    n: int
    p: float
    paper: float | None


def main() -> None:
    """Write all pages, and the contrasts of all experiments side by side."""
    docs = HERE.parent / "docs"
    for name in PAGES:
        print(write_page(name, docs / "results"))
    found = contrasts()
    draw_forest(found, docs / "results" / "contrasts.png")
    page = docs / "results" / "index.md"
    page.write_text(with_table(page.read_text("utf-8"), found), "utf-8")
    print(page)


def contrasts() -> list[Contrast]:
    """Each comparison of at least three seeds with a system that lacks only the syntax."""
    found = []
    for unit, name, data, against, left_out in FOREST:
        spec, store = load_spec(HERE / f"{name}.yaml"), RunStore(HERE / "stores" / PAGES[name][0])
        runs = store.runs()
        groups = group_runs(spec := tuned(spec, runs), runs)
        metric, scale = metric_names(spec, groups)[0], spec.report.scale
        for group in groups:
            one = compare_groups(spec, store, group, groups, metric, {"system": against})
            system = group.labels["system"]
            if one is None or one.n < LEAST_SEEDS or system in left_out:
                continue
            half = float(student_t.ppf(0.975, one.n - 1)) * one.sd / math.sqrt(one.n)
            rest = {axis: level for axis, level in group.labels.items() if axis not in ("system", "task")}
            part = " ".join([data, *rest.values(), *filter(None, [group.labels.get("task")])])
            paper = paper_gain(spec, group.labels)
            gain = one.mean * scale
            found.append(
                Contrast(name, unit, f"{system}, {part}", gain, half * scale, one.n, one.p_seeds, paper)
            )
    return found


def draw_forest(found: Sequence[Contrast], path: Path) -> None:
    """Draw a row for each contrast and a panel for each unit; diamonds are the papers' own gains."""
    units = list(dict.fromkeys(one.unit for one in found))
    rows = [[one for one in found if one.unit == unit] for unit in units]
    figure = Figure(figsize=(8, 1.4 + 0.34 * len(found) + 0.6 * len(units)), layout="constrained")
    panels = figure.subplots(len(units), 1, squeeze=False, height_ratios=[len(one) + 1 for one in rows])[:, 0]
    for panel, unit, of_unit in zip(panels, units, rows, strict=True):
        places = range(len(of_unit))[::-1]
        for place, one in zip(places, of_unit, strict=True):
            colour = "C0" if abs(one.gain) > one.half else "0.45"
            panel.errorbar(one.gain, place, xerr=one.half, fmt="o", color=colour, capsize=3, markersize=5)
            if one.paper is not None:
                panel.plot(one.paper, place, "D", color="C1", markersize=5)
        panel.axvline(0, color="0.7", linewidth=1)
        panel.set_yticks(places, [f"{one.what} (n = {one.n})" for one in of_unit])
        panel.set_ylim(-0.6, len(of_unit) - 0.4)
        panel.set_xlabel(f"gain in {unit}")
        panel.grid(axis="x", alpha=0.3)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def with_table(text: str, found: Sequence[Contrast]) -> str:
    """The page of results with the table of contrasts between its marks."""
    rows = [
        [
            f"[{one.what}]({PAGES[one.experiment][1]}/report.md)",
            f"{one.gain:+.2f} {one.unit}",
            f"{one.gain - one.half:+.2f} to {one.gain + one.half:+.2f}",
            str(one.n),
            shown_p(one.p),
            "–" if one.paper is None else f"{one.paper:+.2f}",
        ]
        for one in found
    ]
    header = ["system and data", "gain", "95 % interval", "seeds", "p (seeds)", "gain in the paper"]
    table = to_markdown([Table(header, rows)])
    return re.sub(
        r"(?s)(<!-- contrasts -->\n).*(<!-- end -->)", lambda marks: f"{marks[1]}\n{table}\n{marks[2]}", text
    )


def write_page(name: str, results: Path) -> Path:
    """Write one page below a folder.

    Args:
        name: Of the experiment.
        results: Folder of all pages.

    Returns:
        Its report.md.
    """
    store, page = PAGES[name]
    spec = load_spec(HERE / f"{name}.yaml")
    report = write_report(spec, RunStore(HERE / "stores" / store), results / page)
    (results / page / "report.html").unlink()
    report.write_text(without_plans(report.read_text("utf-8"), name), "utf-8")
    return report


def without_plans(text: str, name: str) -> str:
    """A report without its rows of runs that wait; `name` is the path of its experiment in this folder."""
    text = re.sub(r"(?m)^\|.*\| (?:0 of \d+ \|.*|waiting \|  \|)\n", "", text)
    text = re.sub(r"## Not measured\n\n\| run .*\n\| --- .*\n\n", "", text)
    listed = rf"\1 `experiments/{name}.yaml` lists those that wait."
    return re.sub(r"(?m)^(Experiment `\S+` has .* waiting\.)$", listed, text)


if __name__ == "__main__":
    main()
