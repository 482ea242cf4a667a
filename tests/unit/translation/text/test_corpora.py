"""Parallel text of files and datasets, several corpora in one, and their shares of each epoch."""

from __future__ import annotations

import gzip
import json
import logging
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from parallel_files import tiny_recipe, write_sides
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.translation.batches import Shares, TokenBudgetBatches
from syntaxformer.translation.corpora import Corpus, CorpusConfig, find_file, read_dev, read_split, read_train
from syntaxformer.translation.prepare import nested_fraction, prepare

SPLITS = {
    "news": (["A", "B", "", "C"], ["a", "b", "", "c"]),
    "tok": (["do n't &quot; x &quot; ,", "bad �"], ["was &apos;s ?", "y"]),
    "dev": (["B", "Z"], ["q", "z"]),
    "test": (["T", ""], ["c", ""]),
}


@pytest.fixture
def folder(tmp_path):
    for split, sides in SPLITS.items():
        write_sides(tmp_path, *sides, split)
    return tmp_path


def test_splits_are_joined_cleaned_and_counted(folder, caplog):
    config = CorpusConfig(
        dir=folder, train=["news", "tok"], exclude=["dev", "test"], detokenize=["tok"], drop_unreadable=True
    )
    with caplog.at_level(logging.INFO, "syntaxformer.data"):
        text = read_train(config)
    # "B" is a source of dev, "c" a target of test; an empty line is nobody's sentence.
    assert text.src == ["A", "", 'do n\'t "x",']
    assert text.tgt == ["a", "", "was 's?"]
    assert caplog.messages == [
        f"{folder / 'news.en'}: left out 3 of 6 pairs: 1 of dev, 1 of test, 1 with U+FFFD"
    ]


def test_what_is_left_out_keeps_its_place_in_the_file(folder):
    config = CorpusConfig(dir=folder, train="news", exclude=["dev"])
    text = read_train(config)
    assert list(text.rows) == [0, 2, 3]
    assert list(text.select([1, 2]).rows) == [2, 3]
    assert set(nested_fraction(text, 0.5).rows) <= {0, 2, 3}


def test_held_out_lines_with_other_spaces_are_left_out(folder):
    """And in another case, if the model reads lower case: to it they are the same lines."""
    write_sides(folder, ["a  b ", "A B", "c"], ["x", "y", "z"], "crawl")
    write_sides(folder, ["a b"], ["w"], "held")
    settings = {"dir": folder, "train": "crawl", "exclude": ["held"]}
    assert read_train(CorpusConfig(**settings)).src == ["A B", "c"]
    assert read_train(CorpusConfig(**settings, lowercase=True)).src == ["c"]


def test_held_out_sentences_are_left_out_of_corpora_with_endings_of_their_own(folder):
    """The sources of one that is turned round are compared with the lines of the same ending."""
    corpora = [{"name": "news", "tag": "<2de>"}, {"name": "news", "src": "de", "tgt": "en", "tag": "<2en>"}]
    text = read_train(CorpusConfig(dir=folder, train=corpora, exclude=["dev", "test"]))
    assert (list(text.src), list(text.tgt)) == (["A", "", "a", ""], ["a", "", "A", ""])
    for ending, lines in {"tok.en": "B\nD\n", "tok.de": "x\ny\n"}.items():
        (folder / f"crawl.{ending}").write_text(lines)
    corpora = ["news", {"name": "crawl", "src": "tok.en", "tgt": "tok.de"}]
    text = read_train(CorpusConfig(dir=folder, train=corpora, exclude=["dev"]))
    assert "D" in text.src
    assert "B" not in text.src, "a source of dev"


