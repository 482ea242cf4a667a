"""The tables of a translator that begin as vectors of a Hugging Face encoder, filled before training.

Source: Kapadia et al. (2020), "Augmented Transformer for Machine Translation", section 6. Differs: vectors
are brought to the spread of a fresh table, because ours are scaled by √d_model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers import PretrainedConfig as PretrainedConfiguration

from syntaxformer.base.errors import ConfigError
from syntaxformer.runs.config import FRACTION_SEED
from syntaxformer.runs.loading import checkpoint_errors, quiet_loading
from syntaxformer.translation.encoder_tokenizer import encoder_tokenizer
from syntaxformer.translation.model import SyntaxTransformer
from syntaxformer.translation.pretrained_vectors import (
    PieceVectors,
    check_columns,
    check_rows,
    contextual_vectors,
    input_vectors,
    reduce_width,
)
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.target_sections import PretrainedConfig, PretrainedTable

__all__ = ["check_tables", "fill_tables", "freeze_tables", "load_vectors"]

_log = logging.getLogger("syntaxformer.training")

_EXPECTED = "pretrained_embeddings: expected an encoder"


def check_tables(config: PretrainedConfig, word_width: int, d_model: int) -> None:
    """Hold that each encoder has the columns and rows of its table, by its config and tokenizer alone.

    Args:
        config: Which tables, and from where.
        word_width: Columns of the source's words.
        d_model: Columns of the target's.

    Raises:
        ConfigError: An encoder cannot be loaded, has another tokenizer, or is narrower than its table.
    """
    for side, section, width in _tables(config, word_width, d_model):
        n_pieces = len(encoder_tokenizer(section.model, target=False))
        shape = _config(section.model)
        own_width = getattr(shape, "hidden_size", width)
        if section.vectors == "input":  # some encoders have a narrow table and a map behind it
            own_width = getattr(shape, "embedding_size", None) or own_width
        try:
            check_rows(getattr(shape, "vocab_size", n_pieces), n_pieces)
            check_columns(width, own_width)
        except ValueError as error:
            raise _refusal(side, section, error) from error


def load_vectors(
    config: PretrainedConfig,
    widths: tuple[int, int],
    encoders: tuple[SourceEncoder, SourceEncoder],
    lines: tuple[Sequence[str], Sequence[str]],
) -> dict[str, PieceVectors]:
    """The vectors that the recipe's tables begin with.

    Args:
        config: Which tables, and from where.
        widths: Columns of the source's words and of the target's.
        encoders: Of source and target; the tokenizer is the pretrained encoder's where the table is.
        lines: Both sides of the training text.

    Raises:
        ConfigError: As `check_tables`, or the text has fewer pieces than PCA needs.
    """
    found = {}
    with torch.random.fork_rng():  # dropout and data order are those of a run without
        for side, section, width in _tables(config, *widths):
            place = int(side == "target")
            found[side] = _vectors(side, section, encoders[place], lines[place], width)
    return found


def fill_tables(
    model: SyntaxTransformer, config: PretrainedConfig, vectors: Mapping[str, PieceVectors]
) -> dict[str, dict[str, Any]]:
    """Give the tables of a fresh network their pretrained values.

    Args:
        model: The network.
        config: Which tables, and from where.
        vectors: Of `load_vectors`.

    Returns:
        For each table what was done: explained variance, pieces with a vector.
    """
    sides = {
        "source": (config.source, model.encoder.embedding.word),
        "target": (config.target, model.decoder.embedding),
    }
    reports = {}
    for side, (section, table) in sides.items():
        if section is not None:
            _fill(table, vectors[side], section.freeze)
            reports[side] = _report(side, section, vectors[side])
    return reports


def freeze_tables(model: SyntaxTransformer, config: PretrainedConfig) -> None:
    """Take the tables that the recipe freezes out of training; the decoder's is its output, too."""
    if config.source is not None and config.source.freeze:
        model.encoder.embedding.word.weight.requires_grad_(False)
    if config.target is not None and config.target.freeze:
        model.decoder.embedding.weight.requires_grad_(False)


