"""`Classifier` predicts labels and probabilities for raw texts, and parses them as training did.

A table says what an infusion needs from the annotator; for a plain model nothing is parsed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from syntaxformer.annotate.annotator import BatchedAnnotator, annotator_for, check_lines, short_enough
from syntaxformer.annotate.registry import WithPhrases, keep_annotator, stored_name, trusted_annotator
from syntaxformer.base.config import sections_in_words
from syntaxformer.base.errors import CheckpointError, ConfigError, DataError, TreeError
from syntaxformer.base.files import CARD, MANIFEST, PARTIAL, disk_errors, write_manifest
from syntaxformer.base.progress import map_ahead
from syntaxformer.encoders.collator import SyntaxCollator, SyntaxExample
from syntaxformer.encoders.examples import TextExample, TextSet, raw_example
from syntaxformer.encoders.export_onnx import ONNX, OnnxNetwork
from syntaxformer.encoders.pretrained import load_collator
from syntaxformer.encoders.task_types import OneLabel, Predictions, Score, Similarity, TaskType, WordTags
from syntaxformer.encoders.tasks import OWN_TASKS, TYPES, ClassifierInfo, read_classifier_info
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.model_card import write_card
from syntaxformer.runs.loading import (
    CLASSIFIER,
    TRANSLATOR,
    check_outputs,
    load_written,
    to_device,
    verify_folder,
)
from syntaxformer.runs.tokenizer_rules import check_pieces
from syntaxformer.syntax import FACTORS, SyntaxInputs
from syntaxformer.trees import Sentence, sentence_from_tree, tree_of_column

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator

Text = str | tuple[str, str]

_SPACE = re.compile(r"\s")
# A word where no annotator says what one is: what spaces separate, without the marks at its ends.
_WORD = re.compile(r"\w(?:\S*\w)?|\S")
_BATCHES_AHEAD = 2


class Classifier:
    """A fine-tuned model, with everything that is needed to turn raw text into its input."""

    def __init__(
        self,
        model: PreTrainedModel | OnnxNetwork,
        collator: Any,
        info: ClassifierInfo,
        annotator: Annotator | None = None,
    ) -> None:
        self.model, self.collator, self.info, self.annotator = model.eval(), collator, info, annotator
        self.task_type = info.task_type

    @classmethod
    def from_folder(
        cls,
        folder: str | Path,
        annotator: str | Annotator | None = None,
        device: str | None = None,
        trust_annotator: bool = False,
    ) -> Classifier:
        """Load a folder that `finetune` or `export` wrote.

        Args:
            folder: Model folder.
            annotator: Use this annotator instead of the one that the folder names.
            device: "cpu", "cuda", …; None for the best one available.
            trust_annotator: Accept an annotator on the network, or at a path outside the folder.

        Raises:
            CheckpointError: The folder is unfinished, truncated or altered, or names an annotator that needs
                `trust_annotator`.
            BackendMissingError: The annotator is not installed, or ONNX Runtime for an export.
            ConfigError: There is no such annotator or device.
        """
        folder = Path(folder)
        verify_folder(folder, CLASSIFIER, trust_annotator)
        info = read_classifier_info(folder)
        collator = load_collator(folder, info.task_type)
        info = info.model_copy(update={"needs": tuple(sorted(needed_columns(collator.config)))})
        reads = info.needs or info.task_type.parts == "words"
        name = trusted_annotator(info.annotator, annotator, folder, trust_annotator) if reads else None
        parser = load_for(name, frozenset(info.needs))
        if parser is not None and info.needs and parser.version != info.annotator_version:
            trained = f"the model was trained with {info.annotator} {info.annotator_version}"
            differs = f"this is {parser.name} {parser.version}; trees may differ."
            warnings.warn(f"annotator: {trained}, {differs}", stacklevel=2)
        if (folder / ONNX).is_file():
            return cls(OnnxNetwork.load(folder, device), collator, info, parser)
        model = load_written(folder, info.task_type.loader)
        if not _is_of(model, info.task_type.auto_class):
            expected = f"{folder / CLASSIFIER}: type: expected that of a {type(model).__name__}"
            raise CheckpointError(f"{expected}, got {info.type}. It was altered.")
        check_pieces(folder, collator.tokenizer, model.get_input_embeddings().num_embeddings)
        return cls(to_device(model, device), collator, info, parser)

    @property
    def backend(self) -> str:
        """The library that computes the network: "pytorch" or "onnx"."""
        return "onnx" if isinstance(self.model, OnnxNetwork) else "pytorch"

    def predict(self, texts: Sequence[Text], batch_size: int | None = None) -> Predictions:
        """Predict labels or scores of raw texts, in order.

        Args:
            texts: Texts, or pairs of texts if the model was trained on pairs.
            batch_size: Number of texts in a batch; None for the folder's setting.

        Raises:
            TypeError: `texts` is one string, which would be read as a list of characters, or no texts.
            DataError: A text is empty, or a single text is given for a model of pairs, or the reverse.
            CheckpointError: Outputs are not finite.
        """
        check_lines(texts, "texts")
        examples = [self._example(text, number) for number, text in enumerate(texts, 1)]
        return self.predict_set(TextSet("texts", "texts", examples), batch_size, cached=False)

    def is_cut(self, text: Text) -> bool:
        """Whether a text or pair has more pieces than the model reads, so that its end is cut."""
        texts = self._example(text, 1).texts
        return self.collator.stride is None and self.collator.lengths([texts])[0] > self.collator.max_length

    def cut_note(self, predictions: Predictions) -> str:
        """A message about texts that were cut."""
        n_cut, longest = f"{predictions.n_truncated} of {len(predictions)}", self.collator.max_length
        remedy = "Split them, or fine-tune with a larger training.max_length."
        return f"{n_cut} texts were cut to {longest} pieces: the rest was not read. {remedy}"

    def predict_set(
        self, texts: TextSet, batch_size: int | None = None, cache: Path | None = None, cached: bool = True
    ) -> Predictions:
        """Predict for the examples of a data set, using their own trees if training did.

        Raises:
            TreeError: A tree does not fit its text.
            CheckpointError: Outputs are not finite.
        """
        if not len(texts):
            return self.task_type.predictions(torch.empty(0, len(self.task_type.names) or 1))
        use_trees = self.info.gold_trees and texts.has_trees
        # Only data sets have a parsed file for each split; raw texts have none.
        annotator = annotator_for(self.annotator, texts.name) if self.annotator and cached else self.annotator
        self.collator.n_truncated = 0
        size, examples = batch_size or self.info.eval_batch_size, list[SyntaxExample]()
        if cached or use_trees or self.task_type.parts or not _takes_any_order(annotator):
            examples = self.read(texts.examples, annotator, use_trees, cache, cached=cached)
            outputs = batch_outputs(self.model, self.collator, examples, size, self.task_type)
        else:
            outputs = self._outputs_while_parsing(texts.examples, annotator, size)
        predictions = self.task_type.predictions(outputs, self.collator.n_truncated, examples)
        return replace(predictions, ids=[example.index for example in texts.examples])

    def _outputs_while_parsing(
        self, examples: Sequence[TextExample], annotator: Annotator | None, size: int
    ) -> Tensor:
        """Parse the next batches in a second thread while the network computes one."""
        lines = [text for example in examples for text in example.texts]
        list(short_enough(lines))  # whose message has the number of the line among all
        rows = sorted(range(len(examples)), key=lambda row: -sum(map(len, examples[row].texts)))

        def read(of_batch: list[int]) -> list[SyntaxExample]:
            return self.read([examples[row] for row in of_batch], annotator, False, cached=False)

        batches = (rows[start : start + size] for start in range(0, len(rows), size))
        outputs = [
            batch_outputs(self.model, self.collator, batch, size, self.task_type)
            for batch in map_ahead(ThreadPoolExecutor(1), read, batches, _BATCHES_AHEAD)
        ]
        return torch.cat(outputs)[torch.tensor(rows).argsort()]

    def read(
        self, examples: Sequence[TextExample], annotator: Annotator | None, *how: Any, **options: Any
    ) -> list[SyntaxExample]:
        """Annotate examples as `annotate_examples` does; a model of words always finds words."""
        read = annotate_examples(examples, annotator, *how, **options)
        if self.task_type.parts != "words" or annotator is not None:
            return read
        return [
            example if example.segments[0].words else SyntaxExample((_words(example.segments[0].text),))
            for example in read
        ]

    def answers(self, predictions: Predictions) -> list[dict[str, Any]]:
        """Predictions as `pipeline` and the service return them: a label with probabilities, or a score."""
        rows = predictions.probabilities or [None] * len(predictions)
        return list(map(self.task_type.answer, predictions.labels, rows))

    def score(self, texts: TextSet, predictions: Predictions) -> dict[str, float]:
        """Score predictions for labelled examples by the task's official metrics.

        Raises:
            DataError: An example has no label.
        """
        gold = [example.label for example in texts.examples if example.label is not None]
        if len(gold) != len(texts):
            problem = f"label: expected one in every row, got {len(gold)} in {len(texts)}."
            raise DataError(problem, texts.source)
        return self.task_type.score(self.info.metrics, gold, self.task_type.encode(predictions.labels))

    def _example(self, text: Text, number: int) -> TextExample:
        parts = tuple(text) if isinstance(text, tuple | list) else (text,)
        strange = next((type(text).__name__ for text in parts if not isinstance(text, str)), None)
        if len(parts) != self.info.n_texts or strange:
            expected = "one text" if self.info.n_texts == 1 else "a pair of texts"
            raise DataError(f"text: expected {expected}, got {strange or len(parts)}.", line=number)
        return raw_example(parts, number, keep_places=bool(self.task_type.parts))


def _takes_any_order(annotator: Annotator | None) -> bool:
    """Whether an annotator is a parser; a file, a control or a user's object may need the lines in order."""
    parser = annotator.annotator if isinstance(annotator, WithPhrases) else annotator
    return isinstance(parser, BatchedAnnotator)


