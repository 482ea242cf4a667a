"""Annotators by name: the table of backends and `load_annotator`.

A name is a bundled language ("en", "de") or a backend and what it works with, "spacy:de_core_news_sm".
Backends are imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module

from syntaxformer.annotate.annotator import Annotator
from syntaxformer.annotate.bundled import bundled_version
from syntaxformer.annotate.phrases import PHRASES, with_constituency
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.languages import BUNDLED, LANGUAGE_NAMES, language_of

__all__ = ["BACKENDS", "annotator_identity", "load_annotator"]


@dataclass(frozen=True, slots=True)
class Backend:
    """A way to get annotation.

    Args:
        argument: What follows the colon in a name.
        what: One line for the user.
        home: "module:function" that takes the argument and returns an annotator.
    """

    argument: str
    what: str
    home: str


BACKENDS = {
    "spacy": Backend("NAME_OR_PATH", "any installed spaCy pipeline", "spacy_backend:load_spacy"),
    "stanza": Backend("LANG", "Stanza's models of a language", "stanza_backend:load_stanza"),
    "benepar": Backend("NAME", "phrases by the Berkeley neural parser", "benepar_backend:load_benepar"),
    "corenlp": Backend("URL", "a running Stanford CoreNLP server", "corenlp_backend:load_corenlp"),
    "conllu": Backend("PATH", "an existing CoNLL-U file; {split} in its name", "preparsed:load_conllu"),
    "ptb": Backend("PATH", "an existing file of bracketed trees; {split} too", "preparsed:load_ptb"),
}


def load_annotator(name: str) -> Annotator:
    """Load an annotator by name.

    Args:
        name: "en", "de", "spacy:NAME_OR_PATH", "stanza:LANG", "benepar:NAME", "corenlp:URL", "conllu:PATH" or
            "ptb:PATH"; with "+phrases" after it, its dependency parses come as phrase structure too. Options
            of a backend follow as "+key=value".

    Raises:
        ConfigError: No such annotator; names the nearest. Or "+phrases" after one that does not parse.
        BackendMissingError: It needs a package or model that is not installed; names the command.
        DataError: The file or folder that it works with cannot be read.
    """
    if name.endswith(PHRASES):
        return with_constituency(load_annotator(name.removesuffix(PHRASES)))
    scheme, colon, argument = name.partition(":")
    if not colon and name in BUNDLED:
        return _function("spacy_backend:load_bundled")(name)
    if scheme in BACKENDS and argument:
        return _function(BACKENDS[scheme].home)(argument)
    raise ConfigError(_unknown(name, scheme))


def annotator_identity(name: str) -> tuple[str, str]:
    """Return name and version of an annotator; of a bundled one without loading it, which takes seconds.

    Raises:
        ConfigError, BackendMissingError, DataError: As `load_annotator`.
    """
    if name in BUNDLED:
        return name, bundled_version(name)
    annotator = load_annotator(name)
    return annotator.name, annotator.version


def _function(home: str) -> Callable[[str], Annotator]:
    module, _, function = home.partition(":")
    return getattr(import_module(f"syntaxformer.annotate.{module}"), function)


def _unknown(name: str, scheme: str) -> str:
    # An address may hold a password.
    name = name if "://" not in name else f"{scheme}:…"
    forms = [*BUNDLED, *(f"{scheme}:{backend.argument}" for scheme, backend in BACKENDS.items())]
    message = f"annotator: expected {', '.join(forms[:-1])} or {forms[-1]}, got {name!r}."
    if scheme in BACKENDS:
        return f"{message} Give {BACKENDS[scheme].argument} after the colon."
    nearest = get_close_matches(scheme, [*BUNDLED, *BACKENDS], n=1, cutoff=0.5)
    code = LANGUAGE_NAMES.get(name.lower()) or language_of(name) or ""
    meant = code if code in BUNDLED else f"stanza:{code}" if len(code) == 2 else nearest and nearest[0]
    return f"{message} Did you mean {meant!r}?" if meant else message
