"""Exports a trained translator as a folder that CTranslate2 and this package can translate with.

The folder holds CTranslate2's files (model.bin, config.json, vocabularies), the model folder's tokenizer and
`syntaxformer.json`, and `export.json`. It is written completely or not at all.

The network becomes a `TransformerSpec` of CTranslate2, where every embedding infusion has the form
h(w, v) = W[w] + Σ F_k[v_k]. A sum has this form already. For a concatenation, each table has zeros in the
columns of the others. A linear map W [e ; f] + b = W₁ e + (W₂ f + b) is multiplied into the tables.
CTranslate2 either adds all streams or concatenates all of them, so the factors share one stream.
"""

from __future__ import annotations

import copy
import itertools
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from syntaxformer.base.errors import ConfigError
from syntaxformer.base.files import MANIFEST, atomic_folder
from syntaxformer.nn import ENCODER_KINDS, INFUSION_KINDS, InfusedEmbedding
from syntaxformer.nn.transformer import DecoderLayer, EncoderLayer, sinusoids
from syntaxformer.runs.export import check_difference, copy_side_files, need_packages, origin, output_problems
from syntaxformer.runs.loading import TRANSLATOR, check_outputs, longest_input, verify_folder
from syntaxformer.syntax import FactorVocabulary
from syntaxformer.syntax.ragged import splits_of
from syntaxformer.translation.alignment import AlignmentHead
from syntaxformer.translation.ctranslate2_decoder import (
    EXPORT,
    SEPARATOR,
    CTranslate2Info,
    SourceTokens,
    read_names,
)
from syntaxformer.translation.decoding import longest_translations
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig, shift_right
from syntaxformer.translation.model_folder import FolderInfo, load_network, load_source_encoder, read_info
from syntaxformer.translation.source import EncodedText, SourceEncoder, source_batch
from syntaxformer.translation.translator import MAX_SOURCE_PIECES

_log = logging.getLogger("syntaxformer.export")

QUANTIZATIONS = ("float32", "int8", "int8_float32", "float16", "bfloat16")
"""Types of the stored weights."""

LARGEST_DIFFERENCE = 1e-3
"""Largest accepted difference of a log-probability in float32; measured differences are below 1e-4."""

REPLACED = ("config.json", "model.safetensors", "generation_config.json", MANIFEST, TRANSLATOR)
"""Files of a model folder that an export omits or writes itself."""


def export_translator(
    model_folder: str | Path, output: str | Path, quantization: str = "float32", overwrite: bool = False
) -> Path:
    """Write a trained translator as a CTranslate2 folder.

    Args:
        model_folder: A folder that `train` wrote.
        output: The new folder.
        quantization: One of `QUANTIZATIONS`.
        overwrite: Replace an older export in `output`.

    Returns:
        `output`.

    Raises:
        ConfigError: There is no such quantization, the output is in use, or CTranslate2 cannot compute the
            network.
        CheckpointError: The model folder cannot be read, or the export does not compute what the model does.
        BackendMissingError: CTranslate2 is not installed.
        DataError: The folder cannot be written.
    """
    model_folder, output = Path(model_folder), Path(output)
    problems = output_problems(output, EXPORT, overwrite)
    if quantization not in QUANTIZATIONS:
        known = ", ".join(QUANTIZATIONS)
        problems.insert(0, f"quantization: expected one of {known}, got {quantization!r}.")
    if problems:
        raise ConfigError(problems)
    need_packages(("CTranslate2",), "exported models need")
    verify_folder(model_folder, TRANSLATOR)
    info = read_info(model_folder)
    if info.backend != "pytorch":
        raise ConfigError(f"model: expected a folder that `train` wrote, got an export, {model_folder}.")
    encoder = load_source_encoder(model_folder, info)
    model = load_network(model_folder, encoder).eval()
    if reasons := why_not(model.config, getattr(model, "infusion", None)):
        raise ConfigError(reasons)
    with atomic_folder(output) as folder:
        export = _write_network(folder, model, encoder, info, quantization, model_folder)
        copy_side_files(folder, model_folder, REPLACED)
        exported = info.model_copy(update={"backend": "ctranslate2"})
        (folder / TRANSLATOR).write_text(exported.model_dump_json(indent=1), "utf-8")
        (folder / EXPORT).write_text(export.model_dump_json(indent=1), "utf-8")
    before = "" if quantization == "float32" else ", before quantization"
    within = f"{export.largest_difference:.1e} of the model's{before}"
    _log.info("wrote %s, %s; log-probabilities within %s", output, quantization, within)
    return output


