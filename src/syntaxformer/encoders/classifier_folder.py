"""What the folder of a fine-tuned model holds, and how it is read.

- config.json, model.safetensors, infusion.json: the network
- tokenizer files and the collator's settings: text to batches
- classifier.json: task, labels, metrics, annotator
- recipe.yaml, run.json: how it came to be, its scores on dev
- manifest.json: sizes and hashes of all others; written last, so a folder that has it is whole
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from syntaxformer.base.files import read_record
from syntaxformer.runs.loading import CLASSIFIER, verify_folder

__all__ = ["CLASSIFIER", "ClassifierInfo", "missed_note", "read_classifier_info", "verify_classifier_folder"]

FORMAT_VERSION = 1


class ClassifierInfo(BaseModel):
    """Content of `classifier.json`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    format_version: int = FORMAT_VERSION
    task: str
    labels: tuple[str, ...] | None
    words: tuple[str, ...] | None = None
    """What a text-to-text model writes for each label; None for a model with a classifier."""
    metrics: tuple[str, ...]
    n_texts: int = Field(ge=1, le=2)
    score_range: tuple[float, float] | None = None
    score_scale: tuple[float, float] | None = None
    """Mean and standard deviation of the training scores, where the network's output is in units of these."""
    annotator: str | None = Field(max_length=250, pattern="^[^\\x00-\\x1f]*$")
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
    eval_batch_size: int = Field(default=64, ge=1, le=2**20)

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


verify_classifier_folder = partial(verify_folder, wanted=CLASSIFIER)
"""Check that a folder is a fine-tuned model that is finished and as it was written."""
