"""The table of annotators besides the bundled ones; each has a module here, imported where it is used."""

from __future__ import annotations

from dataclasses import dataclass

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
