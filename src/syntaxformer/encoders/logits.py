"""Outputs of a classifier for many examples, in an order of batches that depends on the examples alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.text_labels import TextLabels

__all__ = ["batch_logits", "decide"]


@torch.no_grad()
def batch_logits(
    model: PreTrainedModel,
    collate: Callable[[list[Any]], dict[str, Tensor]],
    examples: Sequence[Any],
    batch_size: int,
    text_labels: TextLabels | None = None,
) -> Tensor:
    """Logits of examples, long ones first so that little is padded.

    Args:
        model: The network; its mode is restored.
        collate: Examples to a batch.
        examples: `SyntaxExample`s.
        batch_size: Examples together.
        text_labels: Scores the labels of a text-to-text model; None for a model with a classifier.

    Returns:
        `[examples, labels]`, fp32, on the CPU.

    Raises:
        ConfigError: They are not finite: training went astray.
    """
    was_training = model.training
    model.eval()
    order = sorted(range(len(examples)), key=lambda row: -sum(len(s.text) for s in examples[row].segments))
    parts: list[Tensor] = []
    for start in range(0, len(order), batch_size):
        batch = collate([examples[row] for row in order[start : start + batch_size]])
        batch.pop("labels", None)
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        logits = model(**batch).logits if text_labels is None else text_labels(model, batch)
        parts.append(logits.float().cpu())
    model.train(was_training)
    found = torch.cat(parts)
    if not torch.isfinite(found).all():
        raise ConfigError(
            "training.learning_rate: expected one that keeps outputs finite, got NaN or infinity. Lower it, "
            "or training.infusion_learning_rate."
        )
    restored = torch.empty_like(found)
    restored[torch.tensor(order)] = found
    return restored


def decide(
    logits: Tensor,
    score_range: tuple[float, float] | None = None,
    score_scale: tuple[float, float] | None = None,
) -> list[int] | list[float]:
    """Class numbers, or scores where there is one output, clipped to their range.

    Args:
        logits: `[examples, labels]`.
        score_range: Smallest and largest score.
        score_scale: Mean and standard deviation of the scores, where the output is in units of these.
    """
    if logits.shape[1] > 1:
        return logits.argmax(1).tolist()
    scores = logits[:, 0]
    if score_scale is not None:
        scores = scores * score_scale[1] + score_scale[0]
    return (scores if score_range is None else scores.clamp(*score_range)).tolist()
