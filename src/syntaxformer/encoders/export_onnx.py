"""A fine-tuned classifier as a folder whose network is an ONNX graph, for any batch and any length.

Tokenizer, collator and `classifier.json` are those of the model folder; it is written whole or not at all.
The graph holds infusion and encoder in one, with the plain form of syntax attention (`layers.syntax_graph`).
"""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError
from syntaxformer.base.files import MANIFEST, atomic_folder, hash_file
from syntaxformer.encoders.collator import SyntaxCollator, SyntaxExample
from syntaxformer.encoders.onnx_network import GRAPH, INSTALL, ONNX, OnnxInfo, OnnxNetwork
from syntaxformer.encoders.pretrained import load_collator, load_finetuned
from syntaxformer.encoders.tasks import ClassifierInfo, read_classifier_info, verify_classifier_folder
from syntaxformer.syntax.factors import POS_TAGS
from syntaxformer.trees import Sentence

__all__ = ["export_classifier"]

_log = logging.getLogger("syntaxformer.export")

LARGEST_DIFFERENCE = 1e-4
"""Of a logit, in float32; what was measured is below 1e-5."""

OPSET = 18
PACKAGES = ("syntaxformer", "onnx", "onnxscript", "onnxruntime", "torch", "transformers", "tokenizers")
LEFT_OUT = ("infusion.json", "generation_config.json", MANIFEST)
"""Files of a model folder that its export does without or writes anew; weights besides."""

PAIRWISE, PIECEWISE = "syntax", ("input_ids", "attention_mask", "token_type_ids", "factor_ids")
CHECKED_LENGTHS = ((1,), (2, 7), (3, 11, 23, 5))
"""Words of the texts of each batch that is held against the model."""


def export_classifier(model_folder: str | Path, output: str | Path, overwrite: bool = False) -> Path:
    """Write a fine-tuned classifier as a folder that `predict` and `serve` take.

    Args:
        model_folder: What `finetune` wrote.
        output: The new folder.
        overwrite: Replace an older export in `output`.

    Returns:
        `output`.

    Raises:
        ConfigError: An output in use, or a network that cannot be a graph.
        CheckpointError: The model folder cannot be read, or the graph does not compute what the model does.
        BackendMissingError: ONNX Runtime or the exporter is not installed.
        DataError: The folder cannot be written.
    """
    model_folder, output = Path(model_folder), Path(output)
    _check_output(output, overwrite)
    for package in ("onnx", "onnxscript", "onnxruntime"):
        if find_spec(package) is None:
            raise BackendMissingError(f"{package}, which the export of classifiers needs,", INSTALL)
    verify_classifier_folder(model_folder)
    info, collator = read_classifier_info(model_folder), load_collator(model_folder)
    _refuse(model_folder, info, collator)
    model = load_finetuned(model_folder, info.task_type)
    batches = [_batch(collator, lengths, info.n_texts) for lengths in CHECKED_LENGTHS]
    with atomic_folder(output) as folder:
        _copy_side_files(folder, model_folder)
        shortest = 1 + collator.tokenizer.num_special_tokens_to_add(pair=info.n_texts > 1)
        inputs = _write_graph(folder / GRAPH, model, batches[-1], shortest, collator.max_length)
        stored = OnnxInfo(
            inputs=inputs,
            largest_difference=0.0,
            weights_sha256=hash_file(model_folder / "model.safetensors"),
            versions={name: version(name) for name in PACKAGES},
        )
        _write_info(folder, stored)
        difference = _largest_difference(model, OnnxNetwork.load(folder), batches)
        _write_info(folder, stored.model_copy(update={"largest_difference": difference}))
    _log.info("wrote %s; logits within %.1e", output, difference)
    return output


def _refuse(folder: Path, info: ClassifierInfo, collator: SyntaxCollator) -> None:
    """Each reason by its name."""
    lisa, problems = collator.config.lisa, []
    if (folder / ONNX).exists():
        problems.append(f"model: expected a folder that `finetune` wrote, got an export, {folder}.")
    if not info.task_type.single_pass:
        problems.append(
            "head: expected a model with a classifier, got one that writes its labels as text, which takes a "
            "search and no single pass. Predict with the trained folder."
        )
    if lisa is not None and lisa.inject == "gold":
        problems.append(
            "lisa.inject: expected a head that points by itself, got gold governors, which the graph does "
            "not take. Predict with the trained folder."
        )
    if not (folder / "model.safetensors").exists():
        problems.append(f"model: expected one file of weights in {folder}, got several or none.")
    if problems:
        raise ConfigError(problems)


