"""A Hugging Face tokenizer as one of a translator's, and how it ends a line. Loads no network."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer, decoders, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from syntaxformer.base.errors import ConfigError

__all__ = ["encoder_tokenizer", "ended_by_one_piece"]

_PROBE = "a line"


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
        raise ConfigError(f"pretrained_embeddings: expected an encoder at {model}, got: {reason}") from error
    bos, eos = loaded.bos_token or loaded.cls_token, loaded.eos_token or loaded.sep_token
    if not loaded.is_fast or loaded.pad_token is None or eos is None:
        raise ConfigError(
            "pretrained_embeddings: expected a fast tokenizer with padding and end pieces, "
            f"got that of {model}."
        )
    backend = _whole_lines(loaded)
    if target:
        if isinstance(backend.decoder, decoders.WordPiece):
            backend.decoder.cleanup = False
        _end_with(backend, str(eos))
    return _fast(backend, loaded, bos, eos)


def ended_by_one_piece(loaded: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The tokenizer, with lines as their pieces and one end piece: nothing before them, no cut, no padding.

    Args:
        loaded: A fast tokenizer with padding and end pieces. One that ends lines so keeps its template.
    """
    backend, eos = _whole_lines(loaded), loaded.eos_token
    bare = backend.encode(_PROBE, add_special_tokens=False).ids
    if backend.encode(_PROBE).ids == [*bare, loaded.eos_token_id]:
        return loaded
    _end_with(backend, str(eos))
    return _fast(backend, loaded, loaded.bos_token, eos)


def _whole_lines(loaded: PreTrainedTokenizerFast) -> Tokenizer:
    """The tokenizer's backend, without the truncation and padding that it was stored with."""
    backend = loaded.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return backend


def _end_with(backend: Tokenizer, end: str) -> None:
    special = (end, backend.token_to_id(end))
    backend.post_processor = processors.TemplateProcessing(single=f"$A {end}", special_tokens=[special])


def _fast(backend: Tokenizer, loaded: PreTrainedTokenizerFast, bos: Any, eos: Any) -> PreTrainedTokenizerFast:
    roles = {"pad_token": loaded.pad_token, "bos_token": bos, "eos_token": eos, "unk_token": loaded.unk_token}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, **{role: piece for role, piece in roles.items() if piece is not None}
    )
