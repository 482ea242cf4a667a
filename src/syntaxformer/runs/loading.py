"""Finds out whether a path that is given as a model is a translator, a classifier or something else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from syntaxformer.base.errors import NOT_FINITE, CheckpointError, ConfigError, one_line, panics
from syntaxformer.base.files import (
    INFUSION_FILE,
    MANIFEST,
    check_settings,
    check_weights,
    fetched,
    folder_errors,
    read_json,
    verify_manifest,
)
from syntaxformer.runs.tokenizer_rules import check_tokenizer

TRANSLATOR = "syntaxformer.json"  # in the folder of every translator
CLASSIFIER = "classifier.json"  # in the folder of every fine-tuned model
TARGET_TOKENIZER = "target_tokenizer.json"
"""File in the folder of a translator whose target side has other pieces than its source side."""

_KINDS = {
    TRANSLATOR: ("a translator", "`syntaxformer train`", "`syntaxformer translate` or `evaluate`"),
    CLASSIFIER: ("a fine-tuned model", "`syntaxformer finetune`", "`syntaxformer predict`"),
}
"""File → what the folder is, which command wrote it, and which commands accept it."""

MODEL_TYPE = "syntaxformer"
"""`model_type` of our own translator; every other one is a host of the table of families."""

_POSITIONS = ("position_embeddings", "embed_positions", "wpe")
"""Names that transformers gives to tables of positions."""

_NO_PRODUCTS = {
    "recipe.yaml": "a run that is not finished. Wait for it, or go on with --resume.",
    INFUSION_FILE: "an infused model without task and annotator. `syntaxformer.load` and a `SyntaxCollator` "
    "take it; `syntaxformer finetune` writes a whole one.",
    "config.json": "a checkpoint of transformers. `transformers.pipeline` takes it; `syntaxformer train "
    "finetune_translator` (model.init_from) and `syntaxformer finetune` (--model) train it on.",
}
"""File → what a folder that has it and is no product is; the first counts."""


def kind_of(folder: Path) -> str | None:
    """`TRANSLATOR`, `CLASSIFIER`, or None for a folder that is neither."""
    return next((name for name in _KINDS if (folder / name).is_file()), None)


def product_of(folder: Path) -> str:
    """`TRANSLATOR` or `CLASSIFIER`, whichever a folder is.

    Raises:
        CheckpointError: It is neither, is not finished, or is not there.
    """
    if (kind := kind_of(folder)) is not None:
        return kind
    _refuse_no_model(folder)
    expected = " or ".join(what for what, *_ in _KINDS.values())
    other = f"a folder without {TRANSLATOR} and {CLASSIFIER}." if folder.is_dir() else "no folder."
    content = next((what for name, what in _NO_PRODUCTS.items() if (folder / name).is_file()), other)
    raise CheckpointError(f"{folder}: expected {expected}, got {content}")


def _refuse_no_model(folder: Path) -> None:
    if folder.is_file():
        raise CheckpointError(f"{folder}: expected a model folder, got a file. Give the model first.")
    if not folder.is_dir():
        return
    models = sorted(path.name for path in folder.iterdir() if path.name[0] != "." and kind_of(path))
    if models and not (folder / MANIFEST).exists():
        shown = ", ".join(models[:5]) + (", …" if len(models) > 5 else "")
        raise CheckpointError(
            f"{folder}: expected a model folder, got one that holds models: {shown}. "
            f"Give one of them, such as {folder / models[0]}."
        )


def verify_folder(folder: Path, mark: str, trusts_tokenizer: bool = False) -> None:
    """Check that a model is finished and unaltered, and that its settings are safe, see `check_settings`.

    Raises:
        CheckpointError: It is not, or it is another kind of model, a file, or a folder of models.
    """
    what, writer, _ = _KINDS[mark]
    if not (folder / mark).exists():
        if (kind := kind_of(folder)) is not None:
            other, _, verbs = _KINDS[kind]
            raise CheckpointError(
                f"{folder}: expected {what}, which {writer} writes, got {other}. Use it with {verbs}."
            )
        _refuse_no_model(folder)
    is_finished = (folder / MANIFEST).exists()
    if (folder / "recipe.yaml").exists() and not is_finished:
        raise CheckpointError(
            f"{folder}: expected a finished model, got a run that is not finished. "
            f"Wait for it, or continue it with {writer[:-1]} … --resume`."
        )
    if (folder / "config.json").exists() and not is_finished:
        product_of(folder)  # which says what the folder is
    verify_manifest(folder)
    if not (folder / mark).exists():
        raise CheckpointError(f"{folder}: expected a model that {writer} wrote, got another: no {mark}.")
    check_settings(folder)
    if not trusts_tokenizer:
        check_tokenizer(folder)


@contextmanager
def checkpoint_errors(path: str, expected: str = "model: expected a pretrained checkpoint") -> Iterator[None]:
    """Turn any error of a library that reads a checkpoint into one line.

    Raises:
        ConfigError: The library raised an error, or adapters lie beside the network, which would freeze it.
    """
    try:
        if (Path(path) / "adapter_config.json").is_file():
            raise ValueError("adapters in adapter_config.json. Merge them with PEFT's merge_and_unload")
        if (Path(path) / "config.json").is_file():
            check_settings(Path(path), is_checkpoint=True)
        with panics():
            yield
    except Exception as error:  # transformers, safetensors and the Hub client have their own classes
        where = path if ":" in path or Path(path).exists() else f"{path}, which is no folder here"
        raise ConfigError(f"{expected} at {where}, got: {one_line(error, 260)}") from error


def checked_checkpoint(path: str, auto: Any) -> Path:
    """The folder of a checkpoint, fetched if it is a name on the Hub with an owner, checked like a model's.

    Raises:
        CheckpointError: Its settings name code, or its weights are not finite or do not fit them.
    """
    from transformers import AutoConfig

    folder = fetched(path, allow_patterns=_OF_NETWORKS)
    if (folder / "config.json").is_file():
        check_settings(folder, is_checkpoint=True)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        check_weights(folder, lambda: auto.from_config(config))
    return folder


_OF_NETWORKS = ("*config.json", "model.safetensors*", "model-*.safetensors")
_OF_TOKENIZERS = ("*token*", "vocab*", "merges.txt", "*.model", "*.spm", "config.json")


def auto_tokenizer(path: str | Path, trusted: bool = False) -> Any:
    """The tokenizer of a folder, or of a name on the Hub, which passes `check_tokenizer` or is `trusted`."""
    from transformers import AutoTokenizer

    folder = fetched(path, allow_patterns=_OF_TOKENIZERS)
    if folder.is_dir() and not trusted:
        check_tokenizer(folder)
    path = folder if folder.is_dir() else path
    return AutoTokenizer.from_pretrained(path, use_fast=True, trust_remote_code=False)


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Load without progress bars and messages of transformers."""
    from transformers.utils import logging as hf_logging

    enabled, level = hf_logging.is_progress_bar_enabled(), hf_logging.get_verbosity()
    hf_logging.disable_progress_bar()
    hf_logging.set_verbosity_error()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if enabled:
            hf_logging.enable_progress_bar()


