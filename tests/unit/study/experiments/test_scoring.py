"""A cell is scored as its model's target side was prepared, and the references that it was scored on stay."""

from __future__ import annotations

import hashlib
import json
import subprocess
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from syntaxformer import __version__
from syntaxformer.study.experiments import cell as cell_run
from syntaxformer.study.experiments import cell as provenance
from syntaxformer.study.experiments.cell import HYPOTHESES, REFERENCES, checkpoint_sha256
from syntaxformer.study.experiments.spec import Cell, ScoredText
from syntaxformer.translation.decoding import Hypothesis
from syntaxformer.translation.scoring import compare_translations
from syntaxformer.translation.translator import FolderInfo

INFO = FolderInfo(
    src="de", tgt="en", annotator=None, annotator_version=None, factors=[], tokenized=True, lowercase=True,
    unescape=True,
)  # fmt: skip


def test_escaped_lower_cased_words_with_factors_and_an_annotator_of_the_test_text(tmp_path, monkeypatch):
    given = {}

    def translate(lines, beam_size, user_factors):
        given["factors"] = {name: list(rows) for name, rows in user_factors.items()}
        return [[Hypothesis("that 's it .")] for _ in lines]

    def load(folder, annotator, *, trust_annotator):
        given["annotator"] = annotator
        return fake

    fake = SimpleNamespace(
        info=INFO,
        encoder=SimpleNamespace(factors=("pos", "topic")),
        translate=translate,
        as_written=list,
    )
    monkeypatch.setattr("syntaxformer.translation.translator.Translator.load", load)
    for name, line in {"src": "das ist es .", "ref": "That &apos;s it .", "topic": "a b c d"}.items():
        (tmp_path / name).write_text(f"{line}\n", "utf-8")
    files = {"src": tmp_path / "src", "ref": tmp_path / "ref"}
    test = ScoredText(**files, factors={"topic": tmp_path / "topic"}, annotator="conllu:x").as_settings()
    found = {}
    scores = cell_run._translate(Cell("train", "tiny", {}, {}, test), tmp_path, found)
    assert given == {"factors": {"topic": [["a", "b", "c", "d"]]}, "annotator": "conllu:x"}
    assert set(found["test_sha256"]) == {"src", "ref", "factors.topic"}
    assert round(scores["bleu"], 6) == 100
    assert "case:lc|eff:no|tok:none" in found["signatures"]["bleu"]
    assert found["test_sha256"]["src"] == hashlib.sha256(b"das ist es .\n").hexdigest()
    assert (tmp_path / REFERENCES).read_text("utf-8") == "That 's it .\n"
    lines = (
        (tmp_path / name).read_text("utf-8").splitlines() for name in (HYPOTHESES, HYPOTHESES, REFERENCES)
    )
    assert compare_translations(*lines, **found["scoring"]).p_value == 1.0


def test_a_fine_tuning_keeps_its_settings_and_what_its_checkpoint_was(tmp_path, monkeypatch):
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (encoder / "config.json").write_text("{}")
    trained = []

    def finetune(config, resume):
        trained.append((config.task, config.training.epochs, resume))
        config.output.mkdir(parents=True)
        trial = {"learning_rate": 5e-5, "epochs": [{"score": 0.25}]}
        run = {
            "trials": [trial],
            "learning_rate": 5e-5,
            "dev": {"matthews": 0.25},
            "best_step": 7,
            "last_step": 7,
        }
        (config.output / "run.json").write_text(json.dumps(run))
        save_file({"a": torch.zeros(2, 3), "b": torch.zeros(4)}, config.output / "model.safetensors")

    monkeypatch.setattr("syntaxformer.encoders.finetuning.finetune", finetune)
    settings = {"task": "cola", "model": str(encoder), "infuse": "masks", "training.epochs": 2}
    found = cell_run._finetune(Cell("finetune", None, {}, settings, None), tmp_path)
    assert trained == [("cola", 2, True)]  # which begins where nothing was begun
    assert found["metrics"] == {"score": 0.25, "matthews": 0.25}
    assert (found["best_step"], found["last_step"]) == (7, 7)  # of which the report warns
    assert found["recipe"]["training.epochs"] == 2
    assert "output" not in found["recipe"]
    assert found["n_parameters"] == 10
    assert found["model_sha256"] == checkpoint_sha256(str(encoder))
    json.dumps(found)


