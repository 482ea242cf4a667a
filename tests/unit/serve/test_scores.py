"""`POST /v1/score`: the scores of `Translator.score`, and what is refused."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from syntaxformer.serve.schemas import ScoreSettings, TranslateSettings

PAIRS = [["The cat sees a dog .", "two cats run ."], ["", ""], ["A dog\nruns", "run"]]


def test_scores_are_the_translators(make_app, tiny_engines):
    engine = tiny_engines["sit"]
    with TestClient(make_app(engine)) as client:
        response = client.post("/v1/score", json={"texts": PAIRS, "pieces": True})
        short = client.post("/v1/score", json={"texts": PAIRS[:1]}).json()["scores"]
    lines, texts = zip(*PAIRS, strict=True)
    lines = [line.replace("\n", " ") for line in lines]
    expected = [score for (score,) in engine.translator.score(lines, texts)]
    assert response.json()["model"] == "sit"
    for answer, score in zip(response.json()["scores"], expected, strict=True):
        assert answer["pieces"] == list(score.pieces)
        assert answer["log_probs"] == pytest.approx(score.log_probs, abs=1e-5)
        assert answer["log_prob"] == pytest.approx(score.log_prob, abs=1e-5)
        assert (answer["n_pieces"], answer["truncated"]) == (len(score.pieces), False)
    assert short == [{key: pytest.approx(response.json()["scores"][0][key], abs=1e-5) for key in ("log_prob", "n_pieces", "mean")} | {"truncated": False}]  # fmt: skip


@pytest.mark.parametrize("texts", [["a"], [["a"]], [["a", "b", "c"]], [], [["a", 3]]])
def test_what_is_no_pair_is_refused(client, error_of, texts):
    error_of(client.post("/v1/score", json={"texts": texts}), 422, "invalid")


def test_a_translation_too_long_is_refused(make_app, tiny_engines, error_of, monkeypatch):
    monkeypatch.setattr("syntaxformer.translation.translator.MAX_SOURCE_PIECES", 5)
    with TestClient(make_app(tiny_engines["base"])) as client:
        response = client.post("/v1/score", json={"texts": [["a", "the small dog sees a big cat ."]]})
    assert "translation: expected at most 5 pieces" in error_of(response, 422, "invalid")


def test_a_pair_costs_as_much_as_one_beam(tiny_engines, monkeypatch):
    engine = tiny_engines["base"]
    monkeypatch.setattr(engine, "paces", (1.0, 1.0))
    pieces = engine.translator.encoder.tokenizer.backend_tokenizer
    monkeypatch.setattr(engine, "_pieces", pieces, raising=False)
    (pair,), (line,) = (engine.costs(kind(), [["a", "b"]]) for kind in (ScoreSettings, TranslateSettings))
    assert pair * engine.n_beams == line


@pytest.mark.slow
def test_trees_are_read_as_in_translation(masked_translator):
    """A model with masks: several translations of a line, in one batch with others, each as if alone."""
    translator, lines = masked_translator.translator, ["A small dog runs .", "cats", "the dog sees a cat"]
    together = list(translator.score(lines, [["a cat .", "two dogs"]] * 3))
    alone = [next(translator.score([line], [text])) for line in lines for text in ("a cat .", "two dogs")]
    flat = [score.log_prob for of_line in together for score in of_line]
    assert flat == pytest.approx([score.log_prob for (score,) in alone], abs=1e-5)
    assert len({round(number, 3) for number in flat}) == 6
