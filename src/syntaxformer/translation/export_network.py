"""A `SyntaxTransformer` as a `TransformerSpec` of CTranslate2: names of weights, one by one, no more."""

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
from syntaxformer.nn.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual, sinusoids
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
    _configure(spec, model, specials)
    for part, stream in zip(spec.encoder.embeddings, tables.streams, strict=True):
        part.weight = stream.table
        spec.register_source_vocabulary(stream.names)
    spec.register_target_vocabulary(unique_names(target_pieces))
    _fill_encoder(spec.encoder, model.encoder, max_positions)
    _fill_decoder(spec.decoder, model, max_positions)
    return spec


def _configure(spec: Any, model: SyntaxTransformer, specials: dict[str, str]) -> None:
    spec.config.unk_token, spec.config.bos_token = specials["unk"], specials["bos"]
    spec.config.eos_token, spec.config.decoder_start_token = specials["eos"], specials["start"]
    norms = {module.eps for module in model.modules() if isinstance(module, nn.LayerNorm)}
    spec.config.layer_norm_epsilon = max(norms)


def _fill_encoder(spec: Any, encoder: Any, max_positions: int) -> None:
    spec.scale_embeddings = float(encoder.scale)
    spec.position_encodings.encodings = _positions(encoder.positions.d_model, max_positions)
    _fill_final_norm(spec, encoder.norm)
    for part, layer in zip(spec.layer, encoder.layers, strict=True):
        _fill_encoder_layer(part, layer)


def _fill_decoder(spec: Any, model: SyntaxTransformer, max_positions: int) -> None:
    decoder = model.decoder
    spec.scale_embeddings = float(decoder.scale)
    spec.embeddings.weight = _array(decoder.embedding.weight)
    spec.position_encodings.encodings = _positions(decoder.positions.d_model, max_positions)
    spec.projection.weight = _array(model.output.weight)
    _fill_final_norm(spec, decoder.norm)
    for part, layer in zip(spec.layer, decoder.layers, strict=True):
        _fill_decoder_layer(part, layer)


def _fill_encoder_layer(spec: Any, layer: EncoderLayer) -> None:
    own = layer.self_attention
    _fill_norm(spec.self_attention.layer_norm, layer.around_self_attention)
    _fill_linear(spec.self_attention.linear[0], own.query_key_value)
    _fill_linear(spec.self_attention.linear[1], own.output)
    _fill_feed_forward(spec.ffn, layer.feed_forward, layer.around_feed_forward)


def _fill_decoder_layer(spec: Any, layer: DecoderLayer) -> None:
    _fill_encoder_layer(spec, layer)
    cross = layer.cross_attention
    _fill_norm(spec.attention.layer_norm, layer.around_cross_attention)
    _fill_linear(spec.attention.linear[0], cross.query)
    _fill_linear(spec.attention.linear[1], cross.key_value)
    _fill_linear(spec.attention.linear[2], cross.output)


def _fill_feed_forward(spec: Any, network: FeedForward, around: Residual) -> None:
    _fill_norm(spec.layer_norm, around)
    _fill_linear(spec.linear_0, network.inner)
    _fill_linear(spec.linear_1, network.outer)


def _fill_final_norm(spec: Any, norm: nn.Module) -> None:
    if isinstance(norm, nn.LayerNorm):
        spec.layer_norm.gamma, spec.layer_norm.beta = _array(norm.weight), _array(norm.bias)


def _fill_norm(spec: Any, around: Residual) -> None:
    spec.gamma, spec.beta = _array(around.norm.weight), _array(around.norm.bias)


def _fill_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight, spec.bias = _array(linear.weight), _array(linear.bias)


def _positions(d_model: int, max_positions: int) -> NDArray[np.float32]:
    """Our table and not CTranslate2's own, which counts from 1."""
    return sinusoids(max_positions, d_model).numpy()


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
