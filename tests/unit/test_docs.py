"""Pages of the documentation have short sentences, name papers by their authors, and link to what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [
    *(page for page in sorted(DOCS.glob("*.md")) if page.name != "keys.md"),
    *DOCS.glob("measurements/*.md"),
]
LONGEST_SENTENCE = 35
"""Words."""

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def _prose(page: Path) -> str:
    """A page without code, tables, formulas and what mkdocstrings fills in; headings and items end a block."""
    text = re.sub(r"(?ms)^(```|\$\$).*?^\1$", "", page.read_text("utf-8"))
    text = re.sub(r"(?m)^(\||    |:::|<!--).*$", "", text)
    return re.sub(r"(?m)^(?=#|\s*(?:[-*]|\d+\.) )", "\n", re.sub(r"(?m)^(#.*)$", r"\1\n", text))


def _sentences(prose: str) -> list[str]:
    return [one for block in re.split(r"\n\s*\n", prose) for one in re.split(r"(?<=[.!?])[\"”)*]*\s+", block)]


def _anchors(page: Path) -> set[str]:
    """Of its headings, as mkdocs makes them."""
    headings = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?ms)^```.*?^```$", "", page.read_text("utf-8")))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", one).strip().lower()) for one in headings}


@pages
def test_sentences_are_short(page: Path) -> None:
    assert [one for one in _sentences(_prose(page)) if len(one.split()) > LONGEST_SENTENCE] == []


@pages
def test_papers_are_named_by_their_authors(page: Path) -> None:
    named = re.findall(r"paper ?00[0-4](?!_).*", page.read_text("utf-8"), re.IGNORECASE)
    assert named == [], "Only names of experiments in files may begin so."


@pages
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for target in re.findall(r"\]\((?!https?://)(\S+?)\)", page.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        linked = page.parent / name if name else page
        if not linked.exists() or (anchor and anchor not in _anchors(linked)):
            lost.append(target)
    assert lost == []


def test_a_long_sentence_is_found() -> None:
    text = "Two\nlines. Three!\n\n- An item\n- " + "word " * 36 + "\n"
    block = re.sub(r"(?m)^(?=- )", "\n", text)
    assert [len(one.split()) for one in _sentences(block) if one.strip()] == [2, 1, 3, 37]
