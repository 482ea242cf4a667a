"""A tiny trained-like folder of each embedding infusion, and its export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from syntaxformer.base.files import write_manifest
from syntaxformer.nn import plan_widths
from syntaxformer.syntax import WordColumns, build_vocabularies
from syntaxformer.translation.decoding import DecodingConfig
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig
from syntaxformer.translation.model_folder import FolderInfo, write_side_files
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.subwords import SubwordConfig, train_subwords
from syntaxformer.translation.translator import Translator
from table_annotator import TableAnnotator

LINES = ["the cat sat on the mat .", "cats sit .", "a dog and the cat run ￨ %"]


def make_folder(
    folder: Path,
    kind: str = "none",
    factors: tuple[str, ...] | None = None,
    end_bias: float = 3.0,
    **changed: Any,
) -> Path:
    """Write a model folder with random weights that end their sentences; `changed` goes into the config."""
    plan = plan_widths(
        kind, 22, factors, **({} if kind in ("onehot_concat", "none", "add", "prepend") else {"width": 13})
    )
    names = [name for name, _ in plan.factors]
    user = {"tone": [["h￨/i"] * 7, ["l"] * 3, ["h￨/i", "l"] * 4]} if "tone" in names else None
    tokenizer = train_subwords(LINES * 3, SubwordConfig(vocab_size=317))
    columns = WordColumns.from_sentences(TableAnnotator().annotate(LINES), user)
    encoder = SourceEncoder(tokenizer, build_vocabularies([columns], names) if names else {})
    torch.manual_seed(5)
    shape = {"d_model": 22, "d_ff": 17, "n_heads": 2, "encoder_layers": 3, "decoder_layers": 2, **changed}
    model = SyntaxTransformer(
        SyntaxTransformerConfig(
            vocab_size=len(tokenizer), infusion=plan.as_dict(), **shape,
            factor_sizes={name: len(one) for name, one in encoder.vocabularies.items()},
        )
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():  # biases are no zeros in a trained model
            parameter.add_(torch.randn_like(parameter) * 0.02)
        table = model.decoder.embedding.weight
        table.mul_(4)
        if model.config.norm == "pre":  # the end is likely after a few pieces
            end = table[tokenizer.eos_token_id]
            model.decoder.norm.bias.copy_(end_bias * end / end.norm() ** 2)
    info = FolderInfo(
        src="en", tgt="de", factors=[one.to_dict() for one in encoder.vocabularies.values()],
        annotator="table" if names else None, annotator_version="3" if names else None,
        decoding=DecodingConfig(beam_size=3, batch_size=7), prepend="interleaved" if kind == "prepend" else None,
    )  # fmt: skip
    folder.mkdir()
    write_side_files(folder, info, tokenizer)
    model.eval().save_pretrained(folder)
    write_manifest(folder)
    return folder


@pytest.fixture(autouse=True)
def _table_annotator(monkeypatch) -> None:
    monkeypatch.setattr("syntaxformer.annotate.registry.load_annotator", lambda name: TableAnnotator())


@pytest.fixture
def model_folder(tmp_path):
    return lambda *arguments, **changed: make_folder(tmp_path / "model", *arguments, **changed)


@pytest.fixture
def load():
    return Translator.load