def _write_network(
    folder: Path, model: Any, encoder: SourceEncoder, info: FolderInfo, quantization: str, model_folder: Path
) -> CTranslate2Info:
    """Write CTranslate2's files; they are checked in float32 before they are quantized."""
    from ctranslate2.specs import common_spec

    is_own = isinstance(model, SyntaxTransformer)
    pieces = _piece_names(encoder.tokenizer, model.get_input_embeddings().num_embeddings)
    if encoder.prepend is not None:  # the ids of tags come after those of the text's pieces
        tags = encoder.vocabularies.items()
        pieces += [f"<{name}:{value}>" for name, values in tags for value in values.entries]
    target_pieces = _piece_names(encoder.target_tokenizer, model.config.vocab_size)
    config, bos_id = model.config, getattr(model.config, "bos_token_id", None)
    start, end = target_pieces[config.decoder_start_token_id], target_pieces[config.eos_token_id]
    bos = start if bos_id is None else target_pieces[bos_id]
    every_stream = {"unk": "<unk>", "bos": bos, "eos": end}  # needed even if the tokenizer has none
    columns = {name: encoder.vocabularies[name] for name in encoder.columns}
    embedding = model.encoder.embedding if is_own else HostEmbedding(model)
    streams, concatenated = fold_embedding(embedding, pieces, columns, every_stream)
    longest = longest_translations(np.array([MAX_SOURCE_PIECES]), info.decoding.max_length_factor)
    export = CTranslate2Info(
        quantization=quantization,
        streams=[list(stream.factors) for stream in streams[1:]],
        max_positions=min(max(MAX_SOURCE_PIECES, int(longest[0])) + 1, longest_input(model)),
        **origin(model_folder, ("ctranslate2",)),
    )

    def save(into: Path, precision: str | None) -> None:
        spec = host_spec(model) if not is_own else network_spec(model, concatenated, export.max_positions)
        spec.encoder.embeddings += [common_spec.EmbeddingsSpec() for _ in streams[1:]]
        spec.config.unk_token, spec.config.bos_token = every_stream["unk"], bos
        spec.config.eos_token, spec.config.decoder_start_token = end, start
        for embedding_spec, stream in zip(spec.encoder.embeddings, streams, strict=True):
            embedding_spec.weight = stream.table
            spec.register_source_vocabulary(stream.names)
        spec.register_target_vocabulary(unique_names(target_pieces))
        if info.alignment is not None:
            put_first(spec.decoder, info.alignment)
        spec.validate()
        spec.optimize(quantization=precision)
        spec.save(str(into))

    with TemporaryDirectory(prefix="syntaxformer-") as temporary:
        save(Path(temporary), None)
        difference = largest_difference(model, encoder, Path(temporary), export, len(pieces))
    check_difference(difference, LARGEST_DIFFERENCE, "log-probabilities")
    save(folder, quantization)
    return export.model_copy(update={"largest_difference": difference})


def _piece_names(tokenizer: PreTrainedTokenizerFast, n_pieces: int) -> list[str]:
    """Names by id; table rows beyond the tokenizer's pieces get names too, though they are never used."""
    known = tokenizer.convert_ids_to_tokens(range(min(n_pieces, len(tokenizer))))
    return [*known, *(f"<unused_{number}>" for number in range(len(known), n_pieces))]


