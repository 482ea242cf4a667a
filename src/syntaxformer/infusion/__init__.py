"""The one plug-in that puts syntax inside an encoder: what is infused, into which families, its folders.

Names are loaded when they are first used: what is infused can be said, and checked, without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syntaxformer.infusion.config import InfusionConfig
    from syntaxformer.infusion.families import Family
    from syntaxformer.infusion.infused_folder import INFUSION_FILE, load
    from syntaxformer.infusion.infusion import Infusion
    from syntaxformer.infusion.plug_in import infuse, infusion_parameters, parameter_report

_HOMES = {
    "INFUSION_FILE": "infused_folder",
    "Family": "families",
    "Infusion": "infusion",
    "InfusionConfig": "config",
    "infuse": "plug_in",
    "infusion_parameters": "plug_in",
    "load": "infused_folder",
    "parameter_report": "plug_in",
}

__all__ = [
    "INFUSION_FILE",
    "SHORTHAND",
    "Family",
    "Infusion",
    "InfusionConfig",
    "infuse",
    "infusion_parameters",
    "load",
    "parameter_report",
]


SHORTHAND: dict[str, tuple[str, Any]] = {
    "masks": ("masks", {}),
    "relation_bias": ("relation_bias", {}),
    "lisa": ("lisa", {}),
    "pos_add": ("pos", "add"),
    "pos_concat": ("pos", "concat"),
    "pos_let": ("pos", "let"),
    "let": ("pos", "let"),
}
"""What `--infuse` takes → key of `InfusionConfig` and its value."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
