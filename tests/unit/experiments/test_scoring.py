"""A cell is scored as its model's target side was prepared, and the references that it was scored on stay."""

from __future__ import annotations

import hashlib
import json
from types import SimpleNamespace

from syntaxformer.experiments import cell_run, groups
from syntaxformer.experiments.cell_run import HYPOTHESES, REFERENCES
from syntaxformer.experiments.provenance import checkpoint_sha256
from syntaxformer.experiments.spec import Cell
from syntaxformer.tasks.model_folder import FolderInfo
from syntaxformer.tasks.translator import Hypothesis

INFO = FolderInfo(
    src="de", tgt="en", annotator=None, annotator_version=None, factors=[], tokenized=True, lowercase=True,
    unescape=True,
)  # fmt: skip


def test_escaped_lower_cased_words(tmp_path, monkeypatch):
    fake = SimpleNamespace(
        info=INFO,
        translate=lambda lines: [[Hypothesis("that 's it .")] for _ in lines],
        as_written=list,
    )
    monkeypatch.setattr("syntaxformer.tasks.translator.Translator.load", lambda folder: fake)
    (tmp_path / "src").write_text("das ist es .\n", "utf-8")
    (tmp_path / "ref").write_text("That &apos;s it .\n", "utf-8")
    test = {"src": str(tmp_path / "src"), "ref": str(tmp_path / "ref")}
    found = {}
    scores = cell_run._translate(Cell("train", "tiny", {}, {}, test), tmp_path, found)
    assert round(scores["bleu"], 6) == 100
    assert "case:lc|eff:no|tok:none" in found["signatures"]["bleu"]
    assert found["test_sha256"]["src"] == hashlib.sha256(b"das ist es .\n").hexdigest()
    assert (tmp_path / REFERENCES).read_text("utf-8") == "That 's it .\n"
    files = [tmp_path / name for name in (HYPOTHESES, HYPOTHESES, REFERENCES)]
    assert groups._p_value(*files, found["scoring"]) == 1.0


def test_a_fine_tuning_keeps_its_settings_and_what_its_checkpoint_was(tmp_path, monkeypatch):
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (encoder / "config.json").write_text("{}")
    trained = []

    def finetune(config, resume):
        trained.append((config.task, config.training.epochs, resume))
        config.output.mkdir(parents=True)
        trial = {"learning_rate": 5e-5, "epochs": [{"score": 0.25}]}
        run = {"trials": [trial], "learning_rate": 5e-5, "dev": {"matthews": 0.25}}
        (config.output / "run.json").write_text(json.dumps(run))

    monkeypatch.setattr("syntaxformer.tasks.classification.finetune", finetune)
    settings = {"task": "cola", "model": str(encoder), "infuse": "masks", "training.epochs": 2}
    found = cell_run._finetune(Cell("finetune", None, {}, settings, None), tmp_path)
    assert trained == [("cola", 2, False)]
    assert found["metrics"] == {"score": 0.25, "matthews": 0.25}
    assert found["recipe"]["training.epochs"] == 2
    assert "output" not in found["recipe"]
    assert found["model_sha256"] == checkpoint_sha256(str(encoder))
    json.dumps(found)
