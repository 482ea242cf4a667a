"""What the folder of a fine-tuned model holds, and how it is read.

- config.json, model.safetensors, infusion.json: the network
- tokenizer files and the collator's settings: text to batches
- classifier.json: task, labels, metrics, annotator
- recipe.yaml, run.json: how it came to be, its scores on dev
- manifest.json: sizes and hashes of all others; written last, so a folder that has it is whole
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from syntaxformer.errors import CheckpointError
from syntaxformer.folders import MANIFEST, read_record, verify_manifest
from syntaxformer.tasks.model_kind import CLASSIFIER, check_kind

__all__ = ["CLASSIFIER", "ClassifierInfo", "missed_note", "read_classifier_info", "verify_classifier_folder"]

FORMAT_VERSION = 1


class ClassifierInfo(BaseModel):
    """Content of `classifier.json`."""

    model_config = ConfigDict(extra="forbid")

    format_version: int = FORMAT_VERSION
    task: str
    labels: tuple[str, ...] | None
    words: tuple[str, ...] | None = None
    """What a text-to-text model writes for each label; None for a model with a classifier."""
    metrics: tuple[str, ...]
    n_texts: int
    score_range: tuple[float, float] | None = None
    score_scale: tuple[float, float] | None = None
    """Mean and standard deviation of the training scores, where the network's output is in units of these."""
    annotator: str | None
    """For text without trees of its own."""
    annotator_version: str | None
    needs: tuple[str, ...] = ()
    """Columns of a sentence that the model reads."""
    gold_trees: bool = False
    """Whether trees that the data carries take the annotator's place."""
    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str | None = None
    quotes: str = "auto"
    """How a TSV has them, as in `data.quotes`."""
    eval_batch_size: int = 64

    @property
    def is_regression(self) -> bool:
        """Whether outputs are scores."""
        return self.labels is None


def read_classifier_info(folder: Path) -> ClassifierInfo:
    """Read `classifier.json`.

    Raises:
        CheckpointError: It is missing or not what this version writes.
    """
    return read_record(folder / CLASSIFIER, ClassifierInfo, FORMAT_VERSION)


def missed_note(never_predicted: Mapping[str, int]) -> str:
    """What to say of labels that are never predicted, with their rows, as `run.json` has them."""
    shown = (f"{label} ({n:,} row{'s' * (n > 1)})" for label, n in never_predicted.items())
    return f"never predicted: {', '.join(shown)}"


def verify_classifier_folder(folder: Path) -> None:
    """Hold that a model is finished and as it was written.

    Raises:
        CheckpointError: It is not, or it is no fine-tuned model.
    """
    check_kind(folder, CLASSIFIER)
    if (folder / "recipe.yaml").exists() and not (folder / MANIFEST).exists():
        raise CheckpointError(
            f"{folder}: expected a finished model, got a run that is not finished. "
            "Wait for it, or go on with `syntaxformer finetune … --resume`."
        )
    verify_manifest(folder)
    if not (folder / CLASSIFIER).exists():
        raise CheckpointError(
            f"{folder}: expected a model that `syntaxformer finetune` wrote, got another: no {CLASSIFIER}."
        )
