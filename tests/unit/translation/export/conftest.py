"""A tiny trained-like folder of each embedding infusion, and its export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from folder_deeds import keys
from syntaxformer.base.files import write_manifest
from syntaxformer.translation.export_ctranslate2 import export_translator
from syntaxformer.translation.translator import Translator
from table_annotator import TableAnnotator
from tiny_translator import make_translator, save_translator

LINES = ["the cat sat on the mat .", "cats sit .", "a dog and the cat run ￨ %"]
SHAPE = {"d_model": 22, "d_ff": 17, "n_heads": 2, "encoder_layers": 3, "decoder_layers": 2}
USER = {"tone": [["h￨/i"] * 7, ["l"] * 3, ["h￨/i", "l"] * 4]}


def make_folder(
    folder: Path,
    kind: str = "none",
    factors: tuple[str, ...] | None = None,
    end_bias: float = 3.0,
    **changed: Any,
) -> Path:
    """Write a model folder with random weights that end their sentences; `changed` goes into the config."""
    translator = make_translator(
        kind, factors, USER if "tone" in (factors or ()) else None, lines=LINES, n_pieces=317, width=13,
        shape={**SHAPE, **changed}, prepend="interleaved" if kind == "prepend" else None,
    )  # fmt: skip
    model, end_id = translator.model, translator.encoder.tokenizer.eos_token_id
    with torch.no_grad():
        for parameter in model.parameters():  # biases are no zeros in a trained model
            parameter.add_(torch.randn_like(parameter) * 0.02)
        table = model.decoder.embedding.weight
        table.mul_(4)
        if model.config.norm == "pre":  # the end is likely after a few pieces
            model.decoder.norm.bias.copy_(end_bias * table[end_id] / table[end_id].norm() ** 2)
    return save_translator(translator, folder)


@pytest.fixture(autouse=True)
def _table_annotator(monkeypatch) -> None:
    monkeypatch.setattr("syntaxformer.annotate.registry.load_annotator", lambda name: TableAnnotator())


@pytest.fixture
def model_folder(tmp_path):
    return lambda *arguments, **changed: make_folder(tmp_path / "model", *arguments, **changed)


@pytest.fixture(scope="module")
def plain_export(tmp_path_factory) -> Path:
    """The export of a translator without factors, in float32."""
    home = tmp_path_factory.mktemp("plain")
    return export_translator(make_folder(home / "model"), home / "exported")


@pytest.fixture
def load():
    return Translator.load


@pytest.fixture
def twins(model_folder, tmp_path):
    """A trained model and its export; `stored` are values of `syntaxformer.json`."""

    def make(*arguments: Any, quantization: str = "float32", stored: dict[str, Any] | None = None, **changed):
        trained = model_folder(*arguments, **changed)
        keys("syntaxformer.json", **(stored or {}))(trained)
        write_manifest(trained)
        exported = export_translator(trained, tmp_path / "exported", quantization)
        return Translator.load(trained), Translator.load(exported)

    return make
