"""`--engine` and `--address`: whether a command works on this machine or on a Ray cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from syntaxformer.base.errors import ConfigError

__all__ = ["AddressOption", "Engine", "refuse_lone_address"]


class Engine(StrEnum):
    """Who does the work."""

    local = "local"
    ray = "ray"


AddressOption = Annotated[
    str | None,
    typer.Option(help="Of a running Ray cluster: auto, ray://HOST:10001. Default: one on this machine."),
]


def refuse_lone_address(engine: Engine, address: str | None) -> None:
    """Hold that an address is given to the engine that has one.

    Raises:
        ConfigError: It is given to the local engine.
    """
    if address is not None and engine is not Engine.ray:
        raise ConfigError("--address: expected --engine ray with it, got the local engine.")
