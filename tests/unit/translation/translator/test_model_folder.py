"""Model folders: whole and as written, or one clear error."""

from __future__ import annotations

import json

import pytest

from folder_deeds import keys
from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError
from syntaxformer.base.files import write_manifest
from syntaxformer.runs.loading import CLASSIFIER, verify_folder
from syntaxformer.translation import scoring
from syntaxformer.translation import translator as model_folder
from syntaxformer.translation.translator import Translator


def _message(folder, **arguments) -> str:
    with pytest.raises(CheckpointError) as caught:
        Translator.load(folder, device="cpu", **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def _rewrite(folder, **values) -> None:
    """Alter `syntaxformer.json`, and the manifest with it, as someone would who edits a folder on purpose."""
    keys("syntaxformer.json", **values)(folder)
    write_manifest(folder)


def test_a_truncated_model(folder):
    with (folder / "model.safetensors").open("r+b") as file:
        size = file.seek(0, 2)
        file.truncate(size - 7)
    problem = f"expected {size} bytes, got {size - 7}. It is truncated."
    assert _message(folder) == f"{folder / 'model.safetensors'}: {problem}"


@pytest.mark.parametrize(
    ("language", "installed", "tokenize"),
    [("de", True, "13a"), ("zh-CN", False, "zh"), ("zh_TW", True, "zh"), ("ja", True, "ja-mecab"),
     ("ja", False, "char"), ("KO", True, "ko-mecab"), ("ko", False, "char")],
)  # fmt: skip
def test_languages_without_spaces_are_scored_by_their_tokenizers(
    folder, monkeypatch, language, installed, tokenize
):
    monkeypatch.setattr(scoring, "find_spec", lambda name: object() if installed else None)
    info = model_folder.read_info(folder).model_copy(update={"tgt": language})
    assert scoring.scoring(info)["tokenize"] == tokenize
    assert scoring.scoring(info.model_copy(update={"tokenized": True}))["tokenize"] == "none"


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (None, ": expected a folder, found none."),
        ("x", ": expected a model folder, got a file."),
        ([], "/manifest.json: expected a file, found none."),
        (["recipe.yaml"], ": expected a finished model, got a run that is not finished."),
        (
            ["config.json"],
            "got a checkpoint of transformers. `transformers.pipeline` takes it; `syntaxformer train",
        ),
        (["classifier.json"], ": expected a translator, which `syntaxformer train` writes, got a fine-tuned"),
    ],
)
def test_what_is_no_model(folder, tmp_path, files, problem):
    path = tmp_path / "given"
    if isinstance(files, list):
        path.mkdir()
    for name in files or ():
        (path / name if isinstance(files, list) else path).write_text("{}")
    assert problem in _message(path)
    with pytest.raises(CheckpointError, match="expected a fine-tuned model, which"):
        verify_folder(folder, CLASSIFIER)


def test_fields_of_another_kind(folder):
    _rewrite(folder, src=5)
    problem = "src: Input should be a valid string. It was altered."
    assert _message(folder) == f"{folder / 'syntaxformer.json'}: {problem}"
    _rewrite(folder, src="en", format_version=99)
    assert _message(folder) == f"{folder / 'syntaxformer.json'}: expected format version 1, got 99."


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        (None, "factors.0: Input should be a dictionary"),
        ({"name": "pos"}, "factors.0.values: Field required"),
        ({"name": 1, "values": []}, "factors.0.name: Input should be a valid string"),
        ({"name": "pos", "values": [1]}, "factors.0.values.0: Input should be a valid string"),
        ({"name": "pos", "values": ["X"], "more": 1}, "factors.0.more: Unexpected keyword"),
        ({"name": "pos", "values": ["X", "X"]}, "factor pos: expected distinct values, got 'X' 2 times."),
    ],
)
def test_a_factor_vocabulary_that_was_altered(infused, save_translator, tmp_path, stored, problem):
    folder = save_translator(infused, tmp_path / "model")
    factors = json.loads((folder / "syntaxformer.json").read_text())["factors"]
    _rewrite(folder, factors=[stored, *factors[1:]])
    assert _message(folder).startswith(f"{folder / 'syntaxformer.json'}: {problem}")
    assert _message(folder).endswith("It was altered.")


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (None, CheckpointError, r"syntaxformer\.json: expected the annotator's name, got none\. Give one with --annotator\."),
        ("spacy:xx_none_such", BackendMissingError, "xx_none_such.* is not installed. Run: "),
        ("stanzo:en", ConfigError, r"annotator: expected de, de_lower, en, .*got 'stanzo:en'"),
    ],
)  # fmt: skip
def test_a_model_without_its_annotator(new_translator, save_translator, tmp_path, name, error, message):
    folder = save_translator(new_translator("add", annotator=name), tmp_path / "model")
    with pytest.raises(error, match=message):
        Translator.load(folder)


def test_another_version_of_the_annotator_is_reported(new_translator, save_translator, tmp_path, monkeypatch):
    translator = new_translator("add", annotator_version="2")
    folder = save_translator(translator, tmp_path / "model")
    monkeypatch.setattr("syntaxformer.annotate.registry.load_annotator", lambda name: translator.annotator)
    message = r"^annotator: the model was trained with table 2, this is table 3; tags may differ\.$"
    with pytest.warns(UserWarning, match=message):
        Translator.load(folder)
