"""Odd input that a translator must hand through: 26 cases, and lines of everyday sentences that hold them."""

from __future__ import annotations

import random

ODD_CASES = (
    "{0}", "{name}", "{{user.first}}", "{}", "%s", "%d", "%1$s", "%(count)d", "${total}", "$home", "%USER%",
    "<b>", "</b>", "<br/>", '<a href="http://x.org/?a=1&b=2">', "&nbsp;", "https://example.org/a_b?c=d#e",
    "www.example.com/x-y", "jane.doe+test@mail.example.co.uk", "12,345.67", "2026-11-28", "10:30", "#hashtag",
    "@someone", "🙂", "👩🏽‍🚀",
)  # fmt: skip
"""What must come back as it is: placeholders, markup, addresses, numbers, hashtags, emoji."""

ODD_KINDS = ["url", "email", "number", "placeholder", "markup", "hashtag", "emoji"]
"""The kinds of `data.protect` that find all of them."""


def odd_line(
    rng: random.Random, pair: tuple[str, str], cases: tuple[str, ...] = ODD_CASES
) -> tuple[str, str]:
    """A pair with one to three cases, at its start, before its last mark, behind it, or beside a word."""
    source, target = pair
    for _ in range(rng.randint(1, 3)):
        case, form = rng.choice(cases), rng.randrange(4)
        source, target = (_with_case(line, case, form) for line in (source, target))
    return source, target


def _with_case(line: str, case: str, form: int) -> str:
    if form == 0:
        return f"{case} {line}"
    if form == 1:
        return f"{line} {case}"
    end = line[-1] if line[-1:] in (".", "?", "!") else ""
    line = line.removesuffix(end)
    return f"{line} {case}{end}" if form == 2 else f"{line} ({case}){end}"
