"""An export gives the attention of the head that was chosen, whatever the beams and the batch."""

from __future__ import annotations

import numpy as np
import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.base.files import write_manifest, write_text
from syntaxformer.translation.alignment import AlignmentHead
from syntaxformer.translation.export_ctranslate2 import export_translator
from syntaxformer.translation.model_folder import read_info

pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")

LINES = ["the cat sat on the mat .", "cats", "a dog and the cat", "", "sat sat . cat", "mat the dog"]


def name_head(folder, layer, head, shift=False):
    chosen = AlignmentHead(layer=layer, head=head, shift=shift)
    info = read_info(folder).model_copy(update={"alignment": chosen})
    write_text(folder / "syntaxformer.json", info.model_dump_json(indent=1))
    write_manifest(folder)


@pytest.mark.parametrize(("layer", "head", "shift"), [(0, 1, False), (1, 0, True)])
def test_attention_and_links_are_those_of_the_network(model_folder, load, tmp_path, layer, head, shift):
    trained = model_folder("none", end_bias=4.0)
    name_head(trained, layer, head, shift)
    exported = export_translator(trained, tmp_path / "exported")
    ours, others = (
        [*load(folder).translate(LINES, beam_size=2, n_best=2, alignments=True)]
        for folder in (trained, exported)
    )
    n_same = 0
    for row, line in enumerate(zip(ours, others, strict=True)):
        for one, other in zip(*line, strict=True):
            if one.text == other.text != "":
                n_same += 1
                n = len(other.pieces)  # without the end piece
                np.testing.assert_allclose(one.attention.weights[:n], other.attention.weights, atol=1e-4)
                assert one.alignment == other.alignment, LINES[row]
    assert n_same >= 4


def test_an_export_of_an_older_folder_says_what_to_do(model_folder, load, tmp_path):
    exported = export_translator(model_folder("none"), tmp_path / "exported")
    with pytest.raises(ConfigError, match="export the folder again"):
        list(load(exported).translate(["cats"], alignments=True))


def test_a_head_that_is_not_there_is_refused(model_folder, tmp_path):
    trained = model_folder("none")
    name_head(trained, 1, 2)
    with pytest.raises(ConfigError, match=r"alignment: expected a head .* got layer 1, head 2"):
        export_translator(trained, tmp_path / "exported")