class _Logits(nn.Module):
    """The network as a function of tensors in a fixed order."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors: Tensor) -> Tensor:
        """Logits `[batch, labels]`."""
        return self.model(**dict(zip(self.names, tensors, strict=True))).logits


def _write_graph(path: Path, model: Any, batch: dict[str, Tensor], shortest: int, longest: int) -> list[str]:
    """The graph, for texts of so many pieces; returns the names of its inputs."""
    names = [name for name in (*PIECEWISE, PAIRWISE) if name in batch]
    # One symbol for all batches and one for all lengths: the model holds them against each other.
    rows, pieces = (
        torch.export.Dim("rows", min=1, max=1 << 14),
        torch.export.Dim("pieces", min=shortest, max=longest),
    )
    shapes = tuple(
        {0: rows, 2: pieces, 3: pieces} if name == PAIRWISE else {0: rows, 1: pieces} for name in names
    )
    arguments = tuple(batch[name] for name in names)
    with _exporting(model), torch.no_grad():
        try:
            program = torch.export.export(
                _Logits(model, names).eval(), arguments, dynamic_shapes=(shapes,), strict=False
            )
            torch.onnx.export(
                program, (), path, input_names=names, output_names=["logits"], opset_version=OPSET,
                external_data=False, verbose=False,
            )  # fmt: skip
        except Exception as error:  # whatever the exporter meets in a network
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(
                f"model: expected a network that ONNX can express, got {type(model).__name__}: {reason}"
            ) from error
    import onnx

    return [one.name for one in onnx.load(path, load_external_data=False).graph.input]


@contextmanager
def _exporting(model: Any) -> Iterator[None]:
    """Syntax in plain operations, and libraries that say nothing of their own workings."""
    infusion = getattr(model, "infusion", None)
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        if infusion is not None:
            infusion.is_exporting = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if infusion is not None:
            infusion.is_exporting = False
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _batch(collator: SyntaxCollator, lengths: tuple[int, ...], n_texts: int) -> dict[str, Tensor]:
    """Texts of the tokenizer's own pieces under chains of words: each relation once, up to the largest."""
    examples = [
        SyntaxExample(tuple(_sentence(collator, n_words + 2 * part, n_words) for part in range(n_texts)))
        for n_words in lengths
    ]
    return collator(examples)


def _sentence(collator: SyntaxCollator, n_words: int, seed: int) -> Sentence:
    generator = torch.Generator().manual_seed(seed)
    pieces = torch.randint(len(collator.tokenizer), (n_words,), generator=generator).tolist()
    found = (collator.tokenizer.decode([piece]).strip() for piece in pieces)
    words = [word if word and not any(map(str.isspace, word)) else "a" for word in found]
    tags = POS_TAGS
    tree = "".join(f"(X (T w{place}) " for place in range(n_words)) + ")" * n_words
    return Sentence.from_words(
        words,
        upos=tuple(tags[place % len(tags)] for place in range(n_words)),
        governors=tuple(place - 1 if place % 3 else max(-1, place - 2) for place in range(n_words)),
        deprels=("dep",) * n_words,
        constituency=tree,
    )


@torch.no_grad()
def _largest_difference(model: Any, network: OnnxNetwork, batches: list[dict[str, Tensor]]) -> float:
    """Of a logit, over batches of several sizes.

    Raises:
        CheckpointError: It is too large.
    """
    differences = [float((model(**one).logits - network(**one).logits).abs().max()) for one in batches]
    if not (largest := max(differences)) <= LARGEST_DIFFERENCE:
        raise CheckpointError(
            f"export: expected logits within {LARGEST_DIFFERENCE} of the model's, got {largest:.2g} off. "
            "This is an error of syntaxformer: please report it with the recipe."
        )
    return largest


def _copy_side_files(folder: Path, model_folder: Path) -> None:
    for file in model_folder.iterdir():
        is_kept = file.name not in LEFT_OUT and file.suffix in (".json", ".yaml", ".txt", ".model", ".jinja")
        if file.is_file() and is_kept and not file.name.startswith("."):
            shutil.copy(file, folder / file.name)


def _write_info(folder: Path, info: OnnxInfo) -> None:
    (folder / ONNX).write_text(json.dumps(info.model_dump(), indent=1), "utf-8")


def _check_output(output: Path, overwrite: bool) -> None:
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    if not (output / ONNX).is_file():
        raise ConfigError(f"output: expected a new folder, got {output}, which holds other files.")
    if not overwrite:
        raise ConfigError(f"output: expected a new folder, got {output}, an older export. Give --overwrite.")
