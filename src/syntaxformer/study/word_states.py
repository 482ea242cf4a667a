"""Word vectors from any encoder: the mean over a word's pieces, for each layer.

There is a `WordEncoder` for Hugging Face encoders, for infused ones and for the encoders of translators.
`cache_states` runs it once over sentences and writes each layer to a file, so that memory holds one layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from syntaxformer.base.errors import AlignmentError, CheckpointError, ConfigError
from syntaxformer.base.files import check_weights, folder_errors
from syntaxformer.base.progress import track
from syntaxformer.runs.loading import check_outputs, longest_input
from syntaxformer.syntax import WordColumns, batch_word_of_piece, encoding_offsets
from syntaxformer.syntax.ragged import Ragged, splits_of
from syntaxformer.translation.source import SourceEncoder, source_batch
from syntaxformer.trees import Sentence
from syntaxformer.trees.locate import given_words

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator
    from syntaxformer.translation.translator import Translator

BATCH_SENTENCES = 64


@dataclass(frozen=True)
class WordEncoder:
    """Encodes sentences as states of their pieces, with the word of each piece.

    Args:
        model: A model in evaluation mode, which returns hidden states for the result of `inputs`.
        n_states: Number of layers, plus one for the embeddings that enter the first.
        longest: Largest number of pieces in a sentence.
        owners: Returns the word of each piece of sentences, specials included, which have -1.
        inputs: Makes the model's inputs from sentences, padded on the right.
    """

    model: Any
    n_states: int
    longest: int
    owners: Callable[[Sequence[Sentence]], Ragged]
    inputs: Callable[[Sequence[Sentence]], Mapping[str, Tensor]]

    @torch.inference_mode()
    def encode(self, sentences: Sequence[Sentence]) -> tuple[Sequence[Tensor], NDArray[np.int64]]:
        """States, `n_states × [sentences, pieces, d_model]`, and words of pieces, `[sentences, pieces]`.

        Raises:
            AlignmentError: A translator's source has tags as pieces between the words.
            CheckpointError: States are not finite.
        """
        device = next(self.model.parameters()).device
        inputs = {name: tensor.to(device) for name, tensor in self.inputs(sentences).items()}
        states = self.model(**inputs, output_hidden_states=True).hidden_states
        check_outputs(*states)
        return states, self.owners(sentences).padded(-1, width=inputs["input_ids"].shape[1])


def huggingface_words(model: Any, tokenizer: Any) -> WordEncoder:
    """A `WordEncoder` for a Hugging Face encoder, or for the encoder of an encoder-decoder.

    Raises:
        ConfigError: The tokenizer reports no character offsets.
    """
    if not tokenizer.is_fast:
        raise ConfigError("tokenizer: expected a fast one, which knows offsets, got a slow one.")
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model
    tokenizer = copy(tokenizer)
    tokenizer.padding_side = "right"  # as that of `owners`

    def owners(sentences: Sequence[Sentence]) -> Ragged:
        offsets, splits = encoding_offsets(
            tokenizer([sentence.text for sentence in sentences], verbose=False)
        )
        return Ragged(batch_word_of_piece(offsets, splits, *encoding_offsets(sentences)), splits)

    def inputs(sentences: Sequence[Sentence]) -> dict[str, Tensor]:
        return dict(tokenizer([sentence.text for sentence in sentences], padding=True, return_tensors="pt"))

    longest = int(min(tokenizer.model_max_length, longest_input(encoder)))
    return WordEncoder(encoder, model.config.num_hidden_layers + 1, longest, owners, inputs)


def infused_words(model: Any, collator: Any, annotator: Annotator) -> WordEncoder:
    """A `WordEncoder` for an infused encoder, with an annotator's trees: gold trees would be the answer."""
    from syntaxformer.encoders.collator import SyntaxExample

    plain = huggingface_words(model, collator.tokenizer)
    if collator.config.is_plain:
        return plain
    collator = copy(collator)
    collator.tokenizer = copy(collator.tokenizer)
    collator.tokenizer.padding_side = "right"
    collator.max_length = plain.longest  # the limit of fine-tuning is often too short for sentences

    def inputs(sentences: Sequence[Sentence]) -> dict[str, Tensor]:
        annotated = annotator.annotate_words([sentence.words for sentence in sentences])
        return dict(collator([SyntaxExample((sentence,), None) for sentence in annotated]))

    return replace(plain, inputs=inputs)


