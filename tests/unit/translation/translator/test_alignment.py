"""Alignments: links by hand, IBM model 1 as a loop, the head that agrees, and what a translator gives."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from syntaxformer.base.errors import AlignmentError, CheckpointError, ConfigError
from syntaxformer.base.files import verify_manifest
from syntaxformer.cli.main import app
from syntaxformer.study.attention import cross_attention
from syntaxformer.study.plots import draw_attention
from syntaxformer.translation import alignment, torch_decoder
from syntaxformer.translation.alignment import AlignmentHead, PieceAttention, choose_head, word_spans
from syntaxformer.translation.batches import EncodedPairs
from syntaxformer.translation.model import shift_right
from syntaxformer.translation.model_folder import read_info
from syntaxformer.translation.source import EncodedText, source_batch
from syntaxformer.translation.translator import Translator

LINES = ["the cat sat", "", "cats sit  on the mat .", "a dog"]


def aligning(translator, layer=1, head=1, shift=False, **info):
    """The translator with a head that aligns."""
    chosen = AlignmentHead(layer=layer, head=head, shift=shift)
    info = translator.info.model_copy(update={"alignment": chosen, **info})
    return Translator(translator.model, translator.encoder, info, translator.annotator)


def test_links_by_hand():
    """Words "ab" and "c" of pieces a, b, c and the end; the targets attend to b, to the end, and to a and b."""
    src, tgt = [(0, 1), (1, 2), (3, 4), (0, 0)], [(0, 1), (2, 3), (4, 5)]
    weights = np.array([[0.1, 0.4, 0.3, 0.2], [0.1, 0.1, 0.2, 0.6], [0.3, 0.3, 0.4, 0.0]])
    attention = PieceAttention(weights, src, tgt)
    assert attention.links([(0, 2), (3, 4)], tgt) == [(0, 0), (0, 2)]
    assert attention.links([], tgt) == attention.links([(0, 2)], []) == []
    assert str(alignment.Alignment([], [], [(0, 0), (0, 2)])) == "0-0 0-2"


def test_target_words():
    text = "Don't go, 3 हिन्दी 我们"
    words = [text[start:end] for start, end in word_spans(text)]
    assert words == ["Don't", "go", ",", "3", "हिन्दी", "我", "们"]


def test_model_1_is_a_loop_over_pairs():
    pairs = [
        (np.array([5, 6]), np.array([1, 2])),
        (np.array([5]), np.array([1])),
        (np.array([6, 5, 6]), np.array([3, 2])),
    ]
    table = {(s, t): 1.0 for src, tgt in pairs for s in src for t in tgt}
    for _ in range(3):
        counts = dict.fromkeys(table, 0.0)
        for src, tgt in pairs:
            for t in tgt:
                for s in src:
                    counts[s, t] += table[s, t] / sum(table[other, t] for other in src)
        totals = {s: sum(count for (other, _), count in counts.items() if other == s) for s, _ in counts}
        table = {(s, t): count / totals[s] for (s, t), count in counts.items()}
    for (src, tgt), values in zip(pairs, alignment.lexical_probabilities(pairs, 3), strict=True):
        np.testing.assert_allclose(values, [[table[s, t] for t in tgt] for s in src])


@pytest.mark.parametrize(("layer", "head", "shift"), [(0, 2, 0), (1, 0, 1)])
def test_the_head_that_agrees_is_chosen(monkeypatch, layer, head, shift):
    """Piece n is translated by n + 10, in reverse; one head of two layers with three attends to it."""
    random = np.random.default_rng(3)
    src = [[*random.permutation(7)[: random.integers(2, 6)], 7] for _ in range(41)]
    tgt = [[*(piece + 10 for piece in line[-2::-1]), 17] for line in src]
    texts = [
        EncodedText(np.concatenate(side).astype(np.int32), np.cumsum([0, *map(len, side)]), np.zeros((sum(map(len, side)), 0), np.int32))
        for side in (src, tgt)
    ]  # fmt: skip
    pairs, row = EncodedPairs(*texts), iter(range(41))

    def attend(model, batch, sequences):
        n_rows, width = batch["input_ids"].shape
        weights = torch.full((2, n_rows, 3, sequences.shape[1], width), 0.5)
        for sentence in range(n_rows):
            n = len(src[next(row)])
            for step in range(n - 1):
                weights[layer, sentence, head, step + shift, n - 2 - step] = 1.0
        return tuple(weights)

    monkeypatch.setattr(torch_decoder, "cross_attentions", attend)
    monkeypatch.setattr("syntaxformer.runs.loading.longest_input", lambda model: 99)
    model = SimpleNamespace(config=SimpleNamespace(pad_token_id=0, decoder_start_token_id=1))
    assert choose_head(model, pairs, pairs) == AlignmentHead(layer=layer, head=head, shift=bool(shift))
    monkeypatch.setattr("syntaxformer.runs.loading.longest_input", lambda model: 1)
    assert choose_head(model, pairs, pairs) is None


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("search", [{"n_best": 2}, {"temperature": 1.0, "seed": 3}])
def test_links_are_those_of_one_forward_pass(plain, shift, search):
    translator = aligning(plain, shift=shift)
    found = list(translator.translate(LINES, alignments=True, **search))
    assert [best.text for (best, *_) in found] == [
        best.text for (best, *_) in plain.translate(LINES, **search)
    ]
    assert (found[1][0].alignment, found[1][0].text) == (None, "")
    for line, best in [(LINES[row], best) for row in (0, 2, 3) for best in found[row]]:
        source = plain.encode([line])
        ids = torch.tensor([[*best.pieces, 2]])
        batch = source_batch(source, [0], 0)
        with torch.inference_mode():
            before = shift_right(ids, plain.model.config)
            seen = plain.model(**batch, decoder_input_ids=before, output_attentions=True)
        expected = seen.cross_attentions[1][0, 1, shift : shift + len(best.pieces)]
        np.testing.assert_allclose(best.attention.weights, expected, atol=1e-5)
        assert [line[start:end] for start, end in best.alignment.src] == line.split()
        assert [best.text[start:end] for start, end in best.alignment.tgt] == best.text.split()
    assert any(best.alignment.links for row in (0, 2, 3) for best in found[row])


def test_words_of_the_annotator_and_of_tags_between_them(new_translator):
    """With tags as pieces, the attention to a tag counts for its word, whose characters it has."""
    translator = aligning(new_translator("prepend"))
    translator.encoder.prepend = "interleaved"
    ((best,),) = translator.translate(["the cat ."], alignments=True)
    spans = [tuple(span) for span in np.asarray(best.attention.src).tolist()]
    assert len(spans) == best.attention.weights.shape[1]
    first = next(span for span in spans if span[1] > span[0])
    assert spans.count(first) == 1 + len(translator.encoder.factors)
    assert best.alignment.src == [(0, 3), (4, 7), (8, 9)]


def test_characters_are_those_of_the_raw_line(plain):
    translator = aligning(plain, normalize="nfc")
    ((best,),) = translator.translate(["the  cafe\u0301 \u200bcat"], alignments=True)
    assert best.alignment.src == [(0, 3), (5, 10), (12, 15)]


def test_an_ensemble_aligns_by_its_first_model(new_translator, save_translator, tmp_path):
    folders = [save_translator(aligning(new_translator()), tmp_path / name) for name in "ab"]
    alone, both = Translator.load(folders[0]), Translator.load_ensemble(folders)
    expected, found = (list(one.translate(LINES, alignments=True)) for one in (alone, both))
    assert [best.alignment for (best,) in found] == [best.alignment for (best,) in expected]


def test_models_without_a_head_or_with_a_wrong_one(plain):
    with pytest.raises(ConfigError, match=r"alignments: .*add_head"):
        list(plain.translate(LINES, alignments=True))
    with pytest.raises(CheckpointError, match=r"syntaxformer.json: alignment: .*got 5 and 1"):
        list(aligning(plain, layer=5).translate(LINES, alignments=True))


def test_an_older_folder_gets_its_head(folder):
    lines = [line for line in LINES if line]
    chosen = alignment.add_head(folder, lines, lines)
    verify_manifest(folder)
    assert read_info(folder).alignment == chosen is not None
    assert [best.alignment is None for (best,) in Translator.load(folder).translate(LINES, alignments=True)] == [False, True, False, False]  # fmt: skip
    for sources, targets in ((lines, lines[:1]), ([""], [""])):
        with pytest.raises(AlignmentError, match="targets"):
            alignment.add_head(folder, sources, targets)


@pytest.mark.parametrize("shift", [0, 1])
def test_the_figure_has_rings_where_the_head_links(plain, tmp_path, shift):
    shown = cross_attention(aligning(plain, shift=bool(shift)), "the cat", translation="a dog")
    rows = shown.weights[1, 1].argmax(1).tolist()
    assert shown.linked.tolist() == (rows[1:] + rows[-1:] if shift else rows)
    without = replace(shown, linked=None)
    assert cross_attention(plain, "the cat", translation="a dog").linked is None
    for name, drawn in (("rings", shown), ("none", without)):
        draw_attention({"model": drawn}, tmp_path / f"{name}.png")
    assert (tmp_path / "rings.png").read_bytes() != (tmp_path / "none.png").read_bytes()


def test_the_command_line(plain, save_translator, tmp_path):
    folder = save_translator(aligning(plain), tmp_path / "aligning")
    text, links, output = (tmp_path / name for name in ("in.en", "out.align", "out.de"))
    text.write_text("the cat\r\n\n<b>cats</b> &amp; <br> sit .\n<i>a\n")

    def run(*arguments):
        return CliRunner().invoke(app, ["translate", str(folder), str(text), *map(str, arguments)])

    done = run("--alignments", links, "-o", output)
    assert done.exit_code == 0, done.output
    expected = [best for (best,) in aligning(plain).translate(text.read_text().splitlines(), alignments=True)]
    assert output.read_text().splitlines() == [best.text for best in expected]
    assert links.read_text().split("\n")[:4] == [str(best.alignment or "") for best in expected]
    done = run("--markup")
    first, second, third, _ = done.stdout.splitlines()
    assert (first, second) == (expected[0].text, "")
    assert third.count("<b>") == third.count("</b>") == third.count("<br>") == 1
    for arguments, name in (
        (("--markup", "--alignments", links), "markup"),
        (("--alignments", text), "another file"),
    ):
        refused = run(*arguments)
        assert isinstance(refused.exception, ConfigError)
        assert "--alignments" in str(refused.exception)
        assert name in str(refused.exception)
