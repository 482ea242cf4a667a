"""Relations of the user's own: a function from a sentence to word relations, as a row of the table of trees.

The user's own program registers them, or a file that the user names. A config and a model folder name them as
they name a tree, and store no path: nothing that a folder names is imported.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import runpy
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.syntax.piece_relations import TREES, Kind, TreeKind, of_user, shown
from syntaxformer.syntax.relations import RelationArray
from syntaxformer.trees import ROOT, Sentence
from syntaxformer.trees.sentence import COLUMNS

_LARGEST, _CALL = 253, "syntaxformer.register_relations"

VARIABLE = "SYNTAXFORMER_RELATIONS"
"""Variable of the environment with the files that the user has named, for the processes that start later."""


class OwnRelations(BaseModel):
    """The record of relations of the user's own in a config and a model folder."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    n_relations: int = Field(ge=2, le=_LARGEST, description="number of ids, with 0 for no relation")
    version: str = Field(default="", description="hash of the file's text, or of the function's")
    function: str = Field(
        default="", exclude=True, description="name of the function; not stored, and ignored in a folder"
    )


_RECORDS: dict[str, OwnRelations] = {}


Function = Callable[[Sentence], ArrayLike]


def register_relations(
    name: str, function: Function, n_relations: int, needs: Sequence[str] = ("governors",)
) -> None:
    """Add relations of your own, which `trees` of `masks` and `relation_bias` can then name.

    Call it before a model is loaded or trained: a folder stores the name, and nothing of the function. A
    second call for a function of the same name replaces the first.

    Args:
        name: Small letters, digits and underscores.
        function: From an annotated sentence with at least one word to whole numbers `[words, words]`, 0 for
            no relation and others below `n_relations`. Row i sees column j. It must give the same for the
            same sentence, since each epoch and each prediction calls it again.
        n_relations: Number of ids with 0, 2 to 253, and at most 3 D + 1 with the D of `max_distance`.
        needs: Columns of a `Sentence` that it reads besides words, at least one, which annotators must give.

    Raises:
        ValueError: The name or a number is not allowed, or the name is another function's.
    """
    taken = {*get_args(TreeKind), "parent", "child", "sibling", "pair", "syntax", *COLUMNS}
    title = getattr(function, "__qualname__", type(function).__name__)
    is_free = name not in taken and (name not in _RECORDS or _RECORDS[name].function == title)
    if not is_free or not re.fullmatch("[a-z][a-z0-9_]*", name):
        free = f"a name of small letters, digits and _, not {', '.join(sorted(taken))} or another function's"
        raise ValueError(f"name: expected {free}, got {name!r}.")
    if not 2 <= n_relations <= _LARGEST:
        raise ValueError(f"n_relations: expected 2 to {_LARGEST}, with 0 for none, got {n_relations}.")
    if not needs or not set(needs) <= COLUMNS.keys():
        raise ValueError(f"needs: expected some of {', '.join(COLUMNS)}, got {', '.join(needs) or 'none'}.")
    _RECORDS[name] = OwnRelations(n_relations=n_relations, version=_version(function), function=title)
    checked = partial(_checked, name, function, n_relations)
    TREES[name] = Kind(tuple(needs), partial(of_user, name), checked)


def register_file(path: str | Path) -> None:
    """Run a Python file of the user's own that registers relations, also in processes that start later.

    Raises:
        ConfigError: There is no such file, or it fails.
    """
    path = Path(path).resolve()
    try:
        runpy.run_path(str(path), run_name=f"relations_of_{path.stem}")
    except Exception as error:  # also the file's own
        message = f"expected a Python file that registers relations, got: {error or type(error).__name__}"
        raise ConfigError(f"relations: {path}: {message}.") from error
    files = [*filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)), str(path)]
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(files))


def _version(function: Function) -> str:
    """A hash of the file's text, or of the function's where the file is a notebook or script."""
    try:
        if function.__module__ == "__main__":
            content = inspect.getsource(function).encode()
        else:
            content = Path(inspect.getfile(function)).read_bytes()
    except (OSError, TypeError):  # typed into a prompt, or no plain function
        return ""
    return hashlib.sha256(content).hexdigest()[:12]


