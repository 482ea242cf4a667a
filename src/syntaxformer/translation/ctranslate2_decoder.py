"""Beam search in CTranslate2, over a folder that `export` wrote.

Its search ends by another rule than that of transformers, see `PATIENCE`, and shares the probability of
pieces that are never output among the others: scores that are shown come from one more pass, as in PyTorch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError
from syntaxformer.base.folder_checks import check_pieces
from syntaxformer.translation.decoding import FoundPieces
from syntaxformer.translation.exported_folder import INSTALL, SourceTokens, read_export, read_names
from syntaxformer.translation.length_limit import DecodingConfig, longest_translations
from syntaxformer.translation.source import EncodedText, SourceEncoder
from syntaxformer.translation.torch_decoder import never_output

__all__ = ["CTranslate2Decoder", "load"]

PATIENCE = 2.0
"""Finished translations, in beams, after which CTranslate2 stops looking.

transformers stops when no running beam can still win. With 1.0, CTranslate2's default, one line in 25 gets
another translation than there, mostly a worse one; with 2.0 one in 250.
"""

SMALLEST_SHARE = 8
"""Lines below which a batch is not divided among threads."""


class CTranslate2Decoder:
    """See `decoding.PieceDecoder`.

    Args:
        network: A `ctranslate2.Translator`.
        tokens: Encoded lines → its source tokens.
        target_pieces: Names of its target pieces, by id.
        never: Ids of pieces that are no output.
    """

    n_ahead = 2
    """One call's batches keep the threads busy where the other's run out."""

    def __init__(
        self, network: Any, tokens: SourceTokens, target_pieces: Sequence[str], never: Sequence[int]
    ) -> None:
        self.network, self.tokens = network, tokens
        self._ids = {name: piece for piece, name in enumerate(target_pieces)}
        self._suppressed = [[target_pieces[piece]] for piece in never]

    def decode(
        self,
        source: EncodedText,
        rows: Sequence[int],
        settings: DecodingConfig,
        n_best: int = 1,
        scored: bool = False,
    ) -> list[list[FoundPieces]]:
        """See `decoding.PieceDecoder`; batches are decoded side by side."""
        limits = longest_translations(source.text_lengths[list(rows)], settings.max_length_factor).tolist()
        tokens = self.tokens(source, rows)
        waiting = []
        size = self._batch_size(len(tokens), settings.batch_size)
        for start in range(0, len(tokens), size):
            stop = start + size
            waiting += self._search(tokens[start:stop], max(limits[start:stop]), settings, n_best)
        results = [one.result() for one in waiting]
        for place, limit in enumerate(limits):
            # A line's result must not depend on the longest line of its batch.
            if any(len(hypothesis) >= limit for hypothesis in results[place].hypotheses):
                (again,) = self._search([tokens[place]], limit, settings, n_best)
                results[place] = again.result()
        found = [[self._pieces(names) for names in result.hypotheses] for result in results]
        return self._scored(tokens, results, found, settings) if scored else found

    def _batch_size(self, n_lines: int, wanted: int) -> int:
        """Lines of a batch: few lines are shared out, so that no thread is idle; tiny batches cost more."""
        share = -(-n_lines // self.network.num_translators)
        return max(1, min(wanted, max(share, SMALLEST_SHARE)))

    def _search(
        self, tokens: list[list[str]], limit: int, settings: DecodingConfig, n_best: int
    ) -> list[Any]:
        return self.network.translate_batch(
            tokens,
            asynchronous=True,
            beam_size=settings.beam_size,
            patience=PATIENCE,
            num_hypotheses=n_best,
            length_penalty=settings.length_penalty,
            max_decoding_length=limit - 1,  # the limit counts the end piece, CTranslate2 does not
            min_decoding_length=0,
            max_input_length=0,
            suppress_sequences=self._suppressed,
        )

    def _pieces(self, names: Sequence[str]) -> FoundPieces:
        return FoundPieces([self._ids[name] for name in names])

    def _scored(
        self,
        tokens: Sequence[list[str]],
        results: Sequence[Any],
        found: Sequence[Sequence[FoundPieces]],
        settings: DecodingConfig,
    ) -> list[list[FoundPieces]]:
        """Each translation with log-probability / length ** length_penalty, the end piece counted in both."""
        scores = iter(
            self.network.score_batch(
                [line for line, result in zip(tokens, results, strict=True) for _ in result.hypotheses],
                [names for result in results for names in result.hypotheses],
                max_batch_size=settings.batch_size,
                max_input_length=0,
            )
        )
        by_line = []
        for line in found:
            logs = [next(scores).log_probs for _ in line]
            ranked = [
                FoundPieces(one.pieces, sum(log) / len(log) ** settings.length_penalty)
                for one, log in zip(line, logs, strict=True)
            ]
            by_line.append(sorted(ranked, key=lambda one: -(one.score or 0.0)))
        return by_line


def load(folder: Path, encoder: SourceEncoder, device: str | None) -> CTranslate2Decoder:
    """Load a folder that `export` wrote.

    Raises:
        BackendMissingError: CTranslate2 is not installed.
        CheckpointError: The folder cannot be read.
        ConfigError: There is no such device.
    """
    try:
        import ctranslate2
    except ImportError as error:
        raise BackendMissingError("CTranslate2, which exported models need,", INSTALL) from error
    tokens, names = SourceTokens.read(folder, read_export(folder), encoder), read_names(folder, "target")
    check_pieces(folder, encoder.tokenizer, len(tokens.pieces))
    check_pieces(folder, encoder.target_tokenizer, len(names))
    kind, _, index = (device or "auto").partition(":")
    try:
        # One thread a batch, as many batches at a time as there are processors: small matrices split badly.
        network = ctranslate2.Translator(
            str(folder), kind, device_index=int(index or 0), inter_threads=_n_processors(), intra_threads=1
        )
    except ValueError as error:
        raise ConfigError(
            f"device: expected a device of this machine, got {device}. CTranslate2 says: {error}"
        ) from error
    except (RuntimeError, MemoryError) as error:
        raise CheckpointError(f"{folder}: expected a CTranslate2 model, got: {str(error)[:200]}") from error
    tokenizer = encoder.target_tokenizer
    never = [tokenizer.pad_token_id, *never_output(tokenizer)]
    return CTranslate2Decoder(network, tokens, names, never)


def _n_processors() -> int:
    """Processors that this process may use, or fewer where OMP_NUM_THREADS says so."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(available, int(wanted)) if wanted.isdigit() and int(wanted) else available
