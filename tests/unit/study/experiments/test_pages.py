"""The result pages of the documentation are what their stores say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pages
import pytest
import recompute

from syntaxformer.study.experiments.cell import check_recipe
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.study.experiments.store import DONE, RunStore, own_runs

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("name", pages.PAGES)
def test_a_page_is_what_its_store_gives(name, tmp_path, curves):
    written = pages.write_page(name, tmp_path).read_text()
    published = ROOT / "docs" / "results" / pages.PAGES[name][1]
    assert written == (published / "report.md").read_text()
    shown = {line.split("](")[1].rstrip(")") for line in written.splitlines() if line.startswith("![")}
    assert shown == {path.name for path in published.glob("*.png")}


@pytest.mark.parametrize("name", pages.PAGES)
def test_the_finished_runs_of_a_page_are_of_its_recipe_as_it_is_now(name):
    """Else `experiment run` would refuse to go on with them; it does with controls of older versions."""
    store = RunStore(ROOT / "experiments" / "stores" / pages.PAGES[name][0])
    runs = own_runs(load_spec(ROOT / "experiments" / f"{name}.yaml"), store.runs())
    done = [run for run in runs.values() if run.state == DONE]
    older = {"infusion.masks.control", "infusion.masks.random"}
    check_recipe(run for run in done if older.isdisjoint(run.cell.settings))
    assert done


def test_pages_show_what_was_run_and_name_the_file_that_lists_the_rest():
    text = (
        "Experiment `mine` has 6 runs: 1 done, 1 failed, 4 waiting.\n\n| system | seeds | bleu |\n| --- | ---: | ---: |\n"
        "| base | 1 of 3 | 10.00 |\n| sit | 0 of 3 | – |\n\n## Not measured\n\n| run | state | why |\n"
        "| --- | ---: | ---: |\n| base, seed 2 | failed | no disk |\n| base, seed 3 | waiting |  |\n\n## Origin\n"
    )
    shown = pages.without_plans(text, "mine")
    assert "4 waiting. `experiments/mine.yaml` lists those that wait.\n" in shown
    assert "| base, seed 2 | failed | no disk |\n\n## Origin\n" in shown
    assert "| sit |" not in shown
    assert "seed 3" not in shown
    nothing_failed = text.replace("| base, seed 2 | failed | no disk |\n", "")
    assert pages.without_plans(nothing_failed, "mine").endswith("| base | 1 of 3 | 10.00 |\n\n## Origin\n")


def test_no_page_has_a_row_that_was_never_run():
    reports = list((ROOT / "docs" / "results").glob("*/report.md"))
    assert len(reports) > len(pages.PAGES)
    rows = [line for page in reports for line in page.read_text("utf-8").splitlines() if line.startswith("|")]
    assert not [row for row in rows if "| 0 of " in row or "| waiting |" in row]


def test_the_table_of_contrasts_is_what_the_stores_give():
    page, contrasts = (ROOT / "docs" / "results" / "index.md").read_text(), pages.contrasts()
    assert pages.with_table(page, contrasts) == page
    assert pages.with_table(page, contrasts[1:]) != page
    assert all(contrast.n >= 3 for contrast in contrasts)
    for contrast in contrasts:  # an interval that excludes zero has a p below a twentieth
        assert (abs(contrast.gain) > contrast.half) == (contrast.p < 0.05)


WRONG = [
    ("| 18.41 ± 0.33 |", "| 18.42 ± 0.33 |", "sum_then_concat, 5 %, bleu: the page has 18.42 ± 0.33"),
    ("| +1.23 | 0.010 |", "| +1.23 | 0.001 |", "sum_then_concat, 1 %, p (seeds): the page has 0.001"),
    ("| 3 | +0.98 | 0.025 |", "| 3 | +1.98 | 0.025 |", "sum_then_concat, 5 %, Δ: the page has +1.98"),
    ("| +0.31 to +1.65 |", "| +0.31 to +1.56 |", "page has ['+0.98 BLEU', '+0.31 to +1.56', '3', '0.025']"),
    ("| -5.75 to +8.69 |", "| -1.75 to +8.69 |", "none, default: interval -1.75 to +8.69, the store gives -"),
    ("| 0.151 | 0.859 | -2.50", "| 0.151 | 0.059 | -2.50", "lisa default: p 0.059, the store gives 0.8"),
    ("| default | default | 3 of 3 |", "| default | default | 2 of 3 |", "seeds: the page has 2, the store"),
]


@pytest.mark.slow
def test_a_second_program_finds_the_same_numbers_and_each_wrong_one(tmp_path, monkeypatch, capsys):
    assert recompute.main() == 0
    printed = capsys.readouterr().out
    assert "All numbers are those of the stores." in printed
    assert "bai2021_glue_minilm: " in printed
    shutil.copytree(ROOT / "docs" / "results", tmp_path / "results")
    monkeypatch.setattr(recompute, "RESULTS", tmp_path / "results")
    folders = ("tatoeba_by_size", "masks_lisa_cola")
    names = [tmp_path / "results" / folder / "report.md" for folder in folders]
    names += [tmp_path / "results" / "index.md"]
    texts = {page: page.read_text() for page in names}
    for old, new, _ in WRONG:
        page = next(page for page in names if old in texts[page])
        page.write_text(page.read_text().replace(old, new))
    assert recompute.main() == 1
    printed = capsys.readouterr().out
    for *_, problem in WRONG:
        assert problem in printed
    page = names[1]
    page.write_text(texts[page].replace("\n| default | default | 3 of 3", "\nabout | default | default | 3"))
    assert recompute.main() == 1
    assert "has no row default, default, the sto" in capsys.readouterr().out