def load_written(folder: Path, auto: Any) -> Any:
    """The network of a folder that training wrote, plain, infused or our own, with exactly its weights.

    `auto` is the Auto class of transformers that loads its kind.

    Raises:
        CheckpointError: It cannot be read, or its weights are not those of its config.
    """
    from transformers import AutoConfig

    from syntaxformer.infusion import load

    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with quiet_loading(), folder_errors(folder):
        if (folder / INFUSION_FILE).exists():
            return load(folder)
        check_weights(folder, lambda: auto.from_config(AutoConfig.from_pretrained(folder, **safe)))
        model, report = auto.from_pretrained(folder, use_safetensors=True, output_loading_info=True, **safe)
    if wrong := sorted({*report["missing_keys"], *report["unexpected_keys"]})[:5]:
        raise CheckpointError(
            f"{folder}: expected weights of this model, got other names: {', '.join(wrong)}."
        )
    return model


def check_outputs(*outputs: Any) -> None:
    """Check that what a network computed is finite.

    Raises:
        CheckpointError: It is not.
    """
    if not all(bool(output.isfinite().all()) for output in outputs):
        raise CheckpointError(NOT_FINITE)


def pick_device(name: str | None) -> Any:
    """The torch.device with this name; None for the best one available.

    Raises:
        ConfigError: This machine has no such device.
    """
    import torch

    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"device: expected a device of this machine, got {name}. PyTorch says: {one_line(error)}"
        ) from error
    return device


def to_device(model: Any, setting: str | None) -> Any:
    """Move a network to the device with this name.

    A name with `:bf16` behind it, as cuda:bf16, also makes its parameters bf16. Buffers stay as they are: the
    angles of rotary positions would be wrong in bf16.

    Raises:
        ConfigError: This machine has no such device.
    """
    import torch

    name = None if setting is None else setting.removesuffix(":bf16")
    model = model.to(pick_device(name))
    for parameter in model.parameters() if name != setting else ():
        parameter.data = parameter.data.to(torch.bfloat16)
    return model


def longest_input(model: Any) -> int:
    """Pieces for which a network has positions; without bound where positions are relative."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in _POSITIONS and hasattr(module, "num_embeddings"):
            # RoBERTa's table begins after the padding piece's id, BART's after two.
            padding = -1 if module.padding_idx is None else module.padding_idx
            return module.num_embeddings - int(getattr(module, "offset", padding + 1))
    return sys.maxsize


def is_own(path: str | Path) -> bool:
    """Whether a path is a folder of our own Transformer, and not of a host's.

    Raises:
        ConfigError: It is a folder without a config.
    """
    config = Path(path) / "config.json"
    if not Path(path).is_dir():
        return False
    if not config.is_file():
        raise ConfigError(f"model.init_from: expected the folder of a model, got {path}: no config.json.")
    return read_json(config).get("model_type") == MODEL_TYPE
