"""The classes that stand in front of a host's own: its model, its encoder, its W_O, its head.

A module that is taken over stays the object that it was, with its parameters and their names. Its class
gets ours in front, under the same name, so `forward` is ours whoever calls it, and takes syntax as named
arguments. Nothing is hooked. Modules are looked up when the model is called: what PEFT has put in their place
counts. One thing cannot travel as an argument: the head that takes the final vector of the sentence is called
by the host with that vector alone, so for `let` it finds the tags of the batch by its thread.
"""

from __future__ import annotations

import inspect
import logging
import threading
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from syntaxformer.infusion.families import Parts, parts_of
from syntaxformer.infusion.infused_attention import IMPLEMENTATION
from syntaxformer.infusion.parameters import Infusion
from syntaxformer.infusion.syntax_batch import Seen, SyntaxBatch
from syntaxformer.nn import SyntaxGate, TopicalAttention

__all__ = ["BATCH_KEYS", "InfusedEncoder", "InfusedModel", "place", "take_over"]

BATCH_KEYS = ("syntax", "pos_ids", "governors", "first_pieces")
"""What a batch brings for the infusion, as arguments of `forward`."""

_log = logging.getLogger(__name__)


def take_over(module: nn.Module, by: type) -> None:
    """Put a class in front of the module's own."""
    module.__class__ = _joined(by, type(module))


def _give_back(module: nn.Module) -> None:
    module.__class__ = type(module).host


@cache
def _joined(by: type, host: type) -> type:
    """The class `by` in front of the class `host`, by whose name people and libraries know it."""
    content: dict[str, Any] = {
        "host": host,
        "by": by,
        "__module__": host.__module__,
        "__qualname__": host.__qualname__,
        "__doc__": host.__doc__,
        "__reduce__": _reduce,
    }
    if issubclass(by, _TakesSyntax):

        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            return by.forward(self, *args, **kwargs)

        forward.__signature__ = _with_syntax(inspect.signature(host.forward))  # type: ignore[attr-defined]
        content["forward"] = forward
    return type(host.__name__, (by, host), content)


def _with_syntax(signature: inspect.Signature) -> inspect.Signature:
    """The host's arguments, and by name those of the batch: so that nobody drops them as unknown."""
    given = list(signature.parameters.values())
    named = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None)
        for key in BATCH_KEYS
        if key not in signature.parameters
    ]
    n_last = sum(parameter.kind == inspect.Parameter.VAR_KEYWORD for parameter in given)
    return signature.replace(
        parameters=[*given[: len(given) - n_last], *named, *given[len(given) - n_last :]]
    )


def _reduce(self: nn.Module) -> tuple[Any, ...]:
    """How it is pickled and copied: by the classes that a module can import."""
    stack, host = [], type(self)
    while "by" in host.__dict__:
        stack.append(host.by)
        host = host.host
    return _made_again, (host, *reversed(stack)), self.__dict__


def _made_again(host: type, *stack: type) -> nn.Module:
    for by in stack:
        host = _joined(by, host)
    return host.__new__(host)


