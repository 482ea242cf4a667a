"""What syntax does inside the attention of one layer, in any host.

LISA's head, relation biases and syntax attention can be combined freely. They use the queries, keys and
values that the layer computes anyway, and modules of `nn`. A layer without masks runs its host's attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from syntaxformer.infusion.infusion import SyntaxBatch
from syntaxformer.nn import attend as attend_plainly
from syntaxformer.nn import (
    check_gradient,
    governor_loss,
    inject_governors,
    linear_map,
    syntax_attention,
    syntax_attention_graph,
)
from syntaxformer.nn.kernels.on_cpu import takes_cpu_path

IMPLEMENTATION = "syntax"
"""Name under which transformers knows the attention of infused layers, and its mask function."""


def mask_of_host(*args: Any, attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
    """The host's mask; off the CPU it is not read whether there is padding, so that nothing waits."""
    if attention_mask is not None and not takes_cpu_path(attention_mask.device):
        options["allow_is_bidirectional_skip"] = False
    return sdpa_mask(*args, attention_mask=attention_mask, **options)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of attention by a layer of a host.

    Q, K and V are `[batch, heads, pieces, d_head]`; `mask` is True where a query sees a key, None if it sees
    all; `output_map` returns the weight and bias of W_O as it is now; `plain` is the host's own attention,
    for layers without masks; `is_local` says that the mask is a window.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    bias: Tensor | None
    scaling: float
    dropout: float
    layer: int
    batch: SyntaxBatch
    output_map: Callable[[Tensor], tuple[Tensor, Tensor | None]]
    plain: Callable[[Call], Tensor]
    is_local: bool = False


def attend(call: Call) -> tuple[Tensor, Tensor | None]:
    """Compute the attention of a layer with the syntax that is infused into it.

    Returns:
        `[batch, pieces, heads, d_head]`; and the collapsed attention, `[batch, heads, pieces, pieces]`, if it
        is wanted.

    Source: Bai et al. (2021) for syntax attention, Strubell et al. (2018) for LISA.
    """
    batch, position_bias = call.batch, call.bias
    if not torch.compiler.is_compiling():  # in a graph, a layer that runs again may change nothing outside it
        batch.seen.attended = True
    if str(call.layer) in batch.infusion.relation_bias:
        of_layer = batch.infusion.relation_bias[str(call.layer)]
        call = _plus_bias(call, of_layer(batch.relations, batch.infusion.active, call.query.dtype))
    call, logits = _with_lisa(call, position_bias)
    output = _attended(call)
    if logits is not None and batch.governors is not None:
        _supervise(call, logits, batch.governors)
    output = _pointed(call, output)
    is_recorded = batch.infusion.records_attention
    weights = _weights(call) if is_recorded or batch.wants_attention else None
    if is_recorded and weights is not None:
        batch.seen.add("attention", call.layer, weights)
    return output.transpose(1, 2), weights


def own_layer(batch: SyntaxBatch, layer: int) -> Callable[..., tuple[Tensor, Tensor | None]] | None:
    """What replaces attention and W_O in a layer of our translator; None for a plain layer."""
    return partial(_in_own_layer, batch, layer) if layer in batch.infusion.layers else None


def _in_own_layer(
    batch: SyntaxBatch,
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: nn.Module,
    mask: Tensor | None,
    dropout: float,
) -> tuple[Tensor, Tensor | None]:
    """Attend in a layer of our translator, and apply W_O with W_V of topical attention folded in."""
    output_map = partial(linear_map, output)
    scaling = query.shape[-1] ** -0.5
    call = Call(query, key, value, mask, None, scaling, dropout, layer, batch, output_map, _plain)
    heads, weights = attend(call)
    states, topical = heads.flatten(2), batch.infusion.topical_of(layer)
    if topical is None:
        projected = output(states)
    else:
        projected = topical.project(states, *output_map(states), batch.infusion.gate_of(layer))
    return projected + _beside(call), weights