MOSES = "tgt_language: expected a code, which Moses' rules need, got"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "expected one of dir and dataset, got neither."),
        ({"dir": "x", "dataset": "y"}, "expected one of dir and dataset, got both."),
        ({"dir": "x", "src": "en", "tgt": "en"}, "tgt: expected another ending than src (src.en, tgt.en), got"),
        ({"dir": "x", "moses": True, "tokenized": True}, "moses: expected raw text, got tokenized=true. Set one of them to false."),
        ({"dir": "x", "moses": True, "tgt": "bpe"}, MOSES),
        ({"dir": "x", "detokenize": ["train"], "tgt": "bpe"}, MOSES),
        ({"dir": "x", "train": ["a", "b"], "factor_files": {"n": "n"}}, "factor_files: expected data.dir and one training split with them, got others."),
        ({"dir": "x", "detokenize": ["y"]}, "detokenize: expected training splits, got y."),
        ({"dir": "x", "synthetic": "y", "factor_files": {"n": "n"}}, "synthetic: expected no factor_files, got some. Join both"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other(settings, message):
    with pytest.raises(ValidationError) as caught:
        CorpusConfig(**settings)
    assert message in str(caught.value)


@pytest.fixture
def parquet(tmp_path, monkeypatch):
    """A folder as the hub has WMT: one column of mappings."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    for split, rows in {"train": [("A\nb", "a"), ("B", "b")], "validation": [("V", "v")]}.items():
        table = pa.table({"translation": [{"en": en, "de": de} for en, de in rows]})
        (tmp_path / "data").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    return tmp_path / "data"


def test_a_dataset_of_translations(parquet):
    config = CorpusConfig(dataset=str(parquet), train="train", dev="validation")
    text = read_train(config)
    assert (text.src, text.tgt) == (["A b", "B"], ["a", "b"])  # a row is one line
    assert read_split(config, "validation").src == ["V"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": "nope"}, "data.dataset: expected the split nope of "),
        ({"columns": {"en": "text"}}, "data.columns: expected a column of "),
        ({"src": "fr"}, "for fr, got translation.fr. Known: translation, translation.en, translation.de."),
    ],
)
def test_splits_and_columns_that_are_not_there(parquet, settings, message):
    with pytest.raises(ConfigError) as caught:
        read_train(CorpusConfig(dataset=str(parquet), **settings))
    assert message in str(caught.value)


def test_rows_without_text_and_splits_without_rows(tmp_path):
    pq.write_table(pa.table({"en": ["x", None], "de": ["y", "z"]}), tmp_path / "train.parquet")
    with pytest.raises(DataError, match=r"train:2: expected text, got NoneType\.$"):
        read_train(CorpusConfig(dataset=str(tmp_path)))


TABLES = {
    "tsv": (
        b'\xef\xbb\xbfen\tde\n"Who is it?" "It is me."\t"Wer ist da?"\nNA\tNone\nnull\t\na "b\tc\n',
        [('"Who is it?" "It is me."', '"Wer ist da?"'), ("NA", "None"), ("null", ""), ('a "b', "c")],
    ),
    "csv": (b'en,de,n\n"a, ""b""",1,2\nnan,"2\n3",\n', [('a, "b"', "1"), ("nan", "2 3")]),
}


@pytest.mark.parametrize("kind", TABLES)
def test_cells_of_tables_are_texts(tmp_path, kind, caplog):
    """A TSV has no quoting, and no cell is a missing value."""
    content, pairs = TABLES[kind]
    (tmp_path / f"train.{kind}").write_bytes(content)
    (tmp_path / "stats.json").write_text("{}")  # no split
    (tmp_path / "about_training.md").write_text("how train.tsv was made")
    text = read_split(CorpusConfig(dataset=str(tmp_path)), "train")
    assert list(zip(text.src, text.tgt, strict=True)) == pairs
    assert "quoted" not in caplog.text


def test_other_columns_of_a_table_are_not_read(tmp_path):
    """pandas guesses the type of a column anew for every 10,000 rows, and an empty cell is no number."""
    rows = [f"a {row},b {row},{row if row < 10_500 else ''}" for row in range(11_000)]
    (tmp_path / "train.csv").write_text("\n".join(["en,de,score", *rows, ""]))
    assert read_split(CorpusConfig(dataset=str(tmp_path)), "train").tgt[-1] == "b 10999"
    (tmp_path / "train.csv").write_text("en,de,score\na,b,1\n")
    with pytest.raises(ConfigError, match=r"data\.columns: .* for fr, got fr\. Known: en, de, score\."):
        read_split(CorpusConfig(dataset=str(tmp_path), tgt="fr"), "train")


def test_a_table_whose_split_has_another_name_is_read_as_the_others(tmp_path):
    """`datasets` calls dev.tsv the split validation."""
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text(f'en\tde\nNA\tNA, "{name}\n')
    config = CorpusConfig(dataset=str(tmp_path), train="train", dev="validation")
    texts = [read_split(config, name) for name in ("train", "validation")]
    assert [(text.src, text.tgt) for text in texts] == [(["NA"], ['NA, "train']), (["NA"], ['NA, "dev'])]


