"""Which annotators a model folder may name: installed ones and those in it. A stranger may have made it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from syntaxformer.annotate.corenlp_backend import ADDRESS_VARIABLE, server_address
from syntaxformer.annotate.phrases import PHRASES
from syntaxformer.base.errors import CheckpointError

__all__ = ["trusted_annotator"]

_FOREIGN_PART = re.compile(
    r'^\s*source\s*=|@\w+"?\s*[=:]\s*"(?!spacy(-legacy)?\.|\w+\.v\d)|factory"?\s*+[=:]\s*+(?!"(tok2vec|tagger'
    r'|morphologizer|(beam_)?(parser|ner)|senter|sentencizer|attribute_ruler|(trainable_)?lemmatizer)")',
    re.MULTILINE,
)
"""In a pipeline's `config.cfg`: what is not spaCy's own may do anything."""


def trusted_annotator(named: str | None, given: str | None, folder: Path, trust: bool = False) -> str | None:
    """The annotator to load for a model: what the user has given, else what its folder has named.

    Args:
        named: A path may be relative to the folder.
        given: It is not judged.
        folder: Of the model.
        trust: Whether the folder may name any.

    Raises:
        CheckpointError: The folder's would use the network, or read what is not in it.
    """
    if given is not None or named is None:
        return given
    plain = named.removesuffix(PHRASES)
    scheme, _, path = plain.partition(":")
    inside = Path(os.path.realpath(folder / path))
    read = inside / "config.cfg" if scheme == "spacy" else inside
    is_inside = scheme in ("conllu", "ptb", "spacy") and folder.resolve() in inside.parents and read.is_file()
    if is_inside and (scheme != "spacy" or not _FOREIGN_PART.search(read.read_text("utf-8", "replace"))):
        return f"{scheme}:{inside}{named.removeprefix(plain)}"
    if not trust and (deed := _deed(plain)):
        raise CheckpointError(
            f"{folder}: annotator: expected one that is installed or in it, got one that would {deed}. "
            "Name one yourself (--annotator), or trust the folder (--trust-annotator)."
        )
    return named


def _deed(name: str) -> str | None:
    """What an annotator does beyond installed packages; None for nothing."""
    scheme, _, argument = name.partition(":")
    subject, *settings = re.split(r"\+(?=[a-z_]+=)", argument)
    options = dict(setting.split("=", 1) for setting in settings)
    if scheme == "corenlp":
        _, place, uses_variable = server_address(subject)
        password = f", with the password of ${ADDRESS_VARIABLE}" if uses_variable else ""
        return f"send every line to {place}{password}"
    names = [subject, *(options[key] for key in ("package", "dir") if key in options)]
    is_path = scheme in ("conllu", "ptb") or (scheme in ("spacy", "benepar") and Path(subject).exists())
    if is_path or "dir" in options or any("/" in one for one in names):
        return f"read {names[-1]!r}"
    return _deed(options["words"]) if "words" in options else None