REASONS = {
    "pos_encoder": "its second encoder over tags",
    "module": "an embedding of your own",
    "lisa": "its biaffine attention head",
    "masks": "attention over tree relations",
    "relation_bias": "attention biased by tree relations",
}
"""Part that a model may have → what CTranslate2 cannot compute of it."""


def why_not(config: Any, infusion: Any = None) -> list[str]:
    """Why a model of this config, infused with this if it is a host, cannot be exported; a sentence each."""
    if isinstance(config, SyntaxTransformerConfig):
        sections = {name: section for name in REASONS if (section := getattr(config, name, None)) is not None}
        obstacles = {name for name, section in sections.items() if section.get("layers") not in ((), [])}
        kind = (config.infusion or {}).get("kind", "none")
        obstacles |= {kind, INFUSION_KINDS[kind].join}
    else:
        sections = infusion and infusion.config
        obstacles = {name for name in REASONS if getattr(sections, name, None) is not None}
        if sections and sections.embedding is not None:
            obstacles.add(ENCODER_KINDS[sections.embedding.kind].join)
        if not obstacles and loader_of(config) is None:
            expected = "expected one that CTranslate2 has a converter for"
            return [f"model: {expected}, got {config.model_type}. Translate with the trained folder."]
    reasons = {name: reason for name, reason in REASONS.items() if name in obstacles}
    expected = "expected a model that CTranslate2 can compute"
    return [
        f"{name}: {expected}, got one with {reason}. Translate with the trained folder."
        for name, reason in reasons.items()
    ]


N_LINES, LONGEST = 11, 23


def largest_difference(
    model: Any, encoder: SourceEncoder, folder: Path, info: CTranslate2Info, n_pieces: int
) -> float:
    """The largest difference between a network's log-probabilities and its export's, on random lines."""
    import ctranslate2

    random = np.random.default_rng(1)
    splits = splits_of(random.integers(1, LONGEST, N_LINES))
    pieces = random.integers(0, n_pieces, splits[-1]).astype(np.int32)
    sizes = [len(encoder.vocabularies[name]) for name in encoder.columns]
    factors = random.integers(0, sizes, (len(pieces), len(sizes)), np.int32)
    source, lengths = EncodedText(pieces, splits, factors), random.integers(1, LONGEST, N_LINES)
    targets = [random.integers(4, model.config.vocab_size, length).tolist() for length in lengths]
    names = read_names(folder, "target")
    exported = ctranslate2.Translator(str(folder), compute_type="float32").score_batch(
        SourceTokens(folder, info, encoder)(source, range(N_LINES)),
        [[names[piece] for piece in target] for target in targets],
        max_input_length=0,
    )
    differences = []
    for row, (target, scored) in enumerate(zip(targets, exported, strict=True)):
        batch = {name: tensor.to(model.device) for name, tensor in source_batch(source, [row], 0).items()}
        labels = torch.tensor([[*target, model.config.eos_token_id]], device=model.device)
        with torch.inference_mode():
            inputs = {**batch, "decoder_input_ids": shift_right(labels, model.config)}
            logs = model(**inputs).logits.float().log_softmax(-1)
        check_outputs(logs)
        ours = logs.gather(-1, labels[..., None])[0, :, 0].cpu().numpy()
        differences.append(np.abs(ours - np.array(scored.log_probs)).max())
    return float(np.max(differences))  # NaN if one is


ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}


def network_spec(model: SyntaxTransformer, concatenates: bool, max_positions: int) -> Any:
    """The specification, but for its pieces and its streams of factors, which it adds or concatenates."""
    from ctranslate2.specs import common_spec, transformer_spec

    config = model.config
    merge = common_spec.EmbeddingsMerge
    spec = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.n_heads,
        pre_norm=config.norm == "pre",
        activation=common_spec.Activation[ACTIVATIONS[config.activation]],
        embeddings_merge=merge.CONCAT if concatenates else merge.ADD,
    )
    norms = (module for module in model.modules() if isinstance(module, nn.LayerNorm))
    spec.config.layer_norm_epsilon = max(norm.eps for norm in norms)
    # These are our positions: CTranslate2's own begin at 1.
    positions = sinusoids(max_positions, config.d_model).numpy()
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        side.scale_embeddings = float(stack.scale)
        side.position_encodings.encodings = positions
        if isinstance(stack.norm, nn.LayerNorm):
            _fill(side.layer_norm, stack.norm)
        for layer_spec, layer in zip(side.layer, stack.layers, strict=True):
            _fill_layer(layer_spec, layer)
    spec.decoder.embeddings.weight = _array(model.decoder.embedding.weight)
    spec.decoder.projection.weight = _array(model.output.weight)
    return spec