def _write_sides(folder: Path, src: bytes, tgt: bytes) -> CorpusConfig:
    (folder / "train.en").write_bytes(src)
    (folder / "train.de").write_bytes(tgt)
    return CorpusConfig(dir=folder)


def test_lines_in_pairs(tmp_path):
    sides = b"A cat.\n\nA dog.\r\n", "Eine Katze.\n\nEin Hünd.".encode()
    text = read_split(_write_sides(tmp_path, *sides), "train")
    assert (text.src, text.tgt) == (["A cat.", "", "A dog."], ["Eine Katze.", "", "Ein Hünd."])
    some = text.select([2, 0])
    assert (some.src, some.tgt) == (["A dog.", "A cat."], ["Ein Hünd.", "Eine Katze."])


def test_a_plain_file_and_a_packed_one_of_one_name_are_refused(tmp_path):
    (tmp_path / "train.en").write_text("plain\n")
    (tmp_path / "train.en.gz").write_bytes(gzip.compress(b"packed\n"))
    with pytest.raises(DataError, match=r"train\.en: .*train\.en\.gz"):
        find_file(tmp_path, "train", "en")


@pytest.mark.parametrize(
    ("src", "tgt", "tabs", "problem"),
    [
        *((b"a\n" * src, b"b\n" * tgt, "refuse", rf"train.en: .*train.de, got {src} and {tgt}\.") for src, tgt in ((3, 5), (7, 2), (0, 1))),
        (b"a\nb\n", b"u\nun\tb\n", "refuse", "train.de:2: expected one sentence, got a tab at character 3"),
        (b"a\tx\n" * 30, b"x\n" * 30, "space", "train.en: expected one sentence in a line, got tabs in 30 of 60"),
        *((src, tgt, "refuse", "expected at least one pair of lines with") for src, tgt in ((b"", b""), (b"\n\n", b"\n\n"), (b"a\n \n", b" \nb\n"))),
    ],
)  # fmt: skip
def test_files_that_are_no_parallel_text(tmp_path, src, tgt, tabs, problem):
    config = _write_sides(tmp_path, src, tgt).model_copy(update={"tabs": tabs})
    with pytest.raises(DataError, match=problem):
        read_split(config, "train")


def test_tabs_as_spaces_are_counted_and_reported(tmp_path, caplog):
    config = _write_sides(tmp_path, b"a\tb\nc\n", b"\td\ne\tf\n").model_copy(update={"tabs": "space"})
    text = read_split(config, "train")
    assert (text.src, text.tgt) == (["a b", "c"], ["d", "e f"])  # in the plain form
    assert "lines with tabs, which are read as spaces: 3" in caplog.text


def test_a_text_is_no_translation_of_itself(tmp_path):
    """The same file under two names, a link, a packed copy: known by what is in it."""
    config = _write_sides(tmp_path, b"one\n\ntwo\n", b"")
    source, target = tmp_path / "train.en", tmp_path / "train.de"
    target.unlink()
    message = f"{source}: expected another text than in {{}}, got the same. Check data.tgt."
    for name in ("train.de", "train.de.gz"):
        packed = gzip.compress(source.read_bytes())
        target.symlink_to(source) if name == "train.de" else (tmp_path / name).write_bytes(packed)
        with pytest.raises(DataError) as caught:
            read_split(config, "train")
        assert str(caught.value) == message.format(tmp_path / name)
        (tmp_path / name).unlink()
    target.write_bytes(b"one\n\nzwei\n")
    assert read_split(config, "train").tgt == ["one", "", "zwei"]
    target.write_bytes(source.read_bytes())
    with pytest.raises(DataError, match="expected another text than"):
        read_train(config.model_copy(update={"on_disk": True, "cache": tmp_path / "cache"}))


def test_both_sides_may_be_of_one_language(tmp_path):
    (tmp_path / "train.src.en").write_text("a cat\n")
    (tmp_path / "train.tgt.en").write_text("the cat\n")
    assert read_split(CorpusConfig(dir=tmp_path, src="src.en", tgt="tgt.en"), "train").tgt == ["the cat"]


