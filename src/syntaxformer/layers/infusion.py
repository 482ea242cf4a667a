"""Embedding infusion: factor embeddings joined to word embeddings at the input of an encoder.

`plan_widths` does the arithmetic (492 + 20 = 512) before anything is built, `InfusedEmbedding` the
lookup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

__all__ = ["INFUSION_KINDS", "InfusedEmbedding", "InfusionKind", "WidthPlan", "plan_widths"]


@dataclass(frozen=True)
class InfusionKind:
    """How factors are merged with each other and how the result joins the word embedding."""

    merge: Literal["sum", "concat"]
    join: Literal["add", "concat"]
    default_factors: tuple[str, ...]
    source: str


INFUSION_KINDS: dict[str, InfusionKind] = {
    "none": InfusionKind("sum", "add", (), "baseline"),
    "add": InfusionKind("sum", "add", ("pos",), "e + f_pos: paper 004, system 1; paper 000 for BERT"),
    "concat": InfusionKind("concat", "concat", ("pos", "case", "subword"), "paper 000"),
    "concat_pos": InfusionKind("concat", "concat", ("pos",), "paper 003, low resource"),
    "sum_then_concat": InfusionKind("sum", "concat", ("pos", "case", "subword"), "paper 000, the best found"),
}


@dataclass(frozen=True)
class WidthPlan:
    """Widths that add up: what `plan_widths` found.

    Args:
        kind: A key of `INFUSION_KINDS`.
        d_model: Width of the encoder.
        word_width: Width of the word embedding.
        factors: Name of each factor and width of its embedding. The order is that of the columns of
            `factor_ids`: a sequence, because a JSON file does not keep the order of a mapping.
    """

    kind: str
    d_model: int
    word_width: int
    factors: tuple[tuple[str, int], ...] = ()

    @property
    def factor_widths(self) -> dict[str, int]:
        """Factor name → width, in order."""
        return dict(self.factors)

    def arithmetic(self) -> str:
        """The sum in words, as shown before training and in errors."""
        spec = INFUSION_KINDS[self.kind]
        if spec.join == "add" or not self.factor_widths:
            return f"{self.word_width} (word) = {self.d_model}"
        if spec.merge == "sum":
            names = " + ".join(self.factor_widths)
            features = f"{max(self.factor_widths.values())} ({names}, summed)"
        else:
            features = " + ".join(f"{width} ({name})" for name, width in self.factor_widths.items())
        return f"{self.word_width} (word) + {features} = {self.d_model}"

    def as_dict(self) -> dict[str, Any]:
        """For a model's config; `from_dict` reads it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> WidthPlan:
        """Read what `as_dict` gave, also after JSON turned pairs into lists."""
        return cls(**{**stored, "factors": tuple((name, width) for name, width in stored["factors"])})


def plan_widths(
    kind: str,
    d_model: int,
    factors: Sequence[str] | None = None,
    width: int = 20,
    widths: Mapping[str, int] | None = None,
    word_width: int | None = None,
) -> WidthPlan:
    """Settle the width of every table, or say why they do not add up.

    Args:
        kind: A key of `INFUSION_KINDS`.
        d_model: Width of the encoder.
        factors: Factor names; None for those of the paper that describes the kind.
        width: All factors together, in columns of `d_model`.
        widths: Width of each factor for kinds that concatenate them; None lets the first factor have what the
            others (4 each) leave of `width`.
        word_width: Width of the word embedding; None for what the factors leave.

    Raises:
        ValueError: An unknown kind, a factor without a width or of width 0, or widths that do not add up to
            `d_model`.
    """
    if kind not in INFUSION_KINDS:
        raise ValueError(f"infusion kind: expected one of {', '.join(INFUSION_KINDS)}, got {kind!r}.")
    spec = INFUSION_KINDS[kind]
    factors = list(spec.default_factors if factors is None else factors) if kind != "none" else []
    if kind != "none" and not factors:
        raise ValueError(f"infusion factors: expected at least one for kind {kind!r}, got none.")
    factor_widths = _factor_widths(spec, d_model, factors, width, widths)
    if min(factor_widths.values(), default=1) < 1:
        shown = " + ".join(f"{size} ({name})" for name, size in factor_widths.items())
        raise ValueError(
            f"infusion widths: expected at least 1 for each factor, got {shown}. "
            "Raise infusion.width or give infusion.widths."
        )
    features = 0
    if spec.join == "concat":
        features = sum(factor_widths.values()) if spec.merge == "concat" else width
    word_width = d_model - features if word_width is None else word_width
    plan = WidthPlan(kind, d_model, word_width, tuple(factor_widths.items()))
    if plan.word_width < 1 or plan.word_width + features != d_model:
        total = f"{plan.word_width + features}"
        problem = plan.arithmetic().rsplit(" = ", 1)[0]
        raise ValueError(
            f"infusion widths: expected a word width of at least 1 and a sum of d_model = {d_model}, "
            f"got {problem} = {total}. Change infusion.width, infusion.widths or infusion.word_width."
        )
    return plan


