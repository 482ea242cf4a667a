"""Relations of the user's own: a function from a sentence to word relations, as a row of the table of trees.

A config names them as it names a tree, and stores their import path; nothing of the function is stored.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import DataError
from syntaxformer.syntax.piece_relations import TREES, Kind, RelationKind, TreeKind, of_user, shown
from syntaxformer.syntax.relations import RelationArray
from syntaxformer.trees import Sentence
from syntaxformer.trees.sentence import COLUMNS

_LARGEST = 253
"""Of so many ids and that of pairs, the largest fits into a byte."""

_CALL = "syntaxformer.register_relations"


class OwnRelations(BaseModel):
    """The record of relations of the user's own in a config and a model folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str = Field(description="import path, module:function")
    n_relations: int = Field(ge=2, le=_LARGEST, description="number of ids, with 0 for no relation")
    version: str = Field(default="", description="hash of the module's text")


_RECORDS: dict[str, OwnRelations] = {}


def register_relations(
    name: str,
    function: Callable[[Sentence], ArrayLike],
    n_relations: int,
    needs: Sequence[str] = ("governors",),
) -> None:
    """Add relations of your own, which `trees` of `masks` and `relation_bias` can then name.

    Call it in the module that defines the function: a model folder stores the function's import path, and
    loading imports that module. A second call for the same import path replaces the first.

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
    taken = {*get_args(TreeKind), *get_args(RelationKind), "syntax", *COLUMNS}
    path = f"{function.__module__}:{function.__qualname__}"
    older = _RECORDS[name].function if name in _RECORDS else path
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or name in taken or older != path:
        free = f"a name of small letters, digits and _, not {', '.join(sorted(taken))} or another function's"
        raise ValueError(f"name: expected {free}, got {name!r}.")
    if not 2 <= n_relations <= _LARGEST:
        raise ValueError(f"n_relations: expected 2 to {_LARGEST}, with 0 for none, got {n_relations}.")
    if not needs or not set(needs) <= COLUMNS.keys():
        raise ValueError(f"needs: expected some of {', '.join(COLUMNS)}, got {', '.join(needs) or 'none'}.")
    _RECORDS[name] = OwnRelations(function=path, n_relations=n_relations, version=_version(function))
    checked = partial(_checked, name, function, n_relations)
    TREES[name] = Kind(tuple(needs), partial(of_user, name), checked)


def _version(function: Callable[..., Any]) -> str:
    """A hash of its module; none in a notebook, which has no text, and in a script, which does more."""
    try:
        text = inspect.getsource(sys.modules[function.__module__]) * (function.__module__ != "__main__")
    except (OSError, TypeError):
        text = ""
    return text and hashlib.sha256(text.encode()).hexdigest()[:12]


def _checked(
    name: str, function: Callable[[Sentence], ArrayLike], n_relations: int, sentence: Sentence
) -> RelationArray:
    """The relations of one sentence.

    Raises:
        DataError: The function fails, or gives something else.
    """
    n_words = len(sentence)
    try:
        found = np.asarray(function(sentence) if n_words else np.zeros((0, 0), np.uint8))
    except Exception as error:  # the user's own
        remedy = f"What it reads besides words belongs into `needs` of {_CALL}."
        raise DataError(
            f"{name}: expected relations of {shown(sentence)}, got {type(error).__name__}: {error}. {remedy}"
        ) from error
    got = f"{found.dtype} of shape {list(found.shape)}"
    if found.shape == (n_words, n_words) and found.dtype.kind in "iub":
        if not n_words or 0 <= found.min() <= found.max() < n_relations:
            return found.astype(np.uint8)
        got = f"{found.min()} to {found.max()}"
    wanted = f"whole numbers from 0 to {n_relations - 1} of shape [{n_words}, {n_words}]"
    raise DataError(f"{name}: expected {wanted} for {shown(sentence)}, got {got}.")


def find_relations(named: str, stored: OwnRelations | None = None) -> tuple[str, OwnRelations]:
    """The name and the record of registered relations, whose module is imported if need be.

    Args:
        named: Their name, or the import path of their function.
        stored: The record of a model; None for a new one.

    Raises:
        ValueError: There are none, or they have another number of ids than the model's.
    """
    path = named if stored is None else stored.function
    if (name := _name_of(named)) is None and ":" in path:
        _import_module_of(path)
    if (name := _name_of(named)) is None:
        remedy = (
            f"Call {_CALL}({named.partition(':')[2] or named!r}, …) in {path.partition(':')[0]}, or before."
        )
        raise ValueError(
            f"trees: expected {', '.join(TREES)} or module:function of your own relations, got {named}. "
            + (remedy if ":" in path else nearest(named, [*TREES]))
        )
    own = _RECORDS[name]
    if stored is not None and stored.n_relations != own.n_relations:
        raise ValueError(
            f"relations.{name}: expected n_relations {stored.n_relations}, as the model has, got "
            f"{own.n_relations} from {own.function}. Register that of the model, or train anew."
        )
    if stored is not None and stored != own:
        now = f"{own.function} {own.version}; relations may differ."
        was = f"{stored.function} {stored.version}"
        warnings.warn(f"relations.{name}: the model was trained with {was}, this is {now}", stacklevel=2)
    return name, own


def _name_of(named: str) -> str | None:
    return next((name for name, own in _RECORDS.items() if named in (name, own.function)), None)


def _import_module_of(path: str) -> None:
    """Import the module of a function if its text registers relations: a stranger may have named it.

    Raises:
        ValueError: There is no such module, it registers nothing or fails.
    """
    module = path.partition(":")[0]
    if module in sys.modules:
        return
    try:
        name, *inner = module.split(".")
        spec = find_spec(name)
        for part in inner:  # for an inner module, `find_spec` would import those around it
            name = f"{name}.{part}"
            spec = spec and PathFinder.find_spec(name, spec.submodule_search_locations or [])
        if spec is None or "register_relations" not in Path(spec.origin or "").read_text("utf-8", "replace"):
            raise LookupError("no module" if spec is None else "one that does not call register_relations")
        import_module(module)
    except Exception as error:  # also the module's own
        raise ValueError(
            f"trees: expected a module {module} that registers {path}, got {error or type(error).__name__}. "
            f"Put its folder on PYTHONPATH, or call {_CALL} before the model is loaded."
        ) from error