def _beside(call: Call) -> Tensor | float:
    """What a biaffine head adds that stands beside the others, where no mask or bias reaches it; or 0."""
    infusion, governors = call.batch.infusion, call.batch.governors
    if (head := _lisa(call, is_added=True)) is None:
        return 0.0
    states = (of_heads.transpose(1, 2).flatten(2) for of_heads in (call.query, call.key, call.value))
    gold = governors if infusion.inject == "gold" and not infusion.training else None
    output, logits = head.attend(*states, call.batch.key_mask, gold)
    if governors is not None:
        _supervise(call, logits, governors)
    return head.output(output)


def _lisa(call: Call, is_added: bool = False) -> Any:
    """The layer's biaffine head in the place of another, or beside all; None if there is none."""
    head = dict(call.batch.infusion.lisa.items()).get(str(call.layer))
    return head if head is not None and (head.output is not None) == is_added else None


def _plain(call: Call) -> Tensor:
    states = (call.query, call.key, call.value)
    return attend_plainly(*states, call.mask, False, call.dropout, call.bias, call.scaling)


def _plus_bias(call: Call, bias: Tensor) -> Call:
    bias = bias.to(call.query.dtype)
    return replace(call, bias=bias if call.bias is None else call.bias + bias)


def _with_lisa(call: Call, position_bias: Tensor | None) -> tuple[Call, Tensor | None]:
    """Replace one head by the biaffine one; also return its logits, or None if nothing needs them."""
    lisa, logits = call.batch.infusion.config.lisa, None
    if (head := _lisa(call)) is None:
        return call, None
    if call.batch.governors is not None or lisa.keys == "model":
        keys = call.key[:, lisa.attn_head] if lisa.keys == "head" else call.key.transpose(1, 2).flatten(2)
        logits = head(call.query[:, lisa.attn_head]) @ keys.transpose(-1, -2)
    if lisa.keys == "head":
        call = replace(call, query=head.substitute(call.query, lisa.attn_head, call.scaling))
    else:  # logits of other keys are added as a bias, and the head's query is set to zero
        logits = cast("Tensor", logits)
        is_head = torch.arange(call.query.shape[1], device=logits.device) == lisa.attn_head
        call = replace(call, query=call.query * ~is_head[:, None, None])
        call = _plus_bias(call, is_head[:, None, None] * logits[:, None])
    if logits is not None and position_bias is not None:
        logits = logits + position_bias[:, lisa.attn_head]
    return call, logits


def _attended(call: Call, is_first: bool = True) -> Tensor:
    """Syntax attention in the layers that have it, plain attention in the others."""
    batch, infusion = call.batch, call.batch.infusion
    if call.layer not in infusion.masked_layers:
        return call.plain(call)
    masks, topical = infusion.config.masks, infusion.topical_of(call.layer)
    window = call.mask if call.is_local else None
    if window is not None:
        outside = torch.zeros_like(window, dtype=call.query.dtype).masked_fill(~window, -torch.inf)
        call = _plus_bias(call, outside.expand(-1, call.query.shape[1], -1, -1))
    active, topical_query = infusion.active, None
    if active is not None:
        active += (True,) * infusion.includes_full
    if topical is not None:
        topical_query = topical.head_queries(call.output_map(call.value)[0], topical("direction"))
        if n_more := call.value.shape[-1] - topical_query.shape[-1]:  # columns that `_weights` appends
            topical_query = F.pad(topical_query, (0, n_more))
    options: dict[str, Any] = {
        "scaling": call.scaling,
        "mode": masks.mode,
        "on_empty_row": masks.on_empty_row,
        "max_distance": batch.max_distance,
        "include_full": infusion.includes_full,
        "position_bias": call.bias,
        "active": active,
        "gate": infusion.gate_of(call.layer),
        "summation": masks.summation,
        "dropout": call.dropout,
        "return_weights": infusion.records_weights and is_first,
    }
    states = (call.query, call.key, call.value)
    if torch.compiler.is_compiling():
        relations = batch.relations_within(window)
        output, weights = syntax_attention_graph(*states, relations, topical_query, batch.key_mask, **options)
    else:
        output, weights = syntax_attention(*states, batch.index(window), topical_query, **options)
    if weights is not None:
        batch.seen.add("weights", call.layer, weights.detach())
    return output


