"""Writes a report, a list of blocks, as Markdown or as one HTML file that contains its figures.

Blocks hold formatted text and numbers: nothing is computed here.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Heading:
    """A heading of level 1 to 3."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Plain text."""

    text: str


@dataclass(frozen=True)
class Code:
    """Lines that are shown as they are, such as commands."""

    text: str


@dataclass(frozen=True)
class Marked:
    """Text with parts in bold, given by their starts and ends in order and without overlap."""

    text: str
    bold: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Table:
    """A table of text cells; the first column holds names."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | Marked]]


@dataclass(frozen=True)
class Figure:
    """A PNG file next to the report, and its caption."""

    file: str
    caption: str


Block = Heading | Paragraph | Code | Table | Figure

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
table { display: block; overflow-x: auto }
th, td { border-bottom: 1px solid #ccc; padding: .25rem .6rem; text-align: right }
th:first-child, td:first-child { text-align: left }
pre { background: #f4f4f4; padding: .6rem; overflow-x: auto; font-size: .85rem }
img { max-width: 100% } figure { margin: 1rem 0 } figcaption { color: #555 }
"""


def to_markdown(blocks: Sequence[Block]) -> str:
    """Write GitHub's Markdown; figures are links to the files next to it."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def to_html(blocks: Sequence[Block], folder: Path) -> str:
    """Write one self-contained HTML file; figures are read from `folder`."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "")
    body = "\n".join(_html(block, folder) for block in blocks)
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f"{meta}<title>{html.escape(title)}</title><style>{_STYLE}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Paragraph(text):
            return text
        case Code(text):
            return f"```\n{text}\n```"
        case Figure(file, caption):
            return f"![{caption}]({file})\n\n*{caption}*"
        case Table(header, rows):
            lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
            cells = [[_written(cell, "**", "**", _escaped) for cell in line] for line in lines]
            return "\n".join(f"| {' | '.join(line)} |".replace("\n", " ") for line in cells)


def _written(cell: str | Marked, before: str, after: str, plain: Callable[[str], str]) -> str:
    """A cell with `before` and `after` around each bold part; `plain` escapes text.

    Adjacent parts are joined, because Markdown cannot write them separately.
    """
    if isinstance(cell, str):
        return plain(cell)
    joined: list[tuple[int, int]] = []
    for start, end in cell.bold:
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, end))
    parts, done = [], 0
    for start, end in joined:
        parts += [plain(cell.text[done:start]), before, plain(cell.text[start:end]), after]
        done = end
    return "".join([*parts, plain(cell.text[done:])])


def _escaped(text: str) -> str:
    """Escape everything that would be read as Markdown or HTML."""
    return re.sub(r"([\\`*|<])", r"\\\1", text)


def _html(block: Block, folder: Path) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{html.escape(text)}</h{level}>"
        case Paragraph(text):
            coded = re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))
            return re.sub(r"\*\*(\S[^*]*)\*\*", r"<strong>\1</strong>", f"<p>{coded}</p>")
        case Code(text):
            return f"<pre>{html.escape(text)}</pre>"
        case Figure(file, caption):
            data = base64.b64encode((folder / file).read_bytes()).decode("ascii")
            image = f'<img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">'
            return f"<figure>{image}<figcaption>{html.escape(caption)}</figcaption></figure>"
        case Table(header, rows):
            top = "".join(f"<th>{html.escape(name)}</th>" for name in header)
            cells = [[_written(cell, "<strong>", "</strong>", html.escape) for cell in row] for row in rows]
            lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in cells]
            inside = "".join(f"<tr>{line}</tr>\n" for line in lines)
            return f"<table><thead><tr>{top}</tr></thead><tbody>\n{inside}</tbody></table>"
