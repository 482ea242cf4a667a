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


def _sentences(text: str) -> list[str]:
    """Sentences without code, tables, formulas and what mkdocstrings fills in; headings and items are their own."""
    text = re.sub(r"(?ms)^(```|\$\$).*?^\1$", "", text)
    text = re.sub(r"(?m)^(\||    |:::|<!--).*$", "", text)
    text = re.sub(r"(?m)^(?=#|\s*(?:[-*]|\d+\.) )", "\n", re.sub(r"(?m)^(#.*)$", r"\1\n", text))
    found = [one for block in re.split(r"\n\s*\n", text) for one in re.split(r"(?<=[.!?])[\"”)*]*\s+", block)]
    return [one for one in found if one.strip()]


def _anchors(page: Path) -> set[str]:
    """Of its headings, as mkdocs makes them."""
    headings = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?ms)^```.*?^```$", "", page.read_text("utf-8")))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", one).strip().lower()) for one in headings}


@pages
def test_sentences_are_short(page: Path) -> None:
    assert [one for one in _sentences(page.read_text("utf-8")) if len(one.split()) > LONGEST_SENTENCE] == []


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


def test_sentences_are_found() -> None:
    text = "# Title\nTwo\nlines. 0.5 is one!\n- An item\n- Two. Three?\n\n| a. | b. |\n|---|---|\n\n```sh\nno. no.\n```\n"
    found = [" ".join(one.split()) for one in _sentences(text)]
    assert found == ["# Title", "Two lines.", "0.5 is one!", "- An item", "- Two.", "Three?"]
