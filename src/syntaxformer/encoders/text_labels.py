"""Classification by a text-to-text model: it learns to write a label, and the likeliest label is its answer.

Labels are scored, not generated: every label gets a probability, and nothing else can be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

__all__ = ["WORDS_OF_NUMBERS", "TextLabels", "label_words"]

WORDS_OF_NUMBERS = {"0": "false", "1": "true"}
"""What is written for the labels of tasks with two numbered classes."""

IGNORED = -100


def label_words(labels: Sequence[str]) -> tuple[str, ...]:
    """The text that stands for each label."""
    numbered = set(labels) == set(WORDS_OF_NUMBERS)
    return tuple(WORDS_OF_NUMBERS[label] for label in labels) if numbered else tuple(labels)


class TextLabels:
    """Log-probabilities of labels as texts.

    Args:
        tokenizer: The model's.
        words: Text of each label.
    """

    def __init__(self, tokenizer: Any, words: Sequence[str]) -> None:
        written = tokenizer(text_target=list(words), padding="longest", return_tensors="pt")
        self.pieces = written["input_ids"].masked_fill(written["attention_mask"] == 0, IGNORED)

    def __call__(self, model: PreTrainedModel, batch: dict[str, Tensor]) -> Tensor:
        """Log P(label | text), `[batch, labels]`; the sum over the label's pieces, its end included.

        Args:
            model: An encoder-decoder.
            batch: Its inputs.
        """
        rows, given = len(batch["input_ids"]), batch
        found: list[Tensor] = []
        for pieces in self.pieces.to(batch["input_ids"].device):
            labels = pieces[None].expand(rows, -1)
            output = model(**given, labels=labels.contiguous())
            # Labels differ in the decoder only: the encoder runs for the first of them.
            states = (output.encoder_last_hidden_state,)
            given = {"encoder_outputs": states, "attention_mask": batch["attention_mask"]}
            picked = output.logits.float().log_softmax(-1).gather(-1, labels.clamp_min(0)[..., None])[..., 0]
            found.append(picked.where(labels != IGNORED, 0.0).sum(1))
        return torch.stack(found, 1)
