"""A folder as a function: one text in, one answer out; several in, as many out."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

import syntaxformer as sf
from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.classifier import Classifier, Predictions
from syntaxformer.encoders.task_types import OneLabel, Score
from syntaxformer.pipelines import ClassificationPipeline


def test_translation(folder, plain):
    translate = sf.pipeline("translation", folder)
    (best,) = plain.translate(["the cat"], beam_size=1)
    assert translate("the cat", beam_size=1) == best[0].text
    assert translate(["the cat", ""], beam_size=1) == [best[0].text, ""]


@pytest.mark.parametrize(
    ("options", "named"), [({"n_best": 2}, "n_best"), ({"scored": True, "n_best": 2}, "n_best, scored")]
)
def test_options_that_give_more_than_a_text(folder, options, named):
    with pytest.raises(TypeError) as caught:
        sf.pipeline("translation", folder)("the cat", **options)
    assert str(caught.value) == (
        f"options: expected those that leave one text for each, got {named}. "
        "Use `translator.translate`, which gives hypotheses with their scores."
    )


def _classifier(probabilities, labels):
    seen = []

    def predict(texts):
        seen.append(texts)
        return Predictions(labels[: len(texts)], probabilities)

    found = SimpleNamespace(predict=predict, seen=seen)
    found.task_type = OneLabel(("no", "yes")) if probabilities else Score()
    found.answers = partial(Classifier.answers, found)
    return found


def test_classification():
    classifier = _classifier([[0.25, 0.75]], ["yes"])
    classify = ClassificationPipeline(classifier)
    answer = {"label": "yes", "probabilities": {"no": 0.25, "yes": 0.75}}
    assert classify("a text") == answer
    assert classify([("a", "pair")]) == [answer]
    assert classify(("a", "pair")) == answer
    assert classifier.seen == [["a text"], [("a", "pair")], [("a", "pair")]]


def test_scores():
    assert ClassificationPipeline(_classifier(None, [2.5, 3.0]))(["a", "b"]) == [
        {"score": 2.5},
        {"score": 3.0},
    ]


def test_another_task():
    with pytest.raises(ConfigError) as caught:
        sf.pipeline("translating", "runs/none")
    assert str(caught.value) == (
        "task: expected one of translation, classification, got 'translating'. Nearest: translation."
    )