def _factor_widths(
    spec: InfusionKind, d_model: int, factors: Sequence[str], width: int, widths: Mapping[str, int] | None
) -> dict[str, int]:
    if spec.join == "add":
        return dict.fromkeys(factors, d_model)
    if spec.merge == "sum":
        return dict.fromkeys(factors, width)
    if widths is None:
        return {name: 4 if place else width - 4 * (len(factors) - 1) for place, name in enumerate(factors)}
    if set(widths) != set(factors):
        raise ValueError(
            f"infusion.widths: expected one width for each of {list(factors)}, got {dict(widths)}."
        )
    return {name: widths[name] for name in factors}


class InfusedEmbedding(nn.Module):
    """h' = [e ; f] or e + f, with f the sum or the concatenation of the factor embeddings.

    Args:
        plan: Widths from `plan_widths`.
        vocab_size: Rows of the word table.
        factor_sizes: Rows of each factor's table.
        padding_id: Piece id whose word embedding is zero and stays so.

    Raises:
        ValueError: A factor of the plan has no size.

    Source: Sundararaman et al. (2019), "Syntax-infused Transformer": h'_m = [e_m ; f_m], f = f^P ⊕ f^c ⊕ f^s.
    """

    def __init__(
        self, plan: WidthPlan, vocab_size: int, factor_sizes: Mapping[str, int], padding_id: int | None = None
    ) -> None:
        super().__init__()
        if missing := set(plan.factor_widths) - set(factor_sizes):
            raise ValueError(
                f"factor_sizes: expected a size for each factor, got none for {sorted(missing)}."
            )
        self.plan = plan
        self.kind = INFUSION_KINDS[plan.kind]
        self.word = nn.Embedding(vocab_size, plan.word_width, padding_id)
        self.factors = nn.ModuleDict(
            {name: nn.Embedding(factor_sizes[name], width) for name, width in plan.factor_widths.items()}
        )

    def forward(
        self,
        pieces: Int[Tensor, "batch pieces"],
        factor_ids: Int[Tensor, "batch pieces factors"] | None = None,
    ) -> Float[Tensor, "batch pieces d_model"]:
        """Look up pieces and factors (columns in the order of the plan) and join them.

        Raises:
            ValueError: `factor_ids` has another number of columns than the plan has factors.
        """
        word = self.word(pieces)
        if not self.factors:
            return word
        n_given = 0 if factor_ids is None else factor_ids.shape[-1]
        if factor_ids is None or n_given != len(self.factors):
            raise ValueError(f"factor_ids: expected columns {list(self.factors)}, got {n_given} columns.")
        embedded = [table(factor_ids[..., place]) for place, table in enumerate(self.factors.values())]
        features = sum(embedded[1:], embedded[0]) if self.kind.merge == "sum" else torch.cat(embedded, -1)
        return word + features if self.kind.join == "add" else torch.cat([word, features], -1)
