"""`Translator`: raw lines in, raw lines out, one for one; tags are made on the way."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor

from syntaxformer.align import WordColumns
from syntaxformer.data.collator import source_batch
from syntaxformer.data.prepare import needs_annotator
from syntaxformer.data.source import EncodedText, SourceEncoder
from syntaxformer.errors import CheckpointError
from syntaxformer.folders import verify_manifest
from syntaxformer.models.transformer import SyntaxTransformer, TranslationCache
from syntaxformer.tasks.model_folder import FolderInfo, load_source_encoder, read_info
from syntaxformer.training.recipe import DecodingConfig

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator

__all__ = ["Hypothesis", "Translator"]

_log = logging.getLogger("syntaxformer.translate")

CHUNK_LINES = 2048
"""Lines held in memory at a time; sorted by length inside a chunk."""

MAX_SOURCE_PIECES = 1024
"""Longer lines are cut to this, and reported: attention grows with the square."""


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a line.

    Args:
        text: The translation.
        score: Log-probability divided by length ** length_penalty, where it was asked for.
    """

    text: str
    score: float | None = None


class Translator:
    """A trained model with everything that turns raw text into its input.

    Args:
        model: The network, in evaluation mode.
        encoder: Tokenizer and factor vocabularies.
        info: Languages, annotator and decoding defaults.
        annotator: Tags the source; None if no factor needs it.
    """

    def __init__(
        self,
        model: SyntaxTransformer,
        encoder: SourceEncoder,
        info: FolderInfo,
        annotator: Annotator | None = None,
    ) -> None:
        self.model, self.encoder, self.info, self.annotator = model, encoder, info, annotator

    @classmethod
    def load(cls, folder: str | Path, annotator: str | None = None, device: str | None = None) -> Translator:
        """Load a model folder.

        Args:
            folder: What `train` wrote.
            annotator: Use this annotator and not the one that the folder names.
            device: "cpu", "cuda", …; None for the best there is.

        Raises:
            CheckpointError: The folder is unfinished, truncated or altered.
            BackendMissingError: The annotator is not installed.
        """
        folder = Path(folder)
        verify_manifest(folder)
        info = read_info(folder)
        encoder = load_source_encoder(folder, info)
        try:
            model = SyntaxTransformer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, RuntimeError, TypeError, KeyError) as error:
            raise CheckpointError(f"{folder}: expected a model, got: {str(error)[:300]}") from error
        tagger = _load_annotator(info, annotator) if needs_annotator(encoder.factors) else None
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        return cls(model.eval().to(device), encoder, info, tagger)

    def translate(
        self,
        lines: Iterable[str],
        beam_size: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        batch_size: int | None = None,
        scored: bool = False,
    ) -> Iterator[list[Hypothesis]]:
        """Translate lines, in constant memory and in order.

        Args:
            lines: Raw text; an empty line gives an empty translation.
            beam_size: Beams; None for the folder's setting, likewise below.
            length_penalty: Power of the length by which a log-probability is divided.
            n_best: Translations of each line, best first, at most `beam_size`.
            batch_size: Lines decoded together.
            scored: Give each hypothesis its score, which costs one more pass.

        Yields:
            For each line its `n_best` hypotheses.

        Raises:
            ValueError: `n_best` is larger than the beam.
        """
        given = {"beam_size": beam_size, "length_penalty": length_penalty, "batch_size": batch_size}
        settings = self.info.decoding.model_copy(update={k: v for k, v in given.items() if v is not None})
        if not 1 <= n_best <= settings.beam_size:
            raise ValueError(f"n_best: expected 1 to beam_size = {settings.beam_size}, got {n_best}.")
        iterator = iter(lines)
        while chunk := list(islice(iterator, CHUNK_LINES)):
            yield from self._translate_chunk(chunk, settings, n_best, scored)
        self.encoder.unseen.warn()

    def encode(self, lines: Sequence[str]) -> EncodedText:
        """Tag and encode lines; those over `MAX_SOURCE_PIECES` pieces are cut, and counted in a warning."""
        lines = [self._clean(line) for line in lines]
        words = None
        if self.annotator is not None:
            words = WordColumns.from_sentences(self.annotator.annotate(lines))
        return _cut(self.encoder.encode(lines, words), MAX_SOURCE_PIECES)

    def _clean(self, line: str) -> str:
        """What training did to its lines; control characters become spaces."""
        line = " ".join(line.split()) if self.info.tokenized else line.replace("\t", " ").replace("\0", " ")
        return line.lower() if self.info.lowercase else line

    def _translate_chunk(
        self, lines: Sequence[str], settings: DecodingConfig, n_best: int, scored: bool
    ) -> Iterator[list[Hypothesis]]:
        filled = [row for row, line in enumerate(lines) if line.strip()]
        results = {row: [Hypothesis("", 0.0 if scored else None)] * n_best for row in range(len(lines))}
        if filled:
            source = self.encode([lines[row] for row in filled])
            order = np.argsort(-source.lengths, kind="stable").tolist()
            for start in range(0, len(order), settings.batch_size):
                rows = order[start : start + settings.batch_size]
                for row, hypotheses in zip(
                    rows, self._decode(source, rows, settings, n_best, scored), strict=True
                ):
                    results[filled[row]] = hypotheses
        yield from results.values()

    @torch.inference_mode()
    def _decode(
        self, source: EncodedText, rows: Sequence[int], settings: DecodingConfig, n_best: int, scored: bool
    ) -> list[list[Hypothesis]]:
        tokenizer = self.encoder.tokenizer
        batch = source_batch(source, rows, tokenizer.pad_token_id)
        limits = torch.from_numpy(source.lengths[rows] * settings.max_length_factor).long() + 10
        batch = {name: tensor.to(self.model.device) for name, tensor in batch.items()}
        sequences = self.model.generate(
            **batch,
            num_beams=settings.beam_size,
            num_return_sequences=n_best,
            length_penalty=settings.length_penalty,
            do_sample=False,
            max_new_tokens=int(limits.max()),
            logits_processor=[LengthLimit(limits, tokenizer.eos_token_id, settings.beam_size)],
            past_key_values=TranslationCache(),
        )
        texts = [
            _one_line(one.strip()) for one in tokenizer.batch_decode(sequences, skip_special_tokens=True)
        ]
        scores = self._score(batch, sequences, settings.length_penalty) if scored else [None] * len(texts)
        found = [Hypothesis(text, score) for text, score in zip(texts, scores, strict=True)]
        return [found[start : start + n_best] for start in range(0, len(found), n_best)]

    def _score(self, batch: dict[str, Tensor], sequences: Tensor, length_penalty: float) -> list[float]:
        """Log-probability / length ** length_penalty of each row, by one pass over finished translations."""
        n_best = len(sequences) // len(batch["input_ids"])
        repeated = {name: tensor.repeat_interleave(n_best, 0) for name, tensor in batch.items()}
        labels = sequences[:, 1:]
        made = labels != self.encoder.tokenizer.pad_token_id
        logits = self.model(**repeated, decoder_input_ids=sequences[:, :-1]).logits
        picked = logits.float().log_softmax(-1).gather(-1, labels[..., None])[..., 0]
        return (picked.where(made, 0.0).sum(1) / made.sum(1) ** length_penalty).tolist()


