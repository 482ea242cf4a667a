"""The attention function that transformers calls in infused layers, registered as "syntax".

It composes what `layers` has; parameters, W_O and the batch's syntax come with the arguments of the layer.
Layers without syntax of their own compute plain attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from syntaxformer.infusion.syntax_batch import SyntaxBatch
from syntaxformer.nn import (
    check_gradient,
    governor_loss,
    inject_governors,
    linear_map,
    relation_bias_graph,
    syntax_attention,
    syntax_attention_graph,
)

__all__ = ["IMPLEMENTATION"]

IMPLEMENTATION = "syntax"
"""Name under which transformers knows the attention and the mask function."""


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
    layer: int
    batch: SyntaxBatch


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
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """What transformers calls: `[batch, heads, pieces, d_head]` in, `[batch, pieces, heads, d_head]` out."""
    if not hasattr(module, "syntax_layer"):  # a plain model that was made from an infused one's config
        others |= {"dropout": dropout, "scaling": scaling, "position_bias": position_bias}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **others)
    if syntax_batch is None:
        raise ValueError(
            "syntax_batch: expected the batch's syntax among the arguments of a layer, got none. "
            "Call the encoder as a whole."
        )
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer = cast("int", module.syntax_layer)
    call = _Call(query, key, value, attention_mask, position_bias, scaling, dropout, layer, syntax_batch)
    # A compiled graph breaks here: what follows looks at values, and leaves what it has seen in the batch.
    run = _run if syntax_batch.infusion.is_exporting else _run_eagerly
    return run(call, sliding_window is not None)


def _run(call: _Call, is_local: bool) -> tuple[Tensor, Tensor | None]:
    """Heads after pieces; and the collapsed attention where that is wanted."""
    batch, position_bias = call.batch, call.bias
    batch.seen.attended = True
    call, logits = _with_lisa(_with_relation_bias(call), position_bias)
    output = _attended(call, is_local)
    if logits is not None:
        _supervise(call, logits)
        output = _pointed(call, output)
    is_recorded = batch.infusion.records_attention
    weights = _weights(call, is_local) if is_recorded or batch.wants_attention else None
    if is_recorded and weights is not None:
        batch.seen.add("attention", call.layer, weights)
    return output.transpose(1, 2), weights


_run_eagerly = torch.compiler.disable(_run, reason="syntax attention indexes the relations of its batch")


def _with_relation_bias(call: _Call) -> _Call:
    infusion = call.batch.infusion
    if str(call.layer) not in infusion.relation_bias:
        return call
    look_up = relation_bias_graph if infusion.is_exporting else None
    active = infusion.active(call.query.device)
    return _plus_bias(call, infusion.relation_bias[str(call.layer)](call.batch.relations, active, look_up))


def _plus_bias(call: _Call, bias: Tensor) -> _Call:
    bias = bias.to(call.query.dtype)
    return replace(call, bias=bias if call.bias is None else call.bias + bias)


def _with_lisa(call: _Call, position_bias: Tensor | None) -> tuple[_Call, Tensor | None]:
    """One head replaced by the biaffine one, and that head's logits; None for them in other layers."""
    infusion = call.batch.infusion
    if str(call.layer) not in infusion.lisa:
        return call, None
    lisa, head = infusion.config.lisa, infusion.lisa[str(call.layer)]
    query, keys = call.query[:, lisa.attn_head], call.key[:, lisa.attn_head]
    if lisa.keys == "model":
        keys = call.key.transpose(1, 2).flatten(2)
    logits = head(query) @ keys.transpose(-1, -2)
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


def _attended(call: _Call, is_local: bool, is_first: bool = True) -> Tensor:
    """Syntax attention in the layers that have it, plain attention in the others."""
    batch, infusion = call.batch, call.batch.infusion
    if call.layer not in infusion.masked_layers:
        return _plain(call)
    masks, topical = infusion.config.masks, infusion.topical_of(call.layer)
    window = call.mask if is_local else None
    if window is not None:
        outside = torch.zeros_like(window, dtype=call.query.dtype).masked_fill(~window, -torch.inf)
        call = _plus_bias(call, outside.expand(-1, call.query.shape[1], -1, -1))
    if (active := infusion.active(call.query.device)) is not None:
        active = F.pad(active, (0, int(infusion.includes_full)), value=True)
    topical_query = None
    if topical is not None:
        weight, _ = linear_map(batch.outputs[call.layer], call.value, is_mapped=False)
        topical_query = topical.head_queries(weight)
        # Columns that `_weights` has added have no part in it.
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
            infusion.includes_full,
            call.bias,
            active,
            infusion.gate_of(call.layer),
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
        include_full=infusion.includes_full,
        position_bias=call.bias,
        dropout=call.dropout,
        return_weights=infusion.records_weights and is_first,
        active=active,
        gate=infusion.gate_of(call.layer),
        summation=masks.summation,
    )
    if weights is not None:
        batch.seen.add("weights", call.layer, weights.detach())
    return output


def _plain(call: _Call) -> Tensor:
    mask = call.mask
    if call.bias is not None:
        bias = call.bias.to(call.query.dtype)
        mask = bias if mask is None else torch.where(mask, bias, torch.finfo(bias.dtype).min)
    return F.scaled_dot_product_attention(
        call.query, call.key, call.value, mask, dropout_p=call.dropout, scale=call.scaling
    )


def _supervise(call: _Call, logits: Tensor) -> None:
    """Note where the biaffine head points, and how well."""
    batch = call.batch
    if batch.key_mask is not None:
        logits = logits.masked_fill(~batch.key_mask[:, None, :], -torch.inf)
    batch.seen.add("pointed_at", call.layer, logits.detach().argmax(-1))
    if batch.governors is not None and batch.infusion.config.lisa.supervised:
        check_gradient(batch.with_gradient and not batch.seen.closed)
        batch.seen.add("governor_losses", call.layer, governor_loss(logits, batch.governors))


def _pointed(call: _Call, output: Tensor) -> Tensor:
    """Have the biaffine head look at given governors, where that is wanted."""
    infusion, governors = call.batch.infusion, call.batch.governors
    if infusion.inject != "gold" or infusion.training or governors is None:
        return output
    return inject_governors(output, call.value, governors, infusion.config.lisa.attn_head)


@torch.no_grad()
def _weights(call: _Call, is_local: bool) -> Tensor:
    """The weights that fall on each value: attend once more, each value with a column of its own.

    Queries and keys are as wide, with zeros, so that logits stay; so does α, which sees the first columns.
    """
    if call.batch.infusion.records_attention:
        logits = call.query @ call.key.transpose(-1, -2) * call.scaling
        logits = logits if call.bias is None else logits + call.bias
        if is_local and call.mask is not None:
            logits = logits.masked_fill(~call.mask, -torch.inf)
        call.batch.seen.add("logits", call.layer, logits)
    width, n_keys = call.value.shape[-1], call.value.shape[2]
    ones = torch.eye(n_keys, dtype=call.value.dtype, device=call.value.device)
    value = torch.cat([call.value, ones.expand(*call.value.shape[:2], -1, -1)], -1)
    query, key = (F.pad(states, (0, n_keys)) for states in (call.query, call.key))
    call = replace(call, query=query, key=key, value=value, dropout=0.0)
    output = _attended(call, is_local, is_first=False)
    if str(call.layer) in call.batch.infusion.lisa:
        output = _pointed(call, output)
    return output[..., width:]


AttentionInterface.register(IMPLEMENTATION, _attend)
AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
