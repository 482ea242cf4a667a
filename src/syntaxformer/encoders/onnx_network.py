"""A classifier's network in ONNX Runtime: takes a collator's batch and gives logits, as the PyTorch one does.

`onnx.json` beside `model.onnx` says what was exported. A graph is data: nothing in the folder is code.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError
from syntaxformer.base.files import read_record
from syntaxformer.base.folder_checks import folder_errors

__all__ = ["GRAPH", "INSTALL", "ONNX", "OnnxInfo", "OnnxNetwork", "read_onnx_info"]

GRAPH = "model.onnx"
ONNX = "onnx.json"

INSTALL = 'python -m pip install "syntaxformer[export]"'
"""What installs ONNX Runtime."""


class OnnxInfo(BaseModel):
    """Content of `onnx.json`.

    Args:
        inputs: Names of the tensors that the graph takes, as the collator names them.
        largest_difference: Of a logit from the trained model's, at export.
        weights_sha256: Of the trained model's weights.
        versions: Of the packages that exported.
    """

    model_config = ConfigDict(extra="forbid")

    inputs: list[str]
    largest_difference: float
    weights_sha256: str
    versions: dict[str, str]


def read_onnx_info(folder: Path) -> OnnxInfo:
    """Read `onnx.json`.

    Raises:
        CheckpointError: It is missing or not what this version writes.
    """
    return read_record(folder / ONNX, OnnxInfo)


class OnnxNetwork:
    """What the classifier asks of a network; it is never in training.

    Args:
        session: An `onnxruntime.InferenceSession`.
        inputs: Names of what it takes of a batch.
    """

    device = torch.device("cpu")
    training = False

    def __init__(self, session: Any, inputs: list[str]) -> None:
        self.session, self.inputs = session, inputs

    @classmethod
    def load(cls, folder: Path, device: str | None = None) -> OnnxNetwork:
        """Load the graph of a folder.

        Args:
            folder: What `export` wrote.
            device: Only "cpu", or None.

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
        info = read_onnx_info(folder)
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
