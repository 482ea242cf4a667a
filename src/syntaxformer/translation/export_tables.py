"""An infused embedding as the source tables of CTranslate2, exactly.

h(w, v) = W[w] + Σ F_k[v_k] for every embedding infusion: a sum is that already; for a concatenation the
tables have zeros in the columns of the others; a linear map W [e ; f] + b = W₁ e + (W₂ f + b) goes into the
tables. CTranslate2 adds or concatenates streams, all of them the same way, so factors share one.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from syntaxformer.nn import InfusedEmbedding
from syntaxformer.syntax import FactorVocabulary
from syntaxformer.translation.exported_folder import SEPARATOR

__all__ = ["SourceTables", "Stream", "fold_embedding", "unique_names"]

LARGEST_TABLE = 4_000_000
"""Numbers in the table of a stream that stands for all combinations of its factors' values; 16 MB."""


@dataclass(frozen=True)
class Stream:
    """One source table.

    Args:
        names: Its tokens.
        table: `[tokens, width]`, float32.
        factors: The factors whose combinations it holds; none for pieces.
    """

    names: list[str]
    table: NDArray[np.float32]
    factors: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceTables:
    """All source tables, and whether they stand side by side or are added."""

    streams: list[Stream]
    concatenated: bool


def fold_embedding(
    embedding: InfusedEmbedding,
    pieces: Sequence[str],
    vocabularies: Mapping[str, FactorVocabulary],
    specials: Mapping[str, str],
) -> SourceTables:
    """The tables whose merge is the embedding.

    Args:
        embedding: Any embedding infusion.
        pieces: Names of the pieces, by id.
        vocabularies: Of the factors that stand beside pieces, in the order of the embedding's columns.
        specials: Names of the pieces "unk", "bos" and "eos", which each stream must have.
    """
    words, factors = _contributions(embedding, len(pieces), [len(one) for one in vocabularies.values()])
    piece_names = unique_names(pieces)
    if not factors:
        return SourceTables([Stream(piece_names, words.astype(np.float32))], concatenated=False)
    groups = _groups([len(one) for one in factors], words.shape[1])
    concatenated = embedding.kind.join == "concat" and len(groups) == 1
    if concatenated:
        width = embedding.plan.word_width
        factors[0] = factors[0] + words[0]  # what the first value of each factor gave to every word
        words, factors = words[:, :width], [table[:, width:] for table in factors]
    streams = [Stream(piece_names, words.astype(np.float32))]
    known = list(vocabularies.values())
    for group in groups:
        streams.append(_combined([known[k] for k in group], [factors[k] for k in group], specials))
    return SourceTables(streams, concatenated)


def _contributions(
    embedding: InfusedEmbedding, n_pieces: int, sizes: Sequence[int]
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """W and each F_k, found by asking the embedding for one piece and one value after the other.

    In double precision, where a difference of two sums is exact to float32.
    """
    exact = copy.deepcopy(embedding).double().eval()
    with torch.inference_mode():
        none = torch.zeros(1, n_pieces, len(sizes), dtype=torch.long)
        words = exact(torch.arange(n_pieces)[None], none if sizes else None)[0]
        factors = []
        for column, size in enumerate(sizes):
            ids = torch.zeros(1, size, len(sizes), dtype=torch.long)
            ids[0, :, column] = torch.arange(size)
            factors.append((exact(torch.zeros(1, size, dtype=torch.long), ids)[0] - words[0]).numpy())
    return words.numpy(), factors


def _groups(sizes: Sequence[int], width: int) -> list[list[int]]:
    """Factors that share a stream: all of them, unless their combinations are too many."""
    if math.prod(sizes) * width <= LARGEST_TABLE:
        return [list(range(len(sizes)))]
    return [[place] for place in range(len(sizes))]


def _combined(
    vocabularies: Sequence[FactorVocabulary],
    tables: Sequence[NDArray[np.float64]],
    specials: Mapping[str, str],
) -> Stream:
    """One stream for all combinations of the values of some factors, the last factor changing fastest."""
    table = tables[0]
    for other in tables[1:]:
        table = (table[:, None] + other[None]).reshape(-1, table.shape[1])
    entries = itertools.product(*(one.entries for one in vocabularies))
    names = unique_names("/".join(values) for values in entries)
    # A value of no word for the start and the end, the unknown value of each factor for what is unknown.
    unknown = sum(
        math.prod(len(one) for one in vocabularies[place + 1 :]) for place in range(len(vocabularies))
    )
    rows = {"unk": unknown, "bos": 0, "eos": 0}
    added = [(name, rows[role]) for role, name in specials.items() if name not in set(names)]
    table = np.concatenate([table, table[[row for _, row in added]]])
    names += [name for name, _ in added]
    return Stream(names, table.astype(np.float32), tuple(one.name for one in vocabularies))


def unique_names(names: Iterable[str]) -> list[str]:
    """Names that CTranslate2 can take: ￨, which separates its factors, is spelled out, none stands twice."""
    given = list(names)
    reserved, used = {name for name in given if SEPARATOR not in name}, set()
    result = []
    for name in given:
        if SEPARATOR in name or name in used:
            name = name.replace(SEPARATOR, "<U+FFE8>")
            while name in reserved or name in used:
                name += "_"
        used.add(name)
        result.append(name)
    return result
