"""Vectors of words out of any encoder: the mean over a word's pieces, for each layer.

One `WordEncoder` each for a Hugging Face encoder, an infused one and the encoder of a translator.
`cache_states` runs one of them over sentences once and leaves each layer in a file: memory holds one layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from syntaxformer.base.errors import AlignmentError, CheckpointError, ConfigError
from syntaxformer.base.files import folder_errors
from syntaxformer.base.progress import track
from syntaxformer.encoders.pretrained import longest_input
from syntaxformer.syntax import WordColumns, batch_word_of_piece, encoding_offsets
from syntaxformer.translation.source import encode_pieces, source_batch
from syntaxformer.trees import Sentence
from syntaxformer.trees.locate import given_words

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator
    from syntaxformer.translation.translator import Translator

BATCH_SENTENCES = 64


class WordEncoder(Protocol):
    """Sentences in; states of their pieces out, with the word of each piece."""

    n_states: int
    """Layers, and one more for the embeddings that enter the first."""

    def n_pieces(self, sentences: Sequence[Sentence]) -> NDArray[np.int64]:
        """Pieces of each sentence, specials included."""
        ...

    @property
    def longest(self) -> int:
        """Pieces that a sentence may have."""
        ...

    def encode(self, sentences: Sequence[Sentence]) -> tuple[Sequence[Tensor], NDArray[np.int64]]:
        """States, `n_states × [sentences, pieces, d_model]`, and words of pieces, `[sentences, pieces]`."""
        ...


class HuggingFaceWords:
    """A Hugging Face encoder in evaluation mode, with a fast tokenizer; of an encoder-decoder, its encoder.

    Raises:
        ConfigError: The tokenizer reports no character offsets.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        if not tokenizer.is_fast:
            raise ConfigError("tokenizer: expected a fast one, which knows offsets, got a slow one.")
        self.model = model.get_encoder() if model.config.is_encoder_decoder else model
        self.tokenizer = copy(tokenizer)
        self.tokenizer.padding_side = "right"  # where the words of a batch are looked for
        self.n_states = model.config.num_hidden_layers + 1

    @property
    def longest(self) -> int:
        """The tokenizer's or the position table's limit."""
        return int(min(self.tokenizer.model_max_length, longest_input(self.model)))

    def n_pieces(self, sentences: Sequence[Sentence]) -> NDArray[np.int64]:
        """Pieces of each sentence, specials included."""
        encoded = self.tokenizer([one.text for one in sentences], verbose=False)
        return np.array([len(ids) for ids in encoded["input_ids"]], np.int64)

    @torch.inference_mode()
    def encode(self, sentences: Sequence[Sentence]) -> tuple[Sequence[Tensor], NDArray[np.int64]]:
        """States of all layers and the word of each piece."""
        inputs = self.inputs(sentences)
        inputs = {name: tensor.to(self.model.device) for name, tensor in inputs.items()}
        states = self.model(**inputs, output_hidden_states=True).hidden_states
        offsets, splits = encoding_offsets(self.tokenizer([one.text for one in sentences]))
        words = [one.offsets for one in sentences]
        return states, _owners(offsets, splits, words, inputs["input_ids"].shape[1])

    def inputs(self, sentences: Sequence[Sentence]) -> dict[str, Tensor]:
        """The batch as the model takes it."""
        return dict(self.tokenizer([one.text for one in sentences], padding=True, return_tensors="pt"))


class InfusedWords(HuggingFaceWords):
    """An infused encoder. Its tags and trees come from an annotator: gold ones would be the answer itself."""

    def __init__(self, model: Any, collator: Any, annotator: Annotator) -> None:
        super().__init__(model, collator.tokenizer)
        self.annotator = annotator
        self.collator = copy(collator)
        self.collator.tokenizer = self.tokenizer
        self.collator.max_length = self.longest  # that of fine-tuning is often shorter than a sentence

    def inputs(self, sentences: Sequence[Sentence]) -> dict[str, Tensor]:
        """The batch with what the annotator says."""
        from syntaxformer.encoders.collator import SyntaxExample

        if self.collator.config.is_plain:
            return super().inputs(sentences)
        annotated = self.annotator.annotate_words([one.words for one in sentences])
        return dict(self.collator([SyntaxExample((one,), None) for one in annotated]))


