"""Embedding infusion: factor embeddings joined to word embeddings at the input of an encoder.

Which kinds there are, and whether their widths add up, is `infusion_plan`'s business; here is the lookup.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from syntaxformer.nn.infusion_plan import INFUSION_KINDS, WidthPlan

__all__ = ["InfusedEmbedding", "JoinedMap"]


class JoinedMap(nn.Linear):
    """W [e ; f] + b.

    Args:
        width: Columns of [e ; f].
        d_model: Columns of the result.
        n_one_hot: How many of the last of `width` are one-hot: those columns of W are the values' embeddings.
    """

    def __init__(self, width: int, d_model: int, n_one_hot: int = 0) -> None:
        super().__init__(width, d_model)
        self.n_one_hot = n_one_hot


class InfusedEmbedding(nn.Module):
    """h' = [e ; f], e + f or W [e ; f] + b, with f the sum or the concatenation of the factor embeddings.

    For kind `prepend` tags are pieces: those from the size of the word table on are the values of the first
    factor, then those of the next. Kind `pos_encoder` has plain words here.

    Args:
        plan: Widths from `plan_widths`.
        vocab_size: Rows of the word table.
        factor_sizes: Rows of each factor's table.
        padding_id: Piece id whose word embedding is zero and stays so.

    Raises:
        ValueError: A factor of the plan has no size.

    Source: Sundararaman et al. (2019), "Syntax-infused Transformer": h'_m = [e_m ; f_m], f = f^P ⊕ f^c ⊕ f^s;
        Kapadia et al. (2020), "Augmented Transformer for Machine Translation", section 6, for W.
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
        self.sizes = {name: factor_sizes[name] for name in plan.factor_widths}
        self.word = nn.Embedding(vocab_size, plan.word_width, padding_id)
        learned = {name: width for name, width in plan.factors if width is not None}
        if self.kind.join == "encoder":
            learned = {}
        self.factors = nn.ModuleDict(
            {name: nn.Embedding(self.sizes[name], width) for name, width in learned.items()}
        )
        if self.kind.join == "linear":
            n_features = sum(self.sizes[name] if width is None else width for name, width in plan.factors)
            n_one_hot = n_features if self.kind.one_hot else 0
            self.map = JoinedMap(plan.word_width + n_features, plan.d_model, n_one_hot)

    def forward(
        self,
        pieces: Int[Tensor, "batch pieces"],
        factor_ids: Int[Tensor, "batch pieces factors"] | None = None,
    ) -> Float[Tensor, "batch pieces d_model"]:
        """Look up pieces and factors (columns in the order of the plan) and join them.

        Raises:
            ValueError: `factor_ids` has another number of columns than the plan has factors.
        """
        if self.kind.join == "pieces":
            return self._with_tags(pieces)
        word = self.word(pieces)
        if self.kind.join == "encoder" or not self.sizes:
            return word
        features = self._features(factor_ids)
        if self.kind.join == "add":
            return word + features
        joined = torch.cat([word, features], -1)
        return self.map(joined) if self.kind.join == "linear" else joined

    def _features(self, factor_ids: Tensor | None) -> Float[Tensor, "batch pieces width"]:
        n_given = 0 if factor_ids is None else factor_ids.shape[-1]
        if factor_ids is None or n_given != len(self.sizes):
            raise ValueError(f"factor_ids: expected columns {list(self.sizes)}, got {n_given} columns.")
        columns = factor_ids.unbind(-1)
        if self.kind.one_hot:
            sizes = self.sizes.values()
            one_hots = [F.one_hot(ids, size) for ids, size in zip(columns, sizes, strict=True)]
            return torch.cat(one_hots, -1).to(self.word.weight.dtype)
        embedded = [table(ids) for table, ids in zip(self.factors.values(), columns, strict=True)]
        return reduce(torch.add, embedded) if self.kind.merge == "sum" else torch.cat(embedded, -1)

    def _with_tags(self, pieces: Int[Tensor, "batch pieces"]) -> Float[Tensor, "batch pieces d_model"]:
        """Words from their table, tags from one that follows it: the tables of all factors, end to end."""
        n_words = self.word.num_embeddings
        is_tag = pieces >= n_words
        rows = [torch.arange(self.sizes[name], device=pieces.device) for name in self.factors]
        tags = torch.cat([table(ids) for table, ids in zip(self.factors.values(), rows, strict=True)])
        words = self.word(pieces.masked_fill(is_tag, self.word.padding_idx or 0))
        return torch.where(is_tag[..., None], F.embedding((pieces - n_words).clamp(min=0), tags), words)