@pytest.mark.parametrize(("ending", "splits"), [("deu_DE", False), ("en", True)])
def test_moses_has_the_rules_of_the_language(tmp_path, ending, splits):
    """The full stop of an ordinal number is part of it in German."""
    config = CorpusConfig(dir=tmp_path, src=ending, tgt="fr", moses=True)
    (text,) = config.preparation(ending).prepare(["3. Mai ist"]).texts
    assert text == ("3 . Mai ist" if splits else "3. Mai ist")
    assert CorpusConfig(dir=tmp_path, tgt="bpe", tgt_language="ger", moses=True).tgt_language == "de"


def test_a_corpus_that_is_turned_round_has_the_languages_of_its_sides(tmp_path):
    config = CorpusConfig(dir=tmp_path, src="a", tgt="b", src_language="en", tgt_language="de")
    turned = config.of(Corpus(name="train", src="b", tgt="a"))
    assert (turned.src, turned.src_language, turned.tgt, turned.tgt_language) == ("b", "de", "a", "en")
    other = config.of(Corpus(name="train", tgt="fr"))
    assert (other.src_language, other.tgt, other.tgt_language) == ("en", "fr", None)


BUDGET, SIZES = 53, (101, 67, 31)


def _shares(weights=(0.4, 2.5, 1.0), seed=3) -> tuple[Shares, np.ndarray, np.ndarray]:
    lengths = np.random.default_rng(1).integers(2, 29, sum(SIZES))
    corpora = np.repeat([0, 1, 2], SIZES)
    return Shares(corpora, weights, lengths, seed), corpora, lengths


def test_each_epoch_has_the_same_shares_and_pairs_take_turns():
    shares, corpora, _ = _shares()
    expected = [round(101 * 0.4), 2 * 67 + round(67 / 2), 31]
    assert shares.sizes == expected
    epochs = [Counter(shares.rows(epoch).tolist()) for epoch in range(6)]
    for rows in epochs:
        by_corpus = Counter(corpora[[*rows.elements()]].tolist())
        assert [by_corpus[corpus] for corpus in range(3)] == expected
        assert {rows[row] for row in range(101)} == {0, 1}
        assert {rows[row] for row in range(101, 168)} == {2, 3}
        assert {rows[row] for row in range(168, 199)} == {1}
    assert {row for rows in epochs[2:5] for row in rows} == {*range(199)}, "three epochs see all of 0.4"
    assert shares.rows(4).tolist() == _shares()[0].rows(4).tolist() != _shares(seed=4)[0].rows(4).tolist()
    tiny = Shares(np.array([0, 1, 1]), [0.01, 1.0, 2.0], np.array([3, 3, 3]), 1)
    assert tiny.sizes == [1, 2, 0], "a corpus does not vanish for its weight"


def _epoch(batches, epoch) -> list[list[int]]:
    batches.set_epoch(epoch)
    return list(batches)


def test_batches_of_shares_fit_the_budget_and_are_the_same_again_on_several_processes():
    shares, corpora, lengths = _shares()
    sides = lengths, lengths, BUDGET, 7
    alone = TokenBudgetBatches(*sides, per_update=6, shares=shares)
    parts = [TokenBudgetBatches(*sides, per_update=6, rank=n, world=3, shares=_shares()[0]) for n in range(3)]
    n_batches = len(alone)
    for epoch in (5, 0, 3):
        batches = _epoch(alone, epoch)
        assert len(batches) == n_batches
        assert max(len(batch) * lengths[batch].max() for batch in batches) <= BUDGET
        distinct = batches[: alone.n_batches]  # what follows fills the last update
        drawn = Counter(corpora[[row for batch in distinct for row in batch]].tolist())
        assert [drawn[corpus] for corpus in range(3)] == shares.sizes
        assert [batch for turn in zip(*(_epoch(part, epoch) for part in parts), strict=True) for batch in turn] == batches  # fmt: skip
    assert sum(map(len, _epoch(alone, 1)[: alone.n_batches])) == sum(shares.sizes)


def _write_rows(several, name, n, word) -> None:
    for ending in ("en", "de", "fr"):
        (several / f"{name}.{ending}").write_text("".join(f"{word} {row} {ending}\n" for row in range(n)))


@pytest.fixture
def several(tmp_path) -> Path:
    for name, n, word in (("a", 12, "cat"), ("bt", 40, "dog"), ("dev", 5, "cow")):
        _write_rows(tmp_path, name, n, word)
    return tmp_path


