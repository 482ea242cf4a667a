"""`Classifier`: raw texts in, labels and probabilities (or scores) out; parses are made on the way."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from syntaxformer.annotate.annotator import check_lines
from syntaxformer.annotate.wrappers import annotator_for, trusted_annotator
from syntaxformer.base.errors import DataError
from syntaxformer.base.folder_checks import check_pieces
from syntaxformer.encoders.annotated_examples import annotate_examples, load_for
from syntaxformer.encoders.classifier_folder import (
    ClassifierInfo,
    read_classifier_info,
    verify_classifier_folder,
)
from syntaxformer.encoders.logits import batch_logits, decide
from syntaxformer.encoders.metrics import score_predictions
from syntaxformer.encoders.onnx_network import ONNX, OnnxNetwork
from syntaxformer.encoders.pretrained import load_collator, load_finetuned
from syntaxformer.encoders.text_labels import TextLabels
from syntaxformer.encoders.text_sets import TextExample, TextSet
from syntaxformer.runs.loading import pick_device

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator

__all__ = ["Classifier", "Predictions"]

Text = str | tuple[str, str]


@dataclass(frozen=True)
class Predictions:
    """What a model says about texts, one for each.

    Args:
        labels: Label names, or scores.
        probabilities: For each text the probability of each label, in the order of the model's labels; None
            for scores.
        n_truncated: Texts that were cut to the model's length.
    """

    labels: list[str] | list[float]
    probabilities: list[list[float]] | None
    n_truncated: int = 0

    def __len__(self) -> int:
        return len(self.labels)


class Classifier:
    """A fine-tuned model with everything that turns raw text into its input.

    Args:
        model: The network.
        collator: Examples to batches.
        info: Task, labels, annotator.
        annotator: Parses text; None where the model needs no syntax.
    """

    def __init__(
        self,
        model: PreTrainedModel | OnnxNetwork,
        collator: Any,
        info: ClassifierInfo,
        annotator: Annotator | None = None,
    ) -> None:
        self.model, self.collator, self.info, self.annotator = model.eval(), collator, info, annotator
        self.text_labels = None if info.words is None else TextLabels(collator.tokenizer, info.words)

    @classmethod
    def from_folder(
        cls,
        folder: str | Path,
        annotator: str | None = None,
        device: str | None = None,
        trust_annotator: bool = False,
    ) -> Classifier:
        """Load what `finetune` or `export` wrote.

        Args:
            folder: Model folder.
            annotator: Use this annotator and not the one that the folder names.
            device: "cpu", "cuda", …; None for the best there is.
            trust_annotator: Let the folder name an annotator on the network, or at a path outside of it.

        Raises:
            CheckpointError: The folder is unfinished, truncated or altered, or names an annotator that needs
                `trust_annotator`.
            BackendMissingError: The annotator, or ONNX Runtime for an exported one, is not installed.
            ConfigError: There is no such annotator or device.
        """
        folder = Path(folder)
        verify_classifier_folder(folder)
        info = read_classifier_info(folder)
        name = trusted_annotator(info.annotator, annotator, folder, trust_annotator) if info.needs else None
        parser = load_for(name, frozenset(info.needs))
        if parser is not None and parser.version != info.annotator_version:
            warnings.warn(
                f"annotator: the model was trained with {info.annotator} {info.annotator_version}, this is "
                f"{parser.name} {parser.version}; trees may differ.",
                stacklevel=2,
            )
        if (folder / ONNX).is_file():
            return cls(OnnxNetwork.load(folder, device), load_collator(folder), info, parser)
        model, collator = load_finetuned(folder, info.words is not None), load_collator(folder)
        check_pieces(folder, collator.tokenizer, model.get_input_embeddings().num_embeddings)
        return cls(model.to(pick_device(device)), collator, info, parser)

    @property
    def backend(self) -> str:
        """What computes the network: "pytorch" or "onnx"."""
        return "onnx" if isinstance(self.model, OnnxNetwork) else "pytorch"

    def predict(self, texts: Sequence[Text], batch_size: int | None = None) -> Predictions:
        """Predict labels or scores of raw texts, in order.

        Args:
            texts: Texts, or pairs of texts where the model was trained on pairs.
            batch_size: Texts together; None for the folder's setting.

        Raises:
            TypeError: The texts are one string, which would be read as a list of characters.
            DataError: A text is empty, or single where pairs are expected, or the reverse.
            ConfigError: Outputs are not finite.
        """
        check_lines(texts, "texts")
        examples = [self._example(text, number) for number, text in enumerate(texts, 1)]
        return self.predict_set(TextSet("texts", "texts", examples), batch_size, cached=False)

    def is_cut(self, text: str | tuple[str, str]) -> bool:
        """Whether a text, or pair, has more pieces than the model reads; its end is not seen then."""
        texts = self._example(text, 1).texts
        encoded = self.collator.tokenizer(*texts, split_special_tokens=True, verbose=False)
        return len(encoded["input_ids"]) > self.collator.max_length

    def cut_note(self, predictions: Predictions) -> str:
        """What to say where texts were cut."""
        return (
            f"{predictions.n_truncated} of {len(predictions)} texts were cut to {self.collator.max_length} "
            "pieces: the rest was not read. Divide them, or fine-tune with a larger training.max_length."
        )

    def predict_set(
        self, texts: TextSet, batch_size: int | None = None, cache: Path | None = None, cached: bool = True
    ) -> Predictions:
        """Predict for the examples of a data set; trees that they carry are used as in training.

        Args:
            texts: The examples.
            batch_size: Examples together.
            cache: Folder of the annotation cache.
            cached: Whether parses go through the cache.

        Raises:
            TreeError: A tree does not fit its text.
            ConfigError: Outputs are not finite.
        """
        if not len(texts):
            return Predictions([], None if self.info.is_regression else [])
        use_trees = self.info.gold_trees and texts.has_trees
        # Parsed files, one a split, are those of data sets; raw texts have none.
        annotator = annotator_for(self.annotator, texts.name) if self.annotator and cached else self.annotator
        unlabelled = [replace(one, label=None) for one in texts.examples]  # a table may have some labels
        examples = annotate_examples(unlabelled, annotator, use_trees, cache, cached=cached)
        self.collator.n_truncated = 0
        size = batch_size or self.info.eval_batch_size
        logits = batch_logits(self.model, self.collator, examples, size, self.text_labels)
        found = decide(logits, self.info.score_range, self.info.score_scale)
        if self.info.labels is None:
            return Predictions([float(score) for score in found], None, self.collator.n_truncated)
        names = [self.info.labels[int(number)] for number in found]
        return Predictions(names, torch.softmax(logits, 1).tolist(), self.collator.n_truncated)

    def score(self, texts: TextSet, predictions: Predictions) -> dict[str, float]:
        """Score predictions for labelled examples by the task's official metrics.

        Raises:
            DataError: An example has no label.
        """
        gold = [one.label for one in texts.examples if one.label is not None]
        if len(gold) != len(texts):
            raise DataError(
                f"label: expected one in every row, got {len(gold)} in {len(texts)}.", texts.source
            )
        number_of = {name: number for number, name in enumerate(self.info.labels or ())}
        found = [number_of[one] if isinstance(one, str) else one for one in predictions.labels]
        return score_predictions(self.info.metrics, gold, found)

    def _example(self, text: Text, number: int) -> TextExample:
        parts = (text,) if isinstance(text, str) else tuple(text)
        if len(parts) != self.info.n_texts:
            wanted = "one text" if self.info.n_texts == 1 else "a pair of texts"
            raise DataError(f"text: expected {wanted}, got {len(parts)}.", line=number)
        cleaned = tuple(" ".join(part.split()) for part in parts)
        if not all(cleaned):
            raise DataError("text: expected one that is not empty, got ''.", line=number)
        return TextExample(cleaned, line=number)
