"""A trained translator as a folder that CTranslate2 reads and that this package translates with.

It holds CTranslate2's files (model.bin, config.json, vocabularies) beside the model folder's own tokenizer
and `syntaxformer.json`, and `export.json`; it is written whole or not at all.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import shutil
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from transformers import PreTrainedTokenizerFast

from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError
from syntaxformer.base.files import MANIFEST, atomic_folder, hash_file
from syntaxformer.translation.export_agreement import largest_difference
from syntaxformer.translation.export_network import network_spec
from syntaxformer.translation.export_refusals import why_not
from syntaxformer.translation.export_tables import SourceTables, fold_embedding
from syntaxformer.translation.exported_folder import EXPORT, INSTALL, ExportInfo
from syntaxformer.translation.length_limit import longest_translations
from syntaxformer.translation.model import SyntaxTransformer
from syntaxformer.translation.model_folder import (
    INFO,
    FolderInfo,
    load_network,
    load_source_encoder,
    read_info,
    verify_model_folder,
)
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.translator import MAX_SOURCE_PIECES

__all__ = ["QUANTIZATIONS", "export_translator"]

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
    _check_backend()
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
    specials = _specials(model, target_pieces)
    every_stream = {role: specials[role] for role in ("unk", "bos", "eos")}
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
    with TemporaryDirectory(prefix="syntaxformer-") as temporary:
        _save(model, tables, target_pieces, specials, export, Path(temporary), None)
        difference = largest_difference(model, encoder, Path(temporary), export, len(pieces))
    if not difference <= LARGEST_DIFFERENCE:
        raise CheckpointError(
            f"export: expected log-probabilities within {LARGEST_DIFFERENCE} of the model's, got "
            f"{difference:.2g} off. This is an error of syntaxformer: please report it with the recipe."
        )
    _save(model, tables, target_pieces, specials, export, folder, quantization)
    return export.model_copy(update={"largest_difference": difference})


def _save(
    model: SyntaxTransformer,
    tables: SourceTables,
    target_pieces: list[str],
    specials: dict[str, str],
    export: ExportInfo,
    folder: Path,
    quantization: str | None,
) -> None:
    spec = network_spec(model, tables, target_pieces, specials, export.max_positions)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


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


def _specials(model: SyntaxTransformer, target_pieces: list[str]) -> dict[str, str]:
    """Names of special pieces by role; "<unk>" and "<s>" for a tokenizer that has none."""
    config = model.config
    start = target_pieces[config.decoder_start_token_id]
    return {
        "unk": "<unk>",
        "bos": start if config.bos_token_id is None else target_pieces[config.bos_token_id],
        "eos": target_pieces[config.eos_token_id],
        "start": start,
    }


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


def _check_backend() -> None:
    if importlib.util.find_spec("ctranslate2") is None:
        raise BackendMissingError("CTranslate2, which exported models need,", INSTALL)