def _recipe(several, *settings):
    return tiny_recipe(several, "subwords.vocab_size=301", "data.dev=dev", *settings)


CORPORA = "data.train=[{name: a, weight: 3}, {name: bt, weight: 0.25, tag: '<bt>'}]"


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_report_says_what_each_corpus_gave(several, on_disk):
    data = prepare(_recipe(several, CORPORA, f"data.on_disk={on_disk}", "data.exclude=[dev]"))
    assert data.report.to_dict()["corpora"] == [
        {"name": "a", "weight": 3.0, "tag": None, "pairs": 12, "pairs_in_epoch": 36},
        {"name": "bt", "weight": 0.25, "tag": "<bt>", "pairs": 40, "pairs_in_epoch": 10},
    ]
    assert "corpus bt: 40 pairs, 10 in each epoch, tag: <bt>." in str(data.report)
    tag = data.encoder.tokenizer.convert_tokens_to_ids("<bt>")
    firsts = data.train.src.pieces[data.train.src.splits[:-1]]
    assert (firsts == tag).tolist() == [False] * 12 + [True] * 40
    assert not (data.dev.src.pieces == tag).any()
    assert Counter(np.asarray(data.train.corpora)[data.train.shares.rows(2)].tolist()) == {0: 36, 1: 10}


def test_plain_names_are_as_before(several):
    recipe = _recipe(several, "data.train=[a, bt]")
    data = prepare(recipe)
    assert data.train.shares is None
    assert data.report.corpora[1]["pairs_in_epoch"] == 40
    assert prepare(_recipe(several, "data.train=a")).report.to_dict().keys() == {"text", "pairs", "kept", "faults", "notes"}  # fmt: skip
    for train in ("a", ["a", "bt"], [{"name": "a", "weight": 2.0, "tag": None, "src": None, "tgt": None}]):
        config = CorpusConfig(dir=several, train=train)
        stored = json.loads(config.model_dump_json())
        assert stored["train"] == train
        assert CorpusConfig.model_validate(stored) == config
    assert CorpusConfig(dir=several).train == [Corpus(name="train")]
    with pytest.raises(ConfigError, match=r"data: expected the file .*c\.en"):
        read_train(CorpusConfig(dir=several, train=[{"name": "c", "weight": 2}]))


def test_shares_go_with_a_fraction_and_with_synthetic_pairs(several, tmp_path):
    (tmp_path / "more").mkdir()
    _write_rows(tmp_path / "more", "train", 6, "made")
    data = prepare(_recipe(several, CORPORA, f"data.synthetic={tmp_path / 'more'}", "data.fraction=0.5"))
    sizes = data.train_text.sizes
    assert (sum(sizes), sizes[2], len(sizes)) == (32, 6, 3)
    rows = [line.split()[0] for line in data.train_text.src]
    assert [rows.count(word) for word in ("cat", "dog", "made")] == list(sizes)
    assert [corpus["pairs_in_epoch"] for corpus in data.report.corpora][::2] == [3 * sizes[0], 6]


def test_several_target_languages(several):
    train = "data.train=[{name: a, tag: <2de>}, {name: bt, tgt: fr, tag: <2fr><bt>}]"
    recipe = _recipe(several, train)
    assert list(recipe.data.directions) == ["de", "fr"]
    data = prepare(recipe)
    src, tgt = data.train.src, data.train_text.tgt
    names = [data.encoder.piece_names(src.pieces[at : at + 2]) for at in src.splits[[0, 12]]]
    assert (names[0][0], names[1]) == ("<2de>", ["<2fr>", "<bt>"])
    assert (tgt[0][-2:], tgt[12][-2:]) == ("de", "fr")
    dev = read_dev(recipe.data)
    assert (dev.sizes, dev.tags) == ((5, 5), (("<2de>",), ("<2fr>",)))
    assert dev.tgt[4:6] == ["cow 4 de", "cow 0 fr"]
    train = [{"name": "a", "src": src, "tag": "<2de>"} for src in ("en", "fr")]
    # In a direction of two corpora, the first one's source.
    assert read_dev(CorpusConfig(dir=several, train=train)).src[0] == "cow 0 en"
    both = _recipe(several, "data.train=[{name: a, tag: <2de>}, {name: a, src: de, tgt: en, tag: <2en>}]")
    assert read_train(both.data).src[11:13] == ["cat 11 en", "cat 0 de"]
