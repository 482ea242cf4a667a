"""Makes batches for an infused model from examples of one or two sentences.

A batch holds pieces, relations, tags and governors. Examples are annotated sentences, as `SyntaxExample`s or
as rows of a data set; the collator annotates rows of raw text only if it has an annotator. It works on a
whole batch at once, and keeps what repeats between epochs (phrases of a sentence).
"""

from __future__ import annotations

import json
import logging
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain, islice, product
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import get_worker_info
from transformers import BatchEncoding, PreTrainedConfig, PreTrainedTokenizerBase

from syntaxformer.annotate import Annotator, load_annotator
from syntaxformer.annotate.dataset import ANNOTATOR, SYNTAX, parts_of
from syntaxformer.base.errors import CheckpointError, ConfigError, DataError, panics
from syntaxformer.base.files import read_json
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.model_card import write_card
from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL
from syntaxformer.runs.loading import TARGET_TOKENIZER, auto_tokenizer
from syntaxformer.syntax import (
    FACTORS,
    SyntaxInputs,
    UnseenValues,
    WordColumns,
    batch_word_of_piece,
    encoding_offsets,
    pair_words_of_pieces,
    piece_factors,
    segment_offsets,
)
from syntaxformer.syntax.inputs import first_pieces, segment_syntax
from syntaxformer.syntax.piece_relations import sentence_trees, shown
from syntaxformer.syntax.ragged import Ragged, splits_of
from syntaxformer.trees import Sentence

_log = logging.getLogger("syntaxformer.data")

COLLATOR_FILE = "collator.json"
# Arguments that a folder may give; `text` and `annotator` are the user's.
_STORED = {"max_length", "pad_to_multiple_of", "split_special_tokens", "stride", "tags"}
LABELS = ("label", "labels", "label_ids")  # columns of a row that can hold its label
_NOTHING = Sentence("", (), ())
_SPACED = "words with single spaces"
_OF_SPECIALS = (
    "texts hold %r, a special token of the tokenizer, which is read as text. In Python, "
    "SyntaxCollator(split_special_tokens=False) reads it as one piece, such as the mark of an entity."
)
_ENCODED = 1000  # examples whose windows are counted at once


@dataclass(frozen=True, slots=True)
class SyntaxExample:
    """A sentence or a pair of sentences to classify.

    Args:
        segments: One or two annotated sentences.
        label: A class, a score, scores (a list), the class of each word (a tuple), the characters of the
            second segment that answer the first (a range), or the text that a text-to-text model should
            write; None if unknown.
        window: Which of the windows of a long text is read.
    """

    segments: tuple[Sentence, ...]
    label: Any = None
    window: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.segments) <= 2:
            raise DataError(f"segments: expected one sentence or two, got {len(self.segments)}.")

    @property
    def checksum(self) -> int:
        """Checksum of the text, a seed that makes random draws independent of the rest of the batch."""
        return zlib.crc32("\0".join(segment.text for segment in self.segments).encode("utf-8", "replace"))


def _worker() -> int:
    """Row of this process among the workers of a loader."""
    worker = get_worker_info()
    return worker.id % 256 if worker else 0