def _supervise(call: Call, logits: Tensor, governors: Tensor) -> None:
    """Record where the biaffine head points, and the loss if it is supervised."""
    batch = call.batch
    if batch.key_mask is not None:
        logits = logits.masked_fill(~batch.key_mask[:, None, :], -torch.inf)
    batch.seen.add("pointed_at", call.layer, logits.detach().argmax(-1))
    if batch.infusion.config.lisa.supervised:
        check_gradient(batch.with_gradient and not batch.seen.closed)
        batch.seen.add("governor_losses", call.layer, governor_loss(logits, governors))


def _pointed(call: Call, output: Tensor) -> Tensor:
    """Make the biaffine head attend to the batch's governors, if the infusion asks for it."""
    infusion, governors = call.batch.infusion, call.batch.governors
    if _lisa(call) is None or infusion.training or governors is None or infusion.inject != "gold":
        return output
    return inject_governors(output, call.value, governors, infusion.config.lisa.attn_head)


@torch.no_grad()
def _weights(call: Call) -> Tensor:
    """Compute the weight of each value: attend once more, with a one-hot column appended to each value.

    Queries and keys are padded with zeros to that width, which changes neither the logits nor α.
    """
    if call.batch.infusion.records_attention:
        logits = call.query @ call.key.transpose(-1, -2) * call.scaling
        logits = logits if call.bias is None else logits + call.bias
        if call.is_local and call.mask is not None:
            logits = logits.masked_fill(~call.mask, -torch.inf)
        call.batch.seen.add("logits", call.layer, logits)
    width, n_keys = call.value.shape[-1], call.value.shape[2]
    ones = torch.eye(n_keys, dtype=call.value.dtype, device=call.value.device)
    value = torch.cat([call.value, ones.expand(*call.value.shape[:2], -1, -1)], -1)
    query, key = (F.pad(states, (0, n_keys)) for states in (call.query, call.key))
    call = replace(call, query=query, key=key, value=value, dropout=0.0)
    return _pointed(call, _attended(call, is_first=False))[..., width:]


def attend_in_host(
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
    if key.shape[2] != query.shape[2]:
        raise ValueError(
            f"key: expected as many keys as pieces, {query.shape[2]}, got {key.shape[2]}. Syntax relates "
            "pieces only: do not tune prefixes."
        )
    if (n_sharing := query.shape[1] // key.shape[1]) > 1:  # queries that share keys and values
        key, value = (states.repeat_interleave(n_sharing, 1) for states in (key, value))
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer = cast("int", module.syntax_layer)
    output_map = partial(linear_map, syntax_batch.outputs[layer], is_mapped=False)
    states, is_local = (query, key, value, attention_mask, position_bias), sliding_window is not None
    call = Call(*states, scaling, dropout, layer, syntax_batch, output_map, _plain_in_host, is_local)
    return attend(call)


def _plain_in_host(call: Call) -> Tensor:
    mask = call.mask
    if call.bias is not None:
        bias = call.bias.to(call.query.dtype)
        mask = bias if mask is None else torch.where(mask, bias, torch.finfo(bias.dtype).min)
    states = (call.query, call.key, call.value)
    return F.scaled_dot_product_attention(*states, mask, dropout_p=call.dropout, scale=call.scaling)


AttentionInterface.register(IMPLEMENTATION, attend_in_host)
AttentionMaskInterface.register(IMPLEMENTATION, mask_of_host)
