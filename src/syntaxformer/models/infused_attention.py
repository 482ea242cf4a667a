"""The attention function that transformers calls in infused layers, registered as "syntax".

It composes what `layers` has; parameters come from `Infusion`, the batch's syntax from the layer's arguments.
Layers without syntax of their own compute plain attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from syntaxformer.layers import (
    RelationBias,
    check_gradient,
    governor_loss,
    inject_governors,
    relation_bias,
    relation_bias_graph,
    syntax_attention,
    syntax_attention_graph,
)
from syntaxformer.models.infusion import Infusion, includes_full
from syntaxformer.models.syntax_batch import SyntaxBatch

__all__ = ["IMPLEMENTATION", "FoldedLinear", "Place"]

IMPLEMENTATION = "syntax"
"""Name under which transformers knows the attention and the mask function."""


@dataclass(eq=False)
class Place:
    """Where an attention module or its W_O stands: not a module, so that no parameter changes its name.

    Args:
        infusion: Of the model.
        layer: Number of the layer.
        output: W_O.
    """

    infusion: Infusion
    layer: int
    output: nn.Linear

    @property
    def key(self) -> str:
        """The layer's name among parameters."""
        return str(self.layer)


class FoldedLinear(nn.Linear):
    """W_O that has W_V of topical attention folded in. Takes over an existing layer and its parameters."""

    place: Place

    @classmethod
    def take_over(cls, linear: nn.Linear, place: Place) -> None:
        """Make an existing layer one of these: same object, same parameters, same names."""
        linear.__class__ = cls
        linear.place = place

    def forward(self, input: Tensor) -> Tensor:
        """Apply W_O, then W_V behind the layer's gate."""
        infusion, layer = self.place.infusion, self.place.layer
        return infusion.topical_of(layer).project(input, self.weight, self.bias, infusion.gate_of(layer))


@dataclass(frozen=True, eq=False)
class _Call:
    """Arguments of one call of attention."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    bias: Tensor | None
    scaling: float
    dropout: float


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    sliding_window: int | None = None,
    syntax_batch: SyntaxBatch | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """What transformers calls: `[batch, heads, pieces, d_head]` in, `[batch, pieces, heads, d_head]` out."""
    place = cast("Place", module.place)
    if syntax_batch is None:
        raise ValueError(
            "syntax_batch: expected the batch's syntax among the arguments of a layer, got none. "
            "Call the encoder as a whole."
        )
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    call = _Call(query, key, value, attention_mask, position_bias, scaling, dropout)
    call, logits = _with_lisa(
        place, _with_relation_bias(place, call, syntax_batch), syntax_batch, position_bias
    )
    output = _attended(place, call, syntax_batch, sliding_window is not None)
    if logits is not None:
        _supervise(place, logits, syntax_batch)
        output = _pointed(place, call, output, syntax_batch)
    if place.infusion.records_attention:
        _record_attention(place, call, syntax_batch, sliding_window is not None)
    return output.transpose(1, 2), None


def _with_relation_bias(place: Place, call: _Call, batch: SyntaxBatch) -> _Call:
    infusion = place.infusion
    if place.key not in infusion.relation_bias:
        return call
    bias = cast("RelationBias", infusion.relation_bias[place.key])
    weight = bias.weight_of(infusion.active if infusion.left_out else None)
    look_up = relation_bias_graph if infusion.is_exporting else relation_bias
    return _plus_bias(call, look_up(batch.relations, weight))


def _plus_bias(call: _Call, bias: Tensor) -> _Call:
    bias = bias.to(call.query.dtype)
    return replace(call, bias=bias if call.bias is None else call.bias + bias)


def _with_lisa(
    place: Place, call: _Call, batch: SyntaxBatch, position_bias: Tensor | None
) -> tuple[_Call, Tensor | None]:
    """One head replaced by the biaffine one, and that head's logits; None for them in other layers."""
    infusion = place.infusion
    if place.key not in infusion.lisa:
        return call, None
    lisa, head = infusion.config.lisa, infusion.lisa[place.key]
    query, keys = call.query[:, lisa.attn_head], call.key[:, lisa.attn_head]
    if lisa.keys == "model":
        keys = call.key.transpose(1, 2).flatten(2)
    logits = head.project(query) @ keys.transpose(-1, -2)
    if lisa.keys == "head":
        call = replace(call, query=head.substitute(call.query, lisa.attn_head, call.scaling))
    else:
        call = _logits_of_head(call, lisa.attn_head, logits)
    return call, logits if position_bias is None else logits + position_bias[:, lisa.attn_head]


def _logits_of_head(call: _Call, attn_head: int, logits: Tensor) -> _Call:
    """A head whose keys are not those of attention: its logits stand in the bias, its query is zero."""
    n_heads = call.query.shape[1]
    chosen = torch.arange(n_heads, device=logits.device) == attn_head
    call = replace(call, query=call.query * ~chosen[:, None, None])
    return _plus_bias(call, chosen[:, None, None] * logits[:, None])