class SyntaxCollator:
    """Builds batches for an infused model, or for a plain one if the config is empty.

    Args:
        tokenizer: A fast tokenizer, which gives the character offsets of pieces.
        config: The infused model, or its infusion, or the shorthand "masks,pos_add". Batches say for which
            infusion they were made, and a model of another one refuses them. A model that is not infused
            gets plain batches of the same texts, as a baseline needs them.
        max_length: Largest number of pieces, specials included; longer examples are cut and counted.
        pad_to_multiple_of: Round the length of batches up to a multiple; 8 suits tensor cores.
        text: Column of the text of rows without annotation, or the two columns of pairs.
        annotator: Annotates such rows, each time anew, as `load_annotator` takes it; None if no row needs it.
        stride: Longer texts, of a pair the second, are read in `windows` that share so many pieces.
        tags: Labels are tags of words, learned from the "first" piece of a word or from "all".
        split_special_tokens: Read "[SEP]" in a text as text. False lets a text hold special pieces, such as
            marks of entities or "[MASK]". Do not use it for texts from outside.

    Raises:
        ConfigError: The tokenizer gives no character offsets, or a length is invalid.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        config: Any,
        *,
        max_length: int = 128,
        pad_to_multiple_of: int | None = None,
        text: str | tuple[str, str] = "text",
        annotator: str | Annotator | None = None,
        stride: int | None = None,
        tags: Literal["first", "all"] | None = None,
        split_special_tokens: bool = True,
    ) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigError(
                "tokenizer: expected a fast one, which gives character offsets, got "
                f"{type(tokenizer).__name__}. Load it with AutoTokenizer.from_pretrained(…, use_fast=True). "
                "Marian's and M2M100's have no fast form: `syntaxformer train` (model.init_from) takes them."
            )
        n_specials = tokenizer.num_special_tokens_to_add(pair=True)
        if max_length <= n_specials:
            problem = f"expected more than the {n_specials} special pieces of a pair, got {max_length}."
            raise ConfigError(f"max_length: {problem}")
        if pad_to_multiple_of and max_length % pad_to_multiple_of:
            problem = f"expected a multiple of pad_to_multiple_of, {pad_to_multiple_of}, got {max_length}."
            raise ConfigError(f"max_length: {problem}")
        self.stride, self.tags, self.pad_to_multiple_of = stride, tags, pad_to_multiple_of
        self.separate = False  # whether each text of a pair is a row, as some types of task read them
        self.tokenizer, self.max_length = tokenizer, max_length
        self.split_special_tokens = split_special_tokens
        specials = "|".join(map(re.escape, tokenizer.all_special_tokens))
        self._specials = re.compile(specials) if split_special_tokens and specials else None
        host = getattr(config, "config", None)  # of a model
        is_plain = isinstance(host, PreTrainedConfig) and getattr(config, "infusion", None) is None
        self.config = InfusionConfig() if is_plain else InfusionConfig.of(config).fitted()
        self._writes = getattr(host, "is_encoder_decoder", True)
        is_head = type(config).__name__.endswith(("ForSequenceClassification", "ForTokenClassification"))
        self._n_outputs: int | None = getattr(host, "num_labels", None) if is_head else None
        self.text = (text,) if isinstance(text, str) else tuple(text)
        self.annotator = None if annotator is None else load_annotator(annotator)
        self._annotators, self._warned_of_labels = set[str](), False
        # What the workers of a loader have seen, a row for each: examples that were cut, names of annotators.
        self._cut = torch.zeros(256, dtype=torch.int64).share_memory_()
        self._names = torch.zeros(256, 512, dtype=torch.uint8).share_memory_()
        self._n_texts = torch.tensor(0).share_memory_()
        self._n_columns = 0 if text == "text" else len(self.text)
        self._vocabularies = self.config.vocabularies
        self._settings = torch.tensor([self.config.batch_numbers])
        options, lisa = self.config.tree_options, self.config.lisa is not None
        self._inputs = SyntaxInputs(trees=options, governors=lisa)
        self._trees = {*(options.used_trees if options else ()), *(["dependency"] if lisa else [])}

    def __call__(self, examples: Sequence[SyntaxExample | Mapping[str, Any]]) -> dict[str, Tensor]:
        """Build a batch.

        Args:
            examples: Annotated examples; or rows with the column that `annotate_dataset` adds, else with raw
                text, and with their label as `label`, `labels` or `label_ids`. Other columns are not read.

        Returns:
            The tokenizer's `input_ids`, `attention_mask` and `token_type_ids`, `labels` if the examples have
            them, and what the config needs of `syntax` uint8 `[batch, trees, pieces, pieces]`,
            `factor_ids` int64 `[batch, pieces, factors]`, `governors` int64 and `first_pieces` bool
            `[batch, pieces]`; beside them `syntax_settings` int64 `[batch, settings]`, by which a model of
            another infusion refuses them.

        Raises:
            DataError: Single sentences and pairs are mixed, labels or annotations are missing for some, a
                label is not finite or no class of the model, tags are more or fewer than the words, or a row
                has no text.
        """
        are_rows = isinstance(examples[0], Mapping)  # the user's; `finetune` tells of its cuts by itself
        labelled = self._examples(examples)
        examples = self.rows(labelled)
        with panics():
            encoded = self._encode(examples)
        if self.stride is None:
            is_cut = np.array([bool(encoding.overflowing) for encoding in encoded.encodings])
            n_cut = int(is_cut.reshape(len(labelled), -1).any(1).sum())
            if n_cut and are_rows and not self.n_truncated:
                warning = "max_length: texts over %d pieces are cut and counted in n_truncated. Raise it."
                _log.warning(warning, self.max_length)
            self._cut[_worker()] += n_cut
        batch = {name: torch.from_numpy(encoded[name]) for name in encoded if name != "special_tokens_mask"}
        labels = [example.label for example in labelled]
        of_parts = labels[0] is not None and (self.tags or isinstance(labels[0], range))
        batch |= self._part_labels(labels, examples, encoded) if of_parts else self._labels(labels, labelled)
        if not self.config.is_plain:
            batch |= self._syntax(examples, encoded)
        return batch

    def rows(self, examples: Sequence[SyntaxExample]) -> Sequence[SyntaxExample]:
        """The rows of the batch of these examples: if `separate`, each text of a pair has its own.

        Raises:
            DataError: Single sentences and pairs are mixed.
        """
        if not self.separate:
            return examples
        if len({len(example.segments) for example in examples}) > 1:
            raise DataError("segments: expected single sentences or pairs in a batch, got both.")
        return [SyntaxExample((segment,)) for example in examples for segment in example.segments]

    @property
    def n_truncated(self) -> int:
        """Number of examples cut so far, by the workers of a loader too."""
        return int(self._cut.sum())

    @n_truncated.setter
    def n_truncated(self, count: int) -> None:
        self._cut.zero_()[0] = count

    @property
    def n_texts(self) -> int:
        """Texts of an example, 1 or 2; 0 if neither batches, columns of text nor a folder have told it."""
        return int(self._n_texts) or self._n_columns

    @property
    def annotators(self) -> set[str]:
        """Name and version of each annotator of the rows so far, if the rows tell it."""
        rows = map(bytes, self._names[self._names[:, 0] > 0].tolist())
        return {name for row in rows for name in row.rstrip(b"\0").decode("utf-8", "ignore").split("\n")}

    def _note_annotators(self, names: set[str]) -> None:
        """Keep the names of annotators where the main process finds them."""
        if names <= self._annotators:
            return
        self._annotators |= names | self.annotators
        known = sorted(self._annotators)
        if len(known) > 1:
            _log.warning("rows were annotated by %s: trees may differ", " and ".join(known))
        text = "\n".join(known).encode()[:512]
        self._names[_worker(), : len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)

    def aligned(self, device: torch.device) -> SyntaxCollator:
        """The same for training on a device: an accelerator likes lengths that are multiples of 8."""
        aligned = copy(self)
        if device.type != "cpu" and self.max_length % 8 == 0:
            aligned.pad_to_multiple_of = self.pad_to_multiple_of or 8
        return aligned

    def words_of_pieces(
        self, examples: Sequence[SyntaxExample | Mapping[str, Any]], encoded: Any = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The word and the segment of each piece in the batch of these examples.

        Returns:
            Words, -1 for none, with the numbers of a second segment continuing those of the first, and
            segments, 0 or 1; both `[batch, pieces]`.

        Raises:
            DataError: The batch mixes single sentences and pairs.
        """
        examples = self._examples(examples)
        encoded = self._encode(examples) if encoded is None else encoded
        sentences, owners = _segments(examples, encoded)
        words, _ = pair_words_of_pieces(owners.values, owners.splits, splits_of(list(map(len, sentences))))
        shape = encoded["input_ids"].shape
        return words.reshape(shape).astype(np.int64), (owners.row_of_item % 2).reshape(shape)

    def read_pieces(self, examples: Any, encoded: Any = None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The word of each piece, and whether its tag is read there: at its first, if a window has that."""
        examples = self._examples(examples)
        encoded = self._encode(examples) if encoded is None else encoded
        words, _ = self.words_of_pieces(examples, encoded)
        is_read = first_pieces(words)
        for row, example in enumerate(examples):
            piece = int(is_read[row].argmax())
            start, _ = encoded.encodings[row].offsets[piece]
            if example.window and start > example.segments[0].offsets[words[row, piece]][0]:
                is_read[row, piece] = False
        return words, is_read

    def lengths(self, texts: Sequence[Sequence[str]]) -> list[int]:
        """Pieces of each text or pair before it is cut; if `separate`, of the longer of its two texts."""
        sides = list(map(list, zip(*texts, strict=True)))
        rows = [[side] for side in sides] if self.separate else [sides]
        options = {"split_special_tokens": self.split_special_tokens, "verbose": False}
        encoded = (self.tokenizer(*row, **options)["input_ids"] for row in rows)
        return [max(map(len, of_text)) for of_text in zip(*encoded, strict=True)]

    def windows(self, examples: Sequence[SyntaxExample]) -> list[list[SyntaxExample]]:
        """Each example, once for each of its windows; as it is where long examples are cut.

        Raises:
            ConfigError: Windows share as many pieces as they have, or more.
            DataError: A first text leaves no room for the second.
        """
        if self.stride is None:
            return [[example] for example in examples]
        windows: list[list[SyntaxExample]] = []
        for start in range(0, len(examples), _ENCODED):
            chunk = examples[start : start + _ENCODED]
            encodings = self._encode(self._examples(chunk)).encodings
            for example, encoding in zip(chunk, encodings, strict=True):
                windows.append([replace(example, window=w) for w in range(1 + len(encoding.overflowing))])
        return windows

    def places_of_pieces(self, examples: Sequence[SyntaxExample], encoded: Any = None) -> NDArray[np.int64]:
        """First character of each piece in the second text, and that after its last, `[batch, pieces, 2]`.

        -1 for pieces that are not in it.
        """
        encodings = (self._encode(examples) if encoded is None else encoded).encodings
        offsets = np.array([encoding.offsets for encoding in encodings], np.int64)
        inside = np.array([[segment == 1 for segment in encoding.sequence_ids] for encoding in encodings])
        return np.where((inside & (offsets[..., 1] > offsets[..., 0]))[..., None], offsets, -1)

    def read(self, sentence: Sentence) -> Sentence:
        """A sentence as it is read: if words are tagged, with single spaces between them."""
        memory = vars(sentence)
        if self.tags and _SPACED not in memory:
            spaced = Sentence.from_words(sentence.words)
            as_read = {"text": spaced.text, "offsets": spaced.offsets, "constituency": memory["constituency"]}
            memory[_SPACED] = replace(sentence, **as_read)
            vars(memory[_SPACED])[_SPACED] = memory[_SPACED]
        return memory[_SPACED] if self.tags else sentence

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the tokenizer and `collator.json` into a model folder."""
        self.tokenizer.save_pretrained(folder)
        content = {
            "max_length": self.max_length,
            "pad_to_multiple_of": self.pad_to_multiple_of,
            "infusion": self.config.model_dump(mode="json"),
        }
        content |= {"annotators": sorted(self.annotators)} if self.annotators else {}
        content |= {"n_texts": self.n_texts} if self.n_texts else {}
        content |= {} if self.split_special_tokens else {"split_special_tokens": False}
        content |= {name: value for name in ("stride", "tags") if (value := getattr(self, name)) is not None}
        (Path(folder) / COLLATOR_FILE).write_text(json.dumps(content, indent=1), "utf-8")
        write_card(Path(folder))

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, trust_tokenizer: bool = False, **options: Any
    ) -> SyntaxCollator:
        """Read what `save_pretrained` wrote; `text` and `annotator` are given anew.

        Raises:
            CheckpointError: `collator.json` is missing or is not JSON, or the tokenizer has parts that need
                `trust_tokenizer`.
            ConfigError: Its config is invalid.
        """
        path = Path(folder) / COLLATOR_FILE
        content = read_json(path)
        config = InfusionConfig.from_json(content.pop("infusion", {}), str(path))
        annotators = content.pop("annotators", ())
        n_texts = content.pop("n_texts", 0)
        if strange := sorted(content.keys() - _STORED):  # such as an annotator, which you give yourself
            raise CheckpointError(f"{path}: expected no {strange[0][:60]}, which none writes, got one.")
        collator = cls(auto_tokenizer(folder, trust_tokenizer), config, **{**content, **options})
        collator._n_texts.fill_(n_texts)
        collator._note_annotators(set(annotators))
        return collator

    def _examples(self, items: Sequence[Any]) -> Sequence[SyntaxExample]:
        """The examples among some items, and those of rows, as they are read."""
        for item in items:
            if not isinstance(item, SyntaxExample | Mapping):
                raise TypeError(
                    f"examples: expected SyntaxExamples or rows, got {type(item).__name__}. Annotate "
                    "texts, and put each sentence into SyntaxExample((sentence,))."
                )
        raw = [row for row in items if isinstance(row, Mapping) and row.get(SYNTAX) is None]
        parsed = self._parsed([text for row in raw for text in self._texts(row)])
        examples = [item if isinstance(item, SyntaxExample) else self._of_row(item, parsed) for item in items]
        if not self.tags:
            return examples
        return [replace(example, segments=tuple(map(self.read, example.segments))) for example in examples]

    def _of_row(self, row: Mapping[str, Any], parsed: Iterator[Sentence]) -> SyntaxExample:
        parts = parts_of(row.get(SYNTAX))
        for name, stored in zip(self.text, parts, strict=False):
            if isinstance(text := row.get(name), str) and text != stored["text"]:
                raise DataError(
                    f"row: expected in the column {name!r} the annotated text, {stored['text'][:40]!r}, got "
                    f"{text[:40]!r}. Annotate it again, or give SyntaxCollator the column as `text`."
                )
        self._note_annotators({stored[ANNOTATOR] for stored in parts if stored.get(ANNOTATOR)})
        sentences = map(Sentence.from_dict, parts) if parts else islice(parsed, len(self.text))
        label = next((row[name] for name in LABELS if row.get(name) is not None), None)
        return SyntaxExample(tuple(sentences), label.tolist() if hasattr(label, "tolist") else label)

    def _texts(self, row: Mapping[str, Any]) -> list[Any]:
        texts = [row.get(name) for name in self.text]
        if not all(isinstance(text, str) for text in texts):
            raise DataError(
                f"row: expected the column {SYNTAX!r}, or text in {' and '.join(map(repr, self.text))}, got "
                f"{', '.join(row) or 'nothing'}. Annotate the data set with syntaxformer.annotate_dataset; "
                "or, as Trainer drops columns that forward does not name, set remove_unused_columns=False."
            )
        return texts

    def _parsed(self, texts: list[str]) -> Iterator[Sentence]:
        """Sentences of raw texts; bare ones where nothing of them is read."""
        if self.annotator is not None:
            self._note_annotators({f"{self.annotator.name} {self.annotator.version}"} if texts else set())
            return self.annotator.stream(texts)
        if texts and not self.config.is_plain:
            raise DataError(
                f"row: expected the column {SYNTAX!r}, which this infusion needs, got the text "
                f"{shown(Sentence(texts[0], (), ()))} alone. Annotate the data set with "
                "syntaxformer.annotate_dataset, or give the collator an annotator."
            )
        return (Sentence(text, (), ()) for text in texts)

    def _encode(self, examples: Sequence[SyntaxExample]) -> Any:
        n_segments = {len(example.segments) for example in examples}
        if len(n_segments) > 1:
            raise DataError("segments: expected single sentences or pairs in a batch, got both.")
        self._n_texts.fill_(max([*n_segments, int(self._n_texts)]))
        sides = zip(*(example.segments for example in examples), strict=True)
        texts = [[segment.text for segment in side] for side in sides]
        if self._specials is not None and (special := self._specials.search("\n".join(chain(*texts)))):
            self._specials = None
            if not _worker():
                _log.warning(_OF_SPECIALS, special[0])
        options: dict[str, Any] = {"truncation": True}
        if self.stride is not None:
            self._check_room(texts)
            options = {"stride": self.stride, "truncation": "only_second" if len(texts) > 1 else True}
        encoded = self.tokenizer(
            *texts,
            **options,
            split_special_tokens=self.split_special_tokens,
            max_length=self.max_length,
            padding="longest",
            pad_to_multiple_of=self.pad_to_multiple_of,
            return_special_tokens_mask=True,
            return_tensors="np",
        )
        if not any(example.window for example in examples):
            return encoded
        windows = [
            encoding.overflowing[example.window - 1] if example.window else encoding
            for example, encoding in zip(examples, encoded.encodings, strict=True)
        ]
        names = {"input_ids": "ids", "token_type_ids": "type_ids"}
        data = {name: np.array([getattr(w, names.get(name, name)) for w in windows]) for name in encoded}
        return BatchEncoding(data, windows)

    def _check_room(self, texts: list[list[str]]) -> None:
        """The tokenizer requires that the windows of a text have more room than they share."""
        room = self.max_length - self.tokenizer.num_special_tokens_to_add(pair=len(texts) > 1)
        if room <= (self.stride or 0):
            raise ConfigError(f"training.stride: expected less than {room}, got {self.stride}. Lower it.")
        if len(texts) == 1:
            return
        splits = {"split_special_tokens": self.split_special_tokens}
        pieces = self.tokenizer(texts[0], add_special_tokens=False, **splits)["input_ids"]
        longest, text = max((len(ids), text) for ids, text in zip(pieces, texts[0], strict=True))
        if room - longest <= (self.stride or 0):
            raise DataError(
                f"question: expected one that leaves room for more than {self.stride} pieces of text "
                f"(training.stride) among {self.max_length}, got {longest} pieces: {text[:60]!r}. Raise "
                "training.max_length."
            )

    def _part_labels(self, labels: list[Any], examples: Any, encoded: Any) -> dict[str, Tensor]:
        """The class of the pieces of words, or the pieces where the answer begins and ends in its window."""
        if self.tags:
            for example, label in zip(examples, labels, strict=True):
                n_words, n_labels = sum(map(len, example.segments)), 0 if label is None else len(label)
                if n_words != n_labels:
                    problem = f"expected one for each of the {n_words} words of {shown(example.segments[0])}"
                    remedy = "Annotate the words that are labelled: `annotate_words`."
                    raise DataError(f"labels: {problem}, got {n_labels}. {remedy}")
                self._check_label(label, example)
            words, is_read = self.read_pieces(examples, encoded)
            learned = words >= 0 if self.tags == "all" else is_read
            of_pieces = np.take_along_axis(Ragged.of(labels).padded(IGNORED_LABEL), words.clip(0), 1)
            return {"labels": torch.from_numpy(np.where(learned, of_pieces, IGNORED_LABEL))}
        ends = []
        for places, label in zip(self.places_of_pieces(examples, encoded), labels, strict=True):
            starts, stops = places.T
            holds = np.flatnonzero((starts >= 0) & (stops > label.start) & (starts < label.stop))
            # The first piece, [CLS], stands for no answer, also where the window has only a part of it.
            is_whole = len(holds) and starts[holds[0]] <= label.start and stops[holds[-1]] >= label.stop
            ends.append((holds[0], holds[-1]) if is_whole else (0, 0))
        first, last = torch.tensor(np.array(ends)).unbind(1)
        return {"start_positions": first, "end_positions": last}

    def _check_label(self, label: Any, example: SyntaxExample) -> None:
        """DataError for a label that the head cannot learn: torch would not tell which row has it."""
        n, is_list = self._n_outputs, isinstance(label, list | tuple)
        numbers = label if is_list else [label]
        if n is not None and n > 1 and (self.tags or not is_list):
            expected = f"a class of the model, 0 to {n - 1}"
            integers = all(isinstance(number, int | np.integer) for number in numbers)
            fits = integers and all(0 <= number < n or number == IGNORED_LABEL for number in numbers)
        else:
            expected = "finite numbers"
            fits = all(isinstance(number, Real) and math.isfinite(number) for number in numbers)
            if is_list and not self.tags and n is not None:
                expected, fits = f"{n} finite numbers", fits and len(label) == n
        if not fits:
            text = shown(example.segments[0])
            raise DataError(f"labels: expected {expected} for {text}, got {str(label)[:60]}.")

    def _labels(self, labels: list[Any], examples: Sequence[SyntaxExample]) -> dict[str, Tensor]:
        if all(label is None for label in labels):
            return {}
        if len({(label is None, isinstance(label, str)) for label in labels}) > 1:
            raise DataError("labels: expected one kind for all examples or none, got a mixture.")
        if isinstance(labels[0], str):
            return {"labels": self._written(labels)}
        for label, example in zip(labels, examples, strict=True):
            self._check_label(label, example)
        numbers = chain.from_iterable(label if isinstance(label, tuple) else (label,) for label in labels)
        are_classes = all(isinstance(number, int | np.integer) for number in numbers)
        return {"labels": torch.tensor(np.array(labels, np.int64 if are_classes else np.float32))}

    def _written(self, labels: list[str]) -> Tensor:
        """The pieces of labels that a model writes as text."""
        if not self._writes:
            raise DataError(
                f"labels: expected numbers for a model that writes no text, got {labels[0]!r}. Map the "
                "column to numbers, with model.config.label2id or with datasets' class_encode_column."
            )
        home = self.tokenizer.name_or_path
        if home and (Path(home) / TARGET_TOKENIZER).is_file():
            raise ConfigError(
                f"labels: expected a model whose two sides have the same pieces, got {TARGET_TOKENIZER} "
                f"in {home}. Train it with `syntaxformer train`, model.init_from."
            )
        written = self.tokenizer(text_target=labels, padding="longest", truncation=True, return_tensors="pt")
        if not self._warned_of_labels and any(encoding.overflowing for encoding in written.encodings or ()):
            self._warned_of_labels = True
            longest = self.tokenizer.model_max_length
            _log.warning("labels: some texts are cut to model_max_length, %d", longest)
        return written["input_ids"].masked_fill(written["attention_mask"] == 0, IGNORED_LABEL)

    def _syntax(self, examples: Sequence[SyntaxExample], encoded: Any) -> dict[str, Tensor]:
        """The tensors that depend on which word each piece belongs to."""
        (sentences, owners), shape = _segments(examples, encoded), encoded["input_ids"].shape
        batch = {"syntax_settings": self._settings.repeat(len(examples), 1)}
        if self._vocabularies:
            batch["factor_ids"] = self._factor_ids(sentences, owners).view(*shape, -1)
        if self._trees:
            trees = [sentence_trees(sentence, self._trees) for sentence in sentences]
            special = (encoded["special_tokens_mask"] == 1) & (encoded["attention_mask"] == 1)
            first_special = np.where(special.any(1), special.argmax(1), -1)
            arrays = segment_syntax(self._inputs, trees, owners, first_special, 2)
            batch |= {name: torch.from_numpy(array) for name, array in arrays.items()}
        return batch

    def _factor_ids(self, sentences: Sequence[Sentence], owners: Ragged) -> Tensor:
        needs = {need: None for name in self._vocabularies for need in FACTORS[name].needs}
        for need, sentence in product(needs, sentences):
            if sentence.words and getattr(sentence, need) is None:
                what = "tags" if need == "upos" else "values"
                who = "parser" if need in ("governors", "deprels") else "tagger"
                problem = f"expected {what} of every word of {shown(sentence)}, got none"
                raise DataError(f"{need}: {problem}. Annotate with a {who}.")
        words, unseen = WordColumns.from_sentences(sentences, only=needs), UnseenValues()
        ids = piece_factors(words, owners.values, owners.splits, self._vocabularies, unseen)
        unseen.warn()
        return torch.from_numpy(ids.astype(np.int64))


def _segments(examples: Sequence[SyntaxExample], encoded: Any) -> tuple[list[Sentence], Ragged]:
    """Two segments for each example, of which the second may be empty, and the word of each piece of them."""
    sentences = [segment for example in examples for segment in (*example.segments, _NOTHING)[:2]]
    offsets, splits = segment_offsets(encoded)
    return sentences, Ragged(batch_word_of_piece(offsets, splits, *encoding_offsets(sentences)), splits)
