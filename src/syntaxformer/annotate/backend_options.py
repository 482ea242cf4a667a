"""Options behind an annotator's name: `stanza:en+package=gum+device=cpu`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError

__all__ = ["OptionTypes", "positive_int", "positive_number", "split_options"]

OptionTypes = Mapping[str, Callable[[str], Any]]
"""Name of each option and what reads its value; a `ValueError` says what was expected."""

_START = re.compile(r"\+(?=[a-z_]+=)")


def split_options(name: str, argument: str, types: OptionTypes) -> tuple[str, dict[str, Any]]:
    """Split what follows an annotator's colon into its subject and its options.

    Args:
        name: The backend, for messages: "stanza".
        argument: "en+package=gum".
        types: The options that there are.

    Raises:
        ConfigError: An unknown option, one given twice, or a value of the wrong kind; all that are wrong.
    """
    subject, *settings = _START.split(argument)
    options: dict[str, Any] = {}
    problems: list[str] = []
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in types:
            problems.append(f"annotator {name}: unknown option {key!r}. {nearest(key, list(types))}")
        elif key in options:
            problems.append(f"annotator {name}: expected each option once, got {key!r} twice.")
        else:
            try:
                options[key] = types[key](value)
            except ValueError as error:
                problems.append(f"annotator {name}: {key}: {error}")
    if not subject:
        problems.append(f"annotator {name}: expected something between the colon and the options, got none.")
    if problems:
        raise ConfigError(problems)
    return subject, options


def positive_int(text: str) -> int:
    """Read a whole number above zero.

    Raises:
        ValueError: It is none.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or int(text) < 1:
        raise ValueError(f"expected a whole number from 1, got {text!r}.")
    return int(text)


def positive_number(text: str) -> float:
    """Read a number above zero.

    Raises:
        ValueError: It is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise ValueError(f"expected a number above 0, got {text!r}.")
    return number
