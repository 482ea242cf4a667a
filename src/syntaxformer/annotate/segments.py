"""Cutting very long lines into parts that a pipeline can take.

spaCy's tokenizer needs time quadratic in the length of a run without white space, and its models hold a whole
document in memory. Ordinary lines, up to 5,000 words and far beyond, stay in one part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["MAX_RUN", "MAX_SEGMENT", "segments_of"]

MAX_RUN = 400
"""Characters without white space after which a cut is made: longer than words and nearly all addresses."""

MAX_SEGMENT = 100_000
"""Characters of a part, about 20,000 words; beyond it the next white space is a cut."""

_STRETCH = re.compile(rf"\s*\S{{0,{MAX_RUN}}}")


def segments_of(line: str, max_segment: int = MAX_SEGMENT) -> Iterator[tuple[int, str]]:
    """Yield start and text of each part of a line; together they are the line.

    Args:
        line: Any text.
        max_segment: Characters after which the next white space is a cut.
    """
    if len(line) <= MAX_RUN:
        yield 0, line
        return
    start = 0
    for end in _cuts(line, max_segment):
        yield start, line[start:end]
        start = end
    if start < len(line):
        yield start, line[start:]


def _cuts(line: str, max_segment: int) -> Iterator[int]:
    start = 0
    for stretch in _STRETCH.finditer(line):
        end = stretch.end()
        inside_run = end < len(line) and not line[end].isspace()
        if inside_run or end - start > max_segment:
            yield end
            start = end
