"""Synthetic pairs: where they stand, their tag and its syntax, and what they cannot be combined with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parallel_files import tiny_recipe, write_sides
from syntaxformer.base.errors import ConfigError
from syntaxformer.syntax import WordColumns, build_vocabularies
from syntaxformer.syntax.inputs import SyntaxInputs, TreeOptions
from syntaxformer.translation import prepare as prepare_module
from syntaxformer.translation.corpora import CorpusConfig, ParallelText, find_file, read_train
from syntaxformer.translation.prepare import PairEncoding, annotated_columns, nested_fraction
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.subwords import BpeDropout, SubwordConfig, train_subwords
from syntaxformer.translation.training import prepare

SRC = ["the cat sat .", "cats sit", "the <bt> cat", "", "cats purrs ."]
TGT = ["die Katze saß .", "Katzen sitzen", "die <bt> Katze", "leer", "Katzen schnurren ."]


def _text(n_synthetic=0, tag=None) -> ParallelText:
    sizes, tags = (len(SRC) - n_synthetic, n_synthetic), ((), (tag,) if tag else ())
    return ParallelText(SRC, TGT, Path("en"), Path("de"), n_synthetic=n_synthetic, sizes=sizes, tags=tags)


@pytest.fixture
def encoder() -> SourceEncoder:
    tokenizer = train_subwords([*SRC, *TGT], SubwordConfig(vocab_size=301))
    tokenizer.backend_tokenizer.add_special_tokens(["<bt>"])
    return SourceEncoder(tokenizer)


def _annotated(encoder, annotator, **settings):
    words = [WordColumns.from_sentences(annotator.annotate(SRC))]
    vocabularies = build_vocabularies(words, ("pos", "case", "subword"))
    return replace(encoder, vocabularies=vocabularies, **settings), words


def _lines(text) -> list[list[int]]:
    return [line.tolist() for line in np.split(text.pieces, text.splits[1:-1])]


@pytest.mark.parametrize("chunk", [10_000, 2, 3])
def test_the_tag_comes_first_and_has_no_syntax(encoder, annotator, monkeypatch, chunk):
    trees = SyntaxInputs(trees=TreeOptions(trees=("dependency",)), governors=True)
    encoder, _ = _annotated(encoder, annotator, syntax=trees)
    sentences = annotator.annotate(SRC)
    words = [WordColumns.from_sentences(sentences[at : at + chunk]) for at in range(0, len(SRC), chunk)]
    monkeypatch.setattr(prepare_module, "CHUNK_LINES", chunk)
    texts = _text(), _text(3, "<bt>")
    plain, tagged = (PairEncoding(text, encoder, words, 50).in_memory() for text in texts)
    tag = encoder.tokenizer.convert_tokens_to_ids("<bt>")
    assert tag == len(encoder.tokenizer) - 1
    before, after = _lines(plain.src), _lines(tagged.src)
    assert len(before) == 4  # the empty pair is left out
    assert after == [*before[:2], [tag, *before[2]], [tag, *before[3]]]
    assert not any(tag in line for line in (*before, *_lines(tagged.tgt)))  # a text that spells it is text
    assert tagged.tgt.pieces.tolist() == plain.tgt.pieces.tolist()
    at = tagged.src.splits[2]
    assert tagged.src.factors[at].tolist() == [0, 0, 0]
    assert {vocabulary.entries[0] for vocabulary in encoder.vocabularies.values()} == {"<none>"}
    assert (tagged.src.factors[at + 1 : tagged.src.splits[3]] == plain.src.factors[slice(*plain.src.splits[2:4])]).all()  # fmt: skip
    batches = [pairs.src.syntax.batch([2], pairs.src.splits) for pairs in (plain, tagged)]
    matrix, longer = (batch["syntax"][0, 0] for batch in batches)
    assert not longer[0].any()
    assert not longer[:, 0].any()
    assert longer[1:, 1:].tolist() == matrix.tolist()
    moved = [governor + (governor >= 0) for governor in batches[0]["governors"][0].tolist()]
    assert batches[1]["governors"][0].tolist()[1:] == moved
    assert batches[1]["governors"][0, 0] < 0


def test_the_tag_stands_before_prepended_tags_and_under_dropout(encoder, annotator):
    encoder, words = _annotated(encoder, annotator)
    tag = encoder.tokenizer.convert_tokens_to_ids("<bt>")
    prepending = replace(encoder, vocabularies={"pos": encoder.vocabularies["pos"]}, prepend="interleaved")
    texts = _text(), _text(1, "<bt>")
    plain, tagged = (PairEncoding(text, prepending, words, 50).in_memory() for text in texts)
    assert _lines(tagged.src) == [*_lines(plain.src)[:3], [tag, *_lines(plain.src)[3]]]
    cut = BpeDropout(0.4, 1, 50)
    (*real, last) = _lines(PairEncoding(texts[1], encoder, words, 50).in_memory(cut=cut).src)
    assert last[0] == tag
    assert not any(tag in line for line in (*real, last[1:]))


def test_pairs_of_the_limit_s_length_stay_under_dropout(tmp_path, encoder):
    """The tag is one more piece: a source that dropout cuts into as many as fit without it must not be lost."""
    more = write_sides(tmp_path / "more", ["cats sat"] * 3, ["x y"] * 3)
    settings = f"data.synthetic={more}", "subwords.dropout=0.5", "data.max_pieces=10"
    data = prepare(tiny_recipe(write_sides(tmp_path, SRC[:2], TGT[:2]), "subwords.vocab_size=301", *settings))
    for epoch in range(20):
        data.train.set_epoch(epoch)
        assert len(data.train) == 4
        assert data.train.src.lengths.max() <= 10


@pytest.fixture
def config(tmp_path):
    real = [f"real {n} cat" for n in range(40)], [f"echte {n} Katze" for n in range(40)]
    more = [f"made {n} dog" for n in range(7)], [f"wahrer {n} Hund" for n in range(7)]
    write_sides(tmp_path / "real", ["held out"], ["wahrer 3 Hund"], "dev")
    folders = write_sides(tmp_path / "real", *real), write_sides(tmp_path / "more", *more)
    return CorpusConfig(dir=folders[0], synthetic=folders[1], cache=tmp_path / "cache")


@pytest.mark.parametrize("on_disk", [False, True])
def test_they_come_last_without_the_sentences_of_dev(config, on_disk, caplog):
    config = config.model_copy(update={"exclude": ["dev"], "on_disk": on_disk})
    text = read_train(config)
    if on_disk:
        caplog.clear()
        with caplog.at_level("INFO"):
            read_train(config)
        assert caplog.messages[-1].startswith("pairs of the files that are left out: 1; ")
    assert (len(text), text.n_synthetic, text.n_file_lines, text.tags[-1]) == (46, 6, 47, ("<bt>",))
    assert list(text.tgt)[-6:] == [f"wahrer {n} Hund" for n in (0, 1, 2, 4, 5, 6)]
    assert read_train(config.model_copy(update={"synthetic_tag": False})).tags == ((), ())
    alone = read_train(config.model_copy(update={"synthetic": None}))
    assert (alone.n_synthetic, alone.sizes, alone.tags) == (0, (40,), ((),))
    share, without = nested_fraction(text, 0.25), nested_fraction(alone, 0.25)
    assert list(share.src) == [*without.src, *list(text.src)[-6:]]
    assert (len(share), share.n_synthetic) == (16, 6)
    assert share.select([0, 10, 15]).n_synthetic == 2


def test_what_they_need_and_cannot_have(config, tmp_path, annotator):
    lost = config.model_copy(update={"synthetic": tmp_path / "lost"})
    with pytest.raises(ConfigError, match=r"lost/train\.en\.gz, found neither\. Check data\.synthetic and"):
        read_train(lost)
    report = config.synthetic / "backtranslation.json"
    for made in ({"src": "en", "tgt": "de"}, {"pairs": 7}):  # older reports have no endings
        report.write_text(json.dumps(made))
        assert read_train(config).n_synthetic == 7
    report.write_text(json.dumps({"src": "de", "tgt": "en"}))
    with pytest.raises(ConfigError, match=r"^data\.synthetic: expected translated sources, en, and real targets, got the reverse in .*more\. Give `syntaxformer backtranslate` a model of de to en\.$"):  # fmt: skip
        read_train(config)
    with pytest.raises(ConfigError, match=r"^data\.dir: expected translated sources, en, and real targets,"):
        read_train(config.model_copy(update={"dir": config.synthetic, "synthetic": None}))
    report.unlink()
    assert find_file(config.dir, "train", "en").name == "train.en"
    annotator.name = "conllu:{split}.conllu"
    with pytest.raises(ConfigError, match=r"expected one training split for parsed files .* data\.train=train, data\.synthetic\."):  # fmt: skip
        annotated_columns(read_train(config), annotator, config, "train", ("pos",))
    model = "pretrained_embeddings.target.model=bert"
    load_recipe("tiny", ["data.dir=a", "data.synthetic=b", "data.synthetic_tag=false", model])
