"""One cell of an experiment for real: trained, translated, scored, reported; and the figure gallery."""

from __future__ import annotations

import json
import sys

import pytest
import yaml
from sacrebleu import corpus_chrf
from sacrebleu.metrics import TER

from syntaxformer.study.experiments.cell import HYPOTHESES, run_cell, write_cell
from syntaxformer.study.experiments.report import write_report
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.study.experiments.store import RunStore
from syntaxformer.translation.scoring import score_translations

pytestmark = pytest.mark.slow
SETTINGS = {
    "subwords.vocab_size": 301, "model.d_model": 32, "model.d_ff": 37, "model.n_heads": 2, "training.max_steps": 6,
    "training.max_batch_tokens": 521, "training.eval_every": 3, "training.precision": "fp32", "decoding.beam_size": 1,
    "training.tensorboard": False, "data.dev": "dev",
}  # fmt: skip


def test_a_cell_and_its_report(digits, tmp_path):
    path = tmp_path / "spec.yaml"
    content = {
        "name": "digits", "verb": "train", "recipe": "tiny",
        "settings": {**SETTINGS, "data.dir": str(digits.corpus), "data.fraction": 0.1},
        "axes": {"seed": [1]},
        "test": {"src": str(digits.corpus / "dev.en"), "ref": str(digits.corpus / "dev.de")},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(content))
    spec, store = load_spec(path), RunStore(tmp_path / "store")
    (cell,) = spec.cells()
    store.add([cell])
    folder = store.cell_folder(cell)
    folder.mkdir(parents=True)
    write_cell(cell, folder, spec)
    result = run_cell(folder)
    hypotheses = (folder / HYPOTHESES).read_text().splitlines()
    references = (digits.corpus / "dev.de").read_text().splitlines()
    assert result["metrics"]["bleu"] == score_translations(hypotheses, references).bleu
    assert result["metrics"]["chrf++"] == pytest.approx(
        corpus_chrf(hypotheses, [references], word_order=2).score
    )
    assert result["metrics"]["ter"] == pytest.approx(
        TER(case_sensitive=True).corpus_score(hypotheses, [references]).score
    )
    assert "nw:2" in result["signatures"]["chrf++"]
    assert [point["step"] for point in result["curve"]] == [3, 6]
    assert result["metrics"]["dev_loss"] == min(point["value"] for point in result["curve"])
    assert result["n_parameters"] > 10_000
    assert result["source_table"] == "shared"
    assert (result["recipe"]["data.fraction"], result["recipe"]["model.d_ff"]) == (0.1, 37)
    assert not (folder / "model" / "checkpoints").exists()
    assert run_cell(folder) == json.loads((folder / "result.json").read_text())  # done: nothing runs again
    store.finish(cell.key, 1.0, result)
    text = write_report(spec, store, tmp_path / "report").read_text()
    scores = [f"{result['metrics'][name]:.2f}" for name in ("bleu", "chrf++", "ter")]
    assert f"| 1 of 1 | {' | '.join(scores)} |" in text
    assert "A lower ter is better." in text


def test_the_gallery(digits, gallery, tmp_path, monkeypatch):
    test = digits.corpus / "test.en", digits.corpus / "test.de"
    texts = ["--src", test[0], "--ref", test[1], "--lines", "7"]
    arguments = [digits.none, digits.sum_then_concat, *texts, "-o", tmp_path]
    monkeypatch.setattr(sys, "argv", ["gallery", *map(str, arguments)])
    gallery.main()
    text = (tmp_path / "gallery.md").read_text()
    assert "| entropy |" in text
    assert "| blank | pos, case, subword |" in text
    assert "7 sentences; chrF" in (tmp_path / "cases.md").read_text()
    assert (tmp_path / "attention_1.png").read_bytes()[:4] == b"\x89PNG"