def _checked(name: str, function: Function, n_relations: int, sentence: Sentence) -> RelationArray:
    """The relations of a sentence; DataError where the function fails, or gives something else."""
    shape, failure = (len(sentence),) * 2, None
    try:
        relations = np.asarray(function(sentence) if len(sentence) else np.zeros(shape, int))
        is_whole = relations.shape == shape and relations.dtype.kind in "iub"
        if is_whole and 0 <= relations.min(initial=0) <= relations.max(initial=0) < n_relations:
            return relations.astype(np.uint8)
        got = f"{relations.min()} to {relations.max()}, {relations.dtype} {list(relations.shape)}"
    except Exception as error:  # the user's own
        got, failure = f"{type(error).__name__}: {error}", error
    expected = f"whole numbers from 0 to {n_relations - 1}, {list(shape)}, for {shown(sentence)}, got {got}"
    remedy = f"What the function reads besides words belongs into `needs` of {_CALL}."
    raise DataError(f"{name}: expected {expected}. {remedy}") from failure


def find_relations(name: str, stored: OwnRelations | None = None) -> OwnRelations:
    """The record of registered relations, with as many ids as the `stored` one of a model.

    Raises:
        ValueError: None of that name are registered, or they have another number of ids than `stored`, a
            model's.
    """
    if (record := _RECORDS.get(name)) is None:
        expected = f"{', '.join(TREES)} or relations of your own that are registered, got {name!r}"
        remedy = f"Register them: --relations FILE, or {_CALL}({name!r}, …) before"
        raise ValueError(f"trees: expected {expected}. {remedy}.")
    if stored is not None and stored.n_relations != record.n_relations:
        expected = f"n_relations {stored.n_relations}, as the model has, got {record.n_relations}"
        raise ValueError(f"relations.{name}: expected {expected}. Register the model's, or train anew.")
    if stored is not None and stored.version != record.version:
        message = f"the model was trained with version {stored.version!r}, this is {record.version!r}"
        warnings.warn(f"relations.{name}: {message}; relations may differ.", stacklevel=2)
    return record


LABELS = (
    "acl", "advcl", "advmod", "amod", "appos", "aux", "case", "cc", "ccomp", "clf", "compound", "conj", "cop",
    "csubj", "dep", "det", "discourse", "dislocated", "expl", "fixed", "flat", "goeswith", "iobj", "list",
    "mark", "nmod", "nsubj", "nummod", "obj", "obl", "orphan", "parataxis", "punct", "reparandum", "vocative",
    "xcomp",
)  # fmt: skip
"""Labels of edges in Universal Dependencies, without subtypes; any other label counts as `dep`."""

_PLACES = {label: number for number, label in enumerate(LABELS, start=1)}


def labelled_edges(sentence: Sentence) -> RelationArray:
    """Relations by label: p for a word's governor over an edge of label p, p + 36 for its dependent; else 0.

    Labels count from 1 in the order of `LABELS`. Beside a `dependency` tree, whose relations do not know
    labels, it needs `max_distance` of 24 or more.

    Returns:
        uint8 `[words, words]`, 0 to 72; row i sees column j.

    Source: Shaw et al. (2018), "Self-Attention with Relative Position Representations", with edges of a parse
    in place of positions.
    """
    relations = np.zeros((len(sentence),) * 2, np.uint8)
    edges = zip(sentence.governors or (), sentence.deprels or (), strict=True)
    for word, (governor, deprel) in enumerate(edges):
        if governor != ROOT:
            number = _PLACES.get(deprel.partition(":")[0], _PLACES["dep"])
            relations[word, governor], relations[governor, word] = number, number + len(LABELS)
    return relations


register_relations("labelled_edges", labelled_edges, 2 * len(LABELS) + 1, ("governors", "deprels"))
