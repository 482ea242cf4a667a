"""What a translator learns beside translating: auxiliary losses, and how often its answers are right.

They teach in training only; outside it a model's loss is that of translation alone, so that the dev losses of
all systems can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers.modeling_outputs import Seq2SeqLMOutput

from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL
from syntaxformer.nn.lisa import governor_hits

Tallies = dict[str, tuple[int, int]]
"""For each auxiliary task, by the name of its accuracy, how many answers were right, and of how many."""


@dataclass
class TranslationOutput(Seq2SeqLMOutput):
    """What a translator gives.

    Args:
        tallies: See `Tallies`; None without auxiliary tasks.
    """

    tallies: Tallies | None = None


@dataclass(frozen=True)
class Auxiliary:
    """One auxiliary task of one batch; its loss is a mean over what it judges, weighted."""

    name: str
    loss: Float[Tensor, ""]
    right: int
    total: int


def governor_task(
    losses: Sequence[Float[Tensor, ""]],
    pointed_at: Int[Tensor, "batch src"],
    governors: Int[Tensor, "batch src"],
    counted: Bool[Tensor, "batch src"] | None,
    weight: float,
) -> Auxiliary:
    """LISA's heads pointing at governors: mean loss of the heads, hits of the last; None counts all."""
    right, total = governor_hits(pointed_at, governors, counted)
    return Auxiliary("governor_accuracy", weight * torch.stack(list(losses)).mean(), right, total)


def tag_task(
    logits: Float[Tensor, "batch tgt tags"], tag_labels: Int[Tensor, "batch tgt"], weight: float
) -> Auxiliary:
    """The decoder naming the tag of the piece that it is about to write; pieces without a word do not count.

    Source: Kapadia et al. (2020), "Augmented Transformer for Machine Translation", section 2.
    """
    flat, labels = logits.float().flatten(0, 1), tag_labels.flatten()
    losses = F.cross_entropy(flat, labels, ignore_index=IGNORED_LABEL, reduction="sum")
    counted = labels != IGNORED_LABEL
    right = int((flat.detach().argmax(-1) == labels)[counted].sum())
    total = int(counted.sum())
    return Auxiliary("target_pos_accuracy", weight * losses / max(total, 1), right, total)