@torch.no_grad()
def batch_outputs(
    model: Any, collate: Any, examples: Sequence[Any], batch_size: int, task_type: TaskType
) -> Any:
    """What `task_type.joined` makes of the outputs for examples: `[examples, labels]`, fp32, on the CPU.

    The longest come first to save padding; the batches depend only on the texts.

    Raises:
        CheckpointError: They are not finite.
    """
    was_training = model.training
    model.eval()
    scorer, windows = task_type.scorer(collate.tokenizer), collate.windows(examples)
    reads = [(row, window) for row, of_row in enumerate(windows) for window in of_row]
    reads.sort(key=lambda read: -sum(len(s.text) for s in read[1].segments))
    parts: list[list[Tensor]] = [[] for _ in examples]
    for start in range(0, len(reads), batch_size):
        rows, of_batch = zip(*reads[start : start + batch_size], strict=True)
        batch = collate([replace(example, label=None) for example in of_batch])  # a table may have some
        outputs = scorer(model, {name: tensor.to(model.device) for name, tensor in batch.items()})
        check_outputs(outputs := outputs.float().cpu())
        n_outputs = task_type.head.get("num_labels") or len(task_type.names) or 1
        if outputs.ndim != (3 if task_type.parts else 2) or outputs.shape[-1] != n_outputs:
            expected = f"{n_outputs} outputs for the labels of the type {task_type.name!r}"
            raise CheckpointError(f"model: expected {expected}, got {[*outputs.shape[1:]]}. It was altered.")
        for row, output in zip(rows, task_type.per_window(outputs, of_batch, collate), strict=True):
            parts[row].append(output)
    model.train(was_training)
    return task_type.joined(parts)


