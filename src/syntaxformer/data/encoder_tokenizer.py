"""A Hugging Face encoder's own tokenizer as one of a translator's two. Loads no network."""

from __future__ import annotations

from tokenizers import decoders, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from syntaxformer.errors import ConfigError

__all__ = ["encoder_tokenizer"]


def encoder_tokenizer(model: str, target: bool) -> PreTrainedTokenizerFast:
    """Load a tokenizer; its offsets are those of the line as it is given.

    Args:
        model: Folder or name of the encoder.
        target: For the target side: text is ended by one piece, as a decoder needs it, and nothing begins it;
            words are put together from their pieces with one space between, and nothing else is changed.

    Raises:
        ConfigError: It cannot be loaded, is not a fast one, or has no padding and end pieces.
    """
    try:
        loaded = AutoTokenizer.from_pretrained(model, use_fast=True)
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"pretrained_embeddings: expected an encoder, got {model}: {reason}") from error
    bos, eos = loaded.bos_token or loaded.cls_token, loaded.eos_token or loaded.sep_token
    if not loaded.is_fast or loaded.pad_token is None or eos is None:
        raise ConfigError(
            "pretrained_embeddings: expected a fast tokenizer with padding and end pieces, "
            f"got that of {model}."
        )
    backend = loaded.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    if target:
        end = (str(eos), backend.token_to_id(str(eos)))
        if isinstance(backend.decoder, decoders.WordPiece):
            backend.decoder.cleanup = False
        backend.post_processor = processors.TemplateProcessing(single=f"$A {eos}", special_tokens=[end])
    roles = {"pad_token": loaded.pad_token, "bos_token": bos, "eos_token": eos, "unk_token": loaded.unk_token}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, **{role: piece for role, piece in roles.items() if piece is not None}
    )
