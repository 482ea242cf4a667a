"""`pipeline`: a model folder as a function from text to its answer, for notebooks and small programs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError

if TYPE_CHECKING:
    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.translation.translator import Translator

Text = str | tuple[str, str]


class TranslationPipeline:
    """Texts → translations."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    @overload
    def __call__(self, texts: str, **options: Any) -> str: ...
    @overload
    def __call__(self, texts: Sequence[str], **options: Any) -> list[str]: ...
    def __call__(self, texts: str | Sequence[str], **options: Any) -> str | list[str]:
        """Translate a text, or several.

        Args:
            texts: Raw text, a sentence or segment each.
            options: Those of `Translator.translate`, but `n_best` and `scored`.

        Raises:
            TypeError: `n_best` or `scored` is given: a text has one answer here.
        """
        if wrong := sorted({"n_best", "scored"} & options.keys()):
            raise TypeError(
                f"options: expected those that leave one text for each, got {', '.join(wrong)}. "
                "Use `translator.translate`, which gives hypotheses with their scores."
            )
        several = [texts] if isinstance(texts, str) else texts
        found = [best[0].text for best in self.translator.translate(several, **options)]
        return found[0] if isinstance(texts, str) else found


class ClassificationPipeline:
    """Texts, or pairs of texts as tuples → labels with their probabilities, or scores."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier

    @overload
    def __call__(self, texts: Text) -> dict[str, Any]: ...
    @overload
    def __call__(self, texts: Sequence[Text]) -> list[dict[str, Any]]: ...
    def __call__(self, texts: Text | Sequence[Text]) -> dict[str, Any] | list[dict[str, Any]]:
        """Classify a text or a pair, given as a tuple, or a list of them.

        Returns:
            For each `{"label": …, "probabilities": {label: …}}`, or `{"score": …}`. Cut texts are warned of.
        """
        single = isinstance(texts, str | tuple)
        found = self.classifier.predict([texts] if single else list(texts))  # type: ignore[list-item]
        if found.n_truncated:
            warnings.warn(self.classifier.cut_note(found), stacklevel=2)
        answers = self.classifier.answers(found)
        return answers[0] if single else answers


def _translation(folder: Path, *options: Any) -> TranslationPipeline:
    from syntaxformer.translation.translator import Translator

    return TranslationPipeline(Translator.load(folder, *options[:2], trust_annotator=options[2]))


def _classification(folder: Path, *options: Any) -> ClassificationPipeline:
    from syntaxformer.encoders.classifier import Classifier

    return ClassificationPipeline(Classifier.from_folder(folder, *options))


TASKS: dict[str, Callable[..., Any]] = {"translation": _translation, "classification": _classification}


def pipeline(
    task: str,
    folder: str | Path,
    annotator: str | None = None,
    device: str | None = None,
    trust_annotator: bool = False,
) -> Any:
    """Load a model folder as a function.

    Args:
        task: "translation" or "classification".
        folder: What `train`, `export` or `finetune` wrote.
        annotator: Use this annotator and not the one that the folder names.
        device: "cpu", "cuda", …; None for the best there is.
        trust_annotator: Let the folder name an annotator on the network, or at a path outside of it.

    Returns:
        A `TranslationPipeline` or a `ClassificationPipeline`.

    Raises:
        ConfigError: There is no such task.
        CheckpointError: The folder cannot be read.
        BackendMissingError: The annotator or the backend is not installed.
    """
    if task not in TASKS:
        raise ConfigError(
            f"task: expected one of {', '.join(TASKS)}, got {task!r}. {nearest(task, list(TASKS))}"
        )
    return TASKS[task](Path(folder), annotator, device, trust_annotator)
