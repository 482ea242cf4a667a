"""A model folder with random weights: everything around the network is real."""

from __future__ import annotations

from pathlib import Path

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

LINES = ["the cat sat on the mat .", "cats sit .", "a dog and the cat run"]


def make_translator(
    kind: str = "none", factors: tuple[str, ...] | None = None, user: dict | None = None, **info
) -> Translator:
    """A translator with random weights that make long, varied output."""
    annotator = TableAnnotator()
    plan = plan_widths(kind, 12, factors, width=5)
    names = [name for name, _ in plan.factors]
    tokenizer = train_subwords(LINES * 3, SubwordConfig(vocab_size=311))
    columns = WordColumns.from_sentences(annotator.annotate(LINES), user)
    encoder = SourceEncoder(tokenizer, build_vocabularies([columns], names) if names else {})
    torch.manual_seed(5)
    model = SyntaxTransformer(
        SyntaxTransformerConfig(
            vocab_size=len(tokenizer), d_model=12, d_ff=17, n_heads=2, encoder_layers=1, decoder_layers=2,
            infusion=plan.as_dict(), factor_sizes={name: len(one) for name, one in encoder.vocabularies.items()},
        )
    )  # fmt: skip
    with torch.no_grad():  # sharper than Glorot, so that hypotheses differ
        model.decoder.embedding.weight.mul_(5)
    given = (
        {"annotator": "table", "annotator_version": "3"}
        if names
        else {"annotator": None, "annotator_version": None}
    )
    folder_info = FolderInfo(
        factors=[one.to_dict() for one in encoder.vocabularies.values()],
        decoding=DecodingConfig(beam_size=3, batch_size=7), **{"src": "en", "tgt": "de", **given, **info},
    )  # fmt: skip
    return Translator(model.eval(), encoder, folder_info, annotator if names else None)


def save(translator: Translator, folder: Path) -> Path:
    folder.mkdir()
    write_side_files(folder, translator.info, translator.encoder.tokenizer)
    translator.model.save_pretrained(folder)
    write_manifest(folder)
    return folder


@pytest.fixture(scope="session")
def plain() -> Translator:
    return make_translator()


@pytest.fixture(scope="session")
def infused() -> Translator:
    return make_translator("sum_then_concat")


@pytest.fixture
def folder(plain, tmp_path) -> Path:
    return save(plain, tmp_path / "model")


@pytest.fixture(scope="session")
def new_translator():
    return make_translator


@pytest.fixture(scope="session")
def save_translator():
    return save
