"""Auxiliary tasks of a translator: their losses and accuracies.

The losses count in training only. Outside training the loss is that of translation alone, so that the dev
losses of all systems can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from transformers.modeling_outputs import Seq2SeqLMOutput

from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL

Tallies = dict[str, tuple[Tensor, Tensor]]
"""Name of each auxiliary task's accuracy → (number of right answers, number of answers), on the device."""


@dataclass
class TranslationOutput(Seq2SeqLMOutput):
    """Output of a translator; its tallies are None without auxiliary tasks."""

    tallies: Tallies | None = None


CACHE = "cache" if "cache" in {field.name for field in fields(Seq2SeqLMOutput)} else "past_key_values"
"""The name that the installed transformers gives a decoder's cache: `cache` from 5.24 on."""


def shift_right(labels: Int[Tensor, "batch tgt"], config: Any) -> Int[Tensor, "batch tgt"]:
    """What a decoder reads: its start piece and the labels but the last; padding where they are ignored."""
    shifted = labels.roll(1, dims=1)
    shifted = shifted.masked_fill(shifted == IGNORED_LABEL, config.pad_token_id)
    shifted[:, 0] = config.decoder_start_token_id
    return shifted


@dataclass(frozen=True)
class Auxiliary:
    """One auxiliary task on one batch; its loss is a weighted mean over the judged pieces."""

    name: str
    loss: Float[Tensor, ""]
    right: Int[Tensor, ""]
    total: Int[Tensor, ""]


def label_task(
    name: str, logits: Float[Tensor, "batch tgt labels"], labels: Int[Tensor, "batch tgt"], weight: float
) -> Auxiliary:
    """The decoder predicts labels, such as the tag of its next piece; those of -100 do not count.

    Source: Kapadia et al. (2020), "Augmented Transformer for Machine Translation", section 2.
    """
    flat, labels = logits.float().flatten(0, 1), labels.flatten()
    losses = F.cross_entropy(flat, labels, ignore_index=IGNORED_LABEL, reduction="sum")
    counted = labels != IGNORED_LABEL
    right, total = ((flat.detach().argmax(-1) == labels) & counted).sum(), counted.sum()
    return Auxiliary(f"{name}_accuracy", weight * losses / total.clamp(min=1), right, total)
