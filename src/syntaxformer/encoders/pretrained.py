"""Pretrained checkpoints: loaded from a folder of Hugging Face's layout, given a new head, infused.

Weights are read from safetensors only.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel

from syntaxformer.base.downloads import say_download
from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.base.files import check_weights, folder_errors
from syntaxformer.encoders.collator import SyntaxCollator
from syntaxformer.encoders.task_types import TaskType
from syntaxformer.infusion import INFUSION_FILE, infuse, infusion_parameters, load
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.runs.loading import TRANSLATOR, checkpoint_errors, quiet_loading, short

_HEADS = frozenset(
    ["classifier", "classification_head", "score", "pooler", "head", "pre_classifier", "dropout", "summary"]
)
"""Parts that a checkpoint need not have: they are trained from nothing."""

_POSITIONS = ("position_embeddings", "embed_positions", "wpe")
"""Names that transformers gives to tables of positions."""


def load_tokenizer(path: str, max_length: int) -> Any:
    """The tokenizer of a checkpoint.

    Raises:
        ConfigError: It cannot be loaded, is not a fast one (pieces must know their characters), or the
            checkpoint has fewer positions, is a translator, or is infused.
    """
    # A name on the Hub has one slash at most and starts with a letter.
    looks_local = path.startswith((".", "/", "~")) or path.count("/") > 1 or Path(path).exists()
    if looks_local and not Path(path).is_dir():
        raise ConfigError(
            f"model: expected the folder of a pretrained checkpoint, got {path}, which is none."
        )
    _refuse_own_models(Path(path))
    say_download(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, use_fast=True)
    except Exception as error:  # the tokenizers library raises bare Exception on a broken file
        raise ConfigError(
            f"model: expected a checkpoint with a tokenizer at {path}, got: {short(error)}"
        ) from error
    if not tokenizer.is_fast:
        raise ConfigError(f"model: expected a fast tokenizer at {path}, got {type(tokenizer).__name__}.")
    if max_length > tokenizer.model_max_length:
        raise ConfigError(
            f"training.max_length: expected up to {tokenizer.model_max_length}, the checkpoint's positions, "
            f"got {max_length}."
        )
    tokenizer.padding_side = "right"  # heads take the vector of the first piece, which must be no padding
    return tokenizer


def has_decoder(path: str) -> bool:
    """Whether a checkpoint could write its labels as text.

    Raises:
        ConfigError: It cannot be read.
    """
    with checkpoint_errors(path):
        return bool(AutoConfig.from_pretrained(path).is_encoder_decoder)


def load_pretrained(
    path: str, task_type: TaskType, infusion: InfusionConfig, max_length: int = 0
) -> PreTrainedModel:
    """A checkpoint with a new head, or none where it writes its labels, infused, in fp32 however stored.

    Raises:
        ConfigError: It cannot be read, has fewer positions, or a model of its family cannot be infused.
    """
    # The head of another task is of no use, wherever there is a head.
    head = {**task_type.head, "ignore_mismatched_sizes": True} if task_type.head else {}
    with checkpoint_errors(path), quiet_loading():
        model, report = task_type.loader.from_pretrained(
            path, use_safetensors=True, output_loading_info=True, dtype=torch.float32, **head
        )
    mismatched = {name if isinstance(name, str) else name[0] for name in report["mismatched_keys"]}
    missing = sorted(
        name for name in {*report["missing_keys"], *mismatched} if _HEADS.isdisjoint(name.split("."))
    )
    if missing:
        raise ConfigError(
            f"model: expected the weights of a {model.config.model_type} model at {path}, missing: "
            f"{', '.join(missing[:3])} ({len(missing)} in all)."
        )
    if max_length > (longest := longest_input(model)):
        raise ConfigError(
            f"training.max_length: expected up to {longest}, the checkpoint's positions, got {max_length}."
        )
    return model if infusion.is_plain else infuse(model, infusion)


def longest_input(model: PreTrainedModel) -> int:
    """Pieces for which a network has positions; without bound where positions are relative."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in _POSITIONS and isinstance(module, nn.Embedding):
            # RoBERTa's table begins after the padding piece's id, BART's after two.
            padding = -1 if module.padding_idx is None else module.padding_idx
            return module.num_embeddings - int(getattr(module, "offset", padding + 1))
    return sys.maxsize


def new_parameters(model: PreTrainedModel) -> list[str]:
    """Names of the parameters that an infusion has added; none for a plain model."""
    return [name for name, _ in infusion_parameters(model)] if hasattr(model, "infusion") else []


def load_finetuned(folder: Path, task_type: TaskType) -> PreTrainedModel:
    """The network of a fine-tuned folder.

    Raises:
        CheckpointError: It cannot be read.
    """
    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    home = task_type.loader
    with quiet_loading(), folder_errors(folder):
        if (folder / INFUSION_FILE).exists():
            return load(folder).eval()
        check_weights(folder, lambda: home.from_config(AutoConfig.from_pretrained(folder, **safe)))
        model, report = home.from_pretrained(folder, use_safetensors=True, output_loading_info=True, **safe)
    if missing := sorted(report["missing_keys"])[:3]:
        raise CheckpointError(f"{folder}: expected all weights of its config, lacking {', '.join(missing)}.")
    return model.eval()


def load_collator(folder: Path) -> SyntaxCollator:
    """What makes batches for a fine-tuned model.

    Raises:
        CheckpointError: It cannot be read.
    """
    with folder_errors(folder, "a tokenizer"):
        return SyntaxCollator.from_pretrained(folder)


def _refuse_own_models(folder: Path) -> None:
    """Folders that look like a checkpoint and of which only a part would be loaded."""
    if (folder / TRANSLATOR).is_file():
        raise ConfigError(
            f"model: expected a pretrained encoder in Hugging Face's layout, got {folder}, a translator. "
            "`syntaxformer translate` takes it; it cannot be fine-tuned."
        )
    if (folder / INFUSION_FILE).is_file():
        raise ConfigError(
            f"model: expected a plain checkpoint, got {folder}, which is infused ({INFUSION_FILE}): its "
            "infusion would be lost. Give the checkpoint that it was made of, and --infuse."
        )
