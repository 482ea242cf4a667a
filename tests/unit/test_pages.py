"""Pages that people read stay short, and so do their sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST_SENTENCE = 35
"""Words."""

DOCS = [
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "*/*.md")
    for path in sorted((ROOT / "docs").glob(pattern))
    if path.name not in ("keys.md", "gallery.md", "iwslt14_cases.md")
]
"""Written by hand: keys.md and what lies beside the reports come from the program."""


def _sentences(text: str) -> list[str]:
    """The sentences of a page, without tables, code, formulas and the reference that mkdocstrings fills in.

    A heading and each item of a list end one, too.
    """
    text = re.sub(r"(?ms)^(```|\$\$).*?^\1$", "", text)
    text = re.sub(r"(?m)^(\||    |:::).*$", "", text)
    text = re.sub(r"(?m)^(#.*)$", r"\n\1\n", text)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text)
    sentences = [one for block in blocks for one in re.split(r"(?<=[.!?])[\"”)*]*\s+", block)]
    return [" ".join(one.split()) for one in sentences if one.strip()]


@pytest.mark.parametrize(("page", "most"), [("CHANGELOG.md", 80), ("docs/LOG.md", 340)])
def test_pages_have_at_most_so_many_lines(page: str, most: int):
    assert len((ROOT / page).read_text("utf-8").splitlines()) <= most


def test_readme_is_read_in_minutes():
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 800


def test_results_of_the_readme_are_those_of_the_reports():
    reports = "\n".join(path.read_text("utf-8") for path in (ROOT / "docs" / "results").glob("*/report.md"))
    rows = re.findall(r"(?m)^\|.*±.*$", (ROOT / "README.md").read_text("utf-8"))
    assert 3 <= len(rows) <= 6
    for row in rows:
        _, _, without, infused, difference, p_value, _ = (cell.strip() for cell in row.split("|"))
        found = [without, *re.findall(r"\d+\.\d+ ± \d+\.\d+", infused), difference.replace("−", "-")]
        assert len(found) == 3, row
        assert [one for one in found if one not in reports] == [], row
        assert re.search(rf"\| {re.escape(found[2])} \| {p_value}\d* \|", reports), row


@pytest.mark.parametrize("page", ["CHANGELOG.md", "README.md", *DOCS])
def test_sentences_are_short(page: str):
    sentences = _sentences((ROOT / page).read_text("utf-8"))
    assert not [one for one in sentences if len(one.split()) > LONGEST_SENTENCE]


def test_tables_and_code_have_no_sentences():
    page = "# Title\nOne, 0.5 of it. Two\ngoes on.\n\n| a | b |\n|---|---|\n\n    code\n\n```sh\nmore\n```\n- Three?\n- Four\n"
    assert _sentences(page) == ["# Title", "One, 0.5 of it.", "Two goes on.", "- Three?", "- Four"]


def test_papers_have_authors_and_years_and_no_numbers_of_ours():
    private = re.compile(r"[Pp]apers?[ _]?00[0-4]")
    folders = ("src", "docs", "tests", "experiments", "recipes", "scripts", "benchmarks")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    texts = [path for path in (*paths, *ROOT.glob("*.md")) if path.suffix in {".py", ".md", ".yaml", ".sh"}]
    assert len(texts) > 300
    assert [path.name for path in paths if private.search(path.name)] == []
    assert [path.name for path in texts if private.search(path.read_text("utf-8"))] == []
