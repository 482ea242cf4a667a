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
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError
from syntaxformer.base.folders import MANIFEST, atomic_folder, hash_file
from syntaxformer.translation.ctranslate2_decoder import EXPORT, INSTALL, ExportInfo, SourceTokens, read_names
from syntaxformer.translation.decoding import longest_translations
from syntaxformer.translation.export_network import SourceTables, fold_embedding, network_spec
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
    "piece_log_probs",
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
    found = {kind, *(name for name in REASONS if _has_any(getattr(config, name, None)))}
    return [
        f"{name}: expected a model that CTranslate2 can compute, got one with {reason}. "
        "Translate with the trained folder."
        for name, reason in REASONS.items()
        if name in found
    ]


def _has_any(section: dict[str, Any] | None) -> bool:
    """Whether a section is in some layer."""
    return section is not None and section.get("layers") not in ((), [])


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
    ours = [piece_log_probs(model, source, row, target) for row, target in enumerate(targets)]
    differences = [
        np.abs(one - np.array(other.log_probs)).max() for one, other in zip(ours, exported, strict=True)
    ]
    return float(max(differences))


@torch.inference_mode()
def piece_log_probs(
    model: SyntaxTransformer, source: EncodedText, row: int, target: list[int]
) -> NDArray[np.float32]:
    """The trained network's log-probability of each target piece and of the end, `[target + 1]`."""
    batch = {name: part.to(model.device) for name, part in source_batch(source, [row], 0).items()}
    labels = torch.tensor([[*target, model.config.eos_token_id]], device=model.device)
    logits = model(**batch, labels=labels).logits.float()
    return logits.log_softmax(-1).gather(-1, labels[..., None])[0, :, 0].cpu().numpy()


def _random_text(random: np.random.Generator, n_pieces: int, sizes: list[int]) -> EncodedText:
    lengths = random.integers(1, LONGEST, N_LINES)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    pieces = random.integers(0, n_pieces, splits[-1]).astype(np.int32)
    factors = [random.integers(0, size, len(pieces)).astype(np.int32) for size in sizes]
    return EncodedText(
        pieces, splits, np.stack(factors, 1) if sizes else np.zeros((len(pieces), 0), np.int32)
    )
