"""Scores of given translations: the loop with labels, the search's own scores, and both sides' preparation."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from syntaxformer.base.errors import AlignmentError, ConfigError, DataError
from syntaxformer.cli.main import app
from syntaxformer.translation import translator as translator_module
from syntaxformer.translation.batches import EncodedPairs, TranslationCollator
from syntaxformer.translation.model_folder import torch_decoder_of
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.translator import Translator, say_once

LINES = ["the cat sat", "cats", "a dog and the cat run on the mat .", ""]
TEXTS = ["a dog .", "", "cats sat on a mat", "dog"]


def _loop(translator, lines, texts):
    """Log-probabilities of labels, one pair at a time, as training sees it."""
    encoder = translator.encoder
    target = SourceEncoder(encoder.target_tokenizer, preparation=translator.info.preparation("de"))
    pairs = EncodedPairs(
        translator.encode(lines), target.encode([target.preparation.clean(text) for text in texts])
    )
    for row in range(len(lines)):
        batch = TranslationCollator(pairs, translator.model.config.pad_token_id)([row])
        with torch.inference_mode():
            log_probs = translator.model(**batch).logits.log_softmax(-1)
        yield log_probs.gather(-1, batch["labels"][..., None])[0, :, 0].tolist()


@pytest.mark.parametrize(
    ("kind", "info"),
    [
        ("none", {}),
        ("sum_then_concat", {}),
        ("prepend", {"prepend": "interleaved"}),
        ("none", {"lowercase": True}),
    ],
)
def test_scores_are_those_of_a_loop_with_labels(new_translator, kind, info):
    translator = new_translator(kind, **info)
    texts = [text.title() for text in TEXTS]
    scores = [one for (one,) in translator.score(LINES, texts, batch_size=2)]
    for score, log_probs in zip(scores, _loop(translator, LINES, texts), strict=True):
        assert score.log_probs == pytest.approx(log_probs, abs=1e-5)
        assert score.log_prob == pytest.approx(sum(log_probs), abs=1e-5)
        assert score.mean == pytest.approx(sum(log_probs) / len(log_probs), abs=1e-5)
        assert score.pieces[-1] == "</s>"
        assert len(score.pieces) == len(log_probs)


def test_several_translations_of_a_line_and_any_batches(infused):
    whole = list(infused.score(LINES, [[text, "cats"] for text in TEXTS]))
    single = list(infused.score(LINES, TEXTS, batch_size=1))
    assert [len(of_line) for of_line in whole] == [2] * 4
    assert [one.log_prob for one, _ in whole] == pytest.approx([one.log_prob for (one,) in single], abs=1e-5)
    assert list(infused.score([], [])) == []
    ((nothing,),) = infused.score(["  "], [""])
    assert (nothing.pieces, nothing.log_prob, nothing.mean) == ((), 0.0, 0.0)


@pytest.mark.parametrize("cell", [None, float("nan"), b"cats", ["cats", None], "a half \ud83d"])
def test_a_translation_that_is_no_text_is_refused_by_its_line(plain, cell):
    with pytest.raises(DataError, match=r"^line 6: translation: expected (a string|whole)"):
        list(plain.score(LINES[:2], ["a dog", cell], first_line=5))


def test_a_search_and_its_own_translations_agree(new_translator):
    """Where the text is cut into the pieces that the search chose; some end by themselves."""
    translator = new_translator()
    with torch.no_grad():
        translator.model.decoder.embedding.weight[translator.encoder.tokenizer.eos_token_id] *= 3
    lines, n_same = LINES[:3], 0
    for line, best in zip(
        lines, translator.translate(lines, beam_size=7, n_best=7, scored=True), strict=True
    ):
        (scores,) = translator.score([line], [[each.text for each in best]])
        for hypothesis, score in zip(best, scores, strict=True):
            ids = translator.encoder.tokenizer.convert_tokens_to_ids(list(score.pieces))
            if ids == list(hypothesis.pieces):
                assert score.mean == pytest.approx(hypothesis.score, abs=1e-5)
                n_same += 1
    assert n_same > 2


def test_an_ensemble_gives_the_mean_of_log_probabilities(plain, new_translator):
    other = new_translator("concat_pos")
    lead = Translator(plain.model, plain.encoder, plain.info)
    lead.decoder, lead.others = torch_decoder_of(plain.model, plain.encoder, [other.model]), [other]
    means = [(a + b) / 2 for (a,), (b,) in zip(*([[s.log_prob for s in line] for line in one.score(LINES, TEXTS)] for one in (plain, other)), strict=True)]  # fmt: skip
    assert [one.log_prob for (one,) in lead.score(LINES, TEXTS)] == pytest.approx(means, abs=1e-5)


def test_a_first_piece_that_is_no_choice_counts_as_in_the_search(new_translator):
    translator = new_translator()
    free = [one.log_probs for (one,) in translator.score(LINES, TEXTS)]
    translator.model.generation_config.forced_bos_token_id = 5
    for score, log_probs in zip(translator.score(LINES, TEXTS), free, strict=True):
        assert score[0].log_probs == pytest.approx([0.0, *log_probs[1:]], abs=1e-5)


def test_sides_that_do_not_fit(plain):
    for lines, texts in ((["a"], ["b", "c"]), (["a", "b"], ["c"])):
        with pytest.raises(AlignmentError, match="translations: expected"):
            list(plain.score(lines, texts))
    with pytest.raises(TypeError, match="translations: expected a list"):
        list(plain.score(["a"], "b"))
    with pytest.raises(ConfigError, match="batch_size"):
        list(plain.score(["a"], ["b"], batch_size=0))


def test_a_translation_longer_than_the_model_writes(plain, monkeypatch):
    monkeypatch.setattr("syntaxformer.translation.translator.MAX_SOURCE_PIECES", 5)
    assert len(list(plain.score(["cats", "cats"], ["a cat", "a dog ."]))) == 2
    with pytest.raises(DataError, match=r"^line 4: translation: expected at most 5 pieces, got 7"):
        list(plain.score(["cats", "cats"], ["a cat", "a dog and cat ."], first_line=3))


def test_characters_that_the_model_cannot_write_are_said(plain, caplog, monkeypatch):
    say_once.cache_clear()
    cat = plain.encoder.tokenizer.convert_tokens_to_ids("▁cat")
    monkeypatch.setattr(translator_module, "unknown_pieces", lambda *_, **__: np.array([cat]))
    list(plain.score(["cats"] * 3, ["a cat", "a dog", "cat"]))
    assert "2 lines with characters in a translation that the model cannot write" in caplog.text
    ((score,),) = plain.score(["cats"], ["\0 a\tb"])
    assert math.isfinite(score.log_prob)


def test_finished_translations_beside_a_model(folder, tmp_path):
    """They stand in one table, scored as the model's own: here in lower case, with its translations twice."""
    texts = {"s.en": [*LINES[:3]] * 4, "r.de": ["the cat ran", "dogs", "a dog ."] * 4}
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    files = [f"{option}={tmp_path / name}" for option, name in (("--src", "s.en"), ("--ref", "r.de"))]
    command = ["evaluate", str(folder), *files, "--device=cpu", "--json"]
    assert CliRunner().invoke(app, [*command, "-o", str(tmp_path / "out.de")]).exit_code == 0
    done = CliRunner().invoke(app, [*command, f"--hyp={tmp_path / 'out.de'}", f"--hyp={tmp_path / 'r.de'}"])
    report = json.loads(done.stdout)
    model, own, perfect = report["systems"].values()
    assert [*report["systems"]] == [str(folder), str(tmp_path / "out.de"), str(tmp_path / "r.de")]
    assert {key: own[key] for key in model} == model
    assert own["against"]["BLEU"]["difference"] == 0
    assert perfect["chrF++"] == 100
    assert perfect["against"]["chrF++"]["difference"] == pytest.approx(model["chrF++"] - 100)
