"""A trained translator as a folder that CTranslate2 reads and that this package translates with.

It holds CTranslate2's files (model.bin, config.json, vocabularies) beside the model folder's own tokenizer
and `syntaxformer.json`, and `export.json`; it is written whole or not at all.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError
from syntaxformer.base.files import MANIFEST, atomic_folder, hash_file
from syntaxformer.translation.ctranslate2_decoder import EXPORT, INSTALL, ExportInfo, SourceTokens, read_names
from syntaxformer.translation.decoding import longest_translations
from syntaxformer.translation.export_network import fold_embedding, network_spec
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig
from syntaxformer.translation.model_folder import (
    INFO,
    FolderInfo,
    load_network,
    load_source_encoder,
    read_info,
    verify_model_folder,
)
from syntaxformer.translation.source import EncodedText, SourceEncoder, source_batch
from syntaxformer.translation.translator import MAX_SOURCE_PIECES

__all__ = [
    "QUANTIZATIONS",
    "difference_on",
    "export_translator",
    "largest_difference",
    "why_not",
]

_log = logging.getLogger("syntaxformer.export")

QUANTIZATIONS = ("float32", "int8", "int8_float32", "float16", "bfloat16")
"""Types of the stored weights."""

LARGEST_DIFFERENCE = 1e-3
"""Of a log-probability, in float32; what was measured is below 1e-4."""

REPLACED = ("config.json", "model.safetensors", "generation_config.json", MANIFEST, INFO)
"""Files of a model folder that its export does without or writes anew."""

PACKAGES = ("syntaxformer", "ctranslate2", "torch", "transformers", "tokenizers")


def export_translator(
    model_folder: str | Path, output: str | Path, quantization: str = "float32", overwrite: bool = False
) -> Path:
    """Write a trained translator as a CTranslate2 folder.

    Args:
        model_folder: What `train` wrote.
        output: The new folder.
        quantization: One of `QUANTIZATIONS`.
        overwrite: Replace an older export in `output`.

    Returns:
        `output`.

    Raises:
        ConfigError: No such quantization, an output in use, or a network that CTranslate2 cannot compute.
        CheckpointError: The model folder cannot be read, or the export does not compute what the model does.
        BackendMissingError: CTranslate2 is not installed.
        DataError: The folder cannot be written.
    """
    model_folder, output = Path(model_folder), Path(output)
    _check_arguments(output, quantization, overwrite)
    if importlib.util.find_spec("ctranslate2") is None:
        raise BackendMissingError("CTranslate2, which exported models need,", INSTALL)
    verify_model_folder(model_folder)
    info = read_info(model_folder)
    if info.backend != "pytorch":
        raise ConfigError(f"model: expected a folder that `train` wrote, got an export, {model_folder}.")
    encoder = load_source_encoder(model_folder, info)
    model = load_network(model_folder, encoder).eval()
    if reasons := why_not(model.config):
        raise ConfigError(reasons)
    with atomic_folder(output) as folder:
        export = _write_network(folder, model, encoder, info, quantization, model_folder)
        _write_side_files(folder, model_folder, info, export)
    _log.info(
        "wrote %s, %s; log-probabilities within %.1e of the model's%s",
        output,
        quantization,
        export.largest_difference,
        "" if quantization == "float32" else ", before quantization",
    )
    return output


def _write_network(
    folder: Path,
    model: SyntaxTransformer,
    encoder: SourceEncoder,
    info: FolderInfo,
    quantization: str,
    model_folder: Path,
) -> ExportInfo:
    """CTranslate2's files, checked in float32 before they are quantized."""
    pieces = _source_names(model, encoder)
    target_pieces = _piece_names(encoder.target_tokenizer, model.config.vocab_size)
    config = model.config
    start, end = target_pieces[config.decoder_start_token_id], target_pieces[config.eos_token_id]
    bos = start if config.bos_token_id is None else target_pieces[config.bos_token_id]
    every_stream = {"unk": "<unk>", "bos": bos, "eos": end}  # also of a tokenizer without them
    specials = {**every_stream, "start": start}
    columns = {name: encoder.vocabularies[name] for name in encoder.columns}
    tables = fold_embedding(model.encoder.embedding, pieces, columns, every_stream)
    longest = longest_translations(np.array([MAX_SOURCE_PIECES]), info.decoding.max_length_factor)
    export = ExportInfo(
        quantization=quantization,
        streams=[list(stream.factors) for stream in tables.streams[1:]],
        max_positions=max(MAX_SOURCE_PIECES, int(longest[0])) + 1,
        largest_difference=0.0,
        weights_sha256=hash_file(model_folder / "model.safetensors"),
        versions={name: version(name) for name in PACKAGES},
    )

    def save(into: Path, precision: str | None) -> None:
        spec = network_spec(model, tables, target_pieces, specials, export.max_positions)
        spec.validate()
        spec.optimize(quantization=precision)
        spec.save(str(into))

    with TemporaryDirectory(prefix="syntaxformer-") as temporary:
        save(Path(temporary), None)
        difference = largest_difference(model, encoder, Path(temporary), export, len(pieces))
    if not difference <= LARGEST_DIFFERENCE:
        raise CheckpointError(
            f"export: expected log-probabilities within {LARGEST_DIFFERENCE} of the model's, got "
            f"{difference:.2g} off. This is an error of syntaxformer: please report it with the recipe."
        )
    save(folder, quantization)
    return export.model_copy(update={"largest_difference": difference})


