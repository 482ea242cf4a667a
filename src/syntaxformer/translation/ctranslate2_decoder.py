"""Beam search in CTranslate2, over a folder that `export` wrote.

Its search stops by another rule than that of transformers (see `PATIENCE`), and it gives the probability of
suppressed pieces to the others. So the scores that users see come from one more pass, as in PyTorch.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from syntaxformer.base.errors import NOT_FINITE, CheckpointError, ConfigError
from syntaxformer.base.files import MAX_PIECES_BYTES, read_json, read_record
from syntaxformer.runs.export import ExportInfo, need_packages
from syntaxformer.runs.tokenizer_rules import check_pieces
from syntaxformer.translation.decoding import (
    Hypothesis,
    Search,
    batches_of,
    n_best_lists,
    never_output,
    normalised,
)
from syntaxformer.translation.source import EncodedText, SourceEncoder

PATIENCE = 2.0
"""CTranslate2 stops searching after this many times `beam_size` finished translations.

The search of transformers stops when no unfinished beam can still win. With CTranslate2's default, 1.0, one
line in 25 gets another translation than from transformers, mostly a worse one; with 2.0, one in 250.
"""

SMALLEST_SHARE = 8
"""A batch is not divided among threads into shares of fewer lines than this."""


class CTranslate2Decoder:
    """See `decoding.PieceDecoder`."""

    n_ahead = 2
    """With two calls, the batches of one keep the threads busy when those of the other run out."""

    def __init__(
        self,
        network: Any,
        tokens: SourceTokens,
        target_pieces: Sequence[str],
        tokenizer: Any,
        max_positions: int = sys.maxsize,
    ) -> None:
        self.network, self.tokens, self.longest = network, tokens, max_positions
        self._names, self._ids = target_pieces, {name: piece for piece, name in enumerate(target_pieces)}
        first = tokenizer.backend_tokenizer.encode("").ids[:-1]
        self._first = [target_pieces[piece] for piece in first]  # a language's code
        self._suppressed = [[target_pieces[piece]] for piece in never_output(tokenizer)]

    def decode(self, source: EncodedText, rows: Sequence[int], search: Search) -> list[list[Hypothesis]]:
        """See `decoding.PieceDecoder`; batches are decoded side by side.

        Raises:
            ConfigError: It should sample: threads share the random numbers of CTranslate2, so that no seed
                gives the same samples again.
            CheckpointError: Outputs are not finite.
        """
        if search.coverage_penalty and search.beam_size == 1:
            raise ConfigError(
                f"coverage_penalty: expected none without beams, of which it chooses some, got "
                f"{search.coverage_penalty:g} with beam_size = 1. Raise beam_size."
            )
        if search.temperature is not None:  # threads share random numbers: no seed gives a sample again
            raise ConfigError(
                f"temperature: expected none with an export, which searches, got {search.temperature:g}. "
                "Sample with the folder from which it was exported."
            )
        # A limit counts the end piece; where `max_pieces` is lower, a search may stop there without it.
        ends = search.limits(source, rows, self.longest).tolist()
        limits = [min(end, search.max_pieces or end) for end in ends]
        tokens, results = self.tokens(source, rows), []
        firsts = [[*self._first, *(self._names[piece] for piece in source.prefix_of(row))] for row in rows]
        # Few lines are divided so that no thread is idle, but not into tiny batches.
        share = max(SMALLEST_SHARE, -(-len(tokens) // self.network.num_translators))
        for batch in batches_of(source.lengths[list(rows)], max(1, min(search.batch_size, share))):
            results += self._search(tokens[batch], firsts[batch], max(limits[batch]), search)
        results = [result.result() for result in results]
        again = {}
        for row, (limit, end) in enumerate(zip(limits, ends, strict=True)):
            lengths = [len(hypothesis) for hypothesis in results[row].hypotheses]
            if limit < end:
                search.check_length(max(lengths) + 2)
            # A line's result must not depend on the longest line of its batch. Scores take a greedy search
            # 4 % longer: it has some only where it looks as if a logit is NaN, which repeats a piece.
            elif any(n >= limit or (search.beam_size == 1 and not 0 < n < limit - 1) for n in lengths):
                again[row] = self._search([tokens[row]], [firsts[row]], limit, search)[0]
        results = [again[row].result() if row in again else result for row, result in enumerate(results)]
        if any(math.isnan(score) for result in results for score in result.scores):
            raise CheckpointError(NOT_FINITE)
        names = [hypothesis for result in results for hypothesis in result.hypotheses]
        pieces = [[self._ids[name] for name in hypothesis] for hypothesis in names]
        of_names = [line for line in tokens for _ in range(search.n_best)]
        scores = attention = None
        if search.coverage_penalty:  # which only the search itself can count
            scores = [score for result in results for score in result.scores]
        elif search.scored and names:
            logs = self._log_probs(of_names, names, search.batch_size)
            scores = [normalised(sum(log), len(log), search.length_penalty) for log in logs]
        if search.alignment is not None and names:
            attention = self._attention(of_names, names, search.batch_size, search.alignment.shift)
        return n_best_lists(pieces, scores, search.n_best, attention)

    def _search(
        self, tokens: list[list[str]], firsts: list[list[str]], limit: int, search: Search
    ) -> list[Any]:
        return self.network.translate_batch(
            tokens,
            firsts if any(firsts) else None,
            asynchronous=True,
            return_scores=search.beam_size > 1 or len(tokens) == 1,  # which are NaN if a logit is
            beam_size=search.beam_size,
            patience=PATIENCE,
            num_hypotheses=search.n_best,
            length_penalty=search.length_penalty,
            max_decoding_length=limit - 1,  # the limit counts the end piece; CTranslate2 does not
            min_decoding_length=search.min_length,
            coverage_penalty=search.coverage_penalty,
            no_repeat_ngram_size=search.no_repeat_ngram_size or 0,
            max_input_length=0,
            suppress_sequences=self._suppressed,
        )

    def _attention(
        self, tokens: Sequence[list[str]], translations: Sequence[list[str]], batch_size: int, shift: int
    ) -> list[NDArray[np.float32]]:
        """The attention of the head that `export` put first, one row for each piece of each translation.

        The translations are searched once more as prefixes without beams, because a search with beams mixes
        up the lines of a batch in the attention of its first step. One step more reads the last piece.
        """
        results = self.network.translate_batch(
            tokens,
            translations,
            max_batch_size=batch_size,
            beam_size=1,
            max_decoding_length=1 + max(map(len, translations)),
            max_input_length=0,
            return_attention=True,
            return_end_token=True,
        )
        return [
            np.array(result.attention[0], np.float32)[shift : shift + len(names)]
            for result, names in zip(results, translations, strict=True)
        ]

    def score(
        self, source: EncodedText, pairs: Sequence[tuple[int, Sequence[int]]], batch_size: int
    ) -> list[list[float]]:
        """See `decoding.PieceDecoder`; batches are computed side by side."""
        rows, translations = [row for row, _ in pairs], [pieces[:-1] for _, pieces in pairs]
        names = [[self._names[piece] for piece in pieces] for pieces in translations]
        logs = self._log_probs(self.tokens(source, rows), names, batch_size)
        if not all(math.isfinite(sum(log)) for log in logs):
            raise CheckpointError(NOT_FINITE)
        return logs

    def _log_probs(
        self, tokens: Sequence[list[str]], translations: Sequence[list[str]], batch_size: int
    ) -> list[list[float]]:
        """Log-probability of each piece and of the end piece; 0 for a language's code, which is no choice."""
        scored = self.network.score_batch(tokens, translations, max_batch_size=batch_size, max_input_length=0)
        n_forced = len(self._first)
        return [[0.0] * n_forced + result.log_probs[n_forced:] for result in scored]


