"""What syntax does inside one layer's self-attention: LISA's head, syntax attention, biases by relation.

Any of the three, in any combination, on the queries, keys and values that the layer makes anyway. What they
read of a batch is a `SyntaxContext`; who makes that, and which layers have which parts, is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from syntaxformer.nn.attention import attend, attend_with_weights
from syntaxformer.nn.lisa import BiaffineHead, check_gradient, inject_governors
from syntaxformer.nn.relation_biases import RelationBias
from syntaxformer.nn.relation_index import RelationIndex
from syntaxformer.nn.syntax import MaskMode, OnEmptyRow, Summation, syntax_attention
from syntaxformer.nn.topical import SyntaxGate, TopicalAttention, linear_map

__all__ = ["MaskRules", "SyntaxContext", "SyntaxHeads"]


@dataclass
class SyntaxContext:
    """What the layers of an encoder are told about a batch, and where they leave what they found.

    Args:
        relations: Ids of relations, for biases.
        index: The same, indexed, for syntax attention.
        topical: Topical attention shared by the layers that have none of their own.
        active: Sub-networks and biases that take part, full attention last; None for all.
        injected: Places of governors that LISA's head is to look at; None where it looks as it likes.
        wants_logits: Whether the logits of LISA's heads are needed.
        with_gradient: Whether they are to teach.
        logits: They, layer by layer; -inf on padding.
    """

    relations: UInt8[Tensor, "batch trees keys keys"] | None = None
    index: RelationIndex | None = None
    topical: TopicalAttention | None = None
    active: Bool[Tensor, " networks"] | None = None
    injected: Int[Tensor, "batch keys"] | None = None
    wants_logits: bool = False
    with_gradient: bool = False
    logits: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class MaskRules:
    """How a layer attends by relation; see `syntax_attention`.

    Args:
        mode: Masked keys keep logit 0, or are removed.
        on_empty_row: What a row without any key does where they are removed.
        gate: Preset "preserving": the full sub-network takes part, and a gate of the layer or of each head,
            closed at first, lets syntax in. None for the paper's form, without either.
        topical: Weigh sub-networks by topical attention; otherwise they are summed.
        own_topical: This layer has a topical attention of its own.
        summation: How they are summed.
    """

    mode: MaskMode = "multiplicative"
    on_empty_row: OnEmptyRow = "full"
    gate: Literal["layer", "head"] | None = "layer"
    topical: bool = True
    own_topical: bool = False
    summation: Summation = "scaled"


class SyntaxHeads(nn.Module):
    """Attention of one layer from its queries, keys and values, syntax included, up to the output layer.

    Args:
        d_model: Width of the states.
        n_heads: Attention heads.
        lisa_head: The head that is biaffine; None for none.
        masks: Attend by relation; None for plain attention.
        bias_shape: Trees and largest distance of a bias for each relation; None for no bias.

    Source: Strubell et al. (2018) for LISA, Bai et al. (2021) for syntax attention.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        lisa_head: int | None = None,
        masks: MaskRules | None = None,
        bias_shape: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        if lisa_head is not None and not 0 <= lisa_head < n_heads:
            raise ValueError(f"lisa head: expected 0 to {n_heads - 1}, got {lisa_head}.")
        self.lisa_head, self.masks = lisa_head, masks
        self.lisa = None if lisa_head is None else BiaffineHead(d_model // n_heads)
        self.bias = None if bias_shape is None else RelationBias(n_heads, *bias_shape)
        gate = None if masks is None else masks.gate
        self.gate = None if gate is None else SyntaxGate(n_heads if gate == "head" else None)
        own = masks is not None and masks.topical and masks.own_topical
        self.topical = TopicalAttention(d_model, n_heads) if own else None

    def forward(
        self,
        query: Float[Tensor, "batch heads keys d_head"],
        key: Float[Tensor, "batch heads keys d_head"],
        value: Float[Tensor, "batch heads keys d_head"],
        output: nn.Module,
        context: SyntaxContext,
        mask: Bool[Tensor, "#batch #heads #keys keys"] | None = None,
        dropout: float = 0.0,
        return_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch keys d_model"], Float[Tensor, "batch heads keys keys"] | None]:
        """Attend, and apply the output layer.

        Args:
            query: Q.
            key: K.
            value: V.
            output: The layer's W_O.
            context: Of the batch; logits of LISA's head are added to it.
            mask: True for valid keys, the same for all queries.
            dropout: Probability of dropping an attention weight.
            return_weights: Return the attention weights; of syntax attention what falls on each value.
        """
        query = self._with_lisa(query, key, mask, context)
        bias = None
        if self.bias is not None:
            bias = self.bias(_needed(context.relations, "relations"), context.active)
        if self.masks is not None:
            values = torch.cat([value, _units(value)], -1) if return_weights else value
            found = self._by_relation(query, key, values, output, context, bias, dropout)
            heads, weights = found.split([value.shape[-1], values.shape[-1] - value.shape[-1]], -1)
        else:
            attention = attend_with_weights if return_weights else attend
            found = attention(query, key, value, mask, False, dropout, bias)
            heads, weights = found if return_weights else (found, None)
        if self.lisa_head is not None and context.injected is not None:
            heads = inject_governors(heads, value, context.injected, self.lisa_head)
            if return_weights:
                weights = inject_governors(weights, _units(value), context.injected, self.lisa_head)
        states = self._project(heads.transpose(1, 2).flatten(2), output, context)
        return states, weights if return_weights else None

    def _with_lisa(self, query: Tensor, key: Tensor, mask: Tensor | None, context: SyntaxContext) -> Tensor:
        """Queries in which those of LISA's head make its plain dot products biaffine."""
        if self.lisa is None or self.lisa_head is None:
            return query
        scaling = query.shape[-1] ** -0.5
        if context.wants_logits:
            check_gradient(context.with_gradient)
            projected = self.lisa(query[:, self.lisa_head])
            logits = (projected @ key[:, self.lisa_head].transpose(-1, -2)).float()
            context.logits.append(logits if mask is None else logits.masked_fill(~mask[:, 0], -torch.inf))
        return self.lisa.substitute(query, self.lisa_head, scaling)

    def _by_relation(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        output: nn.Module,
        context: SyntaxContext,
        bias: Tensor | None,
        dropout: float,
    ) -> Tensor:
        """Heads of syntax attention; columns of values beyond those of queries have no part in α."""
        rules = self.masks
        assert rules is not None, "held by forward"
        topical, size, more = self._topical(context), query.shape[-1], value.shape[-1] - query.shape[-1]
        topical_query = None if topical is None else topical.head_queries(linear_map(output, value)[0])
        if more:  # zeros keep logits as they are
            query, key = F.pad(query, (0, more)), F.pad(key, (0, more))
            topical_query = None if topical_query is None else F.pad(topical_query, (0, more))
        heads, _ = syntax_attention(
            query,
            key,
            value,
            _needed(context.index, "index"),
            topical_query,
            scaling=size**-0.5,
            mode=rules.mode,
            on_empty_row=rules.on_empty_row,
            include_full=rules.gate is not None,
            position_bias=bias,
            dropout=dropout,
            return_weights=False,
            active=context.active,
            gate=None if self.gate is None else self.gate(),
            summation=rules.summation,
        )
        return heads

    def _topical(self, context: SyntaxContext) -> TopicalAttention | None:
        """What weighs the sub-networks: the layer's own, or that of all layers."""
        return (self.topical or context.topical) if self.masks is not None and self.masks.topical else None

    def _project(self, heads: Tensor, output: nn.Module, context: SyntaxContext) -> Tensor:
        """W_O, and W_V of topical attention behind it."""
        if (topical := self._topical(context)) is None:
            return output(heads)
        gate = None if self.gate is None else self.gate()
        return topical.project(heads, *linear_map(output, heads), gate)


def _units(value: Tensor) -> Tensor:
    """Beside values a column for each: attention to it gives the weights."""
    return torch.eye(value.shape[2], dtype=value.dtype, device=value.device).expand(*value.shape[:2], -1, -1)


def _needed(found: RelationIndex | Tensor | None, what: str):  # type: ignore[no-untyped-def]
    if found is None:
        raise ValueError(f"{what}: expected the relations of the batch, got none.")
    return found
