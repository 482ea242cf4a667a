"""The result pages of the documentation are what their stores say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from syntaxformer.experiments import figures

ROOT = Path(__file__).resolve().parents[3]


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