def load(folder: Path, encoder: SourceEncoder, device: str | None) -> CTranslate2Decoder:
    """Load a folder that `export` wrote.

    Raises:
        BackendMissingError: CTranslate2 is not installed.
        CheckpointError: The folder cannot be read.
        ConfigError: There is no such device.
    """
    need_packages(("CTranslate2",), "exported models need")
    import ctranslate2

    export = read_export(folder)
    tokens, names = SourceTokens(folder, export, encoder), read_names(folder, "target")
    check_pieces(folder, encoder.tokenizer, len(tokens.pieces))
    check_pieces(folder, encoder.target_tokenizer, len(names))
    kind, _, index = (device or "auto").partition(":")
    if index.endswith("bf16"):
        raise ConfigError(f"device: expected cpu or cuda, without :bf16, for an export, got {device}.")
    try:
        # One thread for each batch and as many batches as processors: small matrices are slow to split.
        threads = {"inter_threads": _n_processors(), "intra_threads": 1}
        network = ctranslate2.Translator(str(folder), kind, device_index=int(index or 0), **threads)
    except ValueError as error:
        raise ConfigError(
            f"device: expected a device of this machine, got {device}. CTranslate2 says: {error}"
        ) from error
    except (RuntimeError, MemoryError) as error:
        raise CheckpointError(f"{folder}: expected a CTranslate2 model, got: {str(error)[:200]}") from error
    return CTranslate2Decoder(network, tokens, names, encoder.target_tokenizer, export.max_positions)


