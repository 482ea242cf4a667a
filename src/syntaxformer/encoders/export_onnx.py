"""Exports a fine-tuned classifier as a folder with an ONNX graph, for any batch size and length, and runs it.

A graph is data: nothing in the folder is code. `onnx.json` describes the export in `model.onnx`; tokenizer,
collator and `classifier.json` are copied from the model folder. The graph contains both infusion and encoder,
with the plain form of syntax attention (`nn.syntax_graph`).
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError, one_line
from syntaxformer.base.files import MANIFEST, atomic_folder, folder_errors
from syntaxformer.encoders.collator import SyntaxCollator, SyntaxExample
from syntaxformer.encoders.pretrained import load_collator
from syntaxformer.encoders.task_types import Scorer
from syntaxformer.encoders.tasks import ClassifierInfo, read_classifier_info
from syntaxformer.runs.export import (
    INSTALL,
    ExportInfo,
    check_difference,
    copy_side_files,
    need_packages,
    origin,
    output_problems,
)
from syntaxformer.runs.loading import CLASSIFIER, check_outputs, load_written, verify_folder
from syntaxformer.syntax.factors import POS_TAGS
from syntaxformer.trees import Sentence

_log = logging.getLogger("syntaxformer.export")

GRAPH, ONNX = "model.onnx", "onnx.json"
LARGEST_DIFFERENCE = 1e-4  # of a logit in float32; measured differences are below 1e-5
OPSET = 18
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
# Files of a model folder that an export omits or writes itself.
LEFT_OUT = ("infusion.json", "generation_config.json", MANIFEST, "*.safetensors", "*.tsv")
PAIRWISE, PIECEWISE = "syntax", ("input_ids", "attention_mask", "token_type_ids", "factor_ids")
# Words of the texts in each batch on which the graph is compared with the model.
CHECKED_LENGTHS = ((1,), (2, 7), (3, 11, 23, 5))
Quantization = Literal["float32", "int8"]
"""Type of a graph's weights."""


def export_classifier(
    model_folder: str | Path,
    output: str | Path,
    overwrite: bool = False,
    quantization: Quantization = "float32",
) -> Path:
    """Write a fine-tuned classifier as a folder that `predict` and `serve` accept.

    Args:
        model_folder: A folder that `finetune` wrote.
        output: The new folder.
        overwrite: Replace an older export in `output`.
        quantization: Type of the weights; int8 also rounds the states that they are multiplied by.

    Returns:
        `output`.

    Raises:
        ConfigError: The output is in use, the quantization is unknown, or the network cannot become a graph.
        CheckpointError: The model folder cannot be read, or the graph does not compute what the model does.
        BackendMissingError: ONNX Runtime or the exporter is not installed.
        DataError: The folder cannot be written.
    """
    model_folder, output = Path(model_folder), Path(output)
    problems = output_problems(output, ONNX, overwrite)
    if quantization not in get_args(Quantization):
        expected = f"quantization: expected {' or '.join(get_args(Quantization))} for a classifier"
        problems.append(f"{expected}, got {quantization}.")
    if problems:
        raise ConfigError(problems)
    need_packages(PACKAGES, "the export of classifiers needs")
    verify_folder(model_folder, CLASSIFIER)
    info = read_classifier_info(model_folder)
    collator = load_collator(model_folder, info.task_type)
    _refuse(model_folder, info, collator)
    model = load_written(model_folder, info.task_type.loader).eval()
    collator.stride = None  # a graph reads one window
    batches = [_batch(collator, lengths, info.n_texts) for lengths in CHECKED_LENGTHS]
    with atomic_folder(output) as folder:
        copy_side_files(folder, model_folder, LEFT_OUT)
        shortest = 1 + collator.tokenizer.num_special_tokens_to_add(pair=info.n_texts > 1)
        scorer = info.task_type.scorer(collator.tokenizer)
        _write_graph(folder / GRAPH, model, scorer, batches[-1], shortest, collator.max_length)
        network = OnnxNetwork.load(folder)
        difference = max(_largest_difference(model, network, scorer, batch) for batch in batches)
        check_difference(difference, LARGEST_DIFFERENCE, "logits")
        about = {"inputs": network.inputs, "largest_difference": difference, "quantization": quantization}
        if quantization == "int8":
            from onnxruntime.quantization import quantize_dynamic

            with _quietly():
                # By column, to seven bits: processors without VNNI add two products in 16 bits.
                quantize_dynamic(folder / GRAPH, folder / GRAPH, per_channel=True, reduce_range=True)
            network = OnnxNetwork.load(folder)
            difference = max(_largest_difference(model, network, scorer, batch) for batch in batches)
        stored = OnnxInfo(**about, **origin(model_folder, PACKAGES))
        (folder / ONNX).write_text(stored.model_dump_json(indent=1), "utf-8")
    _log.info("wrote %s, %s; logits within %.1e", output, quantization, difference)
    return output


