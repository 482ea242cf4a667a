"""Subclasses of a host's own classes, under their names: how a module becomes another without hooks.

`wrap_module` replaces the class of a module in place; the module keeps its parameters and their names.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, ClassVar

from torch import nn

from syntaxformer.infusion.infusion import BATCH_KEYS


class TakesSyntax(nn.Module):
    """A model whose `forward` names the syntax of a batch among its arguments."""

    host: ClassVar[type]
    positional: ClassVar[tuple[str, ...]]


def wrap_module(module: nn.Module, by: type) -> None:
    """Replace a module's class by one that derives from `by` and from that class.

    An inner module that was wrapped before the module was put around it, as PEFT does, is released.
    """
    if isinstance(module, by):
        return
    for inner in module.modules():
        if isinstance(inner, by):
            inner.__class__ = type(inner).host
    module.__class__ = _joined(by, type(module))


@cache
def _joined(by: type, host: type) -> type:
    """A class that derives from `by` and `host`, under the host's name, which people and libraries know."""
    content: dict[str, Any] = {
        "host": host,
        "by": by,
        "__module__": host.__module__,
        "__qualname__": host.__qualname__,
        "__doc__": host.__doc__,
        "__reduce__": _reduce,
    }
    if issubclass(by, TakesSyntax):

        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            return by.forward(self, *args, **kwargs)

        signature = inspect.signature(host.forward)
        forward.__signature__ = _with_syntax(signature)  # type: ignore[attr-defined]
        content["forward"] = forward
        positional = [p.name for p in signature.parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
        content["positional"] = tuple(positional[1:])
    return type(host.__name__, (by, host), content)


def _with_syntax(signature: inspect.Signature) -> inspect.Signature:
    """The host's signature, with the batch's arguments named so that no caller drops them as unknown."""
    known, others = signature.parameters, inspect.Parameter.VAR_KEYWORD
    new = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None)
        for key in BATCH_KEYS
        if key not in known
    ]
    before = [parameter for parameter in known.values() if parameter.kind != others]
    after = [parameter for parameter in known.values() if parameter.kind == others]
    return signature.replace(parameters=[*before, *new, *after])


def host_class(infused: type) -> type:
    """The class that a module had before it was wrapped."""
    while "by" in infused.__dict__:
        infused = infused.host
    return infused


def _reduce(self: nn.Module) -> tuple[Any, ...]:
    """Pickle and copy a module by the importable classes that its own class derives from."""
    stack, host = [], type(self)
    while "by" in host.__dict__:
        stack.append(host.by)
        host = host.host
    return _rebuilt, (host, *reversed(stack)), self.__dict__


def _rebuilt(host: type, *stack: type) -> nn.Module:
    for by in stack:
        host = _joined(by, host)
    return host.__new__(host)
