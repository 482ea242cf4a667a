"""Fills embedding tables of a translator with vectors of a Hugging Face encoder before training.

Source: Kapadia et al. (2020), "Augmented Transformer for Machine Translation", section 6. Differs: vectors
are scaled to the standard deviation of a fresh table, because our embeddings are multiplied by √d_model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from transformers import AutoConfig, AutoModel, PreTrainedModel, PreTrainedTokenizerFast

from syntaxformer.base.errors import ConfigError, needs_extra
from syntaxformer.runs.config import FRACTION_SEED, Section
from syntaxformer.runs.loading import (
    check_outputs,
    checked_checkpoint,
    checkpoint_errors,
    longest_input,
    quiet_loading,
)
from syntaxformer.translation.model import SyntaxTransformer
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.subwords import encoder_tokenizer

_log = logging.getLogger("syntaxformer.training")


class PretrainedTable(Section):
    """An embedding table that starts from vectors of a Hugging Face encoder and uses its tokenizer."""

    model: str = Field(description="folder or hub name of the encoder, which needs a fast tokenizer")
    vectors: Literal["input", "contextual"] = Field(
        "input",
        description="input: its input embeddings; contextual: its last states, averaged over all occurrences "
        "of each piece in the training text",
    )
    width: int | None = Field(
        None,
        ge=1,
        description="columns that PCA keeps; if fewer than the word width, a learned map widens them; "
        "null: the word width (Kapadia et al. 2020: 512, 256, 128). For the source only",
    )
    max_lines: int = Field(
        50_000,
        ge=1,
        description="number of training lines, drawn at random, that contextual vectors are averaged over",
    )
    freeze: bool = Field(False, description="do not train the table")


class PretrainedConfig(Section):
    """Which tables start from pretrained vectors."""

    source: PretrainedTable | None = Field(None, description="the encoder's table")
    target: PretrainedTable | None = Field(
        None, description="the decoder's table, which is also its output layer; its width is d_model"
    )


def pretrained_problems(
    config: PretrainedConfig | None, word_width: int, d_model: int, tokenizer: str | None
) -> list[str]:
    """Everything in the section that does not fit the recipe."""
    if config is None:
        return []
    problems = []
    if config.source is None and config.target is None:
        problems.append("pretrained_embeddings: expected source, target or both, got neither.")
    if tokenizer is not None:
        problems.append(
            "subwords.tokenizer: expected none with pretrained_embeddings, whose encoder has its own "
            f"tokenizer, got {tokenizer}. Leave it out."
        )
    if config.source is not None and (config.source.width or 0) > word_width:
        problems.append(
            f"pretrained_embeddings.source.width: expected at most the word width, {word_width}, "
            f"got {config.source.width}."
        )
    if config.target is not None and config.target.width not in (None, d_model):
        problems.append(
            f"pretrained_embeddings.target.width: expected d_model = {d_model}, as the decoder's table is "
            f"also its output layer, got {config.target.width}. Leave it out."
        )
    return problems


_EXPECTED = "pretrained_embeddings: expected an encoder"
BATCH_LINES, LONGEST = 64, 512
MOST_SPARE_ROWS = 1000
"""A table may have so many rows more than its tokenizer has pieces, or 5 % more: some are padded."""


@dataclass(frozen=True)
class PieceVectors:
    """A vector for each piece.

    Args:
        values: `[pieces, width]`, float32.
        known: `[pieces]`, False for a piece without a vector, because it is not in the text.
        explained_variance: Share of the variance that PCA kept; 1 if nothing was reduced.
        n_cut: Number of lines that were cut because the encoder has too few positions.
    """

    values: NDArray[np.float32]
    known: NDArray[np.bool_]
    explained_variance: float = 1.0
    n_cut: int = 0


def _tables(
    config: PretrainedConfig, word_width: int = 0, d_model: int = 0
) -> Iterator[tuple[str, PretrainedTable, int]]:
    """Side, section and columns of each pretrained table."""
    if config.source is not None:
        yield "source", config.source, config.source.width or word_width
    if config.target is not None:
        yield "target", config.target, d_model


@contextmanager
def _refused(side: str, section: PretrainedTable) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ConfigError(
            f"pretrained_embeddings.{side}: {error} Change model.d_model, "
            f"pretrained_embeddings.{side}.width or the encoder, {section.model}."
        ) from error


def check_tables(config: PretrainedConfig, widths: tuple[int, int]) -> None:
    """Check from config and tokenizer that each encoder has the columns and rows that its table needs.

    Raises:
        ConfigError: An encoder cannot be loaded, does not fit its tokenizer, or is narrower than its table.
    """
    for side, section, width in _tables(config, *widths):
        n_pieces = len(encoder_tokenizer(section.model, target=False))
        with checkpoint_errors(section.model, _EXPECTED):
            shape = AutoConfig.from_pretrained(section.model, trust_remote_code=False)
        own_width = getattr(shape, "hidden_size", width)
        if section.vectors == "input":  # some encoders have a narrow table, which a map widens
            own_width = getattr(shape, "embedding_size", None) or own_width
        with _refused(side, section):
            _check_rows(getattr(shape, "vocab_size", n_pieces), n_pieces)
            _check_columns(width, own_width)


def _check_rows(n_rows: int, n_pieces: int) -> None:
    """Check that an encoder's table has a row for each piece of a tokenizer and few more."""
    if not n_pieces <= n_rows <= n_pieces + max(MOST_SPARE_ROWS, n_pieces // 20):
        raise ValueError(
            f"expected a row for each of the tokenizer's {n_pieces} pieces, got an encoder with "
            f"{n_rows} rows, which belongs to another tokenizer."
        )


def _check_columns(width: int, own_width: int) -> None:
    if width > own_width:
        raise ValueError(f"expected at most {own_width} columns, the encoder's own width, got {width}.")


def load_vectors(
    config: PretrainedConfig,
    widths: tuple[int, int],
    encoders: tuple[SourceEncoder, SourceEncoder],
    lines: tuple[Sequence[str], Sequence[str]],
) -> dict[str, PieceVectors]:
    """The vectors with which the recipe's tables start.

    Raises:
        ConfigError: As `check_tables`, or the text has fewer pieces than PCA needs.
    """
    vectors = {}
    with torch.random.fork_rng():  # keeps dropout and data order equal to those of a run without vectors
        for side, section, width in _tables(config, *widths):
            encoder, text = encoders[side == "target"], lines[side == "target"]
            pretrained = _encoder(section).eval().to("cuda" if torch.cuda.is_available() else "cpu")
            with _refused(side, section):
                of_side = input_vectors(pretrained, len(encoder.tokenizer))
                if section.vectors == "contextual":
                    text = encoder.preparation.prepare(sample_lines(side, text, section.max_lines)).texts
                    # The target's tokenizer adds no [CLS], which the encoder was trained with.
                    tokenizer = encoder_tokenizer(section.model, target=False)
                    of_side = contextual_vectors(pretrained, tokenizer, text)
                vectors[side] = reduce_width(of_side, width)
    return vectors


def sample_lines(side: str, lines: Sequence[str], n: int) -> Sequence[str]:
    """All lines, or `n` of them, drawn with a fixed seed, in order."""
    if len(lines) <= n:
        return lines
    _log.info("%s table: contextual vectors from %d of %d lines (max_lines)", side, n, len(lines))
    rows = np.sort(np.random.default_rng(FRACTION_SEED).choice(len(lines), n, replace=False))
    return [str(lines[row]) for row in rows.tolist()]


def _encoder(section: PretrainedTable) -> PreTrainedModel:
    """Load the network that gives the vectors; none of the weights that they depend on may be missing."""
    options = {"use_safetensors": True, "trust_remote_code": False, "dtype": torch.float32}
    with checkpoint_errors(section.model, _EXPECTED), quiet_loading():
        folder = checked_checkpoint(section.model, AutoModel)
        model, report = AutoModel.from_pretrained(folder, output_loading_info=True, **options)
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model
    weights = [encoder.get_input_embeddings().weight]
    if section.vectors == "contextual":
        weights += [value for name, value in encoder.named_parameters() if "pooler" not in name.split(".")]
    names = {id(value): name for name, value in model.named_parameters()}
    if missing := sorted({names[id(value)] for value in weights} & set(report["missing_keys"])):
        raise ConfigError(
            f"pretrained_embeddings: expected the weights of an encoder at {section.model}, missing: "
            f"{', '.join(missing[:3])} ({len(missing)} in all)."
        )
    return encoder


def input_vectors(model: PreTrainedModel, n_pieces: int) -> PieceVectors:
    """The encoder's own input embeddings.

    Raises:
        ValueError: The encoder has fewer rows than the tokenizer has pieces.
    """
    table = model.get_input_embeddings().weight.detach().float().cpu().numpy()
    _check_rows(len(table), n_pieces)
    return PieceVectors(table[:n_pieces].copy(), np.ones(n_pieces, bool))


@torch.inference_mode()
def contextual_vectors(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, lines: Sequence[str]
) -> PieceVectors:
    """The last states of the encoder, averaged over all occurrences of each piece in a text."""
    longest = min(longest_input(model), LONGEST)
    whole = [encoding.ids for encoding in tokenizer.backend_tokenizer.encode_batch(list(lines))]
    encoded = [ids if len(ids) <= longest else [*ids[: longest - 1], ids[-1]] for ids in whole]
    encoded.sort(key=len)
    sums, counts = torch.zeros(len(tokenizer), model.config.hidden_size), torch.zeros(len(tokenizer))
    for start in range(0, len(encoded), BATCH_LINES):
        rows = [torch.tensor(ids) for ids in encoded[start : start + BATCH_LINES]]
        pieces = torch.nn.utils.rnn.pad_sequence(rows, True, tokenizer.pad_token_id)
        mask = torch.arange(pieces.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
        inputs = {"input_ids": pieces.to(model.device), "attention_mask": mask.long().to(model.device)}
        states = model(**inputs).last_hidden_state.float().cpu()
        check_outputs(states)
        sums.index_add_(0, pieces[mask], states[mask])
        counts.index_add_(0, pieces[mask], torch.ones(int(mask.sum())))
    means = sums / counts.clamp(min=1)[:, None]
    n_cut = sum(len(ids) > longest for ids in whole)
    return PieceVectors(means.numpy(), (counts > 0).numpy(), n_cut=n_cut)


def reduce_width(vectors: PieceVectors, width: int) -> PieceVectors:
    """The first `width` principal components of the known vectors, or the vectors if they have this width.

    Raises:
        ValueError: `width` is larger than the number of columns, or PCA needs more vectors than there are.
    """
    n_known, own_width = int(vectors.known.sum()), vectors.values.shape[1]
    _check_columns(width, own_width)
    if width == own_width:
        return vectors
    if width > n_known:
        raise ValueError(f"expected at most {n_known} columns, the number of vectors, got {width}.")
    with needs_extra("pca", "finds the principal components"):
        from sklearn.decomposition import PCA

    pca = PCA(width, svd_solver="covariance_eigh")
    values = np.zeros((len(vectors.values), width), np.float32)
    values[vectors.known] = pca.fit_transform(vectors.values[vectors.known].astype(np.float64))
    return replace(vectors, values=values, explained_variance=float(pca.explained_variance_ratio_.sum()))


@torch.no_grad()
def start_tables(
    model: SyntaxTransformer, config: PretrainedConfig, vectors: Mapping[str, PieceVectors] | None
) -> dict[str, dict[str, Any]]:
    """Fill the tables of a fresh network with pretrained vectors, and freeze those that the recipe freezes.

    The decoder's table is also its output layer. A network from a checkpoint has its values: pass no vectors.
    Known rows are scaled to the standard deviation of the fresh table, and padding stays zero. Other rows
    stay random if they are trained; in a frozen table they become the mean of the known rows. Each filled
    table has a report.
    """
    reports = {}
    for side, section, _ in _tables(config):
        table = model.encoder.embedding.word if side == "source" else model.decoder.embedding
        table.weight.requires_grad_(not section.freeze)
        if vectors is None:
            continue
        known = torch.from_numpy(vectors[side].known)
        values = torch.from_numpy(vectors[side].values)[known]
        values *= table.weight.std() / values.std().clamp(min=1e-12)
        table.weight[known] = values
        if section.freeze:
            table.weight[~known] = values.mean(0)
        if table.padding_idx is not None:
            table.weight[table.padding_idx] = 0
        n_known, width = values.shape
        n_cut, variance = vectors[side].n_cut, vectors[side].explained_variance
        reports[side] = {
            "model": section.model,
            "vectors": section.vectors,
            "width": width,
            "explained_variance": round(variance, 6),
            "pieces": len(known),
            "pieces_with_vector": n_known,
            "cut_lines": n_cut,
        }
        cut = f", {n_cut} lines cut to its positions" if n_cut else ""
        frozen = ", frozen" if section.freeze else ""
        _log.info(
            f"{side} table: {section.vectors} vectors of {section.model}, {n_known} of {len(known)} pieces, "
            f"{width} columns with {100 * variance:.1f} % of the variance{cut}{frozen}"
        )
    return reports