def _words(text: str) -> Sentence:
    places = [match.span() for match in _WORD.finditer(text)]
    return Sentence(text, tuple(text[start:end] for start, end in places), tuple(places))


def needed_columns(config: InfusionConfig) -> frozenset[str]:
    """The columns of a `Sentence` that an infusion reads."""
    of_factors = {need for name in config.factors for need in FACTORS[name].needs}
    return frozenset(of_factors.union(SyntaxInputs.of(config.tree_options, config.lisa is not None).needs))


def annotator_name(needed: frozenset[str], chosen: str | None = None) -> str | None:
    """The annotator: the user's choice, or else the bundled English parser; None if none is needed.

    Trees in the data replace those of the annotator. It is needed all the same: heads of their phrases come
    from its dependencies, and texts to predict for have no trees.
    """
    if not needed:
        return None
    return chosen or ("en+phrases" if "constituency" in needed else "en")


def load_for(name: str | Annotator | None, needed: frozenset[str]) -> Annotator | None:
    """Load an annotator and check that it gives what is needed.

    Raises:
        ConfigError: It does not.
        BackendMissingError: It is not installed.
    """
    if name is None:
        return None
    from syntaxformer.annotate import prepare

    annotator = prepare(name, needs=needed)
    if missing := needed - annotator.provides:
        problem = f"expected one that gives {', '.join(sorted(missing))}, got {annotator.name}."
        raise ConfigError(f"annotation.annotator: {problem} Try {annotator_name(needed)}.")
    return annotator


