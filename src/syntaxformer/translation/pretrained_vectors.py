"""Vectors of a Hugging Face encoder, one a piece of its tokenizer, reduced by PCA: where a table may begin.

Which table it is and what it is called is the business of `tasks.pretrained_tables`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerFast

__all__ = [
    "PieceVectors",
    "check_columns",
    "check_rows",
    "contextual_vectors",
    "input_vectors",
    "reduce_width",
]

BATCH_LINES = 64
MOST_SPARE_ROWS = 1000
"""Rows that a table may have beyond its tokenizer's pieces, or a twentieth of them: some are made even so."""


@dataclass(frozen=True)
class PieceVectors:
    """A vector for each piece.

    Args:
        values: `[pieces, width]`, float32.
        known: `[pieces]`, False where there is no vector: a piece that the text does not hold.
        explained_variance: Share of the variance that PCA kept, 1 where nothing was reduced.
        n_cut: Lines that were cut to the encoder's positions.
    """

    values: NDArray[np.float32]
    known: NDArray[np.bool_]
    explained_variance: float = 1.0
    n_cut: int = 0


def check_rows(n_rows: int, n_pieces: int) -> None:
    """Hold that an encoder's table has a row for each piece of a tokenizer, and few that pad it.

    Raises:
        ValueError: It has fewer, or far more.
    """
    if not n_pieces <= n_rows <= n_pieces + max(MOST_SPARE_ROWS, n_pieces // 20):
        raise ValueError(
            f"expected a row for each of the tokenizer's {n_pieces} pieces, got an encoder with "
            f"{n_rows}: it belongs to another tokenizer."
        )


def check_columns(width: int, own_width: int) -> None:
    """Hold that an encoder is as wide as what its vectors are reduced to.

    Raises:
        ValueError: It is narrower.
    """
    if width > own_width:
        raise ValueError(f"expected at most {own_width} columns, the encoder's own width, got {width}.")


def input_vectors(model: PreTrainedModel, n_pieces: int) -> PieceVectors:
    """The encoder's own input embeddings.

    Args:
        model: The encoder.
        n_pieces: Pieces of its tokenizer.

    Raises:
        ValueError: The encoder has fewer rows than the tokenizer has pieces.
    """
    table = model.get_input_embeddings().weight.detach().float().cpu().numpy()
    check_rows(len(table), n_pieces)
    return PieceVectors(table[:n_pieces].copy(), np.ones(n_pieces, bool))


@torch.inference_mode()
def contextual_vectors(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, lines: Sequence[str]
) -> PieceVectors:
    """The last states of the encoder, averaged over all places of each piece in a text.

    Args:
        model: The encoder, in evaluation mode.
        tokenizer: Its tokenizer.
        lines: The text; longer lines than the encoder can read are cut, and counted.
    """
    longest = getattr(model.config, "max_position_embeddings", 512) - 2
    whole = [one.ids for one in tokenizer.backend_tokenizer.encode_batch(list(lines))]
    encoded = [ids if len(ids) <= longest else [*ids[: longest - 1], ids[-1]] for ids in whole]
    order = sorted(range(len(encoded)), key=lambda row: len(encoded[row]))
    sums, counts = torch.zeros(len(tokenizer), model.config.hidden_size), torch.zeros(len(tokenizer))
    for start in range(0, len(order), BATCH_LINES):
        rows = [torch.tensor(encoded[row]) for row in order[start : start + BATCH_LINES]]
        pieces = torch.nn.utils.rnn.pad_sequence(rows, True, tokenizer.pad_token_id)
        mask = torch.arange(pieces.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
        given = {"input_ids": pieces.to(model.device), "attention_mask": mask.long().to(model.device)}
        states = model(**given).last_hidden_state.float().cpu()
        sums.index_add_(0, pieces[mask], states[mask])
        counts.index_add_(0, pieces[mask], torch.ones(int(mask.sum())))
    means = sums / counts.clamp(min=1)[:, None]
    n_cut = sum(len(ids) > longest for ids in whole)
    return PieceVectors(means.numpy(), (counts > 0).numpy(), n_cut=n_cut)


def reduce_width(vectors: PieceVectors, width: int) -> PieceVectors:
    """The first `width` principal components of the known vectors; as they are where the width is theirs.

    Raises:
        ValueError: More components than the vectors have columns, or fewer than those but more than there are
            vectors.
    """
    n_known, own_width = int(vectors.known.sum()), vectors.values.shape[1]
    check_columns(width, own_width)
    if width == own_width:
        return vectors
    if width > n_known:
        raise ValueError(f"expected at most {n_known} columns, one a piece with a vector, got {width}.")
    from sklearn.decomposition import PCA

    pca = PCA(width, svd_solver="covariance_eigh")
    values = np.zeros((len(vectors.values), width), np.float32)
    values[vectors.known] = pca.fit_transform(vectors.values[vectors.known].astype(np.float64))
    return replace(vectors, values=values, explained_variance=float(pca.explained_variance_ratio_.sum()))
