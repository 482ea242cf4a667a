"""Model cards say what their folders say; folders go to the Hub and come back from its cache."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import spacy
import torch
import transformers as hf

import syntaxformer as sf
from syntaxformer.base.errors import CheckpointError
from syntaxformer.base.files import fetched, verify_manifest, write_manifest
from syntaxformer.infusion.model_card import MARK, write_card
from tiny_hosts import BERT


def rows_of(folder):
    return dict(re.findall(r"^\| (.+?) \| (.+) \|$", (folder / "README.md").read_text("utf-8"), re.MULTILINE))


@pytest.fixture
def folder(tmp_path):
    hf.BertForSequenceClassification(hf.BertConfig(**BERT)).save_pretrained(tmp_path / "mini-bert")
    model = hf.BertForSequenceClassification.from_pretrained(tmp_path / "mini-bert")
    sf.infuse(model, "masks,lisa,pos_add").save_pretrained(tmp_path / "infused")
    return tmp_path / "infused"


def test_what_is_not_known_is_not_said(folder):
    assert rows_of(folder) == {
        "network": "BertForSequenceClassification",
        "started from": "mini-bert",
        "infused": "masks, lisa, add",
        "factors": "pos",
        "annotator": "not recorded",
        "trained on": "not recorded",
        "scores on dev": "not recorded",
    }
    text = (folder / "README.md").read_text("utf-8")
    assert str(folder.parent) not in text, "no path of this machine"
    assert '\nsf.load("infused")  # ' in text
    assert text.startswith("---\nlibrary_name: syntaxformer\ntags:\n- syntaxformer\n---\n")


def test_what_trainer_leaves_is_said(folder):
    logs = [
        {"eval_loss": 0.9, "eval_accuracy": 0.5, "epoch": 1.0, "step": 3},
        {"eval_loss": 0.7654321, "eval_accuracy": 0.75, "eval_runtime": 0.3, "eval_samples_per_second": 9.0, "epoch": 2.0},
        {"train_loss": 0.4},
    ]  # fmt: skip
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": logs}))
    (folder / "collator.json").write_text(json.dumps({"annotators": ["en 1.0"]}))
    write_card(folder)
    assert rows_of(folder)["scores on dev"] == "eval_loss 0.7654, eval_accuracy 0.75"
    assert rows_of(folder)["annotator"] == "en 1.0"


def test_a_card_of_somebodys_own_is_left(folder):
    (folder / "README.md").write_text("# Mine\n")
    sf.load(folder).save_pretrained(folder)
    assert (folder / "README.md").read_text() == "# Mine\n"


def test_a_card_may_change_in_a_finished_folder(folder):
    write_manifest(folder)
    (folder / "README.md").write_text("# Mine\n")
    verify_manifest(folder)
    assert "README.md" not in json.loads((folder / "manifest.json").read_text())["files"]


class FakeHub:
    """What is asked of `HfApi`; a card that is there already is `card`."""

    def __init__(self, card=None):
        self.card, self.calls, self.files = card, [], {}

    def __call__(self, token=None):
        self.calls.append(("token", token))
        return self

    def create_repo(self, repo_id, *, private, exist_ok):
        self.calls.append((repo_id, private, exist_ok))
        return SimpleNamespace(repo_id=f"org/{repo_id.split('/')[-1]}")

    def file_exists(self, repo_id, name, *, revision):
        self.branch = revision
        return self.card is not None

    def hf_hub_download(self, repo_id, name, *, revision):
        assert revision == self.branch
        return self.card

    def upload_folder(self, *, repo_id, folder_path, ignore_patterns, **options):
        from huggingface_hub.utils import filter_repo_objects

        names = [
            str(path.relative_to(folder_path)) for path in Path(folder_path).rglob("*") if path.is_file()
        ]
        uploaded = filter_repo_objects(names, ignore_patterns=ignore_patterns)
        self.files = {name: (Path(folder_path) / name).read_bytes() for name in uploaded}
        self.calls.append((repo_id, options))
        return f"https://hub/{repo_id}"


@pytest.fixture
def hub(monkeypatch):
    fake = FakeHub()
    monkeypatch.setattr("huggingface_hub.HfApi", fake)
    return fake


def test_a_folder_goes_to_the_hub(folder, hub):
    for name in ("checkpoint-3/model.safetensors", "checkpoints/a/b.json", "logs/events", ".lock", "training_args.bin", "optimizer.pt"):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    url = sf.push_to_hub(folder, "me/it", private=True, token="t", revision="b")
    assert (url, hub.branch) == ("https://hub/org/it", "b")
    assert hub.calls == [
        ("token", "t"),
        ("me/it", True, True),
        ("org/it", {"commit_message": "Upload model", "revision": "b"}),
    ]
    assert set(hub.files) == {"README.md", "config.json", "infusion.json", "model.safetensors"}
    assert b"\n# org/it\n" in hub.files["README.md"]
    assert b'sf.load("org/it")' in hub.files["README.md"]


def test_an_export_goes_to_the_hub_with_its_network(folder, hub):
    """CTranslate2 calls it model.bin; elsewhere such files are pickles and stay."""
    for name in ("export.json", "syntaxformer.json"):
        (folder / name).write_text("{}")
    (folder / "model.bin").write_text("x")
    write_manifest(folder)
    (folder / "optimizer.bin").write_text("x")
    sf.push_to_hub(folder, "me/it")
    assert "model.bin" in hub.files
    assert "optimizer.bin" not in hub.files


def test_an_annotator_of_ones_own_goes_to_the_hub_whole(folder, hub, tmp_path):
    """Its vocab/lookups.bin is no pickle: with a file less, the manifest would refuse the folder forever."""
    spacy.blank("de").to_disk(folder / "annotator")
    write_manifest(folder)
    sf.push_to_hub(folder, "me/it")
    assert "annotator/vocab/lookups.bin" in hub.files
    for name, content in hub.files.items():
        (tmp_path / "there" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "there" / name).write_bytes(content)
    verify_manifest(tmp_path / "there")


def test_an_export_comes_back_with_its_network_and_without_pickles(tmp_path, monkeypatch):
    from huggingface_hub.utils import filter_repo_objects

    there = [
        "model.bin", "annotator/vocab/lookups.bin", "config.json", "pytorch_model.bin",
        "pytorch_model-00001-of-00002.bin", "training_args.bin",
    ]  # fmt: skip

    def snapshot_download(_, ignore_patterns):
        return tmp_path / ",".join(
            name.replace("/", "-") for name in filter_repo_objects(there, ignore_patterns=ignore_patterns)
        )

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    assert fetched("org/it").name == "model.bin,annotator-vocab-lookups.bin,config.json"


def test_a_model_goes_to_the_hub(folder, hub, tmp_path):
    model = sf.load(folder)
    assert model.push_to_hub("org/it") == "https://hub/org/it"
    assert set(hub.files) == {"README.md", "config.json", "infusion.json", "model.safetensors"}
    model.save_pretrained(
        tmp_path / "again", push_to_hub=True, repo_id="org/other", commit_message="m", private=True
    )
    assert hub.calls[-2:] == [("org/other", True, True), ("org/other", {"commit_message": "m"})]


@pytest.mark.parametrize(("text", "stays"), [("# Theirs\n", True), (f"{MARK}\n# Ours\n", False)])
def test_a_card_of_somebodys_own_stays_on_the_hub(folder, hub, tmp_path, text, stays):
    (tmp_path / "card").write_text(text)
    hub.card = tmp_path / "card"
    sf.push_to_hub(folder, "org/it")
    assert ("README.md" not in hub.files) == stays


def laid_out(files, cache, name="org/it"):
    """As the Hub's client keeps a repository: links from a snapshot to blobs."""
    home = cache / f"models--{name.replace('/', '--')}"
    for part in ("blobs", "refs", "snapshots/abc123"):
        (home / part).mkdir(parents=True)
    (home / "refs/main").write_text("abc123")
    for number, (file, content) in enumerate(files.items()):
        (home / "blobs" / str(number)).write_bytes(content)
        (home / "snapshots/abc123" / file).symlink_to(
            os.path.relpath(home / "blobs" / str(number), home / "snapshots/abc123")
        )


