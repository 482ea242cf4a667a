"""Beam search in PyTorch: `generate` of transformers over a `SyntaxTransformer`, a batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from syntaxformer.nn.kernels.freed_memory import keep_freed_memory
from syntaxformer.runs.loading import pick_device
from syntaxformer.translation.collator import source_batch
from syntaxformer.translation.decoder import TranslationCache
from syntaxformer.translation.decoding import FoundPieces
from syntaxformer.translation.length_limit import DecodingConfig, LengthLimit, longest_translations
from syntaxformer.translation.model import SyntaxTransformer
from syntaxformer.translation.model_folder import load_network
from syntaxformer.translation.source import EncodedText, SourceEncoder

__all__ = ["TorchDecoder", "load", "never_output"]


class TorchDecoder:
    """See `decoding.PieceDecoder`.

    Args:
        model: The network, in evaluation mode.
        tokenizer: The tokenizer of its target side.
    """

    n_ahead = 0

    def __init__(self, model: SyntaxTransformer, tokenizer: PreTrainedTokenizerFast) -> None:
        self.model, self.tokenizer = model, tokenizer

    def decode(
        self,
        source: EncodedText,
        rows: Sequence[int],
        settings: DecodingConfig,
        n_best: int = 1,
        scored: bool = False,
    ) -> list[list[FoundPieces]]:
        """See `decoding.PieceDecoder`."""
        if self.model.device.type == "cpu":
            keep_freed_memory()
        found: list[list[FoundPieces]] = []
        for start in range(0, len(rows), settings.batch_size):
            batch_rows = rows[start : start + settings.batch_size]
            found += self._decode_batch(source, batch_rows, settings, n_best, scored)
        return found

    @torch.inference_mode()
    def _decode_batch(
        self, source: EncodedText, rows: Sequence[int], settings: DecodingConfig, n_best: int, scored: bool
    ) -> list[list[FoundPieces]]:
        tokenizer = self.tokenizer
        batch = source_batch(source, rows, self.model.source_pad_id)
        if (batch["input_ids"] == tokenizer.pad_token_id).any():
            # In a vocabulary of its own that may be a word, which `generate` would take for padding.
            batch.setdefault("attention_mask", torch.ones_like(batch["input_ids"]))
        limits = torch.from_numpy(longest_translations(source.text_lengths[rows], settings.max_length_factor))
        batch = {name: tensor.to(self.model.device) for name, tensor in batch.items()}
        sequences = self.model.generate(
            **batch,
            num_beams=settings.beam_size,
            num_return_sequences=n_best,
            length_penalty=settings.length_penalty if settings.beam_size > 1 else 1.0,
            do_sample=False,
            max_new_tokens=int(limits.max()),
            logits_processor=[LengthLimit(limits, tokenizer.eos_token_id, settings.beam_size)],
            suppress_tokens=[tokenizer.pad_token_id, *never_output(tokenizer)],
            past_key_values=TranslationCache(),
        )
        pieces = [self._until_end(one) for one in sequences[:, 1:].tolist()]
        scores = self._score(batch, sequences, settings.length_penalty) if scored else [None] * len(pieces)
        found = [FoundPieces(one, score) for one, score in zip(pieces, scores, strict=True)]
        by_line = [found[start : start + n_best] for start in range(0, len(found), n_best)]
        return [sorted(one, key=lambda best: -(best.score or 0.0)) for one in by_line]

    def _until_end(self, pieces: list[int]) -> list[int]:
        end = self.tokenizer.eos_token_id
        return pieces[: pieces.index(end) + 1] if end in pieces else pieces

    def _score(self, batch: dict[str, Tensor], sequences: Tensor, length_penalty: float) -> list[float]:
        """Log-probability / length ** length_penalty of each row, by one pass over finished translations."""
        n_best = len(sequences) // len(batch["input_ids"])
        repeated = {name: tensor.repeat_interleave(n_best, 0) for name, tensor in batch.items()}
        labels = sequences[:, 1:]
        # `generate` fills up with the end piece where padding has id 0, so padding is what follows an end.
        ends = labels == self.tokenizer.eos_token_id
        made = ends.cumsum(1) - ends.long() == 0
        logits = self.model(**repeated, decoder_input_ids=sequences[:, :-1]).logits
        picked = logits.float().log_softmax(-1).gather(-1, labels[..., None])[..., 0]
        return (picked.where(made, 0.0).sum(1) / made.sum(1) ** length_penalty).tolist()


def load(folder: Path, encoder: SourceEncoder, device: str | None) -> TorchDecoder:
    """Load a folder that `train` wrote.

    Raises:
        CheckpointError: The network cannot be read.
        ConfigError: There is no such device.
    """
    model = load_network(folder, encoder)
    return TorchDecoder(model.eval().to(pick_device(device)), encoder.target_tokenizer)


def never_output(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Start and unknown pieces are no text; a badly trained model could find them likely."""
    pieces = (tokenizer.bos_token_id, tokenizer.unk_token_id)
    return [piece for piece in pieces if isinstance(piece, int) and piece != tokenizer.eos_token_id]
