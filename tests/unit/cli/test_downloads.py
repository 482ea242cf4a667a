"""What is downloaded is said with its size before it starts; a fake stands for the Hub."""

from __future__ import annotations

import logging
from importlib import import_module
from types import SimpleNamespace

import pytest

from syntaxformer.base import downloads
from syntaxformer.base.errors import CheckpointError, ConfigError

FILES = {
    "config.json": 570,
    "model.safetensors": 440_449_768,
    "onnx/model.onnx": 532_000_000,
    "onnx/config.json": 1_000_000,
    "pytorch_model.bin": 440_473_133,
    "tokenizer.json": 466_062,
    "vocab.txt": 231_508,
    "README.md": 10_000_000,
}


@pytest.fixture
def hub(monkeypatch):
    """The files of one repository, those of it that are on this machine, and who asked for what."""
    state = SimpleNamespace(files=FILES, here=set(), asked=[])

    def repo_info(_, name, *, repo_type, files_metadata, timeout):
        state.asked.append((name, repo_type))
        if name == "none/such":
            raise OSError("404")
        assert files_metadata
        assert timeout
        files = [SimpleNamespace(rfilename=name, size=size) for name, size in state.files.items()]
        return SimpleNamespace(siblings=files)

    def cached(_, name, repo_type):
        return f"/cache/{repo_type}/{name}" if name in state.here else None

    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", repo_info)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", cached)
    downloads.say_download.cache_clear()
    yield state
    downloads.say_download.cache_clear()


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, "syntaxformer")
    return caplog


def test_a_checkpoint_is_what_transformers_reads_of_it(hub, said):
    downloads.say_download("bert-base-uncased")
    assert said.messages == ["downloading the model bert-base-uncased from the Hugging Face Hub: 441.1 MB"]


def test_nothing_is_said_of_what_is_here_whole_or_cannot_be_asked_for(hub, said, tmp_path):
    hub.here = set(FILES)
    downloads.say_download("bert-base-uncased")
    downloads.say_download("none/such")
    asked = list(hub.asked)
    downloads.say_download(str(tmp_path))
    assert said.messages == []
    assert hub.asked == asked, "A folder is nobody's business."


def test_shards_of_weights_count_and_adapters_do_not(hub, said):
    hub.files = {
        "model-00001-of-00002.safetensors": 3_000_000,
        "model-00002-of-00002.safetensors": 2_000_000,
        "adapter_model.safetensors": 70_000_000,
    }
    downloads.say_download("large")
    assert said.messages == ["downloading the model large from the Hugging Face Hub: 5.0 MB"]


@pytest.mark.parametrize(
    ("function", "arguments", "problem", "size"),
    [
        ("encoders.pretrained.load_tokenizer", (128,), "expected a checkpoint with a tokenizer at some/files", "441.1"),
        ("translation.subwords.given_tokenizer", (), r"subwords\.tokenizer: expected a tokenizer folder", "0.7"),
        ("translation.subwords.encoder_tokenizer", (False,), "pretrained_embeddings: expected an encoder at some/files", "441.1"),
    ],
)  # fmt: skip
def test_fine_tuning_and_recipes_say_it_before_they_load(hub, said, function, arguments, problem, size):
    module, _, name = function.rpartition(".")
    with pytest.raises(ConfigError, match=problem):
        getattr(import_module(f"syntaxformer.{module}"), name)("some/files", *arguments)
    assert said.messages == [f"downloading the model some/files from the Hugging Face Hub: {size} MB"]


@pytest.mark.parametrize("product", ["translation", "encoders"])
def test_data_sets_are_at_most_as_large_as_all_of_their_files(hub, said, product):
    from syntaxformer.encoders.tables import open_dataset
    from syntaxformer.translation.corpora import CorpusConfig, _load

    hub.files = {"data/train.parquet": 300_000_000, "README.md": 50_000}
    recipe = CorpusConfig(dataset="some/data", src="en", tgt="de")
    with pytest.raises(ConfigError, match="some/data"):
        open_dataset("hub:some/data:small") if product == "encoders" else _load(recipe, "train")
    assert hub.asked[0] == ("some/data", "dataset")
    assert said.messages == ["downloading the dataset some/data from the Hugging Face Hub: up to 300.1 MB"]


@pytest.mark.parametrize("name", ["runs/none", "./none", "~/none", "/none/such", "a/b/c"])
def test_a_path_of_nothing_is_said_at_once(name, hub, tmp_path, monkeypatch):
    """Nobody is asked for it: with the network it took half a minute to say that the Hub cannot be reached."""
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="found none"):
        downloads.say_download(name)
    assert not hub.asked


@pytest.mark.parametrize(
    ("module", "function", "arguments"),
    [
        ("pipelines", "pipeline", ()),
        ("study.word_states", "load_word_encoder", ()),
        ("encoders.pretrained", "load_tokenizer", (9,)),
        ("translation.checkpoint", "local_folder", ()),
        ("translation.subwords", "given_tokenizer", ()),
        ("translation.subwords", "encoder_tokenizer", (False,)),
        ("cli.cost", "_read", (None,)),
    ],
)
def test_no_door_asks_the_hub_for_a_path_of_nothing(module, function, arguments, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("the Hub is asked"))
    call = getattr(import_module(f"syntaxformer.{module}"), function)
    with pytest.raises((CheckpointError, ConfigError), match=r"found none|got none|got no folder"):
        call("./none", *arguments)
    assert not hub.asked
