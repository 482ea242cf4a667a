"""The result pages of the documentation are what their stores say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from syntaxformer.study.experiments import RunStore, load_spec
from syntaxformer.study.experiments import groups as figures
from syntaxformer.study.experiments.cell import check_recipe
from syntaxformer.study.experiments.store import DONE, own_runs

ROOT = Path(__file__).resolve().parents[4]


def _pages():
    found = importlib.util.spec_from_file_location("pages", ROOT / "experiments" / "pages.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def _draw_nothing(curves, path, *_):
    path.parent.mkdir(exist_ok=True)
    path.touch()


@pytest.mark.parametrize("name", _pages().PAGES)
def test_a_page_is_what_its_store_gives(name, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "draw_curves", _draw_nothing)
    pages = _pages()
    written = pages.write_page(name, tmp_path).read_text()
    _, page = pages.PAGES[name]
    published = ROOT / "docs" / "results" / page
    assert written == (published / "report.md").read_text()
    shown = {line.split("](")[1].rstrip(")") for line in written.splitlines() if line.startswith("![")}
    assert shown == {path.name for path in published.glob("*.png")}


@pytest.mark.parametrize("name", _pages().PAGES)
def test_the_finished_runs_of_a_page_are_of_its_recipe_as_it_is_now(name):
    """Else `experiment run` would refuse to go on with them, or not know them for its own."""
    store = RunStore(ROOT / "experiments" / "stores" / _pages().PAGES[name][0])
    runs = own_runs(load_spec(ROOT / "experiments" / f"{name}.yaml"), store.runs())
    done = [run for run in runs.values() if run.state == DONE]
    check_recipe(done)
    assert done
