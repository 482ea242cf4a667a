"""Beam search and sampling in PyTorch, with our own translators and pretrained ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.generation import LogitsProcessor

from syntaxformer.nn.kernels.memory import keep_freed_memory
from syntaxformer.runs.loading import longest_input
from syntaxformer.translation.auxiliary import CACHE
from syntaxformer.translation.decoding import (
    Hypothesis,
    Search,
    batches_of,
    longest_translations,
    n_best_lists,
    never_output,
    normalised,
    source_pad_id,
)
from syntaxformer.translation.model import TranslationCache
from syntaxformer.translation.source import EncodedText, source_batch


class TorchDecoder:
    """Beam search by the method `generate` of transformers, one batch at a time."""

    n_ahead = 0

    def __init__(self, model: PreTrainedModel, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.longest = longest_input(model)

    def decode(self, source: EncodedText, rows: Sequence[int], search: Search) -> list[list[Hypothesis]]:
        """See `PieceDecoder`."""
        if self.model.device.type == "cpu":
            keep_freed_memory()
        found: list[list[Hypothesis]] = []
        for batch in batches_of(source.lengths[list(rows)], search.batch_size):
            found += self._decode_batch(source, rows[batch], search)
        return found

    @torch.inference_mode()
    def _decode_batch(
        self, source: EncodedText, rows: Sequence[int], search: Search
    ) -> list[list[Hypothesis]]:
        tokenizer, n_beams, n_best = self.tokenizer, search.beam_size, search.n_best
        if search.temperature is not None:
            rows, n_beams, n_best = np.repeat(rows, n_best).tolist(), 1, 1
        batch = source_batch(source, rows, source_pad_id(self.model))
        if (batch["input_ids"] == tokenizer.pad_token_id).any():
            # In a separate source vocabulary this id may be a word, which `generate` would take for padding.
            batch.setdefault("attention_mask", torch.ones_like(batch["input_ids"]))
        limits = longest_translations(source.text_lengths[rows], search.max_length_factor)
        limits = torch.from_numpy(limits.clip(max=self.longest - 1))
        batch = {name: tensor.to(self.model.device) for name, tensor in batch.items()}
        size = search.no_repeat_ngram_size
        processors: list[Any] = [LengthLimit(limits, tokenizer.eos_token_id, n_beams, self.model.device)]
        if search.temperature is not None:
            drawn = draws(source, rows, int(limits.max()), search)
            processors.append(Sampling(drawn.to(self.model.device), search.temperature, search.top_k))
        sequences = self.model.generate(
            **batch,
            num_beams=n_beams,
            num_return_sequences=n_best,
            length_penalty=search.length_penalty if n_beams > 1 else 1.0,
            do_sample=False,
            max_new_tokens=int(limits.max()),
            logits_processor=processors,
            suppress_tokens=never_output(tokenizer),
            **({} if size is None else {"no_repeat_ngram_size": size}),
            **{CACHE: TranslationCache()},
        )
        # `generate` may fill up with the end piece, so everything after the first end is padding.
        ends = sequences[:, 1:] == tokenizer.eos_token_id
        made = ends.cumsum(1) - ends.long() == 0
        lengths = made.sum(1)
        pieces = [one[:n] for one, n in zip(sequences[:, 1:].tolist(), lengths.tolist(), strict=True)]
        scores = None
        if search.scored:
            log_probs = self._log_probs(batch, sequences).where(made, 0.0).sum(1)
            scores = normalised(log_probs, lengths, search.length_penalty).tolist()
        return n_best_lists(pieces, scores, search.n_best)

    def _log_probs(self, batch: dict[str, Tensor], sequences: Tensor) -> Tensor:
        """Log-probability of each piece, `[translations, pieces]`, computed in one pass."""
        n_best = len(sequences) // len(batch["input_ids"])
        repeated = {name: tensor.repeat_interleave(n_best, 0) for name, tensor in batch.items()}
        logits = self.model(**repeated, decoder_input_ids=sequences[:, :-1]).logits
        return logits.float().log_softmax(-1).gather(-1, sequences[:, 1:, None])[..., 0]


class LengthLimit(LogitsProcessor):
    """Ends each translation at its own limit, so that it does not depend on the other lines of its batch."""

    def __init__(self, limits: Tensor, end_id: int, n_beams: int, device: torch.device) -> None:
        self.limits = limits.repeat_interleave(n_beams).to(device)
        self.smallest = int(limits.min())
        self.end_id = end_id

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Leave only the end piece where the limit is reached."""
        n_made = input_ids.shape[1] - 1
        if n_made + 1 < self.smallest:
            return scores
        ending = self.limits <= n_made + 1
        kept = scores[:, self.end_id].clone()
        scores = scores.masked_fill(ending[:, None], -torch.inf)
        scores[:, self.end_id] = kept
        return scores


def draws(source: EncodedText, rows: Sequence[int], longest: int, search: Search) -> Tensor:
    """Uniform random numbers in (0, 1] for sampling, `[samples, longest]`.

    They depend on the seed, the line's pieces and the number of the sample alone: a line gets the same
    samples whatever lines are around it, in whatever batches.

    Args:
        source: Encoded lines.
        rows: The line of each sample; the samples of a line are neighbours.
        longest: Largest number of pieces of a translation.
        search: Settings of the search.
    """
    found = np.empty((len(rows), longest))
    for place, row in enumerate(rows):
        pieces = source.pieces[source.splits[row] : source.splits[row + 1]].astype(np.int64)
        of_line = (search.seed or 0, place % search.n_best, crc32(pieces.tobytes()))
        found[place] = 1 - np.random.default_rng(of_line).random(longest)
    return torch.from_numpy(found).float()


class Sampling(LogitsProcessor):
    """Leaves one piece of each translation, drawn from softmax(logits / temperature) over the best `top_k`.

    Args:
        drawn: The result of `draws`.
        temperature: Above 1 for more variety, below 1 for less.
        top_k: Number of pieces to draw from; None for all.

    Source: Fan et al. (2018), top-k sampling.
    """

    def __init__(self, drawn: Tensor, temperature: float, top_k: int | None) -> None:
        self.drawn, self.temperature, self.top_k = drawn, temperature, top_k

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Draw by the cumulative distribution; a piece of probability 0 is never drawn."""
        nowhere = torch.full_like(scores, -torch.inf)
        if self.top_k is not None:
            best = scores.topk(min(self.top_k, scores.shape[1]))
            scores = nowhere.scatter(1, best.indices, best.values)
        sums = (scores.float() / self.temperature).softmax(-1).cumsum(-1)
        wanted = self.drawn[:, input_ids.shape[1] - 1, None] * sums[:, -1:]
        return nowhere.scatter(1, torch.searchsorted(sums, wanted), 0.0)