def _n_processors() -> int:
    """Number of processors that this process may use, or fewer if OMP_NUM_THREADS says so."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return min(available, int(setting)) if setting.isdigit() and int(setting) else available


EXPORT = "export.json"

SEPARATOR = "￨"
"""U+FFE8 separates the factors of a CTranslate2 source token; names of pieces and values never contain it."""


class CTranslate2Info(ExportInfo):
    """Content of `export.json`.

    Args:
        quantization: Type of the stored weights.
        streams: Factor names of each source stream after that of the pieces. A stream of several factors
            has one entry for each combination of their values.
        max_positions: Rows of the position table, and so the longest source or translation in pieces.
    """

    quantization: str
    streams: list[list[str]]
    max_positions: int = Field(ge=1)


def read_export(folder: Path) -> CTranslate2Info:
    """Read `export.json`, or raise `CheckpointError`."""
    return read_record(folder / EXPORT, CTranslate2Info)


def read_names(folder: Path, side: str, number: int | None = None) -> list[str]:
    """The names of a vocabulary of CTranslate2, in the order of their ids; as `unique_names` gives them.

    Raises:
        CheckpointError: There is no such vocabulary, or it is not a list of names as `unique_names` gives.
    """
    numbered = [] if number is None else [f"{side}_{number + 1}_vocabulary.json"]
    files = [folder / name for name in (*numbered, f"{side}_vocabulary.json", "shared_vocabulary.json")]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise CheckpointError(f"{folder}: expected a {side} vocabulary, found none.")
    names = read_json(file, MAX_PIECES_BYTES, list)
    are_names = all(isinstance(entry, str) and SEPARATOR not in entry for entry in names)
    if not are_names or len({*names}) < len(names):
        raise CheckpointError(f"{file}: expected different strings without {SEPARATOR}. It was altered.")
    return names


class SourceTokens:
    """Turns encoded lines into CTranslate2's tokens, "piece￨value" or "piece￨value/value".

    A further stream has a name for each combination of its factors' values; the last one changes fastest.

    Raises:
        CheckpointError: Vocabularies or factors of the folder are not those of the export.
    """

    def __init__(self, folder: Path, info: CTranslate2Info, encoder: SourceEncoder) -> None:
        order = list(encoder.columns)
        if sorted(name for names in info.streams for name in names) != sorted(order):
            raise CheckpointError(
                f"{folder / EXPORT}: expected the factors {', '.join(order) or 'none'} of syntaxformer.json, "
                f"got {info.streams}. It was altered."
            )
        numbers = range(len(info.streams) + 1) if info.streams else [None]
        pieces, *streams = [read_names(folder, "source", number) for number in numbers]
        self.columns = [[order.index(name) for name in stream] for stream in info.streams]
        self.sizes = [[len(encoder.vocabularies[name]) for name in stream] for stream in info.streams]
        if any(len(names) < math.prod(sizes) for names, sizes in zip(streams, self.sizes, strict=True)):
            raise CheckpointError(f"{folder}: expected a name for each value of {order}. It was altered.")
        self.pieces: NDArray[Any] = np.array(pieces, dtype=object)
        self.streams = [np.array([SEPARATOR + name for name in names], dtype=object) for names in streams]

    def __call__(self, source: EncodedText, rows: Sequence[int]) -> list[list[str]]:
        """The tokens of some lines."""
        lines = []
        for row in rows:
            line = slice(*source.splits[row : row + 2].tolist())
            tokens = self.pieces[source.pieces[line]]
            for names, columns, sizes in zip(self.streams, self.columns, self.sizes, strict=True):
                values = source.factors[line][:, columns].T
                tokens = tokens + names[np.ravel_multi_index(tuple(values), tuple(sizes))]
            lines.append(tokens.tolist())
        return lines