def _refuse(folder: Path, info: ClassifierInfo, collator: SyntaxCollator) -> None:
    """Refuse models that cannot be exported, with all reasons."""
    lisa, problems = collator.config.lisa, []
    if (folder / ONNX).exists():
        problems.append(f"model: expected a folder that `finetune` wrote, got an export, {folder}.")
    remedy = "Predict with the trained folder."
    if not info.task_type.single_pass:
        got = f"those of the type {info.type!r}, which take more than one"
        problems.append(f"type: expected answers that one pass over a text gives, got {got}. {remedy}")
    if lisa is not None and lisa.inject == "gold":
        got = "gold governors, which the graph does not take"
        problems.append(f"lisa.inject: expected a head that finds governors itself, got {got}. {remedy}")
    if not (folder / "model.safetensors").exists():
        problems.append(f"model: expected one file of weights in {folder}, got several or none.")
    if problems:
        raise ConfigError(problems)


class _Logits(nn.Module):
    """The network as a function of tensors in a fixed order."""

    def __init__(self, model: nn.Module, scorer: Scorer, names: list[str]) -> None:
        super().__init__()
        self.model, self.scorer, self.names = model, scorer, names

    def forward(self, *tensors: Tensor) -> Tensor:
        """Logits `[batch, labels]`; for answers about parts of a text, `[batch, pieces, labels]`."""
        return self.scorer(self.model, dict(zip(self.names, tensors, strict=True)))


def _write_graph(
    path: Path, model: Any, scorer: Scorer, batch: dict[str, Tensor], shortest: int, longest: int
) -> None:
    """Write the graph for texts of `shortest` to `longest` pieces."""
    import onnx
    from onnxscript.optimizer import optimize

    # All inputs share one symbol for the batch size and one for the length, which the model compares.
    rows = torch.export.Dim("rows", min=1, max=1 << 14)
    pieces = torch.export.Dim("pieces", min=shortest, max=longest)
    shapes = {name: {0: rows, 1: pieces} for name in PIECEWISE if name in batch}
    shapes |= {PAIRWISE: {0: rows, 2: pieces, 3: pieces}} if PAIRWISE in batch else {}
    names = [*shapes]
    arguments = tuple(batch[name] for name in names)
    with _quietly(), torch.no_grad():
        try:
            logits = _Logits(model, scorer, names).eval()
            dynamic = (tuple(shapes.values()),)
            program = torch.export.export(logits, arguments, dynamic_shapes=dynamic, strict=False)
            exported: Any = torch.onnx.export(
                program, (), input_names=names, output_names=["logits"], opset_version=OPSET, verbose=False
            )
            # What does not depend on the text, such as W_V W_O, is computed now, however large it is.
            limits = {"input_size_limit": sys.maxsize, "output_size_limit": sys.maxsize}
            proto = optimize(exported.model_proto, **limits)
            del proto.graph.value_info[:]  # repeats shapes, also of weights, which quantizers transpose
            onnx.save(proto, path)
        except Exception as error:  # the exporter raises many classes
            expected = f"model: expected a network that ONNX can express, got {type(model).__name__}"
            raise ConfigError(f"{expected}: {one_line(error, 300)}") from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence the exporter, which logs and warns by several names."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def _batch(collator: SyntaxCollator, lengths: tuple[int, ...], n_texts: int) -> dict[str, Tensor]:
    """A batch of random pieces whose trees are chains of words, so that all relations occur."""
    texts = [[_sentence(collator, n + 2 * side, n) for side in range(n_texts)] for n in lengths]
    return collator([SyntaxExample(tuple(segments)) for segments in texts])


def _sentence(collator: SyntaxCollator, n_words: int, seed: int) -> Sentence:
    generator = torch.Generator().manual_seed(seed)
    pieces = torch.randint(len(collator.tokenizer), (n_words,), generator=generator).tolist()
    decoded = (collator.tokenizer.decode([piece]).strip() for piece in pieces)
    words = [word if word and not any(map(str.isspace, word)) else "a" for word in decoded]
    tree = "".join(f"(X (T w{n}) " for n in range(n_words)) + ")" * n_words
    return Sentence.from_words(
        words,
        upos=tuple(POS_TAGS[n % len(POS_TAGS)] for n in range(n_words)),
        governors=tuple(n - 1 if n % 3 else max(-1, n - 2) for n in range(n_words)),
        deprels=("dep",) * n_words,
        constituency=tree,
    )


