"""Which annotator a model folder, which a stranger may have made, may name; its copy in the folder."""

from __future__ import annotations

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from site import getsitepackages, getusersitepackages
from sysconfig import get_path

from syntaxformer.annotate.annotator import Annotator
from syntaxformer.annotate.backends import BACKENDS, is_file
from syntaxformer.base.errors import CheckpointError
from syntaxformer.base.files import KEPT, disk_errors
from syntaxformer.base.languages import BUNDLED, split_name


def trusted_annotator(
    named: str | None, given: str | Annotator | None, folder: Path, trust: bool = False
) -> str | Annotator | None:
    """The annotator to load for a model: the one that the user gives, or else the one that its folder names.

    The folder may name an installed annotator or a path inside itself, and with `trust` any annotator. What
    the user gives is not checked.

    Raises:
        CheckpointError: The folder's annotator would use the network or read files outside the folder.
    """
    if given is not None or named is None:
        return given
    before, plain, after = split_name(named)
    if plain in BUNDLED:
        return named
    if ":" not in plain and any((home / plain / "meta.json").is_file() for home in (Path(), folder)):
        plain = f"spacy:{plain}"
    scheme, _, path = plain.partition(":")
    inside = Path(os.path.realpath(folder / path))
    read = inside / "config.cfg" if scheme == "spacy" else inside
    is_inside = (is_file(plain) or scheme == "spacy") and folder.resolve() in inside.parents
    is_inside = is_inside and (read.is_file() or path == KEPT)
    expected, problem = "one that is installed or in it, got one that would", None
    if is_inside and scheme == "spacy" and not trust:
        from syntaxformer.annotate.backends.spacy import foreign_part

        expected = f"in {path} what `annotator train` writes, got"
        problem = foreign_part(inside) if path == KEPT else "a pipeline that the manifest does not list"
    elif not (is_inside or trust):
        problem = _deed(plain)
    if problem is not None:
        raise CheckpointError(
            f"{folder}: annotator: expected {expected} {problem}. "
            "Name one yourself (--annotator), or trust the folder (--trust-annotator)."
        )
    return f"{before}{scheme}:{inside}{after}" if is_inside else f"{before}{plain}{after}"


def _deed(name: str) -> str | None:
    """Say what an annotator does besides using installed packages; None for nothing."""
    scheme, _, argument = name.partition(":")
    form = BACKENDS[scheme].argument if scheme in BACKENDS else ""
    subject, *settings = re.split(r"\+(?=[a-z_]+=)", argument)
    options = dict(setting.split("=", 1) for setting in settings)
    if form == "URL":
        from syntaxformer.annotate.backends.corenlp import ADDRESS_VARIABLE, server_address

        _, place, uses_variable = server_address(subject)
        password = f", with the password of ${ADDRESS_VARIABLE}" if uses_variable else ""
        return f"send every line to {place}{password}"
    names = [subject, *(options[key] for key in ("package", "dir") if key in options)]
    is_path = form == "PATH" or (form.startswith("NAME") and Path(subject).exists())
    if is_path or "dir" in options or any(re.search(r"[/\\]|^\.", one) for one in names):
        return f"read {names[-1]!r}"
    spec = find_spec(subject) if scheme == "spacy" and subject.isidentifier() else None
    installed = {get_path("purelib"), get_path("platlib"), *getsitepackages(), getusersitepackages()}
    homes = {str(Path(home).parent) for home in (spec and spec.submodule_search_locations) or ()}
    return None if homes <= installed else f"import {subject!r} from {', '.join(sorted(homes))}"


def kept_pipeline(name: str) -> Path | None:
    """The folder of a pipeline of spaCy's own parts, of which a model keeps a copy; None for others."""
    plain = split_name(name)[1]
    folder = Path(plain.removeprefix("spacy:"))
    if plain in BUNDLED or not (folder / "config.cfg").is_file():
        return None
    from syntaxformer.annotate.backends.spacy import foreign_part

    return folder if foreign_part(folder) is None else None


def stored_name(name: str) -> str:
    """The name of an annotator in a model's folder, relative to it if `keep_annotator` copies it there."""
    before, _, after = split_name(name)
    return f"{before}spacy:{KEPT}{after}" if kept_pipeline(name) else name


def keep_annotator(name: str | None, folder: Path) -> None:
    """Copy a pipeline into a model's folder, so that the model translates with it wherever the folder goes.

    Raises:
        DataError: The folder cannot be written.
    """
    if name is not None and (pipeline := kept_pipeline(name)):
        with disk_errors(folder):
            shutil.copytree(pipeline, folder / KEPT, dirs_exist_ok=True)
