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
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import DataError
from syntaxformer.base.files import hash_file
from syntaxformer.syntax.piece_relations import TREES, Kind, TreeKind, of_user, shown
from syntaxformer.syntax.relations import RelationArray
from syntaxformer.trees import Sentence
from syntaxformer.trees.sentence import COLUMNS

_LARGEST, _CALL = 253, "syntaxformer.register_relations"


class OwnRelations(BaseModel):
    """The record of relations of the user's own in a config and a model folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str = Field(description="import path, module:function")
    n_relations: int = Field(ge=2, le=_LARGEST, description="number of ids, with 0 for no relation")
    version: str = Field(default="", description="hash of the module's text, or of the function's")


_RECORDS: dict[str, OwnRelations] = {}


Function = Callable[[Sentence], ArrayLike]


def register_relations(
    name: str, function: Function, n_relations: int, needs: Sequence[str] = ("governors",)
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
    taken = {*get_args(TreeKind), "parent", "child", "sibling", "pair", "syntax", *COLUMNS}
    path = f"{function.__module__}:{function.__qualname__}"
    is_free = name not in taken and (name not in _RECORDS or _RECORDS[name].function == path)
    if not is_free or not re.fullmatch("[a-z][a-z0-9_]*", name):
        free = f"a name of small letters, digits and _, not {', '.join(sorted(taken))} or another function's"
        raise ValueError(f"name: expected {free}, got {name!r}.")
    if not 2 <= n_relations <= _LARGEST:
        raise ValueError(f"n_relations: expected 2 to {_LARGEST}, with 0 for none, got {n_relations}.")
    if not needs or not set(needs) <= COLUMNS.keys():
        raise ValueError(f"needs: expected some of {', '.join(COLUMNS)}, got {', '.join(needs) or 'none'}.")
    _RECORDS[name] = OwnRelations(function=path, n_relations=n_relations, version=_version(function))
    checked = partial(_checked, name, function, n_relations)
    TREES[name] = Kind(tuple(needs), partial(of_user, name), checked)


def _version(function: Function) -> str:
    """A hash of the module's text, or of the function's where the module is a notebook or script."""
    file = getattr(sys.modules[function.__module__], "__file__", None)
    if file and function.__module__ != "__main__":
        return hash_file(Path(file))[:12]
    try:
        return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:12]
    except (OSError, TypeError):  # typed into a prompt, or no plain function
        return ""


def _checked(name: str, function: Function, n_relations: int, sentence: Sentence) -> RelationArray:
    """The relations of a sentence; DataError where the function fails, or gives something else."""
    shape, failure = (len(sentence),) * 2, None
    try:
        found = np.asarray(function(sentence) if len(sentence) else np.zeros(shape, int))
        is_whole = found.shape == shape and found.dtype.kind in "iub"
        if is_whole and 0 <= found.min(initial=0) <= found.max(initial=0) < n_relations:
            return found.astype(np.uint8)
        got = f"{found.min()} to {found.max()}, {found.dtype} {list(found.shape)}"
    except Exception as error:  # the user's own
        got, failure = f"{type(error).__name__}: {error}", error
    expected = f"whole numbers from 0 to {n_relations - 1}, {list(shape)}, for {shown(sentence)}, got {got}"
    remedy = f"What the function reads besides words belongs into `needs` of {_CALL}."
    raise DataError(f"{name}: expected {expected}. {remedy}") from failure


def find_relations(named: str, stored: OwnRelations | None = None) -> tuple[str, OwnRelations]:
    """The name and the record of relations by their name or import path; their module is imported if need be.

    Raises:
        ValueError: There are none, or they have another number of ids than `stored`, a model's.
    """
    path = named if stored is None else stored.function
    if (name := _name_of(named)) is None and ":" in path:
        _import_module_of(path)
    if (name := _name_of(named)) is None:
        expected = f"{', '.join(TREES)} or module:function of your own relations, got {named}"
        module, _, last = path.partition(":")
        remedy = f"Call {_CALL}({last!r}, …) in {module}, or before." if last else nearest(named, [*TREES])
        raise ValueError(f"trees: expected {expected}. {remedy}")
    own = _RECORDS[name]
    if stored is not None and stored.n_relations != own.n_relations:
        expected = f"n_relations {stored.n_relations}, as the model has, got {own.n_relations}"
        raise ValueError(f"relations.{name}: expected {expected}. Register the model's, or train anew.")
    if stored is not None and stored != own:
        was, now = (f"{one.function} {one.version}" for one in (stored, own))
        message = f"relations.{name}: the model was trained with {was}, this is {now}; relations may differ."
        warnings.warn(message, stacklevel=2)
    return name, own


def _name_of(named: str) -> str | None:
    return next((name for name, own in _RECORDS.items() if named in (name, own.function)), None)


def _import_module_of(path: str) -> None:
    """Import the module of a function if its text registers relations: a stranger may have named it."""
    if (module := path.partition(":")[0]) in sys.modules:
        return
    *outer, last = module.split(".")
    ends = ((f"{last}.py",), (last, "__init__.py"))
    files = [file for root in sys.path for end in ends if (file := Path(root, *outer, *end)).is_file()]
    try:
        if not files or "register_relations" not in files[0].read_text("utf-8", "replace"):
            raise LookupError("one that does not call register_relations" if files else "no module")
        import_module(module)
    except Exception as error:  # also the module's own
        raise ValueError(
            f"trees: expected a module {module} that registers {path}, got {error or type(error).__name__}. "
            f"Put its folder on PYTHONPATH, or call {_CALL} before the model is loaded."
        ) from error
