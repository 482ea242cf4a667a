"""Translators with random weights that make long, varied output, and the folder of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from syntaxformer.translation.translator import Translator
from tiny_translator import make_translator, save_translator


def _make(*arguments: Any, **settings: Any) -> Translator:
    translator = make_translator(*arguments, **settings)
    with torch.no_grad():  # sharper than Glorot, so that hypotheses differ
        translator.model.decoder.embedding.weight.mul_(5)
    return translator


@pytest.fixture(scope="session")
def plain() -> Translator:
    return _make()


@pytest.fixture(scope="session")
def infused() -> Translator:
    return _make("sum_then_concat")


@pytest.fixture
def folder(plain, tmp_path) -> Path:
    return save_translator(plain, tmp_path / "model")


@pytest.fixture(scope="session")
def new_translator():
    return _make


@pytest.fixture(scope="session", name="save_translator")
def _save_translator():
    return save_translator
