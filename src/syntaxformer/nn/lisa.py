"""LISA: an attention head that points at governors, supervised or not, alone or inside other attention.

The positions to point at come with the batch (`syntax.inputs`); `infusion` decides which layers and heads
point.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from syntaxformer.nn.attention import masked_softmax


class BiaffineHead(nn.Module):
    """softmax(Q U Kᵀ) V, a head of attention that can be taught to point at governors.

    Args:
        d_query: Columns of Q: those of a head, or of the whole state.
        d_key: Columns of K; None for d_query. If both are equal, U starts as I · scaling, so that the head is
            the scaled dot product of a pretrained model; otherwise normal, with the standard deviation
            1 / √(d_query d_key).
        scaling: Factor of that product; None for 1 / √d.
        d_output: Columns of an output layer of its own, which starts at zero; None for none.

    Source: Strubell et al. (2018), "Linguistically-Informed Self-Attention", section 3.2; differs: Q, K and V
    are those of the head it replaces, so that only U is new (Bai et al., 2021, section 5.1: "only adds a
    trainable matrix"), or those of all heads, if it is added (Kapadia et al., 2020: "add one LISA head").
    """

    def __init__(
        self,
        d_query: int,
        d_key: int | None = None,
        scaling: float | None = None,
        d_output: int | None = None,
    ) -> None:
        super().__init__()
        self.output = None if d_output is None else nn.Linear(d_query, d_output, bias=False)
        self.scaling = d_query**-0.5 if scaling is None else scaling
        self.weight = nn.Parameter(torch.empty(d_query, d_query if d_key is None else d_key))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise again, as documented."""
        if self.output is not None:
            nn.init.zeros_(self.output.weight)
        d_query, d_key = self.weight.shape
        if d_key == d_query:
            self.weight.copy_(torch.eye(d_query) * self.scaling)
        else:
            self.weight.copy_(torch.randn(d_query, d_key) * (d_query * d_key) ** -0.5)

    def forward(self, query: Float[Tensor, "batch pieces d_query"]) -> Float[Tensor, "batch pieces d_key"]:
        """Q U: the query whose plain dot products with K are this head's logits."""
        return (query.to(self.weight.dtype) @ self.weight).to(query.dtype)

    def attend(
        self,
        query: Float[Tensor, "batch pieces d_query"],
        key: Float[Tensor, "batch pieces d_key"],
        value: Float[Tensor, "batch pieces d_value"],
        key_mask: Bool[Tensor, "batch pieces"] | None = None,
        governors: Int[Tensor, "batch pieces"] | None = None,
    ) -> tuple[Float[Tensor, "batch pieces d_value"], Float[Tensor, "batch pieces pieces"]]:
        """Attend; a piece with a position in `governors` (gold or from a parser) attends to that alone.

        The query is Q of the head, or the states. Without any valid key the output is zero. `governors` are
        those of `syntax.governor_targets`, negative for pieces that attend as usual.

        Returns:
            The output, and the logits that `governor_loss` takes (-inf on invalid keys).
        """
        logits = self(query) @ key.transpose(-1, -2)
        valid = logits.new_ones(1, 1, key.shape[1], dtype=torch.bool)
        if key_mask is not None:
            valid = key_mask[:, None, :]
        output = masked_softmax(logits, valid) @ value
        if governors is not None:
            output = inject_governors(output[:, None], value[:, None], governors, 0)[:, 0]
        return output, logits.masked_fill(~valid, -torch.inf)

    def substitute(
        self, query: Float[Tensor, "batch heads pieces d_head"], attn_head: int, scaling: float
    ) -> Float[Tensor, "batch heads pieces d_head"]:
        """Replace the queries of one head, so that any attention computes this head in its place.

        `scaling` is the factor of QKᵀ in that attention, usually 1/√d_head; it is undone here.
        """
        replaced = self(query[:, attn_head]).unsqueeze(1) / scaling
        return torch.cat([query[:, :attn_head], replaced, query[:, attn_head + 1 :]], 1)


def inject_governors(
    output: Float[Tensor, "batch heads pieces d_head"],
    value: Float[Tensor, "batch heads pieces d_head"],
    governors: Int[Tensor, "batch pieces"],
    attn_head: int,
) -> Float[Tensor, "batch heads pieces d_head"]:
    """Let one head attend to the governor alone: one-hot attention.

    `governors` are positions of pieces, negative for pieces that keep their output.

    Source: Strubell et al. (2018), section 3.3: gold or predicted parses at test time.
    """
    pointed_at = value[:, attn_head].gather(
        1, governors.clamp(min=0)[..., None].expand_as(value[:, attn_head])
    )
    replaced = torch.where(governors[..., None] >= 0, pointed_at, output[:, attn_head])
    return torch.cat([output[:, :attn_head], replaced.unsqueeze(1), output[:, attn_head + 1 :]], 1)


def governor_loss(
    logits: Float[Tensor, "batch pieces pieces"], targets: Int[Tensor, "batch pieces"]
) -> Float[Tensor, ""]:
    """Mean cross-entropy of the pieces that have a target; 0 if none has.

    Source: Strubell et al. (2018), section 3.4.
    """
    supervised = targets >= 0
    # A row of padding has no finite logit, whose gradient would not be a number.
    logits = logits.masked_fill(~supervised[..., None], 0.0).float().flatten(0, 1)
    losses = F.cross_entropy(
        logits, targets.flatten().to(torch.int64).clamp(min=-1), ignore_index=-1, reduction="sum"
    )
    return losses / supervised.sum().clamp(min=1)


def check_gradient(expected: bool) -> None:
    """Refuse reentrant checkpointing around a supervised head, whose loss would then have no gradients.

    This kind of checkpointing first runs layers without gradients, and the loss is computed in that run.
    `expected` is whether the forward pass outside the layer records gradients.

    Raises:
        ValueError: Gradients are recorded outside the layer but not inside.
    """
    if expected and not torch.is_grad_enabled():
        raise ValueError(
            "gradient checkpointing: expected use_reentrant=False with a supervised lisa head, got True. "
            'Pass gradient_checkpointing_kwargs={"use_reentrant": False}.'
        )


def governor_hits(
    pointed_at: Int[Tensor, "batch pieces"],
    targets: Int[Tensor, "batch pieces"],
    counted: Bool[Tensor, "batch pieces"] | None = None,
) -> tuple[Int[Tensor, ""], Int[Tensor, ""]]:
    """Count the pieces that point right and all that have a target; their quotient is the accuracy.

    The head points where its logits are the largest; targets are those of `syntax.governor_targets`. If only
    `first_pieces` are counted, the quotient is the unlabelled attachment score of words.
    """
    of_interest = targets >= 0 if counted is None else (targets >= 0) & counted
    right = (pointed_at == targets) & of_interest
    return right.sum(), of_interest.sum()
