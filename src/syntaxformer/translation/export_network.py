"""A `SyntaxTransformer` as a `TransformerSpec` of CTranslate2: names of weights, one by one, no more."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from syntaxformer.nn.positions import sinusoids
from syntaxformer.nn.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual
from syntaxformer.translation.export_tables import SourceTables, unique_names
from syntaxformer.translation.model import SyntaxTransformer

__all__ = ["network_spec"]

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
