"""Make transformers' Auto classes know the models of this package before these are imported.

`import syntaxformer` imports no transformers. Its kinds of model are announced when the table of kinds of
transformers is there; the rooms that have them are imported, and register them, when one is asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

_KINDS = {"syntaxformer": "syntaxformer.translation.model", "syntaxformer_infused": "syntaxformer.infusion"}
"""`model_type` in `config.json` → room whose import registers the config and the models of that kind."""

_TABLE = "transformers.models.auto.configuration_auto"


def announce() -> None:
    """Register the kinds with `AutoConfig`, now or when transformers has been imported."""
    if _TABLE in sys.modules:
        _register(sys.modules[_TABLE])
    else:
        sys.meta_path.insert(0, _AfterTable())


def _register(table: Any) -> None:
    for kind, room in _KINDS.items():
        if kind not in table.CONFIG_MAPPING:
            table.AutoConfig.register(kind, _stand_in(table, kind, room))


def _stand_in(table: Any, kind: str, room: str) -> type:
    def real() -> Any:
        import_module(room)
        return table.CONFIG_MAPPING[kind]

    class Announced:
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real()(*args, **kwargs)

        @classmethod
        def from_dict(cls, *args: Any, **kwargs: Any) -> Any:
            return real().from_dict(*args, **kwargs)

    return Announced


class _AfterTable:
    """Finds transformers' table as Python does, and has the kinds registered once it has run."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != _TABLE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (run(module), _register(module))[0]
        return spec