def source_owners(
    encoder: SourceEncoder, sentences: Sequence[Sentence], offsets: NDArray[Any], splits: NDArray[np.int64]
) -> Ragged:
    """The word of each source piece, whose `offsets`, `[pieces, 2]`, are those in the clean lines."""
    clean_offsets = encoder.preparation.clean_offsets
    words = [clean_offsets(sentence.text, sentence.offsets) for sentence in sentences]
    flat, word_splits = list(chain.from_iterable(words)), splits_of(list(map(len, words)))
    return Ragged(batch_word_of_piece(offsets, splits, flat, word_splits), splits)


def translator_words(translator: Translator) -> WordEncoder:
    """A `WordEncoder` for a translator's encoder; factors come from the translator's annotator.

    Raises:
        ConfigError: The model has several target languages, and none was chosen.
    """
    encoder = translator.encoder

    def owners(sentences: Sequence[Sentence]) -> Ragged:  # tags are none of the pieces
        preparation = encoder.preparation
        prepared = preparation.prepare([preparation.clean(sentence.text) for sentence in sentences])
        offsets, splits = encoding_offsets(
            translator.cutter(len(sentences))(encoder.tokenizer, prepared.texts)
        )
        return source_owners(encoder, sentences, prepared.to_raw(offsets, splits), splits)

    def inputs(sentences: Sequence[Sentence]) -> Mapping[str, Tensor]:
        lines, words = [encoder.preparation.clean(sentence.text) for sentence in sentences], None
        if translator.annotator is not None:
            annotated = translator.annotator.annotate_words([given_words(line) for line in lines])
            words = WordColumns.from_sentences(annotated)
        source = encoder.encode(lines, words, cut=translator.cutter(len(lines)))
        if encoder.prepend:
            raise AlignmentError(
                "probe: expected one source piece for each piece of the text, got more, because this model "
                "reads tags between words. Probe a model with another infusion.kind."
            )
        return source_batch(source, range(len(lines)), encoder.tokenizer.pad_token_id)

    config = translator.model.config  # T5 has another name for it
    n_states = getattr(config, "encoder_layers", config.num_hidden_layers) + 1
    return WordEncoder(translator.model.get_encoder(), n_states, translator.longest, owners, inputs)


def load_word_encoder(
    folder: str | Path,
    annotator: str | None = None,
    device: str | None = None,
    trust_annotator: bool = False,
    to: str | None = None,
) -> WordEncoder:
    """Load the model in a folder: a translator, an infused encoder or a Hugging Face encoder.

    Unless an annotator is given, the model's own is used, or `en+phrases` for an infused encoder without one.
    `to` is the language into which a translator translates, if there are several.

    Raises:
        CheckpointError: The folder holds no such model, or names an annotator that needs `trust_annotator`.
        ConfigError: There is no such annotator, device or target language, or its encoder cannot be probed.
    """
    from syntaxformer.annotate.registry import prepare, trusted_annotator
    from syntaxformer.encoders.collator import SyntaxCollator
    from syntaxformer.encoders.tasks import CLASSIFIER, read_classifier_info
    from syntaxformer.infusion import load
    from syntaxformer.runs.loading import auto_tokenizer, checkpoint_errors, quiet_loading, to_device
    from syntaxformer.translation.translator import Translator

    folder = Path(folder)
    if (folder / "syntaxformer.json").exists():
        translator = Translator.load(folder, annotator, device, trust_annotator=trust_annotator)
        return translator_words(translator.to(to))
    if to is not None:
        raise ConfigError(f"to: expected none for a model that does not translate, got {to}. Leave it out.")
    if not (folder / "config.json").exists():
        raise CheckpointError(f"{folder}: expected a model folder, got none with a config.json.")
    if (folder / "infusion.json").exists():
        stored = read_classifier_info(folder).annotator if (folder / CLASSIFIER).exists() else None
        parser = prepare(trusted_annotator(stored, annotator, folder, trust_annotator) or "en+phrases")
        with quiet_loading():
            infused = load(folder).eval()
        collator = SyntaxCollator.from_pretrained(folder, trust_annotator)
        return infused_words(to_device(infused, device), collator, parser)
    from transformers import AutoConfig, AutoModel

    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with folder_errors(folder, "an encoder"), checkpoint_errors(str(folder)), quiet_loading():
        tokenizer = auto_tokenizer(folder, trust_annotator)
        check_weights(folder, lambda: AutoModel.from_config(AutoConfig.from_pretrained(folder, **safe)))
        model = AutoModel.from_pretrained(folder, use_safetensors=True, **safe)
    return huggingface_words(to_device(model.eval(), device), tokenizer)