@torch.no_grad()
def _largest_difference(model: Any, network: OnnxNetwork, scorer: Scorer, batch: dict[str, Tensor]) -> float:
    """The largest difference of a logit."""
    check_outputs(*(logits := [scorer(side, batch) for side in (model, network)]))
    return float((logits[0] - logits[1]).abs().max())


_OPERATORS = re.compile(
    "Abs|Add|And|Cast|Clip|Concat|Constant|Cos|CumSum|(Dequantize|DynamicQuantize)Linear|Div|Equal|Erf|Exp|Expand"
    "|Gather(Elements|ND)?|Gelu|Gemm|(Greater|Less)(OrEqual)?|Identity|IsInf|IsNaN|LayerNormalization|Log"
    "|MatMul(Integer)?|Max|Min|Mul|Neg|Not|Or|Pow|Range|Reciprocal|Reduce(Max|Mean|Min|Sum)|Relu|Reshape"
    "|Scatter(Elements|ND)|Shape|Sigmoid|Sign|Sin|Slice|Softmax|Split|Sqrt|Squeeze|Sub|Tanh|Tile|Transpose|Trilu"
    "|Unsqueeze|Where"
)
"""Operators of the encoders' graphs: none of them repeats others."""

_MOST_BYTES = 2**29  # of all tensors between the nodes of a graph: a short one can ask for any number


@cache
def _limit_memory() -> None:
    """Let all sessions of this process take their tensors, but for weights, from one memory of this size."""
    import onnxruntime as ort

    kinds = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    limits = ort.OrtArenaCfg({"max_mem": _MOST_BYTES})
    ort.create_and_register_allocator(ort.OrtMemoryInfo("Cpu", *kinds), limits)


class OnnxInfo(ExportInfo):
    """Content of `onnx.json`."""

    inputs: list[str]
    quantization: Quantization = "float32"


class OnnxNetwork(nn.Module):
    """An ONNX graph with the interface that the classifier needs of a network; it is never trained."""

    device = torch.device("cpu")

    def __init__(self, session: Any, inputs: list[str]) -> None:
        super().__init__()
        self.session, self.inputs = session, inputs
        self.too_many = sys.maxsize  # pieces of a batch that did not fit into memory

    @classmethod
    def load(cls, folder: Path, device: str | None = None) -> OnnxNetwork:
        """Load the graph of a folder.

        Raises:
            CheckpointError: The file is not a graph.
            BackendMissingError: ONNX Runtime is not installed.
            ConfigError: The device is not the CPU.
        """
        try:
            import onnx
            import onnxruntime
        except ImportError as error:
            raise BackendMissingError("ONNX Runtime, which exported classifiers need,", INSTALL) from error
        if device not in (None, "cpu"):
            raise ConfigError(f"device: expected cpu for an exported classifier, got {device}.")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # warnings about names in the graph would not help users
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        with folder_errors(folder / GRAPH, "an ONNX graph"):
            _limit_memory()
            for node in onnx.load(folder / GRAPH, load_external_data=False).graph.node:
                if node.domain or not _OPERATORS.fullmatch(node.op_type):
                    raise ValueError(f"the operator {node.domain}:{node.op_type}")
            # Constants are folded outside the limit; those of our graphs have been when they were exported.
            how = {"providers": ["CPUExecutionProvider"], "disabled_optimizers": ["ConstantFolding"]}
            session = onnxruntime.InferenceSession(str(folder / GRAPH), options, **how)
        return cls(session, [node.name for node in session.get_inputs()])

    def forward(self, **batch: Tensor) -> SimpleNamespace:
        """Return an object whose `logits` are those of the batch, `[batch, labels]`.

        Raises:
            CheckpointError: The graph cannot compute one text, such as in the memory that it may take.
        """
        inputs = {name: batch[name].numpy() for name in self.inputs}
        n_rows, n_pieces = batch["input_ids"].shape
        if n_rows == 1 or n_rows * n_pieces < self.too_many:
            try:
                return SimpleNamespace(logits=torch.from_numpy(self.session.run(["logits"], inputs)[0]))
            except Exception as error:  # each has a class of its own
                if n_rows == 1:
                    problem = f"expected a graph that computes a text in {_MOST_BYTES} bytes"
                    raise CheckpointError(f"{GRAPH}: {problem}, got: {one_line(error, 300)}") from error
                self.too_many = n_rows * n_pieces
        halves = zip(*(tensor.split(-(-n_rows // 2)) for tensor in batch.values()), strict=True)
        logits = [self(**dict(zip(batch, half, strict=True))).logits for half in halves]
        return SimpleNamespace(logits=torch.cat(logits))
