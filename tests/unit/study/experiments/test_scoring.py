"""A cell is scored as its model's target side was prepared, and says which code and data it is of."""

from __future__ import annotations

import hashlib
import json
import subprocess
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from syntaxformer import __version__
from syntaxformer.study.experiments import cell as cells
from syntaxformer.study.experiments.cell import HYPOTHESES, REFERENCES, checkpoint_sha256
from syntaxformer.study.experiments.spec import Cell, ScoredText, Spec
from syntaxformer.translation.decoding import Hypothesis
from syntaxformer.translation.model_folder import FolderInfo
from syntaxformer.translation.scoring import compare_translations


def test_escaped_lower_cased_words_with_factors_and_an_annotator_of_the_test_text(tmp_path, monkeypatch):
    seen = {}
    settings = {"annotator": None, "annotator_version": None, "factors": []}
    settings |= {"tokenized": True, "lowercase": True, "unescape": True}

    def translate(lines, beam_size, user_factors):
        seen["factors"] = {name: list(rows) for name, rows in user_factors.items()}
        return [[Hypothesis("that 's it .")] for _ in lines]

    def load(folder, annotator, *, trust_annotator):
        seen["annotator"] = annotator
        info = FolderInfo(src="de", tgt="en", **settings)
        encoder = SimpleNamespace(factors=("pos", "topic"))
        return SimpleNamespace(info=info, encoder=encoder, translate=translate, as_written=list)

    monkeypatch.setattr("syntaxformer.translation.translator.Translator.load", load)
    for name, line in {"src": "das ist es .", "ref": "That &apos;s it .", "topic": "a b c d"}.items():
        (tmp_path / name).write_text(f"{line}\n", "utf-8")
    files = {"src": tmp_path / "src", "ref": tmp_path / "ref"}
    test = ScoredText(**files, factors={"topic": tmp_path / "topic"}, annotator="conllu:x").as_settings()
    result = {}
    scores = cells._translate(Cell("train", "tiny", {}, {}, test), tmp_path, result)
    assert seen == {"factors": {"topic": [["a", "b", "c", "d"]]}, "annotator": "conllu:x"}
    assert set(result["test_sha256"]) == {"src", "ref", "factors.topic"}
    assert result["test_sha256"]["src"] == hashlib.sha256(b"das ist es .\n").hexdigest()
    assert round(scores["bleu"], 6) == 100
    assert "case:lc|eff:no|tok:none" in result["signatures"]["bleu"]
    assert (tmp_path / REFERENCES).read_text("utf-8") == "That 's it .\n"
    names = (HYPOTHESES, HYPOTHESES, REFERENCES)
    lines = ((tmp_path / name).read_text("utf-8").splitlines() for name in names)
    assert compare_translations(*lines, **result["scoring"]).p_value == 1.0


class Always:
    """Says that all sentences are positive."""

    task_type = SimpleNamespace(encode=lambda labels: [int(label) for label in labels])

    def predict_set(self, texts, cache):
        return SimpleNamespace(labels=["1"] * len(texts))

    def score(self, texts, predictions):
        gold = [str(example.label) for example in texts.examples]
        return {"accuracy": sum(map(str.__eq__, gold, predictions.labels)) / len(gold)}


