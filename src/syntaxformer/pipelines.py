"""`pipeline`: a model folder as a function from text to its answer, in the form that transformers gives."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntaxformer.annotate.annotator import check_lines, chunks_of
from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.files import fetched

if TYPE_CHECKING:
    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.encoders.embeddings import SyntaxEncoder
    from syntaxformer.translation.translator import Translator

Text = str | Mapping[str, str] | tuple[str, str]
"""A text, or a pair: `{"text": …, "text_pair": …}` or a tuple."""


class TranslationPipeline:
    """Texts → translations."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def __call__(self, texts: str | Sequence[str], **options: Any) -> list[dict[str, str]]:
        """Translate a text, or several.

        Args:
            texts: Raw text, a sentence or segment each.
            options: Those of `Translator.translate`, but `n_best` and `scored`.

        Returns:
            For each text `{"translation_text": …}`; also for a single text in a list.

        Raises:
            TypeError: `n_best` or `scored` is given: a text has one answer here; or a text is no string.
        """
        if wrong := sorted({"n_best", "scored"} & options.keys()):
            raise TypeError(
                f"options: expected those that leave one text for each, got {', '.join(wrong)}. "
                "Use `translator.translate`, which gives hypotheses with their scores."
            )
        several = [texts] if isinstance(texts, str) else texts
        return [{"translation_text": best[0].text} for best in self.translator.translate(several, **options)]


class ClassificationPipeline:
    """Texts, or pairs of texts → labels with their probabilities, or scores."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier

    def __call__(
        self, texts: Text | Sequence[Text], *, top_k: int | None = 1, batch_size: int | None = None
    ) -> Any:
        """Classify a text or a pair, or a list of them.

        Args:
            texts: Raw text; a pair as `{"text": …, "text_pair": …}`.
            top_k: How many labels, likeliest first; None for all. But for 1 there is a list for each text.
                A model of several labels gives, for 1, those that it assigns.
            batch_size: Number of texts in a batch; None for the folder's setting.

        Returns:
            `{"label": …, "score": …}` for each text: the likeliest label and its probability, or "score" and
            the score. For several labels or scores a list of these; for words a list of their tags and for a
            question the answer, as transformers gives them. The answer to a single text is in a list, that to
            a single pair is not. Cut texts are warned of.

        Raises:
            TypeError: They are no texts or pairs.
            ValueError: `top_k` is below 1, or is not 1 for a model of tags or answers.
        """
        if (top_k is not None and top_k < 1) or (top_k != 1 and self.classifier.task_type.parts):
            raise ValueError(f"top_k: expected at least 1, or None; 1 for tags and answers; got {top_k}.")
        single = isinstance(texts, str | tuple | Mapping)
        check_lines([texts] if single else texts, "texts")
        rows = [_as_tuple(row) for row in ([texts] if single else texts)]
        predictions = self.classifier.predict(rows, batch_size)
        if predictions.n_truncated:
            warnings.warn(self.classifier.cut_note(predictions), stacklevel=2)
        answers = [_named(answer, top_k) for answer in self.classifier.answers(predictions)]
        if not single or (isinstance(texts, str) and isinstance(answers[0], dict)):
            return answers
        return answers[0]


_KEYS = ("text",), ("text", "text_pair"), ("question", "context")


def _as_tuple(text: Any) -> Any:
    if not isinstance(text, Mapping):
        return text
    for keys in _KEYS:
        if text.keys() == {*keys}:
            return tuple(text[key] for key in keys)
    got = ", ".join(map(repr, text)) or "none"
    raise TypeError(f"texts: expected the keys text and text_pair, or question and context, got {got}.")


def _named(answer: Mapping[str, Any], top_k: int | None) -> Any:
    """The tags, the answer, or labels or scores with their names: the likeliest ones, or those assigned."""
    for key in ("tags", "answer"):
        if key in answer:
            return answer[key]
    values = answer.get("scores") or answer.get("probabilities") or {"score": answer["score"]}
    if top_k == 1 and ("labels" in answer or "scores" in answer):
        return [{"label": name, "score": values[name]} for name in answer.get("labels", values)]
    labels = [{"label": name, "score": value} for name, value in values.items()]
    ranked = sorted(labels, key=lambda label: -label["score"])
    return ranked[0] if top_k == 1 else ranked[:top_k]


class FeatureExtractionPipeline:
    """Texts → the states of their pieces."""

    def __init__(self, encoder: SyntaxEncoder) -> None:
        self.encoder = encoder.eval()

    def __call__(self, texts: str | Sequence[str], *, batch_size: int = 32) -> list[Any]:
        """Compute the states of a text, or of several, in batches of `batch_size`.

        Returns:
            For each text `[1][pieces][width]`, as transformers gives it; of a single text it alone.

        Raises:
            TypeError: They are no texts.
            CheckpointError: States are not finite.
        """
        import torch

        from syntaxformer.runs.loading import check_outputs

        features, device = [], self.encoder.model.device
        for chunk in chunks_of([texts] if isinstance(texts, str) else texts, max(1, batch_size)):
            batch = self.encoder.preprocess(chunk)
            with torch.no_grad():
                outputs = self.encoder({name: value.to(device) for name, value in batch.items()})
            check_outputs(states := outputs["token_embeddings"].float())
            masks = outputs["attention_mask"] != 0
            features += [[of_text[mask].tolist()] for of_text, mask in zip(states, masks, strict=True)]
        return features[0] if isinstance(texts, str) else features


TASKS = ("translation", "classification", "feature-extraction")


def pipeline(
    folder: str | Path,
    task: str | None = None,
    annotator: Any = None,
    device: Any = None,
    trust_annotator: bool = False,
) -> Any:
    """Load a model folder as a function.

    Args:
        folder: What `train`, `export` or `finetune` wrote; or the name on the Hub to which it was pushed.
        task: "translation" or "classification", to refuse the other; None takes what the folder is. Or
            "feature-extraction" for a base model, or one of similarity.
        annotator: A name or an object, as `load_annotator` takes it; None for the one that the folder names.
        device: "cpu", "cuda", …, or as transformers takes it: 0 for the first GPU, -1 for the processor; None
            for the best there is.
        trust_annotator: Let the folder name an annotator on the network, or at a path outside of it.

    Returns:
        A `TranslationPipeline`, a `ClassificationPipeline` or a `FeatureExtractionPipeline`.

    Raises:
        ConfigError: There is no such task.
        CheckpointError: The folder cannot be read, or is neither product, or not that of the task.
        BackendMissingError: The annotator or the backend is not installed.
    """
    from syntaxformer.runs.loading import CLASSIFIER, product_of

    if task is not None and task not in TASKS:
        swapped = "The folder is given first." if str(folder) in TASKS else ""
        raise ConfigError(
            f"task: expected one of {', '.join(TASKS)}, got {task!r}. {swapped or nearest(task, TASKS)}"
        )
    if isinstance(device, int):
        device = "cpu" if device < 0 else f"cuda:{device}"
    device = device and str(device)
    path = fetched(folder)
    is_classifier = product_of(path) == CLASSIFIER
    if task in ("classification", "feature-extraction") or (task is None and is_classifier):
        from syntaxformer.encoders.classifier import Classifier
        from syntaxformer.encoders.embeddings import SyntaxEncoder

        classifier = Classifier.from_folder(path, annotator, device, trust_annotator)
        if task == "feature-extraction":
            return FeatureExtractionPipeline(SyntaxEncoder.of(classifier))
        return ClassificationPipeline(classifier)
    from syntaxformer.translation.translator import Translator

    return TranslationPipeline(Translator.load(path, annotator, device, trust_annotator=trust_annotator))
