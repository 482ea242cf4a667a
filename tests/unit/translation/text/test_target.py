"""The tagged target side of training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syntaxformer.annotate import load_annotator
from syntaxformer.base.errors import ConfigError
from syntaxformer.syntax import WordColumns
from syntaxformer.syntax.factors import UnseenFactorValueWarning
from syntaxformer.translation import prepare as target
from syntaxformer.translation.batches import TranslationCollator
from syntaxformer.translation.corpora import CorpusConfig, ParallelText
from syntaxformer.translation.prepare import (
    PairEncoding,
    check_tags,
    target_columns,
    target_encoder,
    target_tags,
)
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.subwords import SubwordConfig, train_subwords
from syntaxformer.trees import Sentence, write_conllu

SRC, TGT = ["die Katze saß .", "Katzen"], ["The cat sat .", "cats"]
TEXT = ParallelText(SRC, TGT, "train.de", "train.en", n_file_lines=2)


@pytest.fixture
def config(tmp_path):
    return CorpusConfig(dir=tmp_path, src="de", tgt="en", tokenized=True, lowercase=True, cache=tmp_path)


@pytest.fixture
def encoder():
    return SourceEncoder(train_subwords([*SRC, *TGT], SubwordConfig(vocab_size=301), False))


def test_pieces_of_a_word_have_its_tag_and_the_end_has_none(annotator, config, encoder):
    side = target_encoder(encoder, config, tagged=True)
    columns = target_columns(TEXT, annotator, config, "train")
    pairs = PairEncoding(TEXT, encoder, None, None, side, columns).in_memory()
    batch = TranslationCollator(pairs, 0)([0, 1])
    tags = target_tags()
    shown = [[tags[tag] if tag >= 0 else None for tag in row] for row in batch["target_tags"].tolist()]
    pieces = encoder.tokenizer.convert_ids_to_tokens(batch["labels"][0].tolist())
    words = np.cumsum([piece.startswith("▁") for piece in pieces[:-1]]) - 1
    assert shown[0] == [["DET", "NOUN", "VERB", "PUNCT"][word] for word in words] + [None]
    assert shown[1][0] == "NOUN"
    n_second = int((batch["labels"][1] != -100).sum())
    assert shown[1][n_second - 1 :] == [None] * (len(shown[1]) - n_second + 1)


def test_tags_of_another_scheme_are_told_and_not_learned(config, encoder):
    side = target_encoder(encoder, config, tagged=True)

    def pairs(*tags):
        sentences = [Sentence.from_words(line.split(), upos=tags[: len(line.split())]) for line in TGT]
        columns = [WordColumns.from_sentences(sentences)]
        return PairEncoding(TEXT, encoder, None, None, side, columns).in_memory()

    encoded = pairs("DET", "STTS", "VERB", "PUNCT")
    with pytest.warns(UnseenFactorValueWarning, match=r"factor pos: 1 value rare or unseen .*'STTS' 1x"):
        check_tags(encoded.tgt, side)
    labels = TranslationCollator(encoded, 0)([0])["target_tags"]
    assert {target_tags()[tag] for tag in labels.flatten().tolist() if tag >= 0} == {"DET", "VERB", "PUNCT"}
    with pytest.raises(ConfigError) as caught, pytest.warns(UnseenFactorValueWarning):
        check_tags(pairs(*["STTS"] * 4).tgt, side)
    assert str(caught.value) == (
        "predict_target_pos: expected tags of Universal Dependencies on the target side, got factor pos: 5 "
        "values rare or unseen in training read as <unk>: 'STTS' 5x. Choose another predict_target_pos.annotator."
    )


def test_a_share_of_the_lines_has_its_own_parses(config, tmp_path):
    """The parsed file has a sentence for each line of the text's file, of which only some are used."""
    sentences = [Sentence.from_words(line.split(), upos=["NOUN"] * len(line.split())) for line in TGT]
    write_conllu(tmp_path / "train.conllu", sentences)
    annotator = load_annotator(f"conllu:{tmp_path / '{split}.conllu'}")
    (columns,) = target_columns(TEXT.select([1]), annotator, config, "train")
    assert columns.texts == ["cats"]


def test_lines_without_tags_are_refused(annotator, config, monkeypatch):
    columns = target_columns(TEXT, annotator, config, "train")
    bare = [replace(chunk, upos=None) for chunk in columns]
    monkeypatch.setattr(target, "annotated_columns", lambda *_: bare)
    with pytest.raises(ConfigError, match="predict_target_pos:"):
        target_columns(TEXT, annotator, config, "train")
