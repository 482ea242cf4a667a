"""What a batch brings along beside its pieces, and what was seen of syntax in a forward pass.

A `SyntaxBatch` travels as an argument of the layers' `forward`, so that gradient checkpointing, which runs a
layer again later, finds the same one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from syntaxformer.nn import RelationIndex

if TYPE_CHECKING:
    from syntaxformer.infusion.parameters import Infusion

__all__ = ["Seen", "SyntaxBatch"]


@dataclass(eq=False)
class Seen:
    """What a forward pass left to read, by layer; one that runs several times (ALBERT) has several entries.

    Args:
        weights: α of the sub-networks, `[batch, pieces, networks]`; only while recording.
        attention: The collapsed attention, `[batch, heads, pieces, pieces]`; only while recording.
        passes: Which layer ran, one after the other; only while recording.
        logits: Scaled, biased, before any mask but a local layer's window, outside which they are -inf,
            `[batch, heads, pieces, pieces]`; only while recording.
        governor_losses: Loss of pointing at governors.
        pointed_at: Place that the biaffine head points at, `[batch, pieces]`.
        targets: Where it should, `[batch, pieces]`.
        counted: First pieces of words, `[batch, pieces]`; None counts all pieces.
        attended: Whether any layer's attention was ours.
        closed: Whether the forward pass is over: what runs again for gradients is not seen again.
    """

    weights: dict[int, list[Tensor]] = field(default_factory=dict)
    attention: dict[int, list[Tensor]] = field(default_factory=dict)
    logits: dict[int, list[Tensor]] = field(default_factory=dict)
    passes: list[int] = field(default_factory=list)
    governor_losses: dict[int, list[Tensor]] = field(default_factory=dict)
    pointed_at: dict[int, list[Tensor]] = field(default_factory=dict)
    targets: Tensor | None = None
    counted: Tensor | None = None
    attended: bool = False
    closed: bool = False

    def add(self, kind: str, layer: int, value: Tensor) -> None:
        """Keep what a layer shows."""
        if not self.closed:
            getattr(self, kind).setdefault(layer, []).append(value)
            if kind == "attention":
                self.passes.append(layer)

    def governor_loss(self) -> Tensor | None:
        """Mean over the layers that point; None where nothing was supervised."""
        losses = [loss for of_layer in self.governor_losses.values() for loss in of_layer]
        return torch.stack(losses).mean() if losses else None

    def governor_hits(self) -> dict[int, tuple[int, int]]:
        """Right words and all words with a governor, by layer: their quotient is the UAS."""
        if self.targets is None:
            return {}
        counted = self.targets >= 0
        if self.counted is not None:
            counted = counted & self.counted
        n_counted = int(counted.sum())
        return {
            layer: (int(((places[-1] == self.targets) & counted).sum()), n_counted)
            for layer, places in self.pointed_at.items()
        }


@dataclass(eq=False)
class SyntaxBatch:
    """Syntax of a batch, and what the layers need besides: it travels as an argument from layer to layer.

    Args:
        infusion: Of the model, as it is when the model is called: PEFT may have put a copy in its place.
        outputs: W_O of each layer, as it is then.
        relations: uint8 `[batch, trees, pieces, pieces]`.
        key_mask: True for pieces that are no padding, `[batch, pieces]`; None for all.
        max_distance: D.
        pos_ids: `[batch, pieces]`.
        governors: Place of each piece's governor, `[batch, pieces]`.
        first_pieces: True for the first piece of each word.
        with_gradient: Whether the forward pass records gradients.
        wants_attention: Whether layers give their collapsed attention, too; each then attends twice.
        seen: What it leaves to read.
    """

    infusion: Infusion
    outputs: tuple[nn.Module, ...]
    relations: Tensor | None
    key_mask: Tensor | None
    max_distance: int
    pos_ids: Tensor | None
    governors: Tensor | None
    first_pieces: Tensor | None
    with_gradient: bool
    wants_attention: bool
    seen: Seen
    _local_index: RelationIndex | None = None

    @cached_property
    def index(self) -> RelationIndex:
        """Index of the relations, made once for all layers."""
        return RelationIndex.of(self.relations, self.key_mask, self.max_distance)

    def local_index(self, window: Tensor) -> RelationIndex:
        """Index of the relations within the window of local attention, made once for all layers that have it.

        Args:
            window: True where a piece sees another, `[batch, 1, pieces, pieces]`.
        """
        if self._local_index is None:
            relations = self.local_relations(window)
            self._local_index = RelationIndex.of(relations, self.key_mask, self.max_distance)
        return self._local_index

    def local_relations(self, window: Tensor) -> Tensor:
        """The relations, none outside the window; arguments as in `local_index`."""
        return cast("Tensor", self.relations) * window