def test_a_model_comes_back_from_the_hubs_cache(folder, hub, tmp_path, monkeypatch):
    expected = sf.load(folder).eval()
    sf.push_to_hub(folder, "org/it")
    laid_out(hub.files, tmp_path / "cache")
    pieces = torch.tensor([[1, 2, 3]])
    batch = {
        "syntax": torch.zeros(1, 2, 3, 3, dtype=torch.uint8),
        "factor_ids": torch.ones(1, 3, 1, dtype=torch.int64),
    }
    for how in ("argument", "environment"):
        options = {"cache_dir": tmp_path / "cache"} if how == "argument" else {}
        if not options:
            monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        loaded = sf.load("org/it", **options).eval()
        assert torch.equal(loaded(pieces, **batch).logits, expected(pieces, **batch).logits)
    with pytest.raises(CheckpointError, match=r"^org/it:"):
        sf.load("org/it", revision="other")


def test_settings_of_a_folder_of_the_hub_are_checked(folder, hub, tmp_path):
    sf.push_to_hub(folder, "org/it")
    config = json.loads(hub.files["config.json"]) | {"attn_implementation": "somebody/kernel"}
    laid_out(hub.files | {"config.json": json.dumps(config).encode()}, tmp_path)
    with pytest.raises(CheckpointError):
        sf.load("org/it", cache_dir=tmp_path)


def test_a_name_that_is_nowhere():
    with pytest.raises(CheckpointError, match=r"^org/nothing:"):
        sf.load("org/nothing")
