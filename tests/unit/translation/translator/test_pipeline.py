"""A folder as a function: one text in, one answer out; several in, as many out."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import syntaxformer as sf
from syntaxformer.base.errors import CheckpointError, DataError
from syntaxformer.encoders.classifier import Classifier, Predictions
from syntaxformer.encoders.task_types import OneLabel, Score
from syntaxformer.pipelines import ClassificationPipeline

NO_TEXTS = [None, 5, 2.5, b"the cat", {"the cat"}, [1], [None], [b"x"], [{"txt": "a"}]]
NO_TEXTS += [["the cat", float("nan")], [["the", "cat"]]]


@pytest.mark.parametrize("given", NO_TEXTS, ids=map(repr, NO_TEXTS))
def test_what_is_no_text(folder, plain, given):
    for door in (sf.pipeline(folder), plain.translate, sf.load_annotator("spaces").annotate):
        with pytest.raises((TypeError, DataError), match=r"^(lines|line \d: text): expected "):
            list(door(given))
    # Others are refused with their line by the classifier.
    if not isinstance(given, list) or given == [{"txt": "a"}]:
        with pytest.raises(TypeError, match=r"^texts: expected "):
            ClassificationPipeline(_classifier([[0.25, 0.75]], ["yes"]))(given)
    assert list(sf.pipeline(folder)([])) == []


def test_translation(folder, plain):
    (best,) = plain.translate(["the cat"], beam_size=1)
    for translate in (sf.pipeline(folder), sf.pipeline(str(folder), task="translation")):
        answer = {"translation_text": best[0].text}
        assert translate("the cat", beam_size=1) == [answer]
        assert translate(["the cat", ""], beam_size=1) == [answer, {"translation_text": ""}]


@pytest.mark.parametrize(
    ("options", "named"), [({"n_best": 2}, "n_best"), ({"scored": True, "n_best": 2}, "n_best, scored")]
)
def test_options_that_give_more_than_a_text(folder, options, named):
    with pytest.raises(TypeError, match="options:"):
        sf.pipeline(folder)("the cat", **options)


def _classifier(probabilities, labels):
    seen = []

    def predict(texts, batch_size=None):
        seen.append(texts)
        return Predictions(labels[: len(texts)], probabilities and probabilities[: len(texts)])

    found = SimpleNamespace(predict=predict, seen=seen)
    found.task_type = OneLabel(("no", "yes")) if probabilities else Score()
    found.answers = partial(Classifier.answers, found)
    return found


def test_classification():
    """The forms of transformers' text-classification."""
    classifier = _classifier([[0.25, 0.75]], ["yes"])
    classify = ClassificationPipeline(classifier)
    yes, no = {"label": "yes", "score": 0.75}, {"label": "no", "score": 0.25}
    assert classify("a text") == [yes]
    assert classify(["a text"]) == [yes]
    assert classify({"text": "a", "text_pair": "pair"}) == yes
    assert classify([{"text": "a", "text_pair": "pair"}]) == [yes]
    assert classify([("a", "pair")]) == [yes]
    assert classify(("a", "pair")) == yes
    assert classify("a text", top_k=None) == [yes, no]
    assert classify(["a text"], top_k=None) == [[yes, no]]
    assert classify({"text": "a text"}, top_k=2) == [yes, no]
    assert classifier.seen[2] == classifier.seen[3] == classifier.seen[4] == [("a", "pair")]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ((), "got a folder without syntaxformer.json and classifier.json"),
        (("config.json",), "got a checkpoint of transformers."),
        (("config.json", "infusion.json"), "got an infused model without task and annotator"),
        (("recipe.yaml",), "got a run that is not finished"),
    ],
)
def test_folders_that_are_no_product(files, problem, tmp_path):
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(
        CheckpointError, match=f"^{tmp_path}: expected a translator or a fine-tuned model, {problem}"
    ):
        sf.pipeline(tmp_path)


def test_a_name_on_the_hub_is_looked_up_in_its_cache(folder, monkeypatch, tmp_path):
    """As the Hub's client keeps a repository: links from a snapshot to blobs."""
    home = tmp_path / "models--org--name"
    snapshot = home / "snapshots" / "abc123"
    shutil.copytree(folder, home / "blobs")
    snapshot.mkdir(parents=True)
    for file in folder.iterdir():
        (snapshot / file.name).symlink_to(Path("..") / ".." / "blobs" / file.name)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("abc123")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert sf.pipeline("org/name")("the cat", beam_size=1) == sf.pipeline(folder)("the cat", beam_size=1)
