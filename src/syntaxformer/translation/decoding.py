"""The search for translations: settings, batches, scores, n-best lists; without PyTorch.

The score of a translation y of a line x is log p(y | x) / |y| ** α (see `normalised`). The search ranks by
it and users see it. `Translator` handles text; a decoder sees only ids of pieces and factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from syntaxformer.base.config import MAX_SEED
from syntaxformer.base.errors import ConfigError
from syntaxformer.runs.config import Section
from syntaxformer.translation.alignment import Alignment, AlignmentHead, PieceAttention
from syntaxformer.translation.source import EncodedText

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerFast


class DecodingConfig(Section):
    """Beam search; the defaults of `translate` for the trained model."""

    beam_size: int = Field(5, ge=1, le=256, description="hypotheses kept at each step")
    length_penalty: float = Field(
        1.0, ge=-100, le=100, description="log-probability is divided by length to this power"
    )
    max_length_factor: float = Field(
        2.0, gt=0, le=100, description="longest output = this factor × source pieces + 10"
    )
    no_repeat_ngram_size: int | None = Field(
        None, ge=2, le=1000, description="no n-gram of so many pieces twice in a line; null: any"
    )
    batch_size: int = Field(32, ge=1, le=65_536, description="sentences decoded together")


class Search(DecodingConfig):
    """Settings of one search: also how many translations each line gets, and whether they have scores.

    With a temperature, translations are sampled, without beams: `n_best` samples of each line. TimeoutError
    ends a search whose translations are longer than `max_pieces`, and in PyTorch one that `is_over`.
    """

    n_best: int = Field(1, le=256)
    scored: bool = False
    temperature: float | None = Field(None, gt=0, le=100, description="divides the logits; null: beam search")
    top_k: int | None = Field(None, ge=1, le=2**20, description="sample among so many pieces; null: all")
    seed: int | None = Field(None, ge=0, le=MAX_SEED, description="of the samples; null: 0")
    min_length: int = Field(0, ge=0, le=4096, description="fewest pieces of a translation, without its end")
    coverage_penalty: float = Field(0.0, ge=0, le=100, description="weight of how much was attended to")
    max_pieces: int | None = Field(None, ge=1, description="of a translation; null: any")
    is_over: Callable[[], bool] | None = Field(None, description="whether it should end")
    alignment: AlignmentHead | None = Field(None, description="head whose attention is returned; null: none")

    def limits(self, source: EncodedText, rows: Sequence[int], longest: int) -> NDArray[np.int64]:
        """Largest number of pieces of the translations of some rows, with the end piece, below `longest`.

        It is never less than what `min_length` or the row's prefix asks for.

        Raises:
            ConfigError: The network has no positions for `min_length`.
        """
        if self.min_length > longest - 3:
            raise ConfigError(f"min_length: expected at most {longest - 3}, got {self.min_length}.")
        limits = longest_translations(source.text_lengths[list(rows)], self.max_length_factor)
        least = [max(self.min_length, len(source.prefix_of(row))) + 2 for row in rows]  # a code, the end
        return np.maximum(limits, least).clip(max=longest - 1)

    def check_length(self, n_pieces: int) -> None:
        """Raise TimeoutError if a translation has too many pieces."""
        if self.max_pieces is not None and n_pieces > self.max_pieces:
            limit = f"{self.max_pieces} pieces with {self.beam_size} beams"
            raise TimeoutError(f"expected a translation of at most {limit}, got a longer one")


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a line.

    Args:
        text: The translation as text, which the translator makes from `pieces`.
        score: Its `normalised` log-probability, if it was asked for.
        pieces: Piece ids, which may include special pieces.
        loops: Whether it is a loop, see `is_loop`; the translator says so.
        attention: That of the aligning head, one row for each piece, if it was asked for.
        alignment: The links between words that the translator makes of it.
        repairs: What was mended of what `data.protect` keeps: "lost", "doubled", … with its text.
    """

    text: str = ""
    score: float | None = None
    pieces: Sequence[int] = field(default=(), repr=False)
    loops: bool = False
    attention: PieceAttention | None = field(default=None, repr=False, compare=False)
    alignment: Alignment | None = None
    repairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Score:
    """The log-probability of a given translation.

    Args:
        pieces: Names of its pieces, the end piece included.
        log_probs: Natural logarithm of each piece's probability after those before it; 0 for a first piece
            that is no choice, such as the code of a language.
    """

    pieces: Sequence[str] = ()
    log_probs: Sequence[float] = ()

    @property
    def log_prob(self) -> float:
        """That of the whole translation."""
        return math.fsum(self.log_probs)

    @property
    def mean(self) -> float:
        """The mean of a piece, which is the score of a search with a length penalty of 1."""
        return normalised(self.log_prob, max(1, len(self.pieces)), 1.0)


def normalised(log_prob: Any, n_pieces: Any, length_penalty: float) -> Any:
    """Score by log p(y | x) / |y| ** α, both with the end piece; α, the length penalty, is 1 for the mean."""
    return log_prob / n_pieces**length_penalty


def n_best_lists(
    translations: Sequence[Sequence[int]],
    scores: Sequence[float] | None,
    n_best: int,
    attention: Sequence[NDArray[np.float32]] | None = None,
) -> list[list[Hypothesis]]:
    """Group translations by line, `n_best` each, ordered by score or, without scores, as the search did."""
    unknown = [None] * len(translations)
    weights = unknown if attention is None else map(PieceAttention, attention)
    every = [
        Hypothesis("", score, pieces, attention=of_pieces)
        for pieces, score, of_pieces in zip(translations, scores or unknown, weights, strict=True)
    ]
    by_line = [every[start : start + n_best] for start in range(0, len(every), n_best)]
    return [sorted(of_line, key=lambda best: -(best.score or 0.0)) for of_line in by_line]


