"""A `SyntaxTransformer` as a `TransformerSpec` of CTranslate2: its weights, and its source tables, exactly.

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
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from syntaxformer.nn import InfusedEmbedding
from syntaxformer.nn.transformer import DecoderLayer, EncoderLayer, sinusoids
from syntaxformer.syntax import FactorVocabulary
from syntaxformer.translation.ctranslate2_decoder import SEPARATOR
from syntaxformer.translation.model import SyntaxTransformer

__all__ = [
    "SourceTables",
    "Stream",
    "fold_embedding",
    "network_spec",
    "unique_names",
]

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}


def network_spec(
    model: SyntaxTransformer,
    tables: SourceTables,
    target_pieces: list[str],
    specials: dict[str, str],
    max_positions: int,
) -> Any:
    """Build the specification; CTranslate2 must be installed.

    Args:
        model: The trained network.
        tables: Its source tables.
        target_pieces: Names of the target pieces, by id.
        specials: Names of the pieces "unk", "bos", "eos" and "start".
        max_positions: Rows of the position table.
    """
    from ctranslate2.specs import common_spec, transformer_spec

    config = model.config
    merge = common_spec.EmbeddingsMerge
    spec = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.n_heads,
        pre_norm=config.norm == "pre",
        activation=common_spec.Activation[ACTIVATIONS[config.activation]],
        num_source_embeddings=len(tables.streams),
        embeddings_merge=merge.CONCAT if tables.concatenated else merge.ADD,
    )
    spec.config.unk_token, spec.config.bos_token = specials["unk"], specials["bos"]
    spec.config.eos_token, spec.config.decoder_start_token = specials["eos"], specials["start"]
    spec.config.layer_norm_epsilon = max(one.eps for one in model.modules() if isinstance(one, nn.LayerNorm))
    for part, stream in zip(spec.encoder.embeddings, tables.streams, strict=True):
        part.weight = stream.table
        spec.register_source_vocabulary(stream.names)
    spec.register_target_vocabulary(unique_names(target_pieces))
    # Our positions and not CTranslate2's own, which counts from 1.
    positions = sinusoids(max_positions, config.d_model).numpy()
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        side.scale_embeddings = float(stack.scale)
        side.position_encodings.encodings = positions
        if isinstance(stack.norm, nn.LayerNorm):
            _fill(side.layer_norm, stack.norm)
        for part, layer in zip(side.layer, stack.layers, strict=True):
            _fill_layer(part, layer)
    spec.decoder.embeddings.weight = _array(model.decoder.embedding.weight)
    spec.decoder.projection.weight = _array(model.output.weight)
    return spec


def _fill_layer(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    own, network = layer.self_attention, layer.feed_forward
    _fill(spec.self_attention.layer_norm, layer.around_self_attention.norm)
    _fill(spec.self_attention.linear[0], own.query_key_value)
    _fill(spec.self_attention.linear[1], own.output)
    if isinstance(layer, DecoderLayer):
        cross = layer.cross_attention
        _fill(spec.attention.layer_norm, layer.around_cross_attention.norm)
        _fill(spec.attention.linear[0], cross.query)
        _fill(spec.attention.linear[1], cross.key_value)
        _fill(spec.attention.linear[2], cross.output)
    _fill(spec.ffn.layer_norm, layer.around_feed_forward.norm)
    _fill(spec.ffn.linear_0, network.inner)
    _fill(spec.ffn.linear_1, network.outer)


def _fill(spec: Any, module: nn.Linear | nn.LayerNorm) -> None:
    """Weight and bias, which CTranslate2 calls gamma and beta in a norm."""
    names = ("gamma", "beta") if isinstance(module, nn.LayerNorm) else ("weight", "bias")
    for name, value in zip(names, (module.weight, module.bias), strict=True):
        setattr(spec, name, _array(value))


def _array(weight: Tensor) -> NDArray[np.float32]:
    return weight.detach().float().cpu().numpy().copy()


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
