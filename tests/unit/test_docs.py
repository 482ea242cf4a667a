"""Pages of the documentation name papers by their authors, and link to what is there."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

import syntaxformer

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(
    page for page in DOCS.glob("**/*.md") if page.parent.name != "measurements" and page.name != "report.md"
)


def _anchors(page: Path) -> set[str]:
    """Of its headings, as mkdocs makes them."""
    headings = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?ms)^```.*?^```$", "", page.read_text("utf-8")))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", one).strip().lower()) for one in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_papers_are_named_by_their_authors(page: Path) -> None:
    named = re.findall(r"papers? ?00[0-4](?!_).*", page.read_text("utf-8"), re.IGNORECASE)
    assert page.name == "keys.md" or named == [], "Only names of experiments may begin so."


@pytest.mark.parametrize("page", sorted(DOCS.glob("**/*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for target in re.findall(r"\]\((?!https?://)(\S+?)\)", page.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        linked = page.parent / name if name else page
        if not linked.exists() or (anchor and anchor not in _anchors(linked)):
            lost.append(target)
    assert lost == []


def test_pictures_are_small_and_shown():
    pages = "\n".join(path.read_text("utf-8") for path in (*PAGES, DOCS.parent / "README.md"))
    pictures = list((DOCS / "images").iterdir())
    assert len(pictures) >= 8
    assert [one.name for one in pictures if one.stat().st_size >= 200_000] == []
    assert [one.name for one in pictures if f"images/{one.name})" not in pages] == []


def test_each_public_name_is_in_the_reference():
    """By itself, or in a module that is shown as a whole."""
    text = "\n".join(path.read_text("utf-8") for path in PAGES)
    shown = re.findall(r"(?m)^::: (\S+)", text)
    found = {one.rpartition(".")[2] for one in shown}
    for one in shown:
        with suppress(ModuleNotFoundError):
            found |= set(vars(import_module(one)))
    assert [name for name in syntaxformer.__all__ if name not in {*found, "__version__"}] == []