@dataclass(frozen=True)
class CachedStates:
    """Word states in one `.npy` file `[words, d_model]` for each layer; words without a piece are zero."""

    paths: dict[int, Path]
    n_uncovered: int

    def layer(self, layer: int) -> Tensor:
        """One layer in memory, `[words, d_model]`."""
        return torch.from_numpy(np.load(self.paths[layer], allow_pickle=False))


def cache_states(
    encoder: WordEncoder, sentences: Sequence[Sentence], layers: Sequence[int], folder: Path
) -> CachedStates:
    """Run an encoder over sentences once and write the wanted layers into a folder, 0 for the embeddings."""
    folder.mkdir(parents=True, exist_ok=True)
    splits = np.cumsum([0, *map(len, sentences)])
    files: dict[int, Any] = {}
    n_uncovered = 0
    # Sentences of similar length share a batch, the longest first, so that a lack of memory shows at once.
    order = sorted(range(len(sentences)), key=lambda row: -len(sentences[row]))
    for start in track(range(0, len(order), BATCH_SENTENCES), "encoding sentences", unit="batches"):
        rows = order[start : start + BATCH_SENTENCES]
        states, owners = encoder.encode([sentences[row] for row in rows])
        where = np.concatenate([np.arange(splits[row], splits[row + 1]) for row in rows])
        for layer in layers:
            means, counts = word_means(states[layer], owners, [len(sentences[row]) for row in rows])
            if layer not in files:
                shape = (int(splits[-1]), means.shape[1])
                path = folder / f"layer{layer}.npy"
                files[layer] = np.lib.format.open_memmap(path, "w+", np.float32, shape)
            files[layer][where] = means.float().cpu().numpy()
        n_uncovered += int((counts == 0).sum())  # of any layer: they share their pieces
    for file in files.values():
        file.flush()
    return CachedStates({layer: folder / f"layer{layer}.npy" for layer in layers}, n_uncovered)


def word_means(
    states: Float[Tensor, "batch pieces d_model"], owners: NDArray[np.int64], n_words: Sequence[int]
) -> tuple[Float[Tensor, "words d_model"], Float[Tensor, " words"]]:
    """The mean state over the pieces of each word, for the words of all sentences in order.

    `owners`, `[batch, pieces]`, are the index of each piece's word in its sentence, negative for none.

    Returns:
        Means, which are zero for a word without pieces, and the number of pieces of each word.
    """
    starts = np.cumsum([0, *n_words])
    flat = torch.from_numpy(np.where(owners < 0, -1, owners + starts[:-1, None])).to(states.device)
    owned = flat >= 0
    total = int(starts[-1])
    sums = states.new_zeros(total, states.shape[-1]).index_add_(0, flat[owned], states[owned])
    counts = torch.bincount(flat[owned], minlength=total).to(states.dtype)
    return sums / counts.clamp_min(1)[:, None], counts
