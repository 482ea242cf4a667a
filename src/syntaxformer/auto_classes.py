"""Make transformers' Auto classes know the models of this package before these are imported.

`import syntaxformer` imports neither transformers nor torch. So the kinds of model are announced when
transformers' own table of kinds has been loaded, and the rooms that have them are imported when a folder of
that kind is opened; they then register their classes themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

__all__ = ["announce"]

_KINDS = {"syntaxformer": "syntaxformer.models", "syntaxformer_infused": "syntaxformer.infusion"}
"""`model_type` in `config.json` → room whose import registers the config and the models of that kind."""

_TABLE = "transformers.models.auto.configuration_auto"


def announce() -> None:
    """Register the kinds with `AutoConfig`, now or when transformers has been imported."""
    if _TABLE in sys.modules:
        _register(sys.modules[_TABLE])
    else:
        sys.meta_path.insert(0, _AfterTable())


def _register(table: ModuleType) -> None:
    for kind, room in _KINDS.items():
        if kind not in table.CONFIG_MAPPING:
            table.AutoConfig.register(kind, _stand_in(table, kind, room))


def _stand_in(table: ModuleType, kind: str, room: str) -> type:
    def loaded() -> Any:
        import_module(room)
        return table.CONFIG_MAPPING[kind]

    class Announced:
        """Stands for a class of config until it is needed."""

        model_type = kind

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return loaded()(*args, **kwargs)

        @classmethod
        def from_dict(cls, *args: Any, **kwargs: Any) -> Any:
            return loaded().from_dict(*args, **kwargs)

        @classmethod
        def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
            return loaded().from_pretrained(*args, **kwargs)

    return Announced


class _AfterTable:
    """Finds transformers' table of kinds as Python does, and registers ours when it has been run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _TABLE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_register(module: ModuleType) -> None:
                run(module)
                _register(module)

            spec.loader.exec_module = run_and_register
        return spec
