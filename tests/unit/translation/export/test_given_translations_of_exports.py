"""An export scores given translations as the trained model does."""

from __future__ import annotations

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