class LengthLimit(LogitsProcessor):
    """Ends each sentence at a length of its own, so that a translation does not depend on its batch.

    Args:
        limits: `[batch]`, most pieces of each sentence's translation, the end piece included.
        end_id: Piece id of the end.
        n_beams: Rows for each sentence.
    """

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


def _load_annotator(info: FolderInfo, override: str | None) -> Annotator:
    from syntaxformer.annotate import WordsAsGiven, load_annotator

    if override is None and info.annotator is None:
        raise CheckpointError(
            "syntaxformer.json: expected the annotator's name, got none. Give one with --annotator."
        )
    annotator = load_annotator(override or info.annotator or "")
    annotator = WordsAsGiven(annotator) if info.tokenized else annotator
    if annotator.version != info.annotator_version:
        warnings.warn(
            f"annotator: the model was trained with {info.annotator} {info.annotator_version}, this is "
            f"{annotator.name} {annotator.version}; tags may differ.",
            stacklevel=3,
        )
    return annotator


def _one_line(text: str) -> str:
    """Byte pieces can spell a line break; one line in is one line out."""
    return " ".join(text.splitlines()) if "\n" in text or "\r" in text else text


def _cut(text: EncodedText, longest: int) -> EncodedText:
    n_long = int((text.lengths > longest).sum())
    if not n_long:
        return text
    warnings.warn(
        f"{n_long} lines of more than {longest} pieces were cut to their first {longest}.", stacklevel=3
    )
    kept = [
        np.arange(start, min(stop, start + longest))
        for start, stop in zip(text.splits, text.splits[1:], strict=False)
    ]
    flat = np.concatenate(kept)
    splits = np.concatenate([[0], np.cumsum([len(part) for part in kept])])
    return EncodedText(text.pieces[flat], splits, text.factors[flat])
