"""Loads pretrained checkpoints from Hugging Face folders, gives them a new head and infuses them.

Weights are read only from safetensors files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedModel

from syntaxformer.base.downloads import say_download
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.files import folder_errors
from syntaxformer.encoders.collator import SyntaxCollator
from syntaxformer.encoders.task_types import TaskType
from syntaxformer.infusion import INFUSION_FILE, infuse, infusion_parameters
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.infused_folder import widen_head
from syntaxformer.runs.loading import (
    TRANSLATOR,
    auto_tokenizer,
    checked_checkpoint,
    checkpoint_errors,
    longest_input,
    quiet_loading,
)


def load_tokenizer(path: str, max_length: int) -> Any:
    """The tokenizer of a checkpoint.

    Raises:
        ConfigError: The tokenizer cannot be loaded or is not fast, so that it gives no character offsets.
            Or the checkpoint has fewer positions, is a translator, or is infused.
    """
    folder = Path(path)
    if (folder / TRANSLATOR).is_file():
        problem = f"expected a pretrained encoder in Hugging Face's layout, got {folder}, a translator."
        remedy = "`syntaxformer translate` takes it; it cannot be fine-tuned."
        raise ConfigError(f"model: {problem} {remedy}")
    if (folder / INFUSION_FILE).is_file():  # which would be loaded only in part
        problem = f"expected a plain checkpoint, got {folder}, which is infused ({INFUSION_FILE}) and would"
        remedy = "lose its infusion. Give the checkpoint that it was made from, and --infuse."
        raise ConfigError(f"model: {problem} {remedy}")
    with checkpoint_errors(path, "model: expected a checkpoint with a tokenizer"):
        say_download(path)
        tokenizer = auto_tokenizer(path)
    if not tokenizer.is_fast:
        raise ConfigError(f"model: expected a fast tokenizer at {path}, got {type(tokenizer).__name__}.")
    _check_positions(tokenizer.model_max_length, max_length)
    tokenizer.padding_side = "right"  # heads read the first piece, which must not be padding
    return tokenizer


def _check_positions(longest: int, max_length: int) -> None:
    if max_length > longest:
        problem = f"expected up to {longest}, the checkpoint's positions, got {max_length}."
        raise ConfigError(f"training.max_length: {problem} Set training.max_length={longest}.")


def has_decoder(path: str) -> bool:
    """Whether a checkpoint can write labels as text.

    Raises:
        ConfigError: It cannot be read.
    """
    with checkpoint_errors(path):
        return bool(AutoConfig.from_pretrained(path, trust_remote_code=False).is_encoder_decoder)


def load_pretrained(
    path: str,
    task_type: TaskType,
    infusion: InfusionConfig,
    max_length: int = 0,
    head_width: int | None = None,
) -> PreTrainedModel:
    """Load a checkpoint in fp32, infused, with a new head unless it writes its labels as text.

    A head of another width than its family's makes the model an infused one, though it be with nothing.

    Raises:
        ConfigError: It cannot be read, has fewer positions, or a model of its family cannot be infused or
            has no hidden layer in its head.
    """
    # A head for another task is replaced.
    head = {**task_type.head, "ignore_mismatched_sizes": True} if task_type.head else {}
    options: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False, "dtype": torch.float32}
    with checkpoint_errors(path), quiet_loading():
        folder = checked_checkpoint(path, task_type.loader)
        model, report = task_type.loader.from_pretrained(folder, output_loading_info=True, **options, **head)
    mismatched = {name if isinstance(name, str) else name[0] for name in report["mismatched_keys"]}
    # A head is what lies outside the base model, and a pooler; fine-tuning trains it from scratch.
    inside = f"{model.base_model_prefix}." if head else ""
    absent = {name for name in {*report["missing_keys"], *mismatched} if name.startswith(inside)}
    if missing := sorted(name for name in absent if "pooler" not in name.split(".")):
        expected = f"the weights of a {model.config.model_type} model at {path}"
        names = f"{', '.join(missing[:3])} ({len(missing)} in all)"
        raise ConfigError(f"model: expected {expected}, missing: {names}.")
    _check_positions(longest_input(model), max_length)
    if head_width is not None:
        widen_head(model, head_width)
    return model if infusion.is_plain and head_width is None else infuse(model, infusion)


def new_parameters(model: PreTrainedModel) -> dict[str, torch.nn.Parameter]:
    """The parameters that an infusion added, by name; none for a plain model."""
    return dict(infusion_parameters(model)) if hasattr(model, "infusion") else {}


def load_collator(folder: Path, task_type: TaskType) -> SyntaxCollator:
    """Load the collator, which makes batches for a fine-tuned model whose folder has been verified.

    Raises:
        CheckpointError: It cannot be read.
    """
    with folder_errors(folder, "a tokenizer"):
        collator = SyntaxCollator.from_pretrained(folder, trust_tokenizer=True)
    collator.separate = task_type.separate
    return collator
