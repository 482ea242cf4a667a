"""Lines of several sentences, lines longer than in training, forced beginnings, and outputs that go on."""

from __future__ import annotations

import gzip
import json
import lzma
import sys

import pytest
import torch
from typer.testing import CliRunner

from syntaxformer.base.errors import CheckpointError, ConfigError, DataError
from syntaxformer.cli.main import app, main
from syntaxformer.translation import translator as translator_module
from syntaxformer.translation.model_folder import read_info
from syntaxformer.translation.source import source_batch
from syntaxformer.translation.torch_decoder import TorchDecoder
from syntaxformer.translation.translator import say_once

LINES = ["the cat sat .", "A cat . the dog .  cats sit .", "", "cats sit ."]


def _texts(translator, lines, **settings):
    return [best[0].text for best in translator.translate(lines, **settings)]


def test_a_cut_line_is_what_its_sentences_are(plain):
    one, two, three = _texts(plain, ["A cat .", "the dog .", "cats sit ."])
    whole = _texts(plain, LINES)
    assert _texts(plain, LINES, split_sentences="always") == [whole[0], f"{one} {two}  {three}", "", whole[3]]
    assert _texts(plain, LINES, split_sentences="never") == whole


def test_scores_and_alternatives_of_a_cut_line(plain):
    settings = {"n_best": 3, "scored": True, "beam_size": 3}
    parts = list(plain.translate(["A cat .", "the dog .", "cats sit ."], **settings))
    _, cut, blank, _ = plain.translate(LINES, split_sentences="always", **settings)
    by_hand = {}
    for a, b, c in zip(*parts, strict=True):  # the penalty is 1: a score is the mean over pieces
        log_prob = sum(part.score * len(part.pieces) for part in (a, b, c))
        by_hand[f"{a.text} {b.text}  {c.text}"] = log_prob / sum(len(part.pieces) for part in (a, b, c))
    assert {best.text: best.score for best in cut} == pytest.approx(by_hand)
    assert [best.score for best in cut] == sorted((best.score for best in cut), reverse=True)
    assert [best.text for best in blank] == ["", "", ""]


def test_auto_cuts_what_training_had_not_and_says_so_once(new_translator, caplog):
    say_once.cache_clear()
    old, known = new_translator(), new_translator(usual_sentences=2)
    lines = ["A cat . the dog .", *LINES]
    assert _texts(known, lines, split_sentences="auto") == [_texts(known, lines[:1])[0], *_texts(known, LINES, split_sentences="always")]  # fmt: skip
    assert caplog.text.count("1 line has more sentences than 99 % of the training lines, 2; they") == 1
    caplog.clear()
    assert _texts(old, lines, split_sentences="auto") == _texts(old, lines, split_sentences="always")
    assert "2 lines have more sentences than 99 % of the training lines, taken to be 1 as this" in caplog.text
    assert caplog.text.count("sentences than") == 1  # "always" says nothing


def test_sentences_that_may_be_lost_are_said(new_translator, caplog):
    say_once.cache_clear()
    _texts(new_translator(), LINES)
    _texts(new_translator(usual_sentences=3), LINES)
    assert "sentences than" not in caplog.text
    _texts(new_translator(usual_sentences=2), LINES)
    assert "1 line seems to have more sentences than 99 % of the training lines, 2. The later" in caplog.text


def test_lines_that_are_as_rare_as_in_training_are_not_said(new_translator, caplog):
    """Text like the training text has one such line in a hundred: nothing is wrong with it."""
    say_once.cache_clear()
    model, within = new_translator(usual_sentences=2), ["cats sit ."] * 100
    _texts(model, [*within, LINES[1]])
    assert "sentences than" not in caplog.text
    _texts(model, [*within, LINES[1], LINES[1]])
    assert "2 lines seem to have more sentences than 99 %" in caplog.text


def test_lines_longer_than_those_of_training_are_counted(new_translator, caplog):
    say_once.cache_clear()
    model = new_translator(longest_line=4)
    _texts(model, LINES)
    assert "1 line is longer than the 4 words that this model was trained on." in caplog.text
    caplog.clear()
    _texts(model, ["a b c d e"] * 3)
    assert "3 lines are longer than the 4 words that this model was trained on." in caplog.text
    caplog.clear()
    _texts(model, LINES, split_sentences="always")
    assert "longer than" not in caplog.text


def test_what_belongs_to_whole_lines_is_not_cut(new_translator, infused):
    user = {"tone": [["h"] * 7, ["l"] * 3, ["h", "l"] * 3]}
    toned = new_translator("concat", ("pos", "tone"), user)
    with pytest.raises(ConfigError, match="split_sentences: expected never with values of user factors"):
        list(toned.translate(["a b"], split_sentences="auto", user_factors={"tone": [["h", "l"]]}))
    infused.annotator.name = "conllu:a.conllu"
    try:
        with pytest.raises(ConfigError, match="split_sentences: expected never with a file of parses"):
            list(infused.translate(["a b"], split_sentences="always"))
    finally:
        del infused.annotator.name