def _attended(place: Place, call: _Call, batch: SyntaxBatch, is_local: bool, is_first: bool = True) -> Tensor:
    """Syntax attention in the layers that have it, plain attention in the others."""
    infusion = place.infusion
    if place.layer not in infusion.masked_layers:
        return _plain(call)
    masks, topical = infusion.config.masks, infusion.topical_of(place.layer)
    window = call.mask if is_local else None
    if window is not None:
        outside = torch.zeros_like(window, dtype=call.query.dtype).masked_fill(~window, -torch.inf)
        call = _plus_bias(call, outside.expand(-1, call.query.shape[1], -1, -1))
    active = None
    if infusion.left_out:
        active = F.pad(infusion.active, (0, int(includes_full(infusion.config))), value=True)
    topical_query = None if topical is None else topical.head_queries(place.output.weight)
    if topical_query is not None:
        # Columns that `_record_attention` has added have no part in it.
        topical_query = F.pad(topical_query, (0, call.value.shape[-1] - topical_query.shape[-1]))
    if infusion.is_exporting:
        return syntax_attention_graph(
            call.query,
            call.key,
            call.value,
            batch.relations if window is None else batch.local_relations(window),
            topical_query,
            batch.key_mask,
            call.scaling,
            masks.mode,
            masks.on_empty_row,
            batch.max_distance,
            includes_full(infusion.config),
            call.bias,
            active,
            infusion.gate_of(place.layer),
            masks.summation,
        )
    output, weights = syntax_attention(
        call.query,
        call.key,
        call.value,
        batch.index if window is None else batch.local_index(window),
        topical_query,
        scaling=call.scaling,
        mode=masks.mode,
        on_empty_row=masks.on_empty_row,
        include_full=includes_full(infusion.config),
        position_bias=call.bias,
        dropout=call.dropout,
        return_weights=infusion.records_weights and is_first,
        active=active,
        gate=infusion.gate_of(place.layer),
        summation=masks.summation,
    )
    if weights is not None:
        batch.seen.add("weights", place.layer, weights.detach())
    return output


def _plain(call: _Call) -> Tensor:
    mask = call.mask
    if call.bias is not None:
        bias = call.bias.to(call.query.dtype)
        mask = bias if mask is None else torch.where(mask, bias, torch.finfo(bias.dtype).min)
    return F.scaled_dot_product_attention(
        call.query, call.key, call.value, mask, dropout_p=call.dropout, scale=call.scaling
    )


def _supervise(place: Place, logits: Tensor, batch: SyntaxBatch) -> None:
    """Note where the biaffine head points, and how well."""
    if batch.key_mask is not None:
        logits = logits.masked_fill(~batch.key_mask[:, None, :], -torch.inf)
    batch.seen.add("pointed_at", place.layer, logits.detach().argmax(-1))
    if batch.governors is not None and place.infusion.config.lisa.supervised:
        check_gradient(batch.with_gradient and not batch.seen.closed)
        batch.seen.add("governor_losses", place.layer, governor_loss(logits, batch.governors))


def _pointed(place: Place, call: _Call, output: Tensor, batch: SyntaxBatch) -> Tensor:
    """Have the biaffine head look at given governors, where that is wanted."""
    infusion = place.infusion
    if infusion.inject != "gold" or infusion.training or batch.governors is None:
        return output
    return inject_governors(output, call.value, batch.governors, infusion.config.lisa.attn_head)


@torch.no_grad()
def _record_attention(place: Place, call: _Call, batch: SyntaxBatch, is_local: bool) -> None:
    """The weights that fall on each value: attend once more, each value with a column of its own.

    Queries and keys are as wide, with zeros, so that logits stay; so does α, which sees the first columns.
    """
    logits = call.query @ call.key.transpose(-1, -2) * call.scaling
    logits = logits if call.bias is None else logits + call.bias
    if is_local and call.mask is not None:
        logits = logits.masked_fill(~call.mask, -torch.inf)
    batch.seen.add("logits", place.layer, logits)
    width, n_keys = call.value.shape[-1], call.value.shape[2]
    ones = torch.eye(n_keys, dtype=call.value.dtype, device=call.value.device)
    value = torch.cat([call.value, ones.expand(*call.value.shape[:2], -1, -1)], -1)
    query, key = (F.pad(states, (0, n_keys)) for states in (call.query, call.key))
    call = replace(call, query=query, key=key, value=value, dropout=0.0)
    output = _attended(place, call, batch, is_local, is_first=False)
    if place.key in place.infusion.lisa:
        output = _pointed(place, call, output, batch)
    batch.seen.add("attention", place.layer, output[..., width:])


AttentionInterface.register(IMPLEMENTATION, _attend)
AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
