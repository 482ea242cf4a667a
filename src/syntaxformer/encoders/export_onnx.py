"""A fine-tuned classifier as a folder whose network is an ONNX graph, for any batch and any length; its use.

A graph is data: nothing in the folder is code. `onnx.json` beside `model.onnx` says what was exported;
tokenizer, collator and `classifier.json` are those of the model folder. The graph holds infusion and encoder
in one, with the plain form of syntax attention (`nn.syntax_graph`).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError
from syntaxformer.base.files import MANIFEST, atomic_folder, folder_errors, read_record
from syntaxformer.encoders.collator import SyntaxCollator, SyntaxExample
from syntaxformer.encoders.pretrained import load_collator, load_finetuned
from syntaxformer.encoders.tasks import ClassifierInfo, read_classifier_info, verify_classifier_folder
from syntaxformer.runs.export import (
    INSTALL,
    ExportInfo,
    check_difference,
    copy_side_files,
    need_packages,
    origin,
    output_problems,
)
from syntaxformer.syntax.factors import POS_TAGS
from syntaxformer.trees import Sentence

_log = logging.getLogger("syntaxformer.export")

LARGEST_DIFFERENCE = 1e-4
"""Of a logit, in float32; what was measured is below 1e-5."""

OPSET = 18
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
LEFT_OUT = ("infusion.json", "generation_config.json", MANIFEST, "*.safetensors", "*.tsv")
"""Files of a model folder that its export does without or writes anew."""

PAIRWISE, PIECEWISE = "syntax", ("input_ids", "attention_mask", "token_type_ids", "factor_ids")
CHECKED_LENGTHS = ((1,), (2, 7), (3, 11, 23, 5))
"""Words of the texts of each batch that is held against the model."""


def export_classifier(model_folder: str | Path, output: str | Path, overwrite: bool = False) -> Path:
    """Write a fine-tuned classifier as a folder that `predict` and `serve` take.

    Args:
        model_folder: What `finetune` wrote.
        output: The new folder.
        overwrite: Replace an older export in `output`.

    Returns:
        `output`.

    Raises:
        ConfigError: An output in use, or a network that cannot be a graph.
        CheckpointError: The model folder cannot be read, or the graph does not compute what the model does.
        BackendMissingError: ONNX Runtime or the exporter is not installed.
        DataError: The folder cannot be written.
    """
    model_folder, output = Path(model_folder), Path(output)
    if problems := output_problems(output, ONNX, overwrite):
        raise ConfigError(problems)
    need_packages(PACKAGES, "the export of classifiers needs")
    verify_classifier_folder(model_folder)
    info, collator = read_classifier_info(model_folder), load_collator(model_folder)
    _refuse(model_folder, info, collator)
    model = load_finetuned(model_folder, info.task_type)
    batches = [_batch(collator, lengths, info.n_texts) for lengths in CHECKED_LENGTHS]
    with atomic_folder(output) as folder:
        copy_side_files(folder, model_folder, LEFT_OUT)
        shortest = 1 + collator.tokenizer.num_special_tokens_to_add(pair=info.n_texts > 1)
        inputs = _write_graph(folder / GRAPH, model, batches[-1], shortest, collator.max_length)
        stored = OnnxInfo(inputs=inputs, **origin(model_folder, PACKAGES))
        stored.write(folder / ONNX)
        network = OnnxNetwork.load(folder)
        difference = max(_largest_difference(model, network, batch) for batch in batches)
        check_difference(difference, LARGEST_DIFFERENCE, "logits")
        stored.model_copy(update={"largest_difference": difference}).write(folder / ONNX)
    _log.info("wrote %s; logits within %.1e", output, difference)
    return output


def _refuse(folder: Path, info: ClassifierInfo, collator: SyntaxCollator) -> None:
    """Each reason by its name."""
    lisa, problems = collator.config.lisa, []
    if (folder / ONNX).exists():
        problems.append(f"model: expected a folder that `finetune` wrote, got an export, {folder}.")
    if not info.task_type.single_pass:
        problems.append(
            "head: expected a model with a classifier, got one that writes its labels as text, which takes a "
            "search and no single pass. Predict with the trained folder."
        )
    if lisa is not None and lisa.inject == "gold":
        problems.append(
            "lisa.inject: expected a head that points by itself, got gold governors, which the graph does "
            "not take. Predict with the trained folder."
        )
    if not (folder / "model.safetensors").exists():
        problems.append(f"model: expected one file of weights in {folder}, got several or none.")
    if problems:
        raise ConfigError(problems)


class _Logits(nn.Module):
    """The network as a function of tensors in a fixed order."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors: Tensor) -> Tensor:
        """Logits `[batch, labels]`."""
        return self.model(**dict(zip(self.names, tensors, strict=True))).logits


