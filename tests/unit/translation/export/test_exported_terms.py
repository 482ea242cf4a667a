"""An export that is given terms."""

from __future__ import annotations

import json

import pytest

from syntaxformer.base.files import write_manifest
from syntaxformer.translation.export_ctranslate2 import export_translator


@pytest.mark.parametrize("style", ["append", "replace"])
def test_an_export_takes_terms_as_its_model_does(model_folder, load, tmp_path, style):
    trained = model_folder("add", ("term",))
    path = trained / "syntaxformer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "terms": style}))
    write_manifest(trained)
    exported = export_translator(trained, tmp_path / "exported")
    lines, terms = ["the cat sat", "cats sit on the mat", "a dog", ""], {"cat": "Katze", "mat": "eine Matte"}
    ours, others, without = (
        [best[0] for best in load(folder).translate(lines, beam_size=1, terms=given, scored=True)]
        for folder, given in ((trained, terms), (exported, terms), (exported, None))
    )
    assert [best.text for best in ours] == [best.text for best in others]
    scores, same, plain = ([best.score for best in each] for each in (ours, others, without))
    assert same == pytest.approx(scores, abs=1e-4)
    assert [a == pytest.approx(b, abs=1e-6) for a, b in zip(same, plain, strict=True)] == [
        False,
        False,
        True,
        True,
    ]