def put_first(decoder: Any, chosen: AlignmentHead) -> None:
    """Exchange heads of a layer's cross-attention: CTranslate2 returns the weights of the first one.

    The heads of a layer are added up, so that their order changes nothing else.

    Raises:
        ConfigError: There is no such head.
    """
    n_heads = int(decoder.num_heads)
    if chosen.layer >= len(decoder.layer) or chosen.head >= n_heads:
        raise ConfigError(
            f"alignment: expected a head of the decoder's {len(decoder.layer)} layers with {n_heads} heads "
            f"each, got layer {chosen.layer}, head {chosen.head}."
        )
    query, key_value, output = decoder.layer[chosen.layer].attention.linear
    heads = np.arange(len(query.weight)).reshape(n_heads, -1)
    heads[[0, chosen.head]] = heads[[chosen.head, 0]]
    rows = heads.ravel()
    for linear, order in ((query, rows), (key_value, np.concatenate([rows, len(rows) + rows]))):
        linear.weight = linear.weight[order]
        if linear.has_bias():
            linear.bias = linear.bias[order]
    output.weight = output.weight[:, rows]
    decoder.alignment_layer = np.int16(chosen.layer)


def loader_of(config: Any) -> Any:
    """CTranslate2's converter for a pretrained translator; None if it has none."""
    from ctranslate2.converters import transformers

    return transformers._MODEL_LOADERS.get(type(config).__name__)


def host_spec(model: Any) -> Any:
    """As `network_spec`, of a pretrained translator, whose factors are added, by CTranslate2's converter."""
    from ctranslate2.specs import common_spec

    loader, original = loader_of(model.config), copy.deepcopy(model)
    kind = model.config.model_type
    for name, value in (("normalize_before", kind == "mbart"), ("normalize_embedding", kind != "marian")):
        if not hasattr(original.config, name):  # which older versions of transformers stored
            setattr(original.config, name, value)
    if kind in ("t5", "mt5"):  # By this name the converter asks whether outputs are scaled.
        original.config.tie_word_embeddings = getattr(original.config, "scale_decoder_outputs", False)
    if kind == "marian":
        # The converter would cut off the last piece, where Marian has its padding: ours may be another.
        spec = super(type(loader), loader).get_model_spec(original)
    else:
        spec = loader.get_model_spec(original)
    # Marian's decoder begins with its padding, whose row is zero in OPUS-MT, and need not be after training.
    spec.decoder.start_from_zero_embedding = False
    spec.encoder.embeddings_merge = np.int8(common_spec.EmbeddingsMerge.ADD)
    return spec