def _write_graph(path: Path, model: Any, batch: dict[str, Tensor], shortest: int, longest: int) -> list[str]:
    """The graph, for texts of so many pieces; returns the names of its inputs."""
    names = [name for name in (*PIECEWISE, PAIRWISE) if name in batch]
    # One symbol for all batches and one for all lengths: the model holds them against each other.
    rows, pieces = (
        torch.export.Dim("rows", min=1, max=1 << 14),
        torch.export.Dim("pieces", min=shortest, max=longest),
    )
    shapes = tuple(
        {0: rows, 2: pieces, 3: pieces} if name == PAIRWISE else {0: rows, 1: pieces} for name in names
    )
    arguments = tuple(batch[name] for name in names)
    with _exporting(model), torch.no_grad():
        try:
            program = torch.export.export(
                _Logits(model, names).eval(), arguments, dynamic_shapes=(shapes,), strict=False
            )
            torch.onnx.export(
                program, (), path, input_names=names, output_names=["logits"], opset_version=OPSET,
                external_data=False, verbose=False,
            )  # fmt: skip
        except Exception as error:  # whatever the exporter meets in a network
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(
                f"model: expected a network that ONNX can express, got {type(model).__name__}: {reason}"
            ) from error
    import onnx

    return [one.name for one in onnx.load(path, load_external_data=False).graph.input]


@contextmanager
def _exporting(model: Any) -> Iterator[None]:
    """Syntax in plain operations, and libraries that say nothing of their own workings."""
    infusion = getattr(model, "infusion", None)
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        if infusion is not None:
            infusion.is_exporting = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if infusion is not None:
            infusion.is_exporting = False
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _batch(collator: SyntaxCollator, lengths: tuple[int, ...], n_texts: int) -> dict[str, Tensor]:
    """Texts of the tokenizer's own pieces under chains of words: each relation once, up to the largest."""
    examples = [
        SyntaxExample(tuple(_sentence(collator, n_words + 2 * part, n_words) for part in range(n_texts)))
        for n_words in lengths
    ]
    return collator(examples)


def _sentence(collator: SyntaxCollator, n_words: int, seed: int) -> Sentence:
    generator = torch.Generator().manual_seed(seed)
    pieces = torch.randint(len(collator.tokenizer), (n_words,), generator=generator).tolist()
    found = (collator.tokenizer.decode([piece]).strip() for piece in pieces)
    words = [word if word and not any(map(str.isspace, word)) else "a" for word in found]
    tags = POS_TAGS
    tree = "".join(f"(X (T w{place}) " for place in range(n_words)) + ")" * n_words
    return Sentence.from_words(
        words,
        upos=tuple(tags[place % len(tags)] for place in range(n_words)),
        governors=tuple(place - 1 if place % 3 else max(-1, place - 2) for place in range(n_words)),
        deprels=("dep",) * n_words,
        constituency=tree,
    )


@torch.no_grad()
def _largest_difference(model: Any, network: OnnxNetwork, batch: dict[str, Tensor]) -> float:
    """Of a logit; a NaN stays one."""
    return float((model(**batch).logits - network(**batch).logits).abs().max())


GRAPH = "model.onnx"
ONNX = "onnx.json"


class OnnxInfo(ExportInfo):
    """Content of `onnx.json`."""

    inputs: list[str]


class OnnxNetwork:
    """What the classifier asks of a network; it is never in training."""

    device = torch.device("cpu")
    training = False

    def __init__(self, session: Any, inputs: list[str]) -> None:
        self.session, self.inputs = session, inputs

    @classmethod
    def load(cls, folder: Path, device: str | None = None) -> OnnxNetwork:
        """Load the graph of a folder.

        Raises:
            CheckpointError: It is no graph, or another than `onnx.json` says.
            BackendMissingError: ONNX Runtime is not installed.
            ConfigError: Another device.
        """
        try:
            import onnxruntime
        except ImportError as error:
            raise BackendMissingError("ONNX Runtime, which exported classifiers need,", INSTALL) from error
        if device not in (None, "cpu"):
            raise ConfigError(f"device: expected cpu for an exported classifier, got {device}.")
        info = read_record(folder / ONNX, OnnxInfo)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # what it would say of the graph's names helps nobody
        with folder_errors(folder / GRAPH, "an ONNX graph"):
            session = onnxruntime.InferenceSession(
                str(folder / GRAPH), options, providers=["CPUExecutionProvider"]
            )
        found = [one.name for one in session.get_inputs()]
        if sorted(found) != sorted(info.inputs):
            raise CheckpointError(
                f"{folder / ONNX}: expected the graph's inputs, {', '.join(found)}, got "
                f"{', '.join(info.inputs)}. It was altered."
            )
        return cls(session, found)

    def eval(self) -> OnnxNetwork:
        """Itself."""
        return self

    def train(self, mode: bool = True) -> OnnxNetwork:
        """Itself: there is nothing to train."""
        return self

    def __call__(self, **batch: Tensor) -> SimpleNamespace:
        """Logits of a batch, `[batch, labels]`, as an object's `logits`."""
        given = {name: batch[name].numpy() for name in self.inputs}
        return SimpleNamespace(logits=torch.from_numpy(self.session.run(["logits"], given)[0]))