def save(
    model: PreTrainedModel,
    collator: SyntaxCollator,
    folder: str | Path,
    annotator: str | Annotator | None = None,
    *,
    labels: Sequence[str] | None = None,
) -> Path:
    """Write a model of your own training, infused or plain, as a folder that `pipeline` and commands take.

    Files that the folder holds besides, such as checkpoints of transformers' `Trainer`, stay.

    Args:
        model: It classifies or scores texts or pairs, or tags words; or it is a base model, whose states are
            features, and which scores pairs by the cosine of their means.
        collator: It made the model's batches; a warning says what is taken for granted of another one.
        folder: The folder, new or not.
        annotator: Who annotates raw texts from now on, as `load_annotator` takes it; None: who annotated the
            collator's rows.
        labels: Names of the classes in their order; None for those of the model's config.

    Raises:
        ConfigError: The model has adapters or does something else, the collator is for another infusion,
            labels or annotator are not known, or the folder is a run of `finetune` or a translator.
        CheckpointError: The folder holds other files that a model is read from.
        DataError: The folder cannot be written.
    """
    if hasattr(model, "peft_config"):
        remedy = "model.save_pretrained writes them, and syntaxformer.load(base).load_adapter reads them."
        if hasattr(model, "merge_and_unload"):  # a model of PEFT, and not of transformers' `add_adapter`
            remedy = "Save model.merge_and_unload()."
        raise ConfigError(f"model: expected one without adapters, got {type(model).__name__}. {remedy}")
    folder, config, annotators = Path(folder), collator.config, sorted(collator.annotators)
    infusion: Any = getattr(getattr(model, "infusion", None), "config", InfusionConfig())
    sides = (infusion, config)
    read = [(side.tree_options, list(side.vocabularies.items()), side.lisa) for side in sides]
    if read[0] != read[1]:
        parts = " and ".join(sections_in_words(side.parts) or "nothing" for side in sides)
        raise ConfigError(f"collator: expected the model's InfusionConfig, got another: {parts}.")
    if (folder / TRANSLATOR).exists() or (folder / "recipe.yaml").exists():
        raise ConfigError(f"folder: expected a new one or Trainer's, got {folder}, a run. Choose another.")
    needed, task = needed_columns(config), _task_of(model, labels)
    of_rows = annotators[0].rpartition(" ")[0] if len(annotators) == 1 else None
    named = annotator or collator.annotator or of_rows
    if needed and named is None:
        got = f"got none, and rows by {', '.join(annotators) or 'nobody'}."
        remedy = 'Give annotator="en+phrases", or the one that annotated the training data.'
        raise ConfigError(f"annotator: expected one for raw texts, {got} {remedy}")
    reads = needed or task["type"] == WordTags.name  # an annotator finds words, too
    parser = load_for(named if reads else None, needed)
    if parser is not None and annotators and f"{parser.name} {parser.version}" not in annotators:
        now = f"texts will be by {parser.name} {parser.version}; trees may differ."
        warnings.warn(f"annotator: rows were annotated by {', '.join(annotators)}, {now}", stacklevel=2)
    if not collator.n_texts and task["type"] not in (WordTags.name, Similarity.name):
        problem = "collator: it made no batch, so the model is taken to read one text. "
        remedy = 'If it reads pairs, give the collator their columns: text=("premise", "hypothesis").'
        warnings.warn(problem + remedy, stacklevel=2)
    info = ClassifierInfo(
        **{"n_texts": collator.n_texts or 1, **task},
        annotator=parser and stored_name(parser.name),
        annotator_version=parser and parser.version,
        needs=tuple(sorted(needed)),
        text_column=None if collator.text == ("text",) else collator.text[0],
        text_pair_column=collator.text[1] if len(collator.text) > 1 else None,
    )
    from syntaxformer.runs.run_folder import move_files

    folder.mkdir(parents=True, exist_ok=True)
    with disk_errors(folder), TemporaryDirectory(PARTIAL, ".", folder) as temporary:
        new = Path(temporary)
        model.save_pretrained(new)
        collator.save_pretrained(new)
        (new / CLASSIFIER).write_text(info.model_dump_json(indent=1), "utf-8")
        keep_annotator(parser and parser.name, new)
        write_manifest(new)  # without what else the folder holds
        manifest = (new / MANIFEST).rename(folder / MANIFEST).read_text("utf-8")
        (new / CARD).unlink()
        move_files(new, folder)
        (folder / MANIFEST).write_text(manifest, "utf-8")
    write_card(folder)
    verify_folder(folder, CLASSIFIER, trusts_tokenizer=True)  # it is the user's own
    return folder


def _is_of(model: Any, auto_class: str) -> bool:
    """Whether a model is of the class that an auto class of `transformers` loads for its config."""
    return isinstance(model, getattr(transformers, auto_class)._model_mapping.get(type(model.config), ()))