def _fill_layer(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    attention, network = layer.self_attention, layer.feed_forward
    _fill(spec.self_attention.layer_norm, layer.around_self_attention.norm)
    _fill(spec.self_attention.linear[0], attention.query_key_value)
    _fill(spec.self_attention.linear[1], attention.output)
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
    """Copy weight and bias, which CTranslate2 calls gamma and beta in a norm."""
    names = ("gamma", "beta") if isinstance(module, nn.LayerNorm) else ("weight", "bias")
    for name, value in zip(names, (module.weight, module.bias), strict=True):
        setattr(spec, name, _array(value))


def _array(weight: Tensor) -> NDArray[np.float32]:
    return weight.detach().float().cpu().numpy().copy()


LARGEST_TABLE = 4_000_000
"""Largest table, in numbers, of a stream with all combinations of its factors' values; 16 MB."""


@dataclass(frozen=True)
class Stream:
    """One source table."""

    names: list[str]
    table: NDArray[np.float32]
    factors: tuple[str, ...] = ()


class HostEmbedding(nn.Module):
    """A pretrained translator's embedding with its factors, before the scale, which CTranslate2 applies."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.table, infusion = model.get_input_embeddings(), getattr(model, "infusion", None)
        self.join = infusion and infusion.embedding
        scales = (getattr(module, "embed_scale", 1.0) for module in (model.get_encoder(), self.table))
        self.scale = math.prod(map(float, scales))

    def forward(self, pieces: Tensor, factor_ids: Tensor | None = None) -> Tensor:
        """As `InfusedEmbedding`."""
        words = self.table.weight[pieces]
        return words if factor_ids is None else self.join(words * self.scale, factor_ids) / self.scale


def fold_embedding(
    embedding: InfusedEmbedding | HostEmbedding,
    pieces: Sequence[str],
    vocabularies: Mapping[str, FactorVocabulary],
    specials: Mapping[str, str],
) -> tuple[list[Stream], bool]:
    """The source tables that compute the embedding, and whether their vectors are concatenated or added."""
    values = list(vocabularies.values())
    words, factors = _contributions(embedding, len(pieces), list(map(len, values)))
    # One group of all factors shares a stream, unless it has too many combinations.
    is_small = math.prod(map(len, factors)) * words.shape[1] <= LARGEST_TABLE
    groups = [slice(None)] if is_small else [slice(k, k + 1) for k in range(len(factors))]
    concatenated = isinstance(embedding, InfusedEmbedding) and embedding.kind.join == "concat"
    concatenated = concatenated and len(factors) > 0 and len(groups) == 1
    if concatenated:
        width = embedding.plan.word_width
        factors[0] = factors[0] + words[0]  # every word contains the share of each factor's first value
        words, factors = words[:, :width], [table[:, width:] for table in factors]
    streams = [Stream(unique_names(pieces), words.astype(np.float32))]
    if factors:
        streams += [_combined(values[group], factors[group], specials) for group in groups]
    return streams, concatenated


def _contributions(
    embedding: InfusedEmbedding | HostEmbedding, n_pieces: int, sizes: Sequence[int]
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """W and each F_k, found by embedding every piece and every factor value once.

    Double precision makes the difference of two sums exact to float32.
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


def _combined(
    vocabularies: Sequence[FactorVocabulary],
    tables: Sequence[NDArray[np.float64]],
    specials: Mapping[str, str],
) -> Stream:
    """One stream for all combinations of the values of some factors; the last factor changes fastest."""
    table = tables[0]
    for other in tables[1:]:
        table = (table[:, None] + other[None]).reshape(-1, table.shape[1])
    entries = itertools.product(*(vocabulary.entries for vocabulary in vocabularies))
    names = unique_names("/".join(values) for values in entries)
    # Start and end get the value for no word; an unknown token gets the unknown value of each factor.
    unknown = np.ravel_multi_index([1] * len(vocabularies), list(map(len, vocabularies)))
    rows = {"unk": int(unknown), "bos": 0, "eos": 0}
    added = [(name, rows[role]) for role, name in specials.items() if name not in set(names)]
    table = np.concatenate([table, table[[row for _, row in added]]])
    names += [name for name, _ in added]
    return Stream(names, table.astype(np.float32), tuple(vocabulary.name for vocabulary in vocabularies))


def unique_names(names: Iterable[str]) -> list[str]:
    """Make names that CTranslate2 accepts: each occurs once, and its separator ￨ is written as <U+FFE8>."""
    all_names = list(names)
    reserved, used = {name for name in all_names if SEPARATOR not in name}, set()
    result = []
    for name in all_names:
        if SEPARATOR in name or name in used:
            name = name.replace(SEPARATOR, "<U+FFE8>")
            while name in reserved or name in used:
                name += "_"
        used.add(name)
        result.append(name)
    return result
