"""The formulas of the collapsed syntax attention, forward and backward, for some queries of some sentences.

For one head, scaled logits s_ij with the largest t_i of a row, c_i = t_i - min(40, max(-40, t_i)),
z_i = min(1, e^(-c_i)), E_ij = e^(s_ij - c_i), W_ij = E_ij - z_i, n valid keys and y_j = u·v_j:

    den_ir = Σ_{j: R_ij = r} W_ij + n z_i     mean_ir = (Σ_{j: R_ij = r} W_ij y_j + z_i Σ_j y_j) / den_ir
    α_i    = softmax over r of mean_ir summed over heads                            β_ir = α_ir / den_ir
    P_ij   = W_ij Σ_trees β_{i,R_ij} + z_i Σ_r β_ir + F_i E_ij                 output_i = Σ_j P_ij v_j

Where masked keys are removed z is 0 and c_i = t_i - min(40, max(0, t_i)). F = α_full / Σ_j E_ij of the full
sub-network, which holds all keys, is multiplied with E: W would drown what is small beside z. A gate g makes
P = g P + (1 - g) P_full. Between the matrix products heads are the last axis, so that sums and look-ups by
relation move whole rows of heads.
Axes: b sentences, h heads, q queries, k keys, r slots of a row (see `relation_index`), d columns of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from syntaxformer.nn.relation_index import RelationIndex, RowIndex

__all__ = ["Block", "Gradients", "KernelOptions", "Sums"]

HEADROOM = 40.0
"""Largest exponent of a row, up or down; logits within it are left as they are, which is the most exact."""

SMALLEST = 1e-30
"""e^-69, stands for a denominator without any key; what it divides is zero."""


@dataclass(frozen=True)
class KernelOptions:
    """What is not part of the graph.

    Args:
        index: Relations of the batch.
        scaling: Factor of query · key.
        multiplicative: Masked keys keep logit 0; otherwise they are removed.
        full_on_empty: Where keys are removed: the slot without any keys attends to all keys.
        uses_full: Whether attention to all keys is needed at all: as a sub-network, in its place, or by a
            gate; if not, all that belongs to it is zero.
        bias: `[batch, keys, slots]`, of `RelationIndex.slot_bias`.
        full_bias: 0 where attention to all keys is a sub-network that takes part, otherwise -inf.
        network_scale: What α adds up to.
        dropout: Probability of dropping an attention weight.
    """

    index: RelationIndex
    scaling: float
    multiplicative: bool
    full_on_empty: bool
    uses_full: bool
    bias: Tensor
    full_bias: float
    network_scale: float
    dropout: float


@dataclass
class Sums:
    """For backward: 1/den, mean `[b, q, r, h]`, those of all keys `[b, q, 1, h]`, α `[b, q, r + 1]`."""

    inverse: Tensor
    mean: Tensor
    inverse_full: Tensor
    mean_full: Tensor
    alpha: Tensor


@dataclass
class Gradients:
    """Of query, key and value `[b, h, ., d]`, of y `[b, k, h]`, logits `[b, h, q, k]` and gate `[h]`."""

    query: Tensor
    key: Tensor
    value: Tensor
    y: Tensor
    logits: Tensor
    gate: Tensor | None


@dataclass(frozen=True)
class Block:
    """Whole sentences, or some queries of one.

    Args:
        options: The same for all blocks.
        rows: Indices of the queries.
        query: `[b, h, q, d]`.
        key: `[b, h, k, d]`.
        value: `[b, h, k, d]`.
        y: `[b, 1, k, h]`, 0 on invalid keys.
        bias: `[b or 1, h, q, k]`.
        valid: `[b, k]`, 1 or 0.
        slot_bias: `[b, q, r]`.
        gate: `[h]`, None for an open one.
        keep: `[b, h, q, k]`, 1 for attention weights that are not dropped.
        padded: Whether any key is invalid.
    """

    options: KernelOptions
    rows: RowIndex
    query: Tensor
    key: Tensor
    value: Tensor
    y: Tensor
    bias: Tensor | None
    valid: Tensor
    slot_bias: Tensor
    gate: Tensor | None
    keep: Tensor | None
    padded: bool

    def forward(self) -> tuple[Tensor, Sums]:
        """Output `[b, h, q, d]` and what the backward pass needs."""
        exp, zero = self._exponentials()
        pairs = exp.new_empty(*self._row_shape, exp.shape[3], 2 * exp.shape[1])
        weights, weighted = pairs.chunk(2, -1)
        torch.sub(exp.permute(0, 2, 3, 1), zero, out=weights)
        if self.padded:
            weights.mul_(self.valid[:, None, :, None])
        torch.mul(weights, self.y, out=weighted)
        sums = self._sums(pairs, exp, zero)
        beta, full = self._coefficients(sums)
        constant = zero * beta.sum(2, keepdim=True)
        attention = self._attention(weights, self._look_up(beta), constant, exp, full)
        return (attention.to(self.value.dtype) @ self.value.contiguous()).mul_(self._kept_scale), sums

    def backward(self, grad: Tensor, grad_alpha: Tensor, sums: Sums) -> Gradients:
        """Gradients from those of the output and of α."""
        grad = grad * self._kept_scale
        exp, zero = self._exponentials()
        weights = _heads_last(exp - zero.permute(0, 3, 1, 2))
        if self.padded:
            weights.mul_(self.valid[:, None, :, None])
        d_attention = self._drop((grad @ self.value.transpose(-1, -2)).to(exp.dtype))
        full_ratio = sums.inverse_full
        if self.options.uses_full:
            full_ratio = full_ratio * _per_row((exp * d_attention).sum(-1))
        row_sum = _per_row(d_attention.sum(-1))
        d_attention = _heads_last(d_attention)
        ratio = self._sum(weights * d_attention).add_(zero * row_sum).mul_(sums.inverse)

        d_logits, d_full = self._topical_gradient(ratio, full_ratio, grad_alpha, sums)
        beta, full = self._coefficients(sums)
        d_numerator, d_full_numerator = d_logits * sums.inverse, d_full * sums.inverse_full
        d_den = (d_numerator * sums.mean).addcmul_(beta, ratio).neg_()
        d_full_den = -(d_full_numerator * sums.mean_full + full * full_ratio)
        d_zero_y = zero * d_numerator.sum(2, keepdim=True)
        constant = zero * beta.sum(2, keepdim=True)

        shares, by_numerator = self._look_up(beta), self._look_up(d_numerator)
        if self.options.uses_full:  # each key stands in one slot of the first tree
            d_den[:, :, : self.options.index.n_tree_slots] += d_full_den
        d_exp = self._look_up(d_den).addcmul_(by_numerator, self.y).addcmul_(shares, d_attention)
        d_y = by_numerator.mul_(weights).sum(1) + d_zero_y.sum(1)
        if self.options.uses_full:
            d_exp.addcmul_(d_full_numerator, self.y).addcmul_(full, d_attention)
            d_y += (d_full_numerator.permute(0, 3, 2, 1) @ exp).permute(0, 3, 2, 1).squeeze(2)
        d_logits = _heads_first(d_exp).mul_(exp)
        attention = self._attention(weights, shares, constant, exp, full)
        d_scores = d_logits.to(self.key.dtype)
        return Gradients(
            query=(d_scores @ self.key.contiguous()).mul_(self.options.scaling),
            key=d_scores.transpose(-1, -2) @ self._scaled_query,
            value=attention.to(grad.dtype).transpose(-1, -2) @ grad,
            y=d_y * self.valid[..., None],
            logits=d_logits,
            gate=self._gate_gradient(ratio, full_ratio, sums),
        )

    def _exponentials(self) -> tuple[Tensor, Tensor]:
        """e^(s - c) `[b, h, q, k]`, 0 on invalid keys, and z `[b, q, 1, h]`."""
        exp = (self._scaled_query @ self.key.transpose(-1, -2)).to(self.y.dtype)
        if self.bias is not None:
            exp += self.bias
        if self.padded:
            exp += torch.zeros_like(self.valid).masked_fill_(self.valid == 0, -torch.inf)[:, None, None]
        top = exp.amax(-1, keepdim=True)
        lowest = -HEADROOM if self.options.multiplicative else 0.0
        shift = (top - top.clamp(lowest, HEADROOM)).masked_fill(top == -torch.inf, 0)
        zero = torch.zeros_like(shift)
        if self.options.multiplicative:  # e^-40 beside 1 is nothing: in a row below it z may stay 1
            zero = shift.neg().exp_().clamp_(SMALLEST, 1)
        return exp.sub_(shift).exp_(), zero.permute(0, 2, 3, 1)

    def _sums(self, pairs: Tensor, exp: Tensor, zero: Tensor) -> Sums:
        """Denominators, topical logits and α."""
        den, numerator = self._sum(pairs).chunk(2, -1)
        n_valid = self.valid.sum(-1)[:, None, None, None]
        inverse = (den + n_valid * zero).clamp_(min=SMALLEST).reciprocal_()
        mean = (numerator + zero * self.y.sum(2, keepdim=True)).mul_(inverse)
        inverse_full = mean_full = exp.new_zeros(*self._row_shape, 1, exp.shape[1])
        if self.options.uses_full:
            inverse_full = _per_row(exp.sum(-1).clamp_(min=SMALLEST).reciprocal_())
            mean_full = (exp @ self.y.permute(0, 3, 2, 1)).permute(0, 2, 3, 1) * inverse_full
        logits, logit_full = mean.sum(-1), mean_full.sum(-1)
        if self.options.full_on_empty:
            logits[..., -1:] = logit_full
        logits, logit_full = logits.add_(self.slot_bias), logit_full + self.options.full_bias
        alpha = torch.cat([logits, logit_full], -1).softmax(-1)
        alpha.mul_(self.options.network_scale * (n_valid[..., 0] > 0))
        return Sums(inverse, mean, inverse_full, mean_full, alpha)

    def _coefficients(self, sums: Sums) -> tuple[Tensor, Tensor]:
        """Gated β `[b, q, r, h]` and that of attention to all keys `[b, q, 1, h]`."""
        beta, full = sums.alpha[..., :-1, None] * sums.inverse, self._alpha_full(sums)[..., None]
        if self.gate is None:
            return beta, full * sums.inverse_full
        return beta.mul_(self.gate), (1 + self.gate * (full - 1)) * sums.inverse_full

    def _alpha_full(self, sums: Sums) -> Tensor:
        """α of attention to all keys, `[b, q, 1]`."""
        full = sums.alpha[..., -1:]
        return full + sums.alpha[..., -2:-1] if self.options.full_on_empty else full

    def _topical_gradient(
        self, ratio: Tensor, full_ratio: Tensor, grad_alpha: Tensor, sums: Sums
    ) -> tuple[Tensor, Tensor]:
        """Of the topical logits `[b, q, r, 1]`, and of that of attention to all keys `[b, q, 1, 1]`."""
        gate = ratio.new_ones(ratio.shape[-1]) if self.gate is None else self.gate
        d_alpha, d_full = ratio @ gate, full_ratio @ gate
        if self.options.full_on_empty:
            d_alpha[..., -1:] = d_full
        d_alpha = torch.cat([d_alpha, d_full], -1).add_(grad_alpha)
        inner = (sums.alpha * d_alpha).sum(-1, keepdim=True) / self.options.network_scale
        d_logits = sums.alpha * (d_alpha - inner)
        d_networks, d_full = d_logits[..., :-1], d_logits[..., -1:]
        if self.options.full_on_empty:
            d_full = d_full + d_networks[..., -1:]
            d_networks = F.pad(d_networks[..., :-1], (0, 1))
        return d_networks[..., None], d_full[..., None]

    def _gate_gradient(self, ratio: Tensor, full_ratio: Tensor, sums: Sums) -> Tensor | None:
        if self.gate is None:
            return None
        syntax = (sums.alpha[..., None, :-1] @ ratio).sum((0, 1, 2))
        return syntax + ((self._alpha_full(sums)[..., None] - 1) * full_ratio).sum((0, 1, 2))

    def _attention(
        self, weights: Tensor, shares: Tensor, constant: Tensor, exp: Tensor, full: Tensor
    ) -> Tensor:
        """P with heads first, after dropout; each key of a row gets the constant `[b, q, 1, h]`."""
        pairs = _heads_first(torch.addcmul(constant, weights, shares))
        if self.options.uses_full:
            pairs.addcmul_(exp, full.permute(0, 3, 1, 2))
        return self._drop(pairs)

    def _drop(self, pairs: Tensor) -> Tensor:
        """[b, h, q, k] with 0 on invalid keys and dropped weights, in place; does not scale the others."""
        if self.padded:
            pairs.mul_(self.valid[:, None, None])
        return pairs if self.keep is None else pairs.mul_(self.keep)

    def _sum(self, pairs: Tensor) -> Tensor:
        """[b, q, k, width] → [b, q, r, width]."""
        return self.rows.sum_by_relation(pairs.flatten(0, 1)).unflatten(0, pairs.shape[:2])

    def _look_up(self, table: Tensor) -> Tensor:
        """[b, q, r, h] → [b, q, k, h]."""
        return self.rows.look_up(table.flatten(0, 1)).unflatten(0, table.shape[:2])

    @property
    def _scaled_query(self) -> Tensor:
        return self.query * self.options.scaling

    @property
    def _kept_scale(self) -> float:
        """What dropout does to the weights that are kept, done to what they are multiplied with."""
        return 1 / (1 - self.options.dropout)

    @property
    def _row_shape(self) -> tuple[int, int]:
        return len(self.query), self.query.shape[2]


def _per_row(sums: Tensor) -> Tensor:
    """[b, h, q] → [b, q, 1, h]."""
    return sums.transpose(1, 2).unsqueeze(2)


def _heads_last(pairs: Tensor) -> Tensor:
    return pairs.permute(0, 2, 3, 1).contiguous()


def _heads_first(pairs: Tensor) -> Tensor:
    return pairs.permute(0, 3, 1, 2).contiguous()