def is_base_model(model: Any) -> bool:
    """Whether a model is an encoder without a head, whose infusions change the states of pieces."""
    embedding = getattr(getattr(model, "infusion", None), "embedding", None)
    joins_final = getattr(embedding, "joins_final", False)  # let, which only the pooler reads
    return _is_of(model, "AutoModel") and not (model.config.is_encoder_decoder or joins_final)


def _task_of(model: Any, labels: Sequence[str] | None) -> dict[str, Any]:
    """What a network answers, as fields of `ClassifierInfo`; ConfigError if that is no task."""
    config = model.config
    if is_base_model(model) and not labels:
        task = OWN_TASKS[Similarity.name]
        return {"task": task.name, "type": task.type, "metrics": task.metrics, "n_texts": 2}
    # A JSON file sorts 10 before 2.
    by_output = sorted(config.id2label.items(), key=lambda item: int(item[0]))
    names = tuple(labels or (str(name) for _, name in by_output))
    problem = config.problem_type or ("regression" if config.num_labels == 1 else OneLabel.problem_type)
    likely = (kind for kind in TYPES.values() if kind.single_pass and kind.problem_type == problem)
    kinds = [kind for kind in likely if _is_of(model, kind.auto_class)]
    if not kinds or len(names) != config.num_labels:
        expected = "a head for classes, scores or tags, as of AutoModelForSequenceClassification"
        labels_of = f"with {len(names)} labels for {config.num_labels} outputs"
        raise ConfigError(f"model: expected {expected}, got {type(model).__name__}, {problem}, {labels_of}.")
    kind = kinds[0 if config.num_labels == 1 else -1]  # one score, or several
    task = next(task for task in OWN_TASKS.values() if task.type == kind.name)
    named = {} if kind is Score else {"labels": names}
    return {"task": task.name, "type": kind.name, "metrics": task.metrics, **named}


def annotate_examples(
    examples: Sequence[TextExample],
    annotator: Annotator | None,
    use_trees: bool,
    cache: Path | None = None,
    processes: int = 1,
    cached: bool = True,
) -> list[SyntaxExample]:
    """Annotate the texts of examples; without an annotator, only add the texts' own trees.

    With `use_trees`, the words are those of the constituency trees, which all examples then have. If not
    `cached`, texts are parsed without the cache, as suits short lists that occur only once.

    Raises:
        TreeError: A tree of the data does not fit its text; with the line.
        DataError: The cache cannot be written.
    """
    from syntaxformer.annotate import WordsAsGiven, annotate_cached
    from syntaxformer.annotate.controls import Control

    gold = [sentence for example in examples for sentence in _gold_sentences(example)] if use_trees else []
    gold = gold or [Sentence.from_words(example.words) for example in examples if example.words]
    use_trees = bool(gold)  # or words, which are kept likewise
    lines = [text for example in examples for text in example.texts]
    if use_trees:  # a space inside a word (SST's "2 1/2") would split it in two
        lines = [" ".join(_SPACE.sub("_", word) for word in sentence.words) for sentence in gold]
    controls: list[Control] = []
    while use_trees and isinstance(annotator, Control):  # which changes the texts' own trees as well
        controls.append(annotator)
        annotator = annotator.annotator
    parser = WordsAsGiven(annotator) if annotator is not None and use_trees else annotator
    if parser is None:
        sentences = (Sentence(line, (), ()) for line in lines)
    elif cached:
        sentences = iter(annotate_cached(lines, parser, cache, n_processes=processes, progress=True))
    else:
        sentences = parser.stream(lines)
    if use_trees:
        sentences = map(_merge, gold, sentences)
    for control in reversed(controls):
        sentences = control.change(sentences)
    segments = (tuple(next(sentences) for _ in example.texts) for example in examples)
    return [SyntaxExample(pair, example.label) for pair, example in zip(segments, examples, strict=True)]


def _gold_sentences(example: TextExample) -> list[Sentence]:
    """The sentences that an example's own trees give."""
    try:
        pairs = zip(example.trees, example.texts, strict=True)
        return [sentence_from_tree(tree_of_column(tree or ""), text) for tree, text in pairs]
    except TreeError as error:
        raise TreeError(str(error), line=example.line) from error


def _merge(tree: Sentence, parsed: Sentence) -> Sentence:
    """The parse of a tree's words, together with the tree and the offsets in the original text."""
    if not parsed.words:
        return tree
    brackets = tree.constituency or vars(parsed)["constituency"]  # which may be made from the parse later
    return replace(parsed, text=tree.text, words=tree.words, offsets=tree.offsets, constituency=brackets)
