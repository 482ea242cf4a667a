"""Subwords learned on raw text: byte-pair encoding with visible spaces, so that output needs no detokeniser.

The result is a Hugging Face fast tokenizer; every other fast tokenizer works in its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from syntaxformer.translation.stored import stored_folder

__all__ = ["BOS", "EOS", "PAD", "UNK", "SubwordConfig", "stored_subwords", "train_subwords"]

PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"
SPECIALS = (PAD, BOS, EOS, UNK)
FILE = "tokenizer.json"
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


class SubwordConfig(BaseModel):
    """Subword section of a recipe."""

    model_config = ConfigDict(extra="forbid")

    vocab_size: int = Field(default=10_000, gt=300, description="pieces of a vocabulary, 256 bytes included")
    joint: bool = Field(
        default=True, description="one vocabulary for both languages; false: one of vocab_size for each"
    )
    min_frequency: int = Field(default=2, ge=1, description="a merge must be seen this often")
    tokenizer: str | None = Field(
        default=None, description="folder of a ready tokenizer, used instead of training one; null trains"
    )


def train_subwords(
    lines: Iterable[str], config: SubwordConfig, split_punctuation: bool = True
) -> PreTrainedTokenizerFast:
    """Learn a vocabulary.

    Spaces become part of the piece that follows them ("▁"), punctuation stands alone, and a character that
    was never seen falls back to its UTF-8 bytes, so nothing is lost and nothing is unknown.

    Args:
        lines: Text of one language or both, as subwords will see it.
        config: Size of the vocabulary; a small corpus may give fewer pieces.
        split_punctuation: False for text that is split into words: there " ." is a piece like any word.

    Returns:
        A fast tokenizer that ends each text with `</s>`. Ids 0 to 3 are `<pad>`, `<s>`, `</s>`, `<unk>`.

    Source: Sennrich et al. (2016), byte-pair encoding; Kudo & Richardson (2018) for visible spaces.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=UNK, byte_fallback=True))
    spaces = pre_tokenizers.Metaspace(prepend_scheme="always")
    punctuation = pre_tokenizers.Split(Regex(r"[^\p{L}\p{M}\p{N}▁]"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([spaces, punctuation]) if split_punctuation else spaces
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always"), decoders.Fuse()]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=[*SPECIALS, *BYTES],
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer = _with_bytes_as_pieces(tokenizer)
    end = tokenizer.token_to_id(EOS)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {EOS}", special_tokens=[(EOS, end)])
    return _fast(tokenizer)


def _fast(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, bos_token=BOS, eos_token=EOS, unk_token=UNK
    )


def stored_subwords(
    cache: Path | None, made_from: Mapping[str, Any], train: Callable[[], PreTrainedTokenizerFast]
) -> PreTrainedTokenizerFast:
    """What `train` returns, or what it returned before for the same text and settings.

    Args:
        cache: Folder of the cache; None for the user's.
        made_from: All that decides the vocabulary.
        train: Learns it.

    Raises:
        DataError: The cache cannot be written.
    """

    def build(folder: Path) -> None:
        (folder / FILE).write_text(train().backend_tokenizer.to_str(), "utf-8")

    folder = stored_folder(cache, "subwords", made_from, build)
    return _fast(Tokenizer.from_str((folder / FILE).read_text("utf-8")))


def _with_bytes_as_pieces(tokenizer: Tokenizer) -> Tokenizer:
    """Training reserves bytes as special pieces only, which output would skip and text would match."""
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [piece for piece in state["added_tokens"] if piece["content"] in SPECIALS]
    return Tokenizer.from_str(json.dumps(state))
