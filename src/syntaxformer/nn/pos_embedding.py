"""Part-of-speech embeddings for pretrained encoders: at the input (added, joined) or at the classifier.

All of them leave the pretrained model as it is at the start.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

__all__ = ["PosAdd", "PosConcat", "PosLet"]


class PosAdd(nn.Module):
    """h' = e + f_pos, f_pos zero at the start.

    Args:
        n_values: Tags.
        d_model: Width of e.

    Source: Sundararaman et al. (2019), "Syntax-Infused Transformer and BERT", BERT option 1.
    """

    def __init__(self, n_values: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(n_values, d_model)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start anew, at zero."""
        nn.init.zeros_(self.table.weight)

    def forward(
        self, words: Float[Tensor, "batch pieces d_model"], tags: Int[Tensor, "batch pieces"]
    ) -> Float[Tensor, "batch pieces d_model"]:
        """Add the tags' embeddings to those of the pieces."""
        return words + self.table(tags).to(words.dtype)


class _Joined(nn.Module):
    """A table of tags, and an affine map that starts as the identity on what the tags are joined to."""

    def __init__(self, n_values: int, d_model: int, d_pos: int) -> None:
        super().__init__()
        self.table = nn.Embedding(n_values, d_pos)
        self.join = nn.Linear(d_model + d_pos, d_model)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start anew, as documented."""
        self.table.reset_parameters()
        self.join.weight.copy_(torch.eye(*self.join.weight.shape))
        nn.init.zeros_(self.join.bias)

    def _join(self, states: Tensor, embedded: Tensor) -> Tensor:
        """W [states ; embedded] + b, computed in the type of the embeddings, given in that of the states."""
        return self.join(torch.cat([states.to(embedded.dtype), embedded], -1)).to(states.dtype)


class PosConcat(_Joined):
    """h' = W [e ; f_pos] + b; W starts as the identity on e and zero on f_pos.

    Args:
        n_values: Tags.
        d_model: Width of e and of h'.
        d_pos: Width of f_pos.

    Source: Sundararaman et al. (2019), BERT option 2; differs: how W starts.
    """

    def __init__(self, n_values: int, d_model: int, d_pos: int = 20) -> None:
        super().__init__(n_values, d_model, d_pos)

    def forward(
        self, words: Float[Tensor, "batch pieces d_model"], tags: Int[Tensor, "batch pieces"]
    ) -> Float[Tensor, "batch pieces d_model"]:
        """Join the tags' embeddings to those of the pieces."""
        return self._join(words, self.table(tags))


class PosLet(_Joined):
    """C' = W [C ; mean of f_pos over the sentence] + b, C final vector of [CLS]; W starts as in `PosConcat`.

    Args:
        n_values: Tags.
        d_model: Width of C and of C', so that any classifier can follow.
        d_pos: Width of f_pos.

    Source: Patricia et al. (2023), "Linguistic-Enhanced Transformer", section 5: a POS embedding of the task
        "combined with the final hidden vector C"; the mean over pieces and the affine map are our reading.
    """

    def __init__(self, n_values: int, d_model: int, d_pos: int = 20) -> None:
        super().__init__(n_values, d_model, d_pos)

    def forward(
        self,
        final: Float[Tensor, "batch d_model"],
        tags: Int[Tensor, "batch pieces"],
        piece_mask: Bool[Tensor, "batch pieces"] | None = None,
    ) -> Float[Tensor, "batch d_model"]:
        """Join the mean embedding of the tags to the final vector.

        Args:
            final: C.
            tags: Tag of each piece.
            piece_mask: True for pieces that count, not padding or specials; None for all. Without any the
                mean is 0.
        """
        embedded = self.table(tags)
        counted = torch.ones_like(tags) if piece_mask is None else piece_mask
        counted = counted.to(embedded.dtype)
        mean = (embedded * counted[..., None]).sum(1) / counted.sum(1, keepdim=True).clamp(min=1)
        return self._join(final, mean)
