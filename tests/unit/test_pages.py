"""Pages that people read stay short, and so do their sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST_SENTENCE = 35
"""Words."""


def _lines(page: str) -> list[str]:
    return (ROOT / page).read_text("utf-8").splitlines()


def _sentences(page: str) -> list[str]:
    """The sentences of a page, without tables and code; a heading or an item of a list ends one, too."""
    text = re.sub(r"(?ms)^```.*?^```$", "", "\n".join(_lines(page)))
    text = re.sub(r"(?m)^(\||    ).*$", "", text)
    blocks = re.split(r"\n\s*\n|\n(?=#|\s*(?:[-*]|\d+\.) )|(?<=\n)(?=#)", re.sub(r"(?m)^(#.*)$", r"\1\n", text))
    return [one for block in blocks for one in re.split(r"(?<=[.!?])[\"”)*]*\s+", block.strip())]


@pytest.mark.parametrize(("page", "most"), [("CHANGELOG.md", 40), ("LOG.md", 300)])
def test_a_page_has_at_most_so_many_lines(page: str, most: int):
    assert len(_lines(page)) <= most


@pytest.mark.parametrize("page", ["LOG.md"])
def test_sentences_are_short(page: str):
    assert not [one for one in _sentences(page) if len(one.split()) > LONGEST_SENTENCE]


def test_a_long_sentence_is_found(tmp_path: Path):
    (tmp_path / "page.md").write_text("# Title\n\n- One, 0.5 of it. Two\n  goes on.\n\n| a. | b. |\n|---|---|\n\nThree?\n", "utf-8")
    found = [one for one in _sentences(str(tmp_path / "page.md")) if one]
    assert [" ".join(one.split()) for one in found] == ["# Title", "- One, 0.5 of it.", "Two goes on.", "Three?"]
