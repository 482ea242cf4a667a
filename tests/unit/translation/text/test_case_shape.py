"""The factor `case` with the shape of words, and sources alone in lower case."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.syntax import SHAPES, FactorVocabulary, WordColumns
from syntaxformer.syntax.factors import word_shapes
from syntaxformer.translation.corpora import CorpusConfig
from syntaxformer.translation.model_folder import FolderInfo
from syntaxformer.translation.prepare import prepare
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.scoring import scoring
from syntaxformer.translation.source import SourceEncoder, TextPreparation
from syntaxformer.translation.subwords import SubwordConfig, train_subwords

SHAPE_OF = {
    "lower": "dog straße 日 3 ... ʼn",
    "capital": "Dog I 3D Straße Ǆ ǅ",
    "upper": "DOG U.S. STRAßE STRASSE ÄÖ İZMİR",
    "mixed": "iPhone McDonald dOG ΑλΦα",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_by_hand(annotator, shape):
    columns = WordColumns.from_sentences(annotator.annotate(["", SHAPE_OF[shape]]))
    assert {*word_shapes(columns).decode()} == {shape}


def test_pieces_of_dog_are_one_and_their_shapes_are_told(annotator):
    tokenizer = train_subwords(["the dog sat"] * 3, SubwordConfig(vocab_size=301))
    encoder = SourceEncoder(
        tokenizer, {"case": FactorVocabulary("case", SHAPES)}, preparation=TextPreparation(lowercase=True)
    )
    lines = ["the DOG sat", "The dog sat", "the Dog saT"]
    encoded = encoder.encode(lines, WordColumns.from_sentences(annotator.annotate(lines)))
    pieces = np.split(encoded.pieces, encoded.splits[1:-1])
    assert pieces[0].tolist() == pieces[1].tolist() == pieces[2].tolist()
    values = encoder.factor_values(encoded.factors)["case"]
    rows = [values[start:stop] for start, stop in zip(encoded.splits, encoded.splits[1:], strict=False)]
    assert [list(dict.fromkeys(row)) for row in rows] == [
        ["lower", "upper", "<none>"], ["capital", "lower", "<none>"], ["lower", "capital", "mixed", "<none>"],
    ]  # fmt: skip
    old = replace(encoder, vocabularies={"case": FactorVocabulary("case", ("0", "1"))})
    words = WordColumns.from_sentences(annotator.annotate(["The DOG"]))
    assert {*old.factor_values(old.encode(["The DOG"], words).factors)["case"]} == {"1", "<none>"}


def test_a_run_lowers_the_source_alone(tmp_path):
    for ending, lines in (("en", ["The CAT sat", "a Dog"]), ("de", ["Die KATZE saß", "ein Hund"])):
        (tmp_path / f"train.{ending}").write_text("\n".join(lines) + "\n", "utf-8")
    settings = [f"data.dir={tmp_path}", "data.dev=train", f"data.cache={tmp_path}", "data.lowercase=source",
                f"output={tmp_path / 'run'}", "infusion.kind=add", "infusion.factors=[case]"]  # fmt: skip
    data = prepare(load_recipe("tiny", settings))
    assert data.encoder.vocabularies["case"].values == SHAPES
    sides = [data.info.preparation(ending).lowercase for ending in ("en", "de")]
    assert sides == [True, False]
    assert scoring(data.info)["lowercase"] is False
    texts = [
        side.tokenizer.batch_decode([text.pieces.tolist()], skip_special_tokens=True)[0]
        for side, text in ((data.encoder, data.train.src), (data.target, data.train.tgt))
    ]
    assert ("the cat sat" in texts[0], "Die KATZE saß" in texts[1]) == (True, True)
    again = FolderInfo.model_validate_json(data.info.model_dump_json())
    assert (again.lowercase, again.factors[0].values) == ("source", SHAPES)
    for value in (True, False):  # older folders
        stored = json.loads(data.info.model_dump_json()) | {"lowercase": value}
        assert FolderInfo.model_validate(stored).preparation("de").lowercase is value


def test_another_side_is_refused():
    with pytest.raises(ConfigError, match=r"data\.lowercase: expected False, True or 'source', got 'target'"):
        load_recipe("tiny", ["data.dir=a", "data.lowercase=target"])
    assert CorpusConfig(dir=Path("a"), lowercase="source").model_dump()["lowercase"] == "source"
