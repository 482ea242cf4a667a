"""An export scores given translations as the trained model does."""

from __future__ import annotations

import subprocess
import sys

import pytest

from syntaxformer.translation.export_ctranslate2 import export_translator

pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")

LINES = ["the cat sat", "cats ￨ %", "", "a dog and the cat run on the mat .", "unseen 👍"]
TEXTS = [["a dog .", "cats"], ["", "the mat"], ["dog"], ["cats sat on a mat"] * 2, ["👍 %"]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "sum_then_concat", "prepend"])
@pytest.mark.parametrize(("quantization", "tolerance"), [("float32", 1e-4), ("int8", 0.02)])
def test_scores_of_an_export(model_folder, load, tmp_path, kind, quantization, tolerance):
    trained = model_folder(kind)
    exported = export_translator(trained, tmp_path / "exported", quantization)
    ours, others = (list(load(folder).score(LINES, TEXTS, batch_size=2)) for folder in (trained, exported))
    for line, of_export in zip(ours, others, strict=True):
        for score, other in zip(line, of_export, strict=True):
            assert other.pieces == score.pieces
            assert other.log_probs == pytest.approx(score.log_probs, abs=tolerance, rel=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("verb", [("evaluate", "--ref"), ("score", "--tgt")])
def test_an_export_is_scored_without_torch(model_folder, tmp_path, verb):
    """Importing it, or a classifier, takes longer than the work on a few lines."""
    exported = export_translator(model_folder(), tmp_path / "exported", "int8")
    for name, lines in {"s.en": LINES, "t.de": ["cats"] * len(LINES)}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    script = """
import sys
from syntaxformer.cli.main import app
app(sys.argv[1:], standalone_mode=False)
heavy = ("torch", "transformers", "sklearn", "scipy.stats", "syntaxformer.study.ablation", "syntaxformer.encoders.classifier")
print([name for name in heavy if name in sys.modules])
"""  # fmt: skip
    arguments = [verb[0], exported, "--src", tmp_path / "s.en", verb[1], tmp_path / "t.de"]
    done = subprocess.run([sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"
