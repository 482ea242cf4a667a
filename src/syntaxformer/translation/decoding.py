"""The search for translations: settings, scores, n-best lists, and beam search in PyTorch.

The score of a translation y of a line x is log p(y | x) / |y| ** α (see `normalised`). The search ranks by
it and users see it. `Translator` handles text; a decoder sees only ids of pieces and factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedModel, PreTrainedTokenizerFast

from syntaxformer.nn.kernels.memory import keep_freed_memory
from syntaxformer.runs.loading import longest_input
from syntaxformer.translation.model import TranslationCache
from syntaxformer.translation.source import EncodedText, source_batch


class DecodingConfig(BaseModel):
    """Beam search; the defaults of `translate` for the trained model."""

    model_config = ConfigDict(extra="forbid")

    beam_size: int = Field(default=5, ge=1, le=256, description="hypotheses kept at each step")
    length_penalty: float = Field(
        default=1.0, allow_inf_nan=False, description="log-probability is divided by length to this power"
    )
    max_length_factor: float = Field(
        default=2.0, gt=0, le=100, description="longest output = this factor × source pieces + 10"
    )
    no_repeat_ngram_size: int | None = Field(
        default=None,
        ge=2,
        le=1000,
        description="no n-gram of so many pieces twice in a line; null: any",
    )
    batch_size: int = Field(default=32, ge=1, le=65_536, description="sentences decoded together")


class Search(DecodingConfig):
    """Settings of one search: also how many translations each line gets, and whether they have scores.

    With a temperature, translations are sampled, without beams: `n_best` samples of each line.
    """

    n_best: int = 1
    scored: bool = False
    temperature: float | None = Field(
        default=None, gt=0, le=100, description="divides the logits; null: beam search"
    )
    top_k: int | None = Field(default=None, ge=1, description="sample among so many pieces; null: all")
    seed: int | None = Field(default=None, ge=0, description="of the samples; null: 0")


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a line.

    Args:
        text: The translation as text, which the translator makes from `pieces`.
        score: Its `normalised` log-probability, if it was asked for.
        pieces: Piece ids, which may include special pieces.
        loops: Whether it is a loop, see `is_loop`; the translator says so.
    """

    text: str = ""
    score: float | None = None
    pieces: Sequence[int] = field(default=(), repr=False)
    loops: bool = False


def normalised(log_prob: Any, n_pieces: Any, length_penalty: float) -> Any:
    """Score a translation by log p(y | x) / |y| ** α; both terms include the end piece.

    Args:
        log_prob: Sum over the pieces, of one translation or as a tensor of several.
        n_pieces: Number of pieces, |y|.
        length_penalty: α; 0 leaves the log-probability as it is, 1 gives the mean over pieces.
    """
    return log_prob / n_pieces**length_penalty


def n_best_lists(
    found: Sequence[Sequence[int]], scores: Sequence[float] | None, n_best: int
) -> list[list[Hypothesis]]:
    """Group translations by line, `n_best` each, ordered by score or, without scores, as the search did."""
    given = [None] * len(found) if scores is None else scores
    every = [Hypothesis("", score, one) for one, score in zip(found, given, strict=True)]
    by_line = [every[start : start + n_best] for start in range(0, len(every), n_best)]
    return [sorted(one, key=lambda best: -(best.score or 0.0)) for one in by_line]


PIECES_PER_LINE = 32
"""A batch has at most `batch_size` times so many pieces with its padding, so a long line waits for few."""


def batches_of(lengths: Sequence[int] | NDArray[np.integer[Any]], batch_size: int) -> list[slice]:
    """Divide lines into batches by a budget of pieces; neighbours share a batch.

    Args:
        lengths: `[lines]`, pieces of each line, preferably in falling order.
        batch_size: Most lines of a batch, whose lines times longest line is at most `PIECES_PER_LINE` times
            this number; a longer line is decoded alone.
    """
    batches, start, longest = [], 0, 0
    for place, length in enumerate(np.asarray(lengths).tolist()):
        n_lines, longest = place + 1 - start, max(longest, length)
        if n_lines > 1 and (n_lines > batch_size or n_lines * longest > PIECES_PER_LINE * batch_size):
            batches.append(slice(start, place))
            start, longest = place, length
    return [*batches, slice(start, len(lengths))] if len(lengths) else []


def longest_translations(src_lengths: NDArray[np.integer[Any]], factor: float) -> NDArray[np.int64]:
    """Largest number of pieces of each translation, with the end piece: `factor` × source pieces + 10."""
    return (src_lengths * factor).astype(np.int64) + 10


LOOP_ROUNDS = 4
"""A translation that was cut is a loop if it ends in an n-gram so many times in a row."""


def is_loop(pieces: Sequence[int], limit: int, end_id: int) -> bool:
    """Whether a translation ran into its length limit while it repeated an n-gram of any length.

    Args:
        pieces: Piece ids, with or without the end piece.
        limit: Largest number of pieces, with the end piece; see `longest_translations`.
        end_id: Id of the end piece.
    """
    made = list(pieces[:-1] if len(pieces) and pieces[-1] == end_id else pieces)
    if len(made) < limit - 1:
        return False
    longest = len(made) // LOOP_ROUNDS
    return any(made[-LOOP_ROUNDS * n : -n] == made[-(LOOP_ROUNDS - 1) * n :] for n in range(1, longest + 1))


def loops_in_words(n_loops: int, n_lines: int) -> str:
    """What a user reads of translations that loop."""
    return (
        f"{n_loops} of {n_lines} translations repeat themselves up to the length limit. "
        "Set no_repeat_ngram_size, or train longer or on more pairs."
    )


def never_output(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Ids of padding, start and unknown pieces, which are not text but might score high in a poor model."""
    pieces = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.unk_token_id)
    return [piece for piece in pieces if isinstance(piece, int) and piece != tokenizer.eos_token_id]


def source_pad_id(model: Any) -> int:
    """Padding of the source: our Transformer may have a vocabulary for it alone, a pretrained one has not."""
    return getattr(model, "source_pad_id", model.config.pad_token_id)


class PieceDecoder(Protocol):
    """Beam search over a loaded network.

    Attributes:
        n_ahead: Calls of `decode` that run in other threads while the caller encodes the next lines; 0 if
            the search itself runs in Python.
    """

    n_ahead: int

    def decode(self, source: EncodedText, rows: Sequence[int], search: Search) -> list[list[Hypothesis]]:
        """Translate some rows of a text.

        Args:
            source: Encoded lines; the chosen ones must not be empty.
            rows: Which lines, preferably longest first, because neighbours share a batch (`batches_of`).
            search: Settings of the search.

        Returns:
            For each row its `n_best` translations, as pieces.
        """
        ...


class TorchDecoder:
    """Beam search by the method `generate` of transformers, one batch at a time."""

    n_ahead = 0

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
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
        processors: list[Any] = [LengthLimit(limits, tokenizer.eos_token_id, n_beams)]
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
            past_key_values=TranslationCache(),
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

    def __init__(self, limits: Tensor, end_id: int, n_beams: int) -> None:
        self.limits = limits.repeat_interleave(n_beams)
        self.smallest = int(limits.min())
        self.end_id = end_id

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Leave only the end piece where the limit is reached."""
        n_made = input_ids.shape[1] - 1
        if n_made + 1 < self.smallest:
            return scores
        ending = (self.limits <= n_made + 1).to(scores.device)
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
