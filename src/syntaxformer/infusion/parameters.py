"""`Infusion`: all parameters that syntax adds to an encoder. It knows no encoder and holds no batch.

What happens inside attention is in `infused_attention`; who calls it with what, in `hosts`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from syntaxformer.infusion.config import InfusionConfig, MaskConfig, Omitted
from syntaxformer.infusion.families import Parts
from syntaxformer.infusion.syntax_batch import Seen
from syntaxformer.nn import (
    BiaffineHead,
    PosAdd,
    PosConcat,
    PosLet,
    RelationBias,
    SyntaxGate,
    TopicalAttention,
)

__all__ = ["Infusion", "chosen_layers"]

_SHARED = "shared"


def chosen_layers(layers: tuple[int, ...] | None, n_layers: int, default: Sequence[int]) -> list[int]:
    """Layers that a section names, or its default."""
    return list(default) if layers is None else sorted(set(layers) & set(range(n_layers)))


class _LastSeen(threading.local):
    """What the last forward pass of a thread left to read; nothing is computed from it."""

    def __init__(self) -> None:
        self.seen = Seen()


class Infusion(nn.Module):
    """Parameters of `InfusionConfig` for one encoder.

    Each module's parameters are read in its own `forward` alone, so that whoever moves weights to a device
    just before a module runs (`accelerate`) finds them used where they are.

    Args:
        config: What is infused.
        parts: The encoder's modules; only their sizes are read.
        n_heads: Attention heads.
    """

    def __init__(self, config: InfusionConfig, parts: Parts, n_heads: int) -> None:
        super().__init__()
        self.config = config
        self._last = _LastSeen()
        self.records_weights = self.records_attention = self.is_exporting = False
        self.inject = config.lisa.inject if config.lisa else None
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

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start anew as `config.seed` says; what was loaded from a checkpoint stays.

        transformers marks what it has loaded, and asks a model to initialise the rest.
        """
        loaded = [p for p in self.parameters() if getattr(p, "_is_hf_initialized", False)]
        kept = [parameter.clone() for parameter in loaded]
        groups = (self.topical, self.gates, self.relation_bias, self.lisa)
        modules = [module for group in groups for module in group.values()]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            for module in [*modules, *([self.pos] if self.pos else [])]:
                cast("Any", module).reset_parameters()
        for parameter, values in zip(loaded, kept, strict=True):
            parameter.copy_(values)

    def __getstate__(self) -> dict[str, Any]:
        """Without the last batch: its tensors belong to a graph that cannot be copied."""
        return {name: value for name, value in self.__dict__.items() if name != "_last"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._last = _LastSeen()

    @property
    def seen(self) -> Seen:
        """What this thread's last forward pass left to read."""
        return self._last.seen

    def show(self, seen: Seen) -> None:
        """Let what a forward pass leaves be read as `seen`, in this thread."""
        self._last.seen = seen

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

    @property
    def includes_full(self) -> bool:
        """Whether full attention is one of the sub-networks."""
        return isinstance(self.config.masks, MaskConfig) and self.config.preset == "preserving"

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
        if options is not None and not any(options.active_networks(names)):
            raise ValueError(f"leave_out: expected a relation to be left, got {', '.join(names)}.")
        self.left_out = names

    def active(self, device: torch.device) -> Tensor | None:
        """Sub-networks that take part, `[networks]`, the full one not among them; None for all."""
        options = self.config.tree_options
        if not self.left_out or options is None:
            return None
        return torch.tensor(options.active_networks(self.left_out), dtype=torch.bool, device=device)

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


def _head(parts: Parts, layer: int, n_heads: int, keys: str) -> BiaffineHead:
    """A biaffine head that starts as the scaled product of the head that it replaces."""
    width = parts.output(layer).in_features
    d_head = width // n_heads
    scaling = getattr(parts.attention(layer), "scaling", d_head**-0.5)
    return BiaffineHead(d_head, d_head if keys == "head" else width, scaling)


def _pos_module(config: InfusionConfig, parts: Parts) -> nn.Module | None:
    if config.pos is None:
        return None
    if config.pos == "let":
        return PosLet(config.n_tags, parts.output(0).out_features, config.pos_width)
    width = parts.stack.get_input_embeddings().embedding_dim
    if config.pos == "add":
        return PosAdd(config.n_tags, width)
    return PosConcat(config.n_tags, width, config.pos_width)