PIECES_PER_LINE = 32
"""A batch has at most `batch_size` times so many pieces with its padding, so a long line waits for few."""


def batches_of(lengths: Sequence[int] | NDArray[np.integer[Any]], batch_size: int) -> list[slice]:
    """Divide lines into batches by a budget of pieces; neighbours share a batch.

    Args:
        lengths: `[lines]`, pieces of each line, preferably in falling order.
        batch_size: Most lines of a batch, whose lines times longest line is at most `PIECES_PER_LINE` times
            this number; a line over `PIECES_PER_LINE` joins none under half as long.
    """
    batches, start, longest = [], 0, 0
    for row, length in enumerate(np.asarray(lengths).tolist()):
        n_lines, longest = row + 1 - start, max(longest, length)
        is_full = n_lines > batch_size or n_lines * longest > PIECES_PER_LINE * batch_size
        if n_lines > 1 and (is_full or longest > max(PIECES_PER_LINE, 2 * length)):
            batches.append(slice(start, row))
            start, longest = row, length
    return [*batches, slice(start, len(lengths))] if len(lengths) else []


def longest_translations(src_lengths: NDArray[np.integer[Any]], factor: float) -> NDArray[np.int64]:
    """Largest number of pieces of each translation, with the end piece: `factor` × source pieces + 10."""
    return (src_lengths * factor).astype(np.int64) + 10


LOOP_ROUNDS = 4
"""A translation that was cut is a loop if it ends in an n-gram so many times in a row."""


def is_loop(pieces: Sequence[int], limit: int, end_id: int) -> bool:
    """Whether a translation ran into its length limit while it repeated an n-gram of any length.

    The limit counts the end piece, as `longest_translations` does; the translation may lack it.
    """
    text = list(pieces[:-1] if len(pieces) and pieces[-1] == end_id else pieces)
    if len(text) < limit - 1:
        return False
    longest = len(text) // LOOP_ROUNDS
    return any(text[-LOOP_ROUNDS * n : -n] == text[-(LOOP_ROUNDS - 1) * n :] for n in range(1, longest + 1))


def loops_in_words(n_loops: int, n_lines: int) -> str:
    """What a user reads of translations that loop."""
    return (
        f"{n_loops} of {n_lines} translations repeat themselves up to the length limit. "
        "Give --no-repeat-ngram-size (in Python no_repeat_ngram_size), or train longer or on more pairs."
    )


def never_output(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Ids of padding, start and unknown pieces, which are not text but might score high in a poor model."""
    pieces = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.unk_token_id)
    return [piece for piece in pieces if isinstance(piece, int) and piece != tokenizer.eos_token_id]


def generate_settings(
    search: DecodingConfig, max_pieces: int, longest: int, tokenizer: PreTrainedTokenizerFast
) -> dict[str, Any]:
    """The search of a folder for transformers' `generate`, which has one length limit for all lines.

    The longest source has `max_pieces`, the network `longest` positions; the tokenizer is the target's.
    """
    (limit,) = longest_translations(np.array([max_pieces]), search.max_length_factor)
    return {
        "num_beams": search.beam_size,
        "length_penalty": search.length_penalty if search.beam_size > 1 else 1.0,
        "no_repeat_ngram_size": search.no_repeat_ngram_size or 0,
        "max_new_tokens": min(int(limit), longest - 1),
        "suppress_tokens": never_output(tokenizer),
    }


def own_generation(tokenizer: PreTrainedTokenizerFast, start_id: int) -> GenerationConfig:
    """The pieces of a search by transformers' `generate`, and no other setting.

    What a stranger's `generation_config.json` says of a search would hold in silence.
    """
    from transformers import GenerationConfig

    first, *rest = tokenizer.backend_tokenizer.encode("").ids
    return GenerationConfig(
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=start_id,
        forced_bos_token_id=first if rest else None,  # a code, or BART's first piece
    )


def source_pad_id(model: Any) -> int:
    """Padding of the source: our Transformer may have a vocabulary for it alone, a pretrained one has not."""
    return getattr(model.config, "source_pad_id", model.config.pad_token_id)


class PieceDecoder(Protocol):
    """Beam search over a loaded network.

    Attributes:
        n_ahead: Calls of `decode` that run in other threads while the caller encodes the next lines; 0 if
            the search itself runs in Python.
        longest: Positions of the network, in pieces.
    """

    n_ahead: int
    longest: int

    def decode(self, source: EncodedText, rows: Sequence[int], search: Search) -> list[list[Hypothesis]]:
        """For each of some rows of a text, which must not be empty, its `n_best` translations, as pieces.

        The rows come preferably longest first, because neighbours share a batch (`batches_of`).
        """
        ...

    def score(
        self, source: EncodedText, pairs: Sequence[tuple[int, Sequence[int]]], batch_size: int
    ) -> list[list[float]]:
        """Log-probability of each piece of given translations, by teacher forcing; see `Score`.

        `pairs` are rows of the text, each with the pieces of a translation and its end piece, longest first.

        Raises:
            CheckpointError: Outputs are not finite.
        """
        ...
