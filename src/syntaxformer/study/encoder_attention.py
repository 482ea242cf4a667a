"""Self-attention of a classifier's encoder as arrays: which pieces a piece looks at, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.classifier import Classifier, annotate_examples
from syntaxformer.encoders.tables import TextExample

__all__ = ["EncoderAttention", "encoder_attention"]


@dataclass(frozen=True)
class EncoderAttention:
    """Self-attention for one text, or pair.

    Args:
        pieces: `[pieces]`.
        weights: `[layers, heads, pieces, pieces]`, each row sums to 1; of an infused layer what all its
            sub-networks together attend to.
    """

    pieces: list[str]
    weights: NDArray[np.float32]


@torch.no_grad()
def encoder_attention(classifier: Classifier, text: str | tuple[str, str]) -> EncoderAttention:
    """Run one text through a classifier's encoder and look at its attention.

    Args:
        classifier: A fine-tuned model, infused or plain.
        text: A text, or a pair where the model was trained on pairs.

    Raises:
        ConfigError: The model does not tell its attention.
    """
    texts = (text,) if isinstance(text, str) else text
    example = TextExample(tuple(" ".join(one.split()) for one in texts))
    batch = classifier.collator(annotate_examples([example], classifier.annotator, False, cached=False))
    pieces = classifier.collator.tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
    infusion = getattr(classifier.model, "infusion", None)
    if infusion is not None and infusion.attends:
        with infusion.record(attention=True):
            classifier.predict([text])
        seen = infusion.seen.attention
        layers = [one for layer in sorted(seen) for one in seen[layer]]
    else:
        layers = _eager(classifier, batch)
    return EncoderAttention(pieces, torch.stack([one[0] for one in layers]).float().cpu().numpy())


def _eager(classifier: Classifier, batch: dict[str, Tensor]) -> list[Tensor]:
    """Attention of a plain encoder, which only the plain kernel gives."""
    model: Any = classifier.model
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model.base_model
    before = encoder.config._attn_implementation
    try:
        encoder.set_attn_implementation("eager")
        output = encoder(
            **{name: tensor.to(model.device) for name, tensor in batch.items()}, output_attentions=True
        )
    finally:
        encoder.set_attn_implementation(before)
    if not (found := output.attentions) or any(one is None for one in found):
        raise ConfigError(
            f"model: expected an encoder that tells its attention, got {type(encoder).__name__}, "
            "which does not."
        )
    return list(found)