def _tables(
    config: PretrainedConfig, word_width: int, d_model: int
) -> Iterator[tuple[str, PretrainedTable, int]]:
    """Side, section and columns of each pretrained table."""
    if config.source is not None:
        yield "source", config.source, config.source.width or word_width
    if config.target is not None:
        yield "target", config.target, d_model


def _vectors(
    side: str, section: PretrainedTable, encoder: SourceEncoder, lines: Sequence[str], width: int
) -> PieceVectors:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pretrained = _encoder(section).eval().to(device)
    try:
        vectors = input_vectors(pretrained, len(encoder.tokenizer))
        if section.vectors == "contextual":
            texts = encoder.preparation.prepare(_some(side, lines, section.max_lines)).texts
            # Not the target's, which has no [CLS]: states are those of lines as the encoder knows them.
            own = encoder_tokenizer(section.model, target=False)
            vectors = contextual_vectors(pretrained, own, texts)
        return reduce_width(vectors, width)
    except ValueError as error:
        raise _refusal(side, section, error) from error


def _some(side: str, lines: Sequence[str], n: int) -> Sequence[str]:
    """All lines, or so many of them drawn once for all, in their order."""
    if len(lines) <= n:
        return lines
    _log.info("%s table: contextual vectors over %d of %d lines, by max_lines", side, n, len(lines))
    rows = np.sort(np.random.default_rng(FRACTION_SEED).choice(len(lines), n, replace=False))
    return [str(lines[row]) for row in rows.tolist()]


def _refusal(side: str, section: PretrainedTable, problem: ValueError) -> ConfigError:
    return ConfigError(
        f"pretrained_embeddings.{side}: {problem} Change model.d_model, "
        f"pretrained_embeddings.{side}.width or the encoder, {section.model}."
    )


def _config(name: str) -> PretrainedConfiguration:
    with checkpoint_errors(name, _EXPECTED):
        return AutoConfig.from_pretrained(name)


def _encoder(section: PretrainedTable) -> PreTrainedModel:
    """The network whose vectors are taken, with all of its own weights that they come from."""
    with checkpoint_errors(section.model, _EXPECTED), quiet_loading():
        model, report = AutoModel.from_pretrained(
            section.model, use_safetensors=True, output_loading_info=True, dtype=torch.float32
        )
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model
    read = [encoder.get_input_embeddings().weight]
    if section.vectors == "contextual":
        read += [value for name, value in encoder.named_parameters() if "pooler" not in name.split(".")]
    names = {id(value): name for name, value in model.named_parameters()}
    if missing := sorted({names[id(value)] for value in read} & set(report["missing_keys"])):
        raise ConfigError(
            f"pretrained_embeddings: expected the weights of an encoder at {section.model}, missing: "
            f"{', '.join(missing[:3])} ({len(missing)} in all)."
        )
    return encoder


@torch.no_grad()
def _fill(table: nn.Embedding, vectors: PieceVectors, frozen: bool) -> None:
    """Known rows take the vectors' directions and the spread of the fresh table; padding stays zero.

    Other rows stay random where they can be learned; in a frozen table they are the mean of the known.
    """
    known = torch.from_numpy(vectors.known)
    values = torch.from_numpy(vectors.values)[known]
    values *= table.weight.std() / values.std().clamp(min=1e-12)
    table.weight[known] = values
    if frozen:
        table.weight[~known] = values.mean(0)
    if table.padding_idx is not None:
        table.weight[table.padding_idx] = 0


def _report(side: str, section: PretrainedTable, vectors: PieceVectors) -> dict[str, Any]:
    n_known, n_pieces = int(vectors.known.sum()), len(vectors.known)
    _log.info(
        "%s table: %s vectors of %s, %d of %d pieces, %d columns with %.1f %% of the variance%s%s",
        side,
        section.vectors,
        section.model,
        n_known,
        n_pieces,
        vectors.values.shape[1],
        100 * vectors.explained_variance,
        f", {vectors.n_cut} lines cut to its positions" if vectors.n_cut else "",
        ", frozen" if section.freeze else "",
    )
    return {
        "model": section.model,
        "vectors": section.vectors,
        "width": vectors.values.shape[1],
        "explained_variance": round(vectors.explained_variance, 6),
        "pieces": n_pieces,
        "pieces_with_vector": n_known,
        "cut_lines": vectors.n_cut,
    }
