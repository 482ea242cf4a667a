"""The tables of a translator that begin as vectors of a Hugging Face encoder, filled before training.

Source: Kapadia et al. (2020), "Augmented Transformer for Machine Translation", section 6. Differs: vectors
are brought to the spread of a fresh table, because ours are scaled by √d_model.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import AutoModel

from syntaxformer.data.source import SourceEncoder
from syntaxformer.errors import ConfigError
from syntaxformer.models import SyntaxTransformer
from syntaxformer.models.pretrained_vectors import (
    PieceVectors,
    contextual_vectors,
    input_vectors,
    reduce_width,
)
from syntaxformer.training.target_sections import PretrainedConfig, PretrainedTable

__all__ = ["fill_tables", "freeze_tables"]

_log = logging.getLogger("syntaxformer.training")


def fill_tables(
    model: SyntaxTransformer,
    config: PretrainedConfig,
    encoder: SourceEncoder,
    target: SourceEncoder,
    src_lines: Sequence[str],
    tgt_lines: Sequence[str],
) -> dict[str, dict[str, Any]]:
    """Give the recipe's tables their pretrained values.

    Args:
        model: The network, fresh.
        config: Which tables, and from where.
        encoder: Of the source; its tokenizer is the pretrained encoder's where its table is.
        target: Of the target, likewise.
        src_lines: Training text.
        tgt_lines: Its other side.

    Returns:
        For each table what was done: explained variance, pieces with a vector.

    Raises:
        ConfigError: An encoder cannot be loaded, has another tokenizer, or is narrower than its table.
    """
    sides = {
        "source": (config.source, model.encoder.embedding.word, encoder, src_lines),
        "target": (config.target, model.decoder.embedding, target, tgt_lines),
    }
    reports = {}
    with torch.random.fork_rng():  # dropout and data order are those of a run without
        for side, (section, table, text_encoder, lines) in sides.items():
            if section is not None:
                vectors = _vectors(side, section, text_encoder, lines, table.embedding_dim)
                _fill(table, vectors)
                reports[side] = _report(side, section, vectors)
    return reports


def freeze_tables(model: SyntaxTransformer, config: PretrainedConfig) -> None:
    """Take the tables that the recipe freezes out of training; the decoder's is its output, too."""
    if config.source is not None and config.source.freeze:
        model.encoder.embedding.word.weight.requires_grad_(False)
    if config.target is not None and config.target.freeze:
        model.decoder.embedding.weight.requires_grad_(False)


def _vectors(
    side: str, section: PretrainedTable, encoder: SourceEncoder, lines: Sequence[str], width: int
) -> PieceVectors:
    tokenizer = encoder.tokenizer
    pretrained = _load(section.model)
    try:
        vectors = input_vectors(pretrained, len(tokenizer))
        if section.vectors == "contextual":
            texts = encoder.preparation.prepare(lines[: section.max_lines]).texts
            vectors = contextual_vectors(pretrained, tokenizer, texts)
        return reduce_width(vectors, width)
    except ValueError as error:
        raise ConfigError(
            f"pretrained_embeddings.{side}: {error} Change model.d_model, "
            f"pretrained_embeddings.{side}.width or the encoder, {section.model}."
        ) from error


def _load(name: str) -> Any:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return AutoModel.from_pretrained(name).eval().to(device)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"pretrained_embeddings: expected an encoder, got {name}: {reason}") from error


@torch.no_grad()
def _fill(table: nn.Embedding, vectors: PieceVectors) -> None:
    """Known rows take the vectors' directions and the spread of the fresh table; padding stays zero."""
    known = torch.from_numpy(vectors.known)
    values = torch.from_numpy(vectors.values)[known]
    table.weight[known] = values * (table.weight.std() / values.std().clamp(min=1e-12))
    if table.padding_idx is not None:
        table.weight[table.padding_idx] = 0


def _report(side: str, section: PretrainedTable, vectors: PieceVectors) -> dict[str, Any]:
    n_known, n_pieces = int(vectors.known.sum()), len(vectors.known)
    _log.info(
        "%s table: %s vectors of %s, %d of %d pieces, %d columns with %.1f %% of the variance%s",
        side,
        section.vectors,
        section.model,
        n_known,
        n_pieces,
        vectors.values.shape[1],
        100 * vectors.explained_variance,
        ", frozen" if section.freeze else "",
    )
    return {
        "model": section.model,
        "vectors": section.vectors,
        "width": vectors.values.shape[1],
        "explained_variance": round(vectors.explained_variance, 6),
        "pieces": n_pieces,
        "pieces_with_vector": n_known,
    }