class FoldedOutput(nn.Module):
    """W_O with W_V of topical attention, behind the layer's gate, after it.

    Of a plain layer both are one product. Whatever else stands in its place, such as LoRA's layer, runs as it
    is, and W_V takes what it gives.
    """

    host: ClassVar[type]
    maps_with: tuple[TopicalAttention, SyntaxGate | None]

    def forward(self, states: Tensor, *args: Any, is_mapped: bool = True, **kwargs: Any) -> Tensor:
        """Apply W_O, then W_V; W_O alone where `is_mapped` is false."""
        run = super().forward
        if not is_mapped:
            return run(states, *args, **kwargs)
        topical, gate_module = self.maps_with
        gate = None if gate_module is None else gate_module()
        if type(self).host is nn.Linear:
            return topical.project(states, self.weight, self.bias, gate)
        if gate is None or gate.ndim == 0:
            return topical.map(run(states, *args, **kwargs), gate)
        # A gate of each head: A ((1 - g) x) + W_V A (g x), and the bias b as if behind their mean.
        columns = gate.repeat_interleave(states.shape[-1] // len(gate)).to(states.dtype)
        bias, mean = run(torch.zeros_like(states[..., :1, :]), *args, **kwargs), gate.mean().to(states.dtype)
        kept = run(states * (1 - columns), *args, **kwargs) - mean * bias
        return kept + topical.map(run(states * columns, *args, **kwargs) - (1 - mean) * bias, None)


class _Running(threading.local):
    """The batch of the forward pass of a thread, for the head, which is given nothing of it."""

    batch: SyntaxBatch | None = None
    is_open = False


_running = _Running()


class TaggedFinal(nn.Module):
    """What takes the final vector of the sentence, to which `let` joins the sentence's tags before."""

    def forward(self, states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Join, and go on as the host does.

        Raises:
            ValueError: It is called by itself, without a batch.
        """
        return super().forward(_with_tags(states), *args, **kwargs)


@torch.compiler.disable(reason="the head is given nothing of the batch")
def _with_tags(states: Tensor) -> Tensor:
    batch = _running.batch
    if batch is None or batch.pos_ids is None:
        raise ValueError(
            "pos_ids: expected a batch with the tags of the sentence, as this model is infused with let, got "
            "its head alone. Call the model as a whole."
        )
    tags, final = batch.pos_ids, states if states.ndim == 2 else states[:, 0]
    joined = cast("nn.Module", batch.infusion.pos)(final, tags, tags != 0)
    return joined if states.ndim == 2 else torch.cat([joined[:, None], states[:, 1:]], 1)


class _TakesSyntax(nn.Module):
    """A model whose `forward` names what a batch brings."""

    host: ClassVar[type]


class InfusedEncoder(_TakesSyntax):
    """The encoder: takes the batch's syntax, checks it, and hands it on to the layers."""

    syntax_root: tuple[PreTrainedModel]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the host's; `syntax`, `pos_ids`, `governors`, `first_pieces` besides."""
        inputs, batch = _opened(self, self.syntax_root[0], args, kwargs)
        try:
            output = super().forward(**inputs, syntax_batch=batch)
        finally:
            _closed(batch)
        _check_attended(self, batch)
        return output


@torch.compiler.disable(reason="a batch is checked by its values")
def _opened(
    stack: InfusedEncoder, root: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], SyntaxBatch]:
    """The host's arguments by name, and the batch that its layers take."""
    given = {key: kwargs.pop(key, None) for key in BATCH_KEYS}
    seen = kwargs.pop("syntax_seen", None) or Seen()
    seen.targets, seen.counted = given["governors"], given["first_pieces"]
    inputs = _by_name(stack, args, kwargs)
    pieces = inputs.get("input_ids")
    pieces = inputs["inputs_embeds"] if pieces is None else pieces
    infusion, parts = cast("Infusion", root.infusion), parts_of(root)
    _check(infusion, given, pieces.shape[:2])
    wants = inputs.get("output_attentions")
    place(root, parts)
    options = infusion.config.tree_options
    batch = SyntaxBatch(
        infusion=infusion,
        outputs=tuple(parts.output(layer) for layer in range(len(parts.layers))),
        relations=_as_bytes(given["syntax"]) if options else None,
        key_mask=_key_mask(inputs.get("attention_mask")),
        max_distance=options.max_distance if options else 1,
        pos_ids=given["pos_ids"],
        governors=given["governors"],
        first_pieces=given["first_pieces"],
        with_gradient=torch.is_grad_enabled(),
        wants_attention=bool(stack.config.output_attentions if wants is None else wants),
        seen=seen,
    )
    infusion.show(seen)
    if infusion.config.pos in ("add", "concat"):
        _tag(stack, infusion, inputs, batch)
    _running.batch = batch
    return inputs, batch


def _by_name(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a call of the module's `forward`, those of no name among them."""
    bound = inspect.signature(module.forward).bind_partial(*args, **kwargs)
    inputs = dict(bound.arguments)
    for parameter in bound.signature.parameters.values():
        if parameter.kind == inspect.Parameter.VAR_KEYWORD:
            inputs |= inputs.pop(parameter.name, {})
    return inputs


def _tag(stack: InfusedEncoder, infusion: Infusion, inputs: dict[str, Any], batch: SyntaxBatch) -> None:
    """Embeddings of the pieces with those of their tags in place of the pieces: `pos` add and concat."""
    pieces = inputs.pop("input_ids", None)
    if inputs.get("inputs_embeds") is None:
        inputs["inputs_embeds"] = stack.get_input_embeddings()(pieces)
        # RoBERTa numbers positions by which pieces are padding, and sees embeddings only.
        number = getattr(getattr(stack, "embeddings", None), "create_position_ids_from_input_ids", None)
        if number is not None and inputs.get("position_ids") is None:
            inputs["position_ids"] = number(pieces, stack.embeddings.padding_idx)
    inputs["inputs_embeds"] = cast("nn.Module", infusion.pos)(inputs["inputs_embeds"], batch.pos_ids)


@torch.compiler.disable
def _closed(batch: SyntaxBatch) -> None:
    """What runs again for gradients is not seen again; a head outside the encoder still reads the tags."""
    batch.seen.closed = True
    if not _running.is_open:
        _running.batch = None


@torch.compiler.disable
def _check_attended(stack: InfusedEncoder, batch: SyntaxBatch) -> None:
    if batch.infusion.attends and not batch.seen.attended:
        raise ValueError(
            f"attn_implementation: expected {IMPLEMENTATION!r} in the encoder of an infused model, got "
            f"{stack.config._attn_implementation!r}, which leaves its syntax out. Do not switch it."
        )


def _check(infusion: Infusion, given: dict[str, Any], shape: torch.Size) -> None:
    """Check that the batch brings what the config needs, in the shape of its pieces."""
    batch, n_pieces = shape
    options = infusion.config.tree_options
    wanted = {
        "syntax": [batch, len(options.used_trees), n_pieces, n_pieces] if options else None,
        "pos_ids": [batch, n_pieces] if infusion.config.pos else None,
    }
    for name, expected in wanted.items():
        if expected is not None and given[name] is None:
            raise ValueError(
                f"{name}: expected a tensor of shape {expected}, as this model is infused with it, got none. "
                "Make batches with SyntaxCollator, or give raw text to syntaxformer.pipeline."
            )
    wanted |= {"governors": [batch, n_pieces], "first_pieces": [batch, n_pieces]}
    for name, expected in wanted.items():
        found = given[name]
        if expected is not None and found is not None and list(found.shape) != expected:
            raise ValueError(f"{name}: expected shape {expected}, got {list(found.shape)}.")


def _as_bytes(relations: Tensor) -> Tensor:
    """Relations in the type that they have by definition, where rows of a table have become whole numbers."""
    if relations.dtype == torch.uint8:
        return relations
    if relations.is_floating_point() or not 0 <= int(relations.min()) <= int(relations.max()) <= 255:
        raise ValueError(f"syntax: expected relations as uint8, got {relations.dtype}.")
    return relations.to(torch.uint8)


def _key_mask(attention_mask: Tensor | None) -> Tensor | None:
    if attention_mask is None:
        return None
    if attention_mask.ndim != 2:
        raise ValueError(
            f"attention_mask: expected shape [batch, pieces], got {list(attention_mask.shape)}. "
            "An infused model takes which pieces are padding, nothing finer."
        )
    return attention_mask != 0


class InfusedModel(_TakesSyntax):
    """The model that was infused, whatever its head: adds the loss of pointing, and keeps its syntax."""

    infusion: Infusion

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the host's; `syntax`, `pos_ids`, `governors`, `first_pieces` besides."""
        seen = Seen()
        _open()
        try:
            output = super().forward(*args, **kwargs, syntax_seen=seen)
        finally:
            _end()
        return _with_governor_loss(self, output, seen, args, kwargs)

    def _initialize_weights(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        """What is ours starts as documented, whatever the host does to its own layers."""
        if isinstance(module, Infusion):
            module.reset_parameters()
        else:
            super()._initialize_weights(module, *args, **kwargs)

    def set_attn_implementation(self, attn_implementation: Any, *args: Any, **kwargs: Any) -> None:
        """Refuse another attention where ours is the encoder's; all others as the host does.

        Raises:
            ValueError: It would switch syntax off.
        """
        if self.infusion.attends and attn_implementation != IMPLEMENTATION:
            raise ValueError(
                f"attn_implementation: expected {IMPLEMENTATION!r}, the attention of this infused model, got "
                f"{attn_implementation!r}, which leaves its syntax out. Switch it before `infuse`."
            )
        super().set_attn_implementation(attn_implementation, *args, **kwargs)

    def save_pretrained(self, save_directory: str | Path, *args: Any, **kwargs: Any) -> None:
        """As the host's; `config.json` then names a model of ours, and `infusion.json` lies beside it."""
        from syntaxformer.infusion.infused_folder import save

        save(self, super().save_pretrained, save_directory, *args, **kwargs)

    @classmethod
    def from_pretrained(cls, folder: str | Path, *args: Any, **kwargs: Any) -> PreTrainedModel:
        """As `syntaxformer.load`, with the same class."""
        from syntaxformer.infusion.infused_folder import from_folder

        return from_folder(folder, *args, **kwargs)


@torch.compiler.disable
def _open() -> None:
    _running.batch, _running.is_open = None, True


@torch.compiler.disable
def _end() -> None:
    _running.batch, _running.is_open = None, False


@torch.compiler.disable
def _with_governor_loss(
    model: InfusedModel, output: Any, seen: Seen, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Add the loss of pointing at governors.

    Where the output has no loss, that of pointing is left for the caller, with its gradients.
    """
    loss = seen.governor_loss()
    # Only what teaches: losses of evaluation stay comparable between models.
    if loss is not None and model.training:
        weighted = model.infusion.config.lisa.weight * loss
        if isinstance(output, tuple):
            has_loss = _by_name(model, args, kwargs).get("labels") is not None
            output = (output[0] + weighted, *output[1:]) if has_loss else output
        elif has_loss := getattr(output, "loss", None) is not None:
            output["loss"] = output["loss"] + weighted
        if not has_loss and loss.requires_grad:
            _warn_once(model)
            return output
    seen.governor_losses = {
        layer: [one.detach() for one in losses] for layer, losses in seen.governor_losses.items()
    }
    return output


def _warn_once(model: InfusedModel) -> None:
    """Say once that the caller has a loss to add."""
    if not getattr(model, "_has_warned_of_loss", False):
        _log.warning(
            "lisa: expected a model that computes its loss, to add that of pointing at governors, got "
            "an output without one. Add infusion.config.lisa.weight * infusion.seen.governor_loss() "
            "to yours."
        )
    model._has_warned_of_loss = True


def place(model: PreTrainedModel, parts: Parts) -> None:
    """Take over W_O of the layers with topical attention, and for let the head, wherever they are by now."""
    infusion = cast("Infusion", model.infusion)
    for layer in range(len(parts.layers)) if infusion.attends else ():
        parts.attention(layer).syntax_layer = layer  # type: ignore[assignment]
        if (topical := infusion.topical_of(layer)) is not None:
            output = parts.output(layer)
            _hold(output, FoldedOutput)
            gate = dict(infusion.gates.items()).get(str(layer))
            if getattr(output, "maps_with", None) != (topical, gate):
                output.maps_with = (topical, gate)
    if infusion.config.pos == "let" and parts.final is not None:
        _hold(parts.final, TaggedFinal)


def _hold(module: nn.Module, by: type) -> None:
    """Take a module over, and give back what it has been wrapped around since."""
    if isinstance(module, by):
        return
    for inner in module.modules():
        if isinstance(inner, by):
            _give_back(inner)
    take_over(module, by)