def test_a_fine_tuned_model_is_scored_on_a_labelled_split(tmp_path, monkeypatch):
    """Two sentences of the treebank, of which a model that always says "positive" gets one right."""
    (tmp_path / "test.txt").write_text("(3 (2 good) (2 film))\n(1 (2 bad) (2 film))\n(2 (2 a) (2 film))\n")

    class Always:
        task_type = SimpleNamespace(encode=lambda labels: [int(one) for one in labels])

        def predict_set(self, texts, cache):
            return SimpleNamespace(labels=["1"] * len(texts))

        def score(self, texts, predictions):
            gold = [str(one.label) for one in texts.examples]
            return {"accuracy": sum(map(str.__eq__, gold, predictions.labels)) / len(gold)}

    made = "syntaxformer.encoders.classifier.Classifier.from_folder"
    monkeypatch.setattr(made, lambda folder, trust_annotator: Always())
    settings = {"task": "sst2_trees", "model": "encoder", "data.dir": str(tmp_path)}
    config = cell_run.resolve(Cell("finetune", None, {}, settings, {"split": "test"}))
    texts = cell_run._labelled_split(config.task, config.data.dir, "test")
    scores, predictions = cell_run._test_scores(tmp_path, config, texts)
    assert scores == {"test_score": 0.5, "test_accuracy": 0.5}
    assert predictions == {"gold": "1 0", "found": "1 1"}


def _trained(monkeypatch, losses, dev_loss):
    """A training that leaves these losses on dev, and does nothing else."""

    def train_translator(recipe, resume):
        recipe.output.mkdir(parents=True)
        every = [{"step": 10 * (place + 1), "loss": loss} for place, loss in enumerate(losses)]
        (recipe.output / "run.json").write_text(json.dumps({"dev_loss": dev_loss, "evaluations": every}))
        save_file({"a": torch.zeros(1)}, recipe.output / "model.safetensors")

    monkeypatch.setattr("syntaxformer.translation.training.train_translator", train_translator)


def test_the_loss_is_that_of_the_model_whose_bleu_stands_beside_it(tmp_path, monkeypatch):
    """Where BLEU chooses the checkpoint, another one may have the lowest loss."""
    _trained(monkeypatch, [4.0, 3.0, 3.5], dev_loss=3.5)
    settings = {"data.dir": "corpus", "training.best_by": "bleu"}
    found = cell_run._train(Cell("train", "tiny", {}, settings, None), tmp_path)
    assert found["metrics"] == {"dev_loss": 3.5}
    assert [point["value"] for point in found["curve"]] == [4.0, 3.0, 3.5]


def test_the_code_is_that_of_when_the_work_began_in_all_attempts(tmp_path, monkeypatch):
    commits = iter(["aaa", "bbb+", "ccc"])  # the source tree goes on to the next while a run works
    now = [next(commits)]
    monkeypatch.setattr(provenance, "code_version", lambda: now[0])

    def killed(cell, folder):
        now[0] = next(commits)
        raise KeyboardInterrupt

    def ends(cell, folder):
        now[0] = next(commits)
        return {"metrics": {}}

    cell_run.write_cell(Cell("train", "tiny", {}, {}, None), tmp_path, "model")
    monkeypatch.setitem(cell_run.VERBS, "train", killed)
    with pytest.raises(KeyboardInterrupt):
        cell_run.run_cell(tmp_path)
    monkeypatch.setitem(cell_run.VERBS, "train", ends)
    assert cell_run.run_cell(tmp_path)["commit"] == "aaa, bbb+"


def test_the_version_of_the_code_is_the_last_commit_of_its_sources(tmp_path, monkeypatch):
    def git(*arguments):
        person = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ["git", "-C", tmp_path, *person, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    file = tmp_path / "package" / "study" / "experiments" / "cell.py"
    file.parent.mkdir(parents=True)
    file.write_text("1")
    beside = tmp_path / "package" / "nn.py"  # sources are those of all rooms
    beside.write_text("1")
    monkeypatch.setattr(provenance, "__file__", str(file))
    assert provenance.code_version() == __version__  # no repository
    git("init", "-q")
    (tmp_path / "README.md").write_text("1")
    git("add", "README.md")
    git("commit", "-qm", "page")
    assert provenance.code_version() == __version__  # somebody else's repository
    git("add", "package")
    git("commit", "-qm", "code")
    of_code = git("rev-parse", "--short=12", "HEAD")
    (tmp_path / "README.md").write_text("2")
    git("commit", "-qam", "page")
    assert provenance.code_version() == of_code
    beside.write_text("2")
    assert provenance.code_version() == f"{of_code}+"