@pytest.mark.parametrize("settings", [{"beam_size": 3}, {"beam_size": 1}, {"temperature": 1.0, "seed": 3}])
def test_a_translation_begins_as_it_must_and_its_score_is_the_models(infused, settings):
    lines, prefixes = ["the cat sat .", "cats sit .", "", "a dog"], ["cat sat", "", "", "dog . dog . dog"]
    results = list(infused.translate(lines, prefixes=prefixes, scored=True, batch_size=3, **settings))
    assert results[0][0].text.startswith("cat sat")
    assert results[3][0].text.startswith("dog . dog . dog")
    if "seed" not in settings:
        alone = next(infused.translate(lines[1:2], scored=True, **settings))
        assert results[1][0].text == alone[0].text
        assert results[1][0].score == pytest.approx(alone[0].score, abs=1e-5)
    source, best = infused.encode(lines), results[0][0]
    labels = torch.tensor([best.pieces])
    batch = source_batch(source, [0], infused.model.config.pad_token_id)
    with torch.inference_mode():
        logits = infused.model(**batch, labels=labels).logits.log_softmax(-1)
    by_hand = sum(float(logits[0, at, piece]) for at, piece in enumerate(best.pieces)) / len(best.pieces)
    assert best.score == pytest.approx(by_hand, abs=1e-5)


def test_a_prefix_that_nothing_else_allows_is_written_all_the_same(plain):
    settings = {"prefixes": ["cat cat cat cat"], "no_repeat_ngram_size": 2, "beam_size": 2}
    assert _texts(plain, ["a"], **settings)[0].startswith("cat cat cat cat")


def test_a_translation_has_at_least_so_many_pieces(plain):
    for settings in ({"beam_size": 3}, {"beam_size": 1}, {"temperature": 1.0}):
        for best, *_ in plain.translate(["cats sit .", "a"], min_length=31, **settings):
            assert len(best.pieces) >= 32  # with the end
    assert max(len(best.pieces) for best, *_ in plain.translate(["cats sit ."], max_length_factor=0.1)) <= 10


def test_no_translation_is_longer_than_the_network_s_positions(plain, monkeypatch):
    monkeypatch.setattr(plain.decoder, "longest", 20)
    assert all(len(best[0].pieces) == 19 for best in plain.translate(["cats sit ."], min_length=17))
    with pytest.raises(ConfigError, match=r"min_length: expected at most 17, got 18\."):
        list(plain.translate(["cats sit ."], min_length=18))
    with pytest.raises(DataError, match=r"'cat cat.*with more than 17 pieces"):
        list(plain.translate(["cats sit ."], prefixes=["cat " * 18]))


def test_an_interrupted_output_goes_on_as_if_unbroken(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(translator_module, "CHUNK_LINES", 4)
    lines = [" ".join(["cat", "sits", "the", "dog ."][: 1 + n % 4]) for n in range(11)]
    source, prefix = tmp_path / "in.en.xz", tmp_path / "prefix"
    source.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode()))
    prefix.write_text("cat\n\n" * 5 + "the\n")
    output, asked = tmp_path / "out.de.gz", []
    arguments = [*map(str, ("translate", folder, source, "-o", output, "--n-best", 2, "--prefix", prefix))]

    def translate(*more, dies_after=99):
        decode = TorchDecoder.decode

        def decode_or_die(self, encoded, rows, search):
            asked.append(len(encoded))
            if len(asked) > dies_after:
                raise KeyboardInterrupt
            return decode(self, encoded, rows, search)

        asked.clear()
        monkeypatch.setattr(TorchDecoder, "decode", decode_or_die)
        try:
            return CliRunner().invoke(app, [*arguments, *more])
        finally:
            monkeypatch.setattr(TorchDecoder, "decode", decode)

    assert translate().exit_code == 0
    unbroken = output.read_bytes()
    output.unlink()
    translate(dies_after=2)
    (partial,) = tmp_path.glob(".out.de.gz.*.partial")
    with partial.open("ab") as file:
        file.write(b"9|||a row of a chunk that is not whole|||-1.0\n9|||cut o")
    done = translate("--resume")
    assert (done.exit_code, asked) == (0, [3])
    assert "begins after line 8 of what the same command wrote" in done.output
    assert output.read_bytes() == unbroken
    assert gzip.decompress(unbroken).decode().count("\n") == 22
    assert not [*tmp_path.glob(".*")]
    translate(dies_after=2)
    assert "begins after line 0" in translate("--resume", "--beam-size", "2").output  # other options
    assert asked == [4, 4, 3]


def test_what_cannot_go_on_is_refused(folder, tmp_path, monkeypatch, capsys):
    for arguments in (["in.en"], ["in.en", "-o", "/dev/null"], ["-", "-o", "out.de"]):
        monkeypatch.setattr(sys, "argv", ["syntaxformer", "translate", str(folder), *arguments, "--resume"])
        with pytest.raises(SystemExit):
            main()
        assert "--resume: expected a text file to read and -o with a file" in capsys.readouterr().err


def test_sizes_of_training_lines_come_from_a_folder_within_bounds(folder):
    assert (read_info(folder).longest_line, read_info(folder).usual_sentences) == (None, None)
    path = folder / "syntaxformer.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "usual_sentences": 3, "longest_line": 20}))
    assert (read_info(folder).longest_line, read_info(folder).usual_sentences) == (20, 3)
    for key in ("usual_sentences", "longest_line"):
        path.write_text(json.dumps({**content, key: 0}))
        with pytest.raises(CheckpointError, match=f"{key}: .*greater than or equal to 1"):
            read_info(folder)