class TranslatorWords:
    """The encoder of one of our translators; its factors come from its own annotator."""

    longest = 1024

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.n_states = translator.model.config.encoder_layers + 1

    def n_pieces(self, sentences: Sequence[Sentence]) -> NDArray[np.int64]:
        """Pieces of each sentence, the end included."""
        return np.diff(self._offsets(self._lines(sentences))[1])

    @torch.inference_mode()
    def encode(self, sentences: Sequence[Sentence]) -> tuple[Sequence[Tensor], NDArray[np.int64]]:
        """States of all layers and the word of each piece.

        Raises:
            AlignmentError: The model's source has other pieces than the text: tags between the words.
        """
        translator, lines = self.translator, self._lines(sentences)
        words = None
        if translator.annotator is not None:
            annotated = translator.annotator.annotate_words([given_words(line) for line in lines])
            words = WordColumns.from_sentences(annotated)
        source = translator.encoder.encode(lines, words)
        offsets, splits = self._offsets(lines)
        if source.splits.tolist() != splits.tolist():
            raise AlignmentError(
                "probe: expected one source piece for each piece of the text, got more: this model reads "
                "tags between its words. Probe a model with another infusion.kind."
            )
        batch = source_batch(source, range(len(lines)), translator.encoder.tokenizer.pad_token_id)
        batch = {name: tensor.to(translator.model.device) for name, tensor in batch.items()}
        output = translator.model.get_encoder()(**batch, output_hidden_states=True)
        clean_offsets = translator.encoder.preparation.clean_offsets
        places = [clean_offsets(one.text, one.offsets) for one in sentences]
        return output.hidden_states, _owners(offsets, splits, places, batch["input_ids"].shape[1])

    def _lines(self, sentences: Sequence[Sentence]) -> list[str]:
        """The text as the annotator sees it; `encoder.encode` prepares it for subwords."""
        return [self.translator.encoder.preparation.clean(one.text) for one in sentences]

    def _offsets(self, lines: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Characters of the lines that each piece stands for, and where each line's pieces begin."""
        encoder = self.translator.encoder
        prepared = encoder.preparation.prepare(lines)
        offsets, splits = encoding_offsets(encode_pieces(encoder.tokenizer, prepared.texts))
        return prepared.to_raw(offsets, splits), splits


def load_word_encoder(
    folder: str | Path, annotator: str | None = None, device: str | None = None, trust_annotator: bool = False
) -> WordEncoder:
    """Load whatever kind of model a folder holds.

    Args:
        folder: A translator, an infused encoder, or a Hugging Face encoder.
        annotator: Gives a translator or an infused encoder its tags and trees; None for the one that it was
            trained with, else, for an infused encoder, `en+phrases`.
        device: "cpu", "cuda", …; None for the best there is.
        trust_annotator: Let the folder name an annotator on the network, or at a path outside of it.

    Raises:
        CheckpointError: It holds none of them, or names an annotator that needs `trust_annotator`.
        ConfigError: There is no such annotator or device, or its encoder cannot be probed.
    """
    from syntaxformer.annotate.wrappers import prepare, trusted_annotator
    from syntaxformer.encoders.collator import SyntaxCollator
    from syntaxformer.encoders.tasks import CLASSIFIER, read_classifier_info
    from syntaxformer.infusion import load
    from syntaxformer.runs.loading import pick_device
    from syntaxformer.translation.translator import Translator

    folder = Path(folder)
    if (folder / "syntaxformer.json").exists():
        return TranslatorWords(Translator.load(folder, annotator, device, trust_annotator=trust_annotator))
    if not (folder / "config.json").exists():
        raise CheckpointError(f"{folder}: expected a model folder, got none with a config.json.")
    if (folder / "infusion.json").exists():
        stored = read_classifier_info(folder).annotator if (folder / CLASSIFIER).exists() else None
        annotator = trusted_annotator(stored, annotator, folder, trust_annotator)
        place, parser = pick_device(device), prepare(annotator or "en+phrases")
        return InfusedWords(load(folder).eval().to(place), SyntaxCollator.from_pretrained(folder), parser)
    from transformers import AutoModel, AutoTokenizer

    place = pick_device(device)
    with folder_errors(folder, "an encoder"):
        model = AutoModel.from_pretrained(folder, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, use_fast=True)
    return HuggingFaceWords(model.eval().to(place), tokenizer)


@dataclass(frozen=True)
class CachedStates:
    """States of words in files, `.npy` of `[words, d_model]`, one a layer; words without a piece are zero."""

    paths: dict[int, Path]
    n_uncovered: int

    def layer(self, layer: int) -> Tensor:
        """One layer in memory, `[words, d_model]`."""
        return torch.from_numpy(np.load(self.paths[layer], allow_pickle=False))


def cache_states(
    encoder: WordEncoder, sentences: Sequence[Sentence], layers: Sequence[int], folder: Path
) -> CachedStates:
    """Run an encoder over sentences once and write the wanted layers.

    Args:
        encoder: Where states come from.
        sentences: In the order of the words in the files.
        layers: 0 for the embeddings, n for the output of layer n.
        folder: Gets a file for each layer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    splits = np.cumsum([0, *map(len, sentences)])
    files: dict[int, Any] = {}
    n_uncovered = 0
    # Sentences of like length together, the longest first: a lack of memory shows at once.
    order = sorted(range(len(sentences)), key=lambda row: -len(sentences[row]))
    for start in track(range(0, len(order), BATCH_SENTENCES), "encoding sentences", unit="batches"):
        rows = order[start : start + BATCH_SENTENCES]
        states, owners = encoder.encode([sentences[row] for row in rows])
        where = np.concatenate([np.arange(splits[row], splits[row + 1]) for row in rows])
        for place, layer in enumerate(layers):
            means, counts = word_means(states[layer], owners, [len(sentences[row]) for row in rows])
            if layer not in files:
                shape = (int(splits[-1]), means.shape[1])
                path = folder / f"layer{layer}.npy"
                files[layer] = np.lib.format.open_memmap(path, "w+", np.float32, shape)
            files[layer][where] = means.float().cpu().numpy()
            n_uncovered += int((counts == 0).sum()) if place == 0 else 0
    for file in files.values():
        file.flush()
    return CachedStates({layer: folder / f"layer{layer}.npy" for layer in layers}, n_uncovered)


def word_means(
    states: Float[Tensor, "batch pieces d_model"], owners: NDArray[np.int64], n_words: Sequence[int]
) -> tuple[Float[Tensor, "words d_model"], Float[Tensor, " words"]]:
    """Mean state of the pieces of each word, the words of all sentences one after the other.

    Args:
        states: Of pieces.
        owners: `[batch, pieces]`, word within its sentence, negative for none.
        n_words: Words of each sentence.

    Returns:
        Means, zero for a word without pieces, and how many pieces each word has.
    """
    starts = np.cumsum([0, *n_words])
    flat = torch.from_numpy(np.where(owners < 0, -1, owners + starts[:-1, None])).to(states.device)
    owned = flat >= 0
    total = int(starts[-1])
    sums = states.new_zeros(total, states.shape[-1]).index_add_(0, flat[owned], states[owned])
    counts = torch.bincount(flat[owned], minlength=total).to(states.dtype)
    return sums / counts.clamp_min(1)[:, None], counts


def _owners(
    offsets: NDArray[np.int32],
    splits: NDArray[np.int64],
    words: Sequence[Sequence[tuple[int, int]]],
    width: int,
) -> NDArray[np.int64]:
    """Word of each piece, `[sentences, width]`; -1 for specials and padding, which stands on the right."""
    word_splits = np.cumsum([0, *map(len, words)])
    flat = batch_word_of_piece(offsets, splits, [place for one in words for place in one], word_splits)
    owners = np.full((len(words), width), -1, np.int64)
    for row in range(len(words)):
        owners[row, : splits[row + 1] - splits[row]] = flat[splits[row] : splits[row + 1]]
    return owners
