"""Several splits in one, sentences of test sets kept out, and text out of a Hugging Face dataset."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.translation.corpora import CorpusConfig, read_split, read_train
from syntaxformer.translation.prepare import nested_fraction


def _write(folder, **splits):
    for name, (src, tgt) in splits.items():
        (folder / f"{name}.en").write_text("".join(f"{line}\n" for line in src), "utf-8")
        (folder / f"{name}.de").write_text("".join(f"{line}\n" for line in tgt), "utf-8")


@pytest.fixture
def folder(tmp_path):
    _write(
        tmp_path,
        news=(["A", "B", "", "C"], ["a", "b", "", "c"]),
        tok=(["do n't &quot; x &quot; ,", "bad �"], ["was &apos;s ?", "y"]),
        dev=(["B", "Z"], ["q", "z"]),
        test=(["T", ""], ["c", ""]),
    )
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
    _write(folder, crawl=(["a  b ", "A B", "c"], ["x", "y", "z"]), held=(["a b"], ["w"]))
    settings = {"dir": folder, "train": "crawl", "exclude": ["held"]}
    assert read_train(CorpusConfig(**settings)).src == ["A B", "c"]
    assert read_train(CorpusConfig(**settings, lowercase=True)).src == ["c"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "expected one of dir and dataset, got neither."),
        ({"dir": "x", "dataset": "y"}, "expected one of dir and dataset, got both."),
        (
            {"dir": "x", "moses": True, "tokenized": True},
            "moses: expected raw text, got tokenized=true. Set one of them to false.",
        ),
        (
            {"dir": "x", "train": ["a", "b"], "factor_files": {"ner": "ner"}},
            "factor_files: expected data.dir and one training split with them, got others.",
        ),
        ({"dir": "x", "detokenize": ["y"]}, "detokenize: expected training splits, got y."),
    ],
)
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
    found = [(text.src, text.tgt) for text in (read_split(config, name) for name in ("train", "validation"))]
    assert found == [(["NA"], ['NA, "train']), (["NA"], ['NA, "dev'])]
