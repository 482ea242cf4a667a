"""Vectors of texts: an infused encoder as a module of sentence-transformers, which is not imported here."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from syntaxformer.annotate.annotator import check_lines
from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.base.files import fetched
from syntaxformer.encoders.classifier import Classifier, is_base_model, needed_columns, save
from syntaxformer.encoders.collator import SyntaxCollator
from syntaxformer.infusion.infusion import BATCH_KEYS


class SyntaxEncoder(nn.Module):
    """The first module of a `SentenceTransformer`: it annotates texts and gives the states of their pieces.

    `SentenceTransformer(modules=[SyntaxEncoder(…), Pooling(…)])` then encodes, trains, saves and loads as
    with a plain encoder. A prompt is parsed together with its text.

    Args:
        model: A base model, as `AutoModel` loads it, infused or plain.
        collator: Makes its batches, with the annotator of the texts: `SyntaxCollator(tokenizer, model,
            annotator="en+phrases", max_length=256)`.

    Raises:
        ConfigError: The model has a head, a decoder or PEFT around it, or the collator has no annotator.
    """

    save_in_root = True

    def __init__(self, model: PreTrainedModel, collator: SyntaxCollator) -> None:
        super().__init__()
        if not is_base_model(model):
            got = type(model).__name__
            raise ConfigError(f"model: expected an encoder without head and let, got {got}. Use AutoModel.")
        if collator.annotator is None and needed_columns(collator.config):
            raise ConfigError("annotator: expected the collator's, got none. Set annotator='en+phrases'.")
        self.model, self.collator = model, collator

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer."""
        return self.collator.tokenizer

    @property
    def max_seq_length(self) -> int:
        """Largest number of pieces; longer texts are cut, and counted in `collator.n_truncated`."""
        return self.collator.max_length

    @max_seq_length.setter
    def max_seq_length(self, length: int) -> None:
        self.collator.max_length = length

    def preprocess(
        self, inputs: Sequence[str], prompt: str | None = None, max_length: int | None = None, **_: Any
    ) -> dict[str, Any]:
        """Annotate texts, each behind the prompt, and make a batch of them; `max_length` as in the collator.

        Raises:
            TypeError: They are no texts.
        """
        check_lines(inputs, "texts")
        if strange := next((type(text).__name__ for text in inputs if not isinstance(text, str)), None):
            raise TypeError(f"texts: expected strings, got {strange}. A pair has no vector of its own.")
        collator = copy(self.collator) if max_length else self.collator
        collator.max_length = max_length or collator.max_length
        batch: dict[str, Any] = collator([{collator.text[0]: (prompt or "") + text} for text in inputs])
        if not collator.config.is_plain:  # a loss with a cache cuts padding off a second axis of its length
            batch["syntax_settings"] = batch["syntax_settings"][:, None]
        if "syntax" in batch:
            batch["syntax"] = batch["syntax"].movedim(1, -1)
        if prompt:  # so that `Pooling` can leave it out
            how = {"split_special_tokens": collator.split_special_tokens, "return_special_tokens_mask": True}
            is_special = self.tokenizer(prompt, **how)["special_tokens_mask"]
            batch["prompt_length"] = len(is_special) - sum(is_special[-1:])  # without one that closes it
        return batch

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add the states of the pieces, `token_embeddings` `[batch, pieces, width]`, to a batch."""
        names = {*self.tokenizer.model_input_names, *BATCH_KEYS}
        inputs = {name: value for name, value in features.items() if name in names}
        if not self.collator.config.is_plain:
            inputs["syntax_settings"] = inputs["syntax_settings"][:, 0]
        if "syntax" in inputs:
            n_pieces = inputs["input_ids"].shape[1]
            inputs["syntax"] = inputs["syntax"][:, :n_pieces, :n_pieces].movedim(-1, 1).contiguous()
        return {**features, "token_embeddings": self.model(**inputs).last_hidden_state}

    def save(self, output_path: str | Path, **_: Any) -> None:
        """Write model, tokenizer and the annotator's name, as `syntaxformer.save` does, with safetensors."""
        save(self.model, self.collator, output_path)

    @classmethod
    def load(
        cls, folder: str | Path, subfolder: str = "", model_kwargs: Any = None, **options: Any
    ) -> SyntaxEncoder:
        """Load what `save`, `syntaxformer.save` of a base model, or `finetune --task similarity` wrote.

        Args:
            folder: The folder, or its name on the Hub.
            subfolder: Where the model is in it.
            model_kwargs: `annotator`, `device` and `trust_annotator`, as `syntaxformer.pipeline` takes them.
            options: As sentence-transformers gives them, such as `revision`. No code is run.

        Raises:
            CheckpointError: The folder cannot be read, or its model is no base model.
            ConfigError: There is another option.
        """
        others = [*({*(model_kwargs or ())} - {"annotator", "device", "trust_annotator"})]
        others += [key for key in ("processor_kwargs", "config_kwargs") if options.get(key)]
        if others or (backend := options.get("backend", "torch")) != "torch":
            got = ", ".join(others) or f"backend={backend}"
            raise ConfigError(f"model_kwargs: expected annotator, device, trust_annotator, got {got}.")
        of_hub = {"revision": "revision", "token": "token", "cache_dir": "cache_folder"}
        how = {name: options[key] for name, key in of_hub.items() if options.get(key)}
        return cls.of(Classifier.from_folder(fetched(folder, **how) / subfolder, **(model_kwargs or {})))

    @classmethod
    def of(cls, classifier: Classifier) -> SyntaxEncoder:
        """The encoder of a model of similarity; CheckpointError for another type of answer."""
        if not classifier.task_type.separate:
            got = classifier.info.type
            raise CheckpointError(f"model: expected a base model or one of similarity, got the type {got!r}.")
        collator = copy(classifier.collator)
        collator.separate, collator.annotator = False, classifier.annotator
        return cls(classifier.model, collator)