def _source_names(model: SyntaxTransformer, encoder: SourceEncoder) -> list[str]:
    """Names of the source pieces by id; tags that are pieces of their own come after those of the text."""
    names = _piece_names(encoder.tokenizer, model.encoder.embedding.word.num_embeddings)
    if encoder.prepend is None:
        return names
    return names + [
        f"<{one}:{value}>" for one, tags in encoder.vocabularies.items() for value in tags.entries
    ]


def _piece_names(tokenizer: PreTrainedTokenizerFast, n_pieces: int) -> list[str]:
    """Names by id; rows of the table beyond the tokenizer's pieces are named too, and never used."""
    known = tokenizer.convert_ids_to_tokens(range(min(n_pieces, len(tokenizer))))
    return [*known, *(f"<unused_{place}>" for place in range(len(known), n_pieces))]


def _write_side_files(folder: Path, model_folder: Path, info: FolderInfo, export: ExportInfo) -> None:
    for file in model_folder.iterdir():
        if file.is_file() and file.name not in REPLACED and not file.name.startswith("."):
            shutil.copy(file, folder / file.name)
    exported = info.model_copy(update={"backend": "ctranslate2"})
    (folder / INFO).write_text(exported.model_dump_json(indent=1), "utf-8")
    (folder / EXPORT).write_text(json.dumps(export.model_dump(), indent=1), "utf-8")


def _check_arguments(output: Path, quantization: str, overwrite: bool) -> None:
    problems = []
    if quantization not in QUANTIZATIONS:
        problems.append(f"quantization: expected one of {', '.join(QUANTIZATIONS)}, got {quantization!r}.")
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        is_export = (output / EXPORT).is_file()
        if not is_export:
            problems.append(f"output: expected a new folder, got {output}, which holds other files.")
        elif not overwrite:
            problems.append(
                f"output: expected a new folder, got {output}, an older export. Give --overwrite."
            )
    if problems:
        raise ConfigError(problems)


REASONS = {
    "pos_encoder": "its second encoder over tags",
    "lisa": "its biaffine attention head",
    "masks": "attention over tree relations",
    "relation_bias": "attention biased by tree relations",
}
"""Name of what a model may have → what CTranslate2 lacks for it."""


def why_not(config: SyntaxTransformerConfig) -> list[str]:
    """Reasons why a model cannot be exported, one sentence each; none if it can."""
    kind = (config.infusion or {}).get("kind", "none")
    sections = {name: getattr(config, name, None) for name in REASONS}
    found = {
        kind,
        *(name for name, one in sections.items() if one is not None and one.get("layers") not in ((), [])),
    }
    return [
        f"{name}: expected a model that CTranslate2 can compute, got one with {reason}. "
        "Translate with the trained folder."
        for name, reason in REASONS.items()
        if name in found
    ]


N_LINES, LONGEST = 11, 23
MAX_PIECES = 2048
"""Of a batch that is scored."""


def largest_difference(
    model: SyntaxTransformer, encoder: SourceEncoder, folder: Path, info: ExportInfo, n_pieces: int
) -> float:
    """The largest difference of a log-probability between a network and its export, over random lines.

    Args:
        model: The trained network, in evaluation mode.
        encoder: Its tokenizer and factor vocabularies.
        folder: CTranslate2's files, with weights in float32.
        info: What was exported.
        n_pieces: Source pieces, tags that are pieces included.
    """
    random = np.random.default_rng(1)
    source = _random_text(random, n_pieces, [len(encoder.vocabularies[name]) for name in encoder.columns])
    sizes = random.integers(1, LONGEST, N_LINES)
    targets = [random.integers(4, model.config.vocab_size, size).tolist() for size in sizes]
    return difference_on(source, targets, model, encoder, folder, info)


def difference_on(
    source: EncodedText,
    targets: Sequence[list[int]],
    model: SyntaxTransformer,
    encoder: SourceEncoder,
    folder: Path,
    info: ExportInfo,
) -> float:
    """As `largest_difference`, over given lines.

    Args:
        source: Encoded lines, none of them empty.
        targets: For each line the pieces of a translation, without the end.
        model: The trained network, in evaluation mode.
        encoder: Its tokenizer and factor vocabularies.
        folder: CTranslate2's files.
        info: What was exported.
    """
    import ctranslate2

    tokens = SourceTokens.read(folder, info, encoder)(source, range(len(targets)))
    names = read_names(folder, "target")
    exported = ctranslate2.Translator(str(folder), compute_type="float32").score_batch(
        tokens,
        [[names[piece] for piece in target] for target in targets],
        max_input_length=0,
        max_batch_size=MAX_PIECES,
        batch_type="tokens",
    )
    differences = []
    for row, (target, found) in enumerate(zip(targets, exported, strict=True)):
        batch = {name: part.to(model.device) for name, part in source_batch(source, [row], 0).items()}
        labels = torch.tensor([[*target, model.config.eos_token_id]], device=model.device)
        with torch.inference_mode():
            logs = model(**batch, labels=labels).logits.float().log_softmax(-1)
        ours = logs.gather(-1, labels[..., None])[0, :, 0].cpu().numpy()
        differences.append(np.abs(ours - np.array(found.log_probs)).max())
    return float(max(differences))


def _random_text(random: np.random.Generator, n_pieces: int, sizes: list[int]) -> EncodedText:
    lengths = random.integers(1, LONGEST, N_LINES)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    pieces = random.integers(0, n_pieces, splits[-1]).astype(np.int32)
    factors = [random.integers(0, size, len(pieces)).astype(np.int32) for size in sizes]
    return EncodedText(
        pieces, splits, np.stack(factors, 1) if sizes else np.zeros((len(pieces), 0), np.int32)
    )
