"""The result pages of the documentation, from the stores that lie beside this script.

    make results                       writes docs/results/PAGE/report.md and its figures

A store here holds what a report needs and no text: store.sqlite, and bootstrap.json where translations
were compared. `syntaxformer experiment run SPEC --store experiments/stores/STORE` goes on with one. The
earlier runs of GLUE (docs/results/glue_minilm_earlier) no longer have a store.

A page shows what was run. Runs that are only planned stand in the YAML file of the experiment.
"""

from __future__ import annotations

import re
from pathlib import Path

from syntaxformer.study.experiments import RunStore, load_spec, write_report

HERE = Path(__file__).resolve().parent
PAGES = {
    "sundararaman2019_table1_tatoeba": ("tatoeba", "tatoeba_by_size"),
    "sundararaman2019_table1_multi30k": ("multi30k", "multi30k_by_size"),
    "sundararaman2019_factors_multi30k": ("multi30k", "multi30k_factors"),
    "sundararaman2019_width_multi30k": ("multi30k", "multi30k_width"),
    "bai2021_glue_minilm": ("minilm", "glue_minilm"),
    "bai2021_ablation": ("minilm", "masks_ablation"),
    "bai2021_learning_rate": ("learning_rate", "learning_rate"),
}
"""Experiment → its store, and its page."""


def main() -> None:
    """Write all pages."""
    for name in PAGES:
        print(write_page(name, HERE.parent / "docs" / "results"))


def write_page(name: str, results: Path) -> Path:
    """Write one page below a folder.

    Args:
        name: Of the experiment.
        results: Folder of all pages.

    Returns:
        Its report.md.
    """
    store, page = PAGES[name]
    report = write_report(load_spec(HERE / f"{name}.yaml"), RunStore(HERE / "stores" / store), results / page)
    (results / page / "report.html").unlink()
    report.write_text(without_plans(report.read_text("utf-8"), name), "utf-8")
    return report


def without_plans(text: str, name: str) -> str:
    """A report without its rows of runs that wait."""
    text = re.sub(r"(?m)^\|.*\| (?:0 of \d+ \|.*|waiting \|  \|)\n", "", text)
    text = re.sub(r"## Not measured\n\n\| run .*\n\| --- .*\n\n", "", text)
    listed = rf"\1 `experiments/{name}.yaml` lists those that wait."
    return re.sub(rf"(?m)^(Experiment `{name}` has .* waiting\.)$", listed, text)


if __name__ == "__main__":
    main()
