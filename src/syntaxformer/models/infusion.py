"""`Infusion`: all parameters that syntax adds to an encoder, and hooks that bring a batch's syntax to them.

What happens inside attention is in `infused_attention`; what is hooked where, in `plug_in`.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from syntaxformer.infusion_config import InfusionConfig, MaskConfig, Omitted
from syntaxformer.layers import (
    BiaffineHead,
    PosAdd,
    PosConcat,
    PosLet,
    RelationBias,
    SyntaxGate,
    TopicalAttention,
)
from syntaxformer.models.families import Parts
from syntaxformer.models.syntax_batch import Seen, SyntaxBatch

__all__ = ["BATCH_KEYS", "Infusion", "chosen_layers"]

BATCH_KEYS = ("syntax", "pos_ids", "governors", "first_pieces")
"""What a batch brings for the infusion; taken out before the encoder sees its arguments."""

_log = logging.getLogger(__name__)

_SHARED = "shared"


def chosen_layers(layers: tuple[int, ...] | None, n_layers: int, default: Sequence[int]) -> list[int]:
    """Layers that a section names, or its default."""
    return list(default) if layers is None else sorted(set(layers) & set(range(n_layers)))


class _Running(threading.local):
    """State of the forward pass that runs in a thread; others run beside it."""

    batch: SyntaxBatch | None = None
    is_encoding = False

    def __init__(self) -> None:
        self.seen = Seen()


class Infusion(nn.Module):
    """Parameters of `InfusionConfig` for one encoder, and the state of its forward pass in each thread.

    Args:
        config: What is infused.
        parts: The encoder's modules; only their sizes are read.
        n_heads: Attention heads.
    """

    def __init__(self, config: InfusionConfig, parts: Parts, n_heads: int) -> None:
        super().__init__()
        self.config = config
        self._running = _Running()
        self.records_weights = self.records_attention = self.is_exporting = False
        self.inject = config.lisa.inject if config.lisa else None
        self._has_warned = False
        self._add_masks(parts, n_heads)
        self._add_heads(parts, n_heads)
        self.pos = _pos_module(config, parts)
        self.left_out: tuple[str, ...] = ()
        self.leave_out(*(config.tree_options.without if config.tree_options else ()))

    def _add_masks(self, parts: Parts, n_heads: int) -> None:
        masks, n_layers = self.config.masks, len(parts.layers)
        layers = chosen_layers(masks.layers, n_layers, range(n_layers)) if masks else []
        owners = [str(layer) for layer in layers] if masks and masks.per_layer else [_SHARED]
        self.topical = nn.ModuleDict()
        if masks and masks.topical:
            width = parts.output(0).out_features
            self.topical.update({owner: TopicalAttention(width, n_heads) for owner in owners})
        self.gates = nn.ModuleDict()
        if masks and self.config.preset == "preserving":
            of_heads = n_heads if masks.gate == "head" else None
            self.gates.update({str(layer): SyntaxGate(of_heads) for layer in layers})
        self.masked_layers = layers

    def _add_heads(self, parts: Parts, n_heads: int) -> None:
        bias, lisa, n_layers = self.config.relation_bias, self.config.lisa, len(parts.layers)
        biased = chosen_layers(bias.layers, n_layers, range(n_layers)) if bias else []
        self.relation_bias = nn.ModuleDict(
            {str(layer): RelationBias(n_heads, len(bias.used_trees), bias.max_distance) for layer in biased}
        )
        pointing = chosen_layers(lisa.layers, n_layers, [n_layers - 1]) if lisa else []
        self.lisa = nn.ModuleDict({str(layer): _head(parts, layer, n_heads, lisa.keys) for layer in pointing})

    def __getstate__(self) -> dict[str, Any]:
        """Without the last batch: its tensors belong to a graph that cannot be copied."""
        return {name: value for name, value in self.__dict__.items() if name != "_running"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._running = _Running()

    @property
    def seen(self) -> Seen:
        """What this thread's last forward pass left to read."""
        return self._running.seen

    def topical_of(self, layer: int) -> TopicalAttention | None:
        """Topical attention of a layer; None for a summation."""
        if layer not in self.masked_layers or not self.topical:
            return None
        owner = str(layer) if self.config.masks.per_layer else _SHARED
        return cast("TopicalAttention", self.topical[owner])

    @property
    def attends(self) -> bool:
        """Whether any layer's attention is ours; else it is the encoder's own, tags aside."""
        return bool(self.masked_layers or len(self.relation_bias) or len(self.lisa))

    def gate_of(self, layer: int) -> Tensor | None:
        """The layer's g, -1 to 1; None without gates."""
        return self.gates[str(layer)]() if str(layer) in self.gates else None

    def leave_out(self, *names: str) -> None:
        """Switch off trees or kinds of relation, also of a trained model; without names all are on again.

        Args:
            names: Of dependency, constituency, parent, child, sibling, pair.

        Raises:
            ValueError: Another name, or nothing would be left.
        """
        unknown = [name for name in names if name not in get_args(Omitted)]
        if unknown:
            raise ValueError(
                f"leave_out: expected some of {', '.join(get_args(Omitted))}, got {', '.join(unknown)}."
            )
        options = self.config.tree_options
        active = [] if options is None else options.active_networks(names)
        if options is not None and not any(active):
            raise ValueError(f"leave_out: expected a relation to be left, got {', '.join(names)}.")
        self.left_out = names
        device = self.active.device if hasattr(self, "active") else None
        self.register_buffer(
            "active", torch.tensor(active, dtype=torch.bool, device=device), persistent=False
        )

    @contextmanager
    def record(self, attention: bool = False) -> Iterator[Infusion]:
        """Keep the sub-networks' weights, and the collapsed attention, of what runs inside.

        Read `seen.weights[layer][-1]`, α `[batch, pieces, networks]` with the sub-network
        of full attention last, and `seen.attention[layer][-1]`, `[batch, heads, pieces, pieces]`.

        Args:
            attention: Keep the collapsed attention, too; each layer then attends twice.
        """
        self.records_weights, self.records_attention = True, attention
        try:
            yield self
        finally:
            self.records_weights = self.records_attention = False

    def receive(self, stack: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Before the encoder: take the syntax out of its arguments, check it, hand it on to the layers."""
        given = {key: kwargs.pop(key, None) for key in BATCH_KEYS}
        inputs = inspect.signature(stack.forward).bind_partial(*args, **kwargs).arguments
        pieces = inputs.get("input_ids")
        if pieces is None:
            pieces = inputs.get("inputs_embeds")
            if self.config.pos in ("add", "concat"):
                raise ValueError("input_ids: expected them beside pos_ids, got inputs_embeds.")
        self._check(given, pieces.shape[:2])
        wants = kwargs.get("output_attentions") or getattr(stack.config, "output_attentions", False)
        if self.attends and wants:
            raise ValueError(
                "output_attentions: expected false for an infused model, got true. "
                "Use model.infusion.record(attention=True)."
            )
        options = self.config.tree_options
        seen = Seen(targets=given["governors"], counted=given["first_pieces"])
        batch = SyntaxBatch(
            relations=given["syntax"] if options else None,
            key_mask=_key_mask(inputs.get("attention_mask")),
            max_distance=options.max_distance if options else 1,
            pos_ids=given["pos_ids"],
            governors=given["governors"],
            first_pieces=given["first_pieces"],
            with_gradient=torch.is_grad_enabled(),
            seen=seen,
        )
        running = self._running
        running.seen, running.batch, running.is_encoding = seen, batch, True
        return args, {**kwargs, "syntax_batch": batch}

    def _check(self, given: dict[str, Tensor | None], shape: Sequence[int]) -> None:
        """Hold that the batch brings what the config needs, in the shape of its pieces."""
        batch, n_pieces = shape
        options = self.config.tree_options
        wanted = {
            "syntax": [batch, len(options.used_trees), n_pieces, n_pieces] if options else None,
            "pos_ids": [batch, n_pieces] if self.config.pos else None,
        }
        for name, expected in wanted.items():
            if expected is not None and given[name] is None:
                raise ValueError(
                    f"{name}: expected a tensor of shape {expected}, as this model is infused with it, "
                    "got none. Make batches with SyntaxCollator."
                )
        wanted |= {"governors": [batch, n_pieces], "first_pieces": [batch, n_pieces]}
        for name, expected in wanted.items():
            found = given[name]
            if expected is not None and found is not None and list(found.shape) != expected:
                raise ValueError(f"{name}: expected shape {expected}, got {list(found.shape)}.")

    def close(self, stack: nn.Module, args: Any, output: Any) -> None:
        """After the encoder: what runs again for gradients is not seen again."""
        self._running.is_encoding = False
        self.seen.closed = True

    def infuse_embeddings(self, embeddings: nn.Module, args: Any, output: Tensor) -> Tensor:
        """After the piece embeddings: `pos` add and concat. A decoder that shares the table is left alone."""
        batch = self._running.batch
        if not self._running.is_encoding or batch is None or batch.pos_ids is None:
            return output
        return self.pos(output, batch.pos_ids)

    def infuse_final(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Before what takes the final vector of the sentence: `pos` let."""
        states, *others = args
        batch = self._running.batch
        if batch is None:
            return args
        tags = batch.pos_ids
        final = states if states.ndim == 2 else states[:, 0]
        joined = self.pos(final, tags, tags != 0).to(states.dtype)
        if states.ndim > 2:
            joined = torch.cat([joined[:, None], states[:, 1:]], 1)
        return (joined, *others)

    def finish(self, model: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        """After the model: add the loss of pointing at governors, and let go of the batch.

        Where the output has no loss, that of pointing is left for the caller, with its gradients.
        """
        self._running.batch = None
        loss = self.seen.governor_loss()
        # Only what teaches: losses of evaluation stay comparable between models.
        if loss is not None and output is not None and model.training:
            if _has_loss(output, kwargs.get("labels") is not None):
                output = _with_loss(output, self.config.lisa.weight * loss)
            elif loss.requires_grad:
                self._warn()
                return output
        self.seen.governor_losses = {
            layer: [one.detach() for one in losses] for layer, losses in self.seen.governor_losses.items()
        }
        return output

    def _warn(self) -> None:
        """Say once that the caller has a loss to add."""
        if not self._has_warned:
            _log.warning(
                "lisa: expected a model that computes its loss, to add that of pointing at governors, got "
                "an output without one. Add infusion.config.lisa.weight * infusion.seen.governor_loss() "
                "to yours."
            )
        self._has_warned = True


def _has_loss(output: Any, has_labels: bool) -> bool:
    return has_labels if isinstance(output, tuple) else getattr(output, "loss", None) is not None


def _with_loss(output: Any, more: Tensor) -> Any:
    if isinstance(output, tuple):
        return (output[0] + more, *output[1:])
    output["loss"] = output["loss"] + more
    return output


def _key_mask(attention_mask: Tensor | None) -> Tensor | None:
    if attention_mask is None:
        return None
    if attention_mask.ndim != 2:
        raise ValueError(
            f"attention_mask: expected shape [batch, pieces], got {list(attention_mask.shape)}. "
            "An infused model takes which pieces are padding, nothing finer."
        )
    return attention_mask != 0


def _head(parts: Parts, layer: int, n_heads: int, keys: str) -> BiaffineHead:
    """A biaffine head that starts as the scaled product of the head that it replaces."""
    width = parts.output(layer).in_features
    d_head = width // n_heads
    head = BiaffineHead(d_head, d_head if keys == "head" else width)
    if keys == "head":
        scaling = getattr(parts.attention(layer), "scaling", d_head**-0.5)
        with torch.no_grad():
            head.weight.copy_(torch.eye(d_head) * scaling)
    return head


def _pos_module(config: InfusionConfig, parts: Parts) -> nn.Module | None:
    if config.pos is None:
        return None
    if config.pos == "let":
        return PosLet(config.n_tags, parts.output(0).out_features, config.pos_width)
    width = parts.embeddings.embedding_dim
    if config.pos == "add":
        return PosAdd(config.n_tags, width)
    return PosConcat(config.n_tags, width, config.pos_width)


def includes_full(config: InfusionConfig) -> bool:
    """Whether full attention is one of the sub-networks."""
    return isinstance(config.masks, MaskConfig) and config.preset == "preserving"