def test_a_fine_tuning_keeps_its_settings_its_checkpoint_and_its_test_split(tmp_path, monkeypatch):
    """Two sentences of the treebank, of which a model that always says "positive" gets one right."""
    (encoder := tmp_path / "encoder").mkdir()
    (encoder / "config.json").write_text("{}")
    (tmp_path / "test.txt").write_text("(3 (2 good) (2 film))\n(1 (2 bad) (2 film))\n(2 (2 a) (2 film))\n")
    trained = []

    def finetune(config, resume):
        trained.append((config.task, config.training.epochs, resume))
        config.output.mkdir(parents=True)
        trial = {"learning_rate": 5e-5, "epochs": [{"score": 0.25}]}
        run = {"trials": [trial], "learning_rate": 5e-5, "dev": {"accuracy": 0.25}}
        run |= {"best_step": 7, "last_step": 7}
        (config.output / "run.json").write_text(json.dumps(run))
        save_file({"a": torch.zeros(2, 3), "b": torch.zeros(4)}, config.output / "model.safetensors")

    monkeypatch.setattr("syntaxformer.encoders.finetuning.finetune", finetune)
    loader = "syntaxformer.encoders.classifier.Classifier.from_folder"
    monkeypatch.setattr(loader, lambda folder, trust_annotator: Always())
    settings = {"task": "sst2_trees", "model": str(encoder), "infuse": "masks", "training.epochs": 2}
    settings["data.dir"] = str(tmp_path)
    result = cells._finetune(Cell("finetune", None, {}, settings, {"split": "test"}), tmp_path, tmp_path)
    assert trained == [("sst2_trees", 2, True)]  # which begins where nothing was begun
    on_test = {"test_score": 0.5, "test_accuracy": 0.5}
    assert result["metrics"] == {"score": 0.25, "accuracy": 0.25, **on_test}
    assert result["test_predictions"] == {"gold": "1 0", "found": "1 1"}
    assert (result["best_step"], result["last_step"]) == (7, 7)  # of which the report warns
    assert result["recipe"]["training.epochs"] == 2
    assert "output" not in result["recipe"]
    assert result["n_parameters"] == 10
    assert result["model_sha256"] == checkpoint_sha256(str(encoder))
    json.dumps(result)


def test_the_loss_is_that_of_the_model_whose_bleu_stands_beside_it(tmp_path, monkeypatch):
    """Where BLEU chooses the checkpoint, another one may have the lowest loss."""

    def train_translator(recipe, resume, at_evaluation):
        recipe.output.mkdir(parents=True)
        logged = [{"step": step, "loss": loss} for step, loss in ((10, 4.0), (20, 3.0), (30, 3.5))]
        logged[2]["bleu"] = 7.0
        (recipe.output / "run.json").write_text(json.dumps({"dev_loss": 3.5, "evaluations": logged}))
        save_file({"a": torch.zeros(1)}, recipe.output / "model.safetensors")

    monkeypatch.setattr("syntaxformer.translation.training.train_translator", train_translator)
    settings = {"data.dir": "corpus", "training.best_by": "bleu"}
    result = cells._train(Cell("train", "tiny", {}, settings, None), tmp_path, tmp_path)
    assert result["metrics"] == {"dev_loss": 3.5}
    assert [point["value"] for point in result["curve"]] == [4.0, 3.0, 3.5]
    assert result["curve"][2]["bleu"] == 7.0


def test_the_code_is_that_of_when_the_work_began_in_all_attempts(tmp_path, monkeypatch):
    commits = iter(["aaa", "bbb+", "ccc"])  # the source tree goes on to the next while a run works
    now = [next(commits)]
    monkeypatch.setattr(cells, "code_version", lambda: now[0])

    def work(outcome):
        def train(cell, folder, metrics):
            now[0] = next(commits)
            if outcome is None:
                raise KeyboardInterrupt
            return outcome

        monkeypatch.setattr(cells, "_train", train)
        return cells.run_cell(tmp_path)

    spec = Spec(name="x", verb="train", recipe="tiny")
    cells.write_cell(Cell("train", "tiny", {}, {}, None), tmp_path, spec)
    with pytest.raises(KeyboardInterrupt):
        work(None)
    assert work({"metrics": {}})["commit"] == "aaa, bbb+"


def test_the_version_of_the_code_is_the_last_commit_of_its_sources(tmp_path, monkeypatch):
    def git(*arguments):
        command = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    file = tmp_path / "package" / "study" / "experiments" / "cell.py"
    file.parent.mkdir(parents=True)
    file.write_text("1")
    beside = tmp_path / "package" / "nn.py"  # sources are those of all rooms
    beside.write_text("1")
    monkeypatch.setattr(cells, "__file__", str(file))
    assert cells.code_version() == __version__  # no repository
    git("init", "-q")
    (tmp_path / "README.md").write_text("1")
    git("add", "README.md")
    git("commit", "-qm", "page")
    assert cells.code_version() == __version__  # somebody else's repository
    git("add", "package")
    git("commit", "-qm", "code")
    of_code = git("rev-parse", "--short=12", "HEAD")
    (tmp_path / "README.md").write_text("2")
    git("commit", "-qam", "page")
    assert cells.code_version() == of_code
    beside.write_text("2")
    assert cells.code_version() == f"{of_code}+"
