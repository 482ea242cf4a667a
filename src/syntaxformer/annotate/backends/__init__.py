"""The table of annotators besides the bundled ones, and the options that may stand behind a name.

Each annotator has a module here, which is imported where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.languages import split_name


@dataclass(frozen=True, slots=True)
class Backend:
    """A way to get annotation.

    Args:
        argument: What follows the colon in a name. PATH is a parsed file, which is read in order; URL a
            server; NAME_OR_PATH may be a folder.
        what: A description in one line.
        home: "module:function" of `backends` that takes the argument and returns an annotator.
    """

    argument: str
    what: str
    home: str


BACKENDS = {
    "spacy": Backend("NAME_OR_PATH", "any installed spaCy pipeline", "spacy:load_spacy"),
    "stanza": Backend("LANG", "Stanza's models of a language", "stanza:load_stanza"),
    "corenlp": Backend("URL", "a running Stanford CoreNLP server", "corenlp:load_corenlp"),
    "conllu": Backend("PATH", "an existing CoNLL-U file, or one for each {split}", "files:load_conllu"),
    "ptb": Backend("PATH", "a file of bracketed trees, or one for each {split}", "files:load_ptb"),
}
"""The only list of annotators besides the bundled ones; a new one needs a row here and a module."""


def is_file(name: str) -> bool:
    """Whether an annotator is a file that was parsed elsewhere, whose sentences are read in order."""
    name = split_name(name)[1]
    backend = BACKENDS.get(name.partition(":")[0])
    return ":" in name and backend is not None and backend.argument == "PATH"


OptionTypes = Mapping[str, Callable[[str], Any]]
"""Name of each option and the function that reads its value; its `ValueError` says what was expected."""

OPTION_START = re.compile(r"\+(?=[a-z_]+=)")


def split_options(name: str, argument: str, types: OptionTypes) -> tuple[str, dict[str, Any]]:
    """Split what follows an annotator's colon into its subject and its options.

    Raises:
        ConfigError: An option is unknown or given twice, or has a bad value; all problems are listed.
    """
    subject, *settings = OPTION_START.split(argument)
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


def positive_number(text: str, kind: Callable[[str], float] = float, what: str = "a number above 0") -> Any:
    """Read a number above zero; `what` it must be is for the message.

    Raises:
        ValueError: The text is not one.
    """
    with suppress(ValueError):
        if 0 < (number := kind(text)) < 1e9:
            return number
    raise ValueError(f"expected {what}, got {text!r}.")


positive_int = partial(positive_number, kind=int, what="a whole number from 1")
