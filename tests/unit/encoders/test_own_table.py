"""Tables of the user's own: which column is what, what can be wrong with them, and what is held out."""

from __future__ import annotations

import csv
import re
from collections import Counter
from types import SimpleNamespace

import pytest

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.encoders import own_tables
from syntaxformer.encoders.examples import TextExample, TextSet
from syntaxformer.encoders.finetune_config import load_finetune
from syntaxformer.encoders.finetuning import _named_or_bundled, _write_rows
from syntaxformer.encoders.official_data import read_any_split
from syntaxformer.encoders.prediction import submission_rows
from syntaxformer.encoders.tables import TableColumns, read_table
from syntaxformer.encoders.task_data import read_finetune_data
from syntaxformer.encoders.task_types import OneLabel, Predictions
from syntaxformer.encoders.tasks import OWN_TASKS, TASKS


@pytest.fixture
def read(tmp_path):
    """The data of a run with these settings."""

    def make(train, dev=None, task="classify", **data):
        options = {"task": task, "model": "x", "output": tmp_path / "out"}
        files = {"train": str(train), "dev": dev and str(dev), **data}
        return read_finetune_data(load_finetune({**options, "data": files}))

    return make


def read_own_table(path, kind="classify", columns=None, labels=(), **how):
    labels = tuple(labels) if kind == "classify" else None
    task_type = OWN_TASKS[kind].model_copy(update={"labels": labels}).task_type
    texts, columns, task_type = own_tables.read_own_table(path, task_type, columns or TableColumns(), **how)
    rows = [(example.texts, example.label) for example in texts.examples]
    return rows, columns, getattr(task_type, "labels", None)


TWO = [(("good film",), 1), (("bad film",), 0)]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("two.tsv", "good film\tpos\nbad film\tneg\n", TableColumns("1", "2")),
        ("names.tsv", "label\ttext\npos\tgood film\nneg\tbad film\n", TableColumns("text", "label")),
        ("quoted.csv", 'text,label\n"good film",pos\nbad film,neg\n', TableColumns("text", "label")),
        ("lines.jsonl", '{"text": "good film", "label": "pos"}\n{"text": "bad film", "label": "neg"}\n', TableColumns("text", "label")),
    ],
)  # fmt: skip
def test_columns_that_are_known_by_themselves(table, name, content, columns):
    assert read_own_table(table(content, name)) == (TWO, columns, ("neg", "pos"))


def test_columns_that_the_user_names(table):
    path, columns = table("id\treview\tstars\n7\tgood film\t5\n8\tbad film\t-1\n"), TableColumns("review", "stars")  # fmt: skip
    scored = [(("good film",), 5.0), (("bad film",), -1.0)]
    assert read_own_table(path, "regress", columns) == (scored, columns, None)
    path = table("7\tgood film\tpos\n8\tbad film\tneg\n")
    assert read_own_table(path, columns=TableColumns("2", "3"))[0] == TWO
    # Labels 1 and 2 in columns 1 and 2: a cell like the number of a column is no header.
    content, columns = "Nice film\t1\nBad film\t2\n", TableColumns("1", "2")
    rows = [(("Nice film",), 0), (("Bad film",), 1)]
    assert read_own_table(table(content), columns=columns) == (rows, columns, ("1", "2"))
    assert read_own_table(table(content), columns=columns, labels=("1", "2"), labelled=False)[0] == rows
    pandas = table("1,2\nNice film,1\nBad film,2\n", "pandas.csv")
    assert read_own_table(pandas, columns=columns)[0] == rows


@pytest.mark.parametrize(
    "labels", ["2 9 10", "-1 0.5 1", "False True", "negative no positive yes", "1 2 nan none"]
)
def test_labels_are_sorted_by_name_and_numbers_by_value(table, labels):
    """`f1` judges the second of two classes, so it must be "True" and not the longer name."""
    content = "".join(f"text {label}\t{label}\n" * 2 for label in reversed(labels.split()))
    assert read_own_table(table(content))[2] == (*labels.split(),)


def test_a_label_however_it_is_written(table):
    """pandas writes 1.0 for 1 as soon as one number of a column is missing; a version is no number."""
    learned = read_own_table(table("a\t0.0\nb\t1.0\n"))[2]
    assert learned == ("0.0", "1.0")
    rows, _, _ = read_own_table(table("a\t1\nb\t0\n"), labels=learned)
    assert [label for _, label in rows] == [1, 0]
    with pytest.raises(DataError, match=r"label: expected one of 1\.10, 2, got '1\.1'"):
        read_own_table(table("a\t1.1\n"), labels=("1.10", "2"))
    path = table(
        'sentence1,sentence2,label\n"A, b\nc",D,"very\n good"\nb,E,very\u00a0good\nc,F,bad\n', "broken.csv"
    )
    rows, columns, labels = read_own_table(path)
    assert (rows[0], columns.pair, labels) == ((("A, b c", "D"), 1), "sentence2", ("bad", "very good"))


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (("neg", "Neg", "pos"), "labels 'Neg', 'neg' are classes of their own"),
        (("neg", "neg\u200b"), r"labels 'neg', 'neg\u200b' are classes of their own"),
        (("1", "1.0", "2"), "labels '1', '1.0' are classes of their own"),
        (("nan", "pos"), "'nan' is learned as a class"),
        (("N/A", "pos"), "'N/A' is learned as a class"),
        (("neg", "pos", "1", "2"), ""),
    ],
)
def test_labels_that_are_hardly_meant_are_named(table, caplog, labels, told):
    read_own_table(table("".join(f"text {label}\t{label}\n" for label in labels)))
    assert caplog.text.count("WARNING") == bool(told)
    assert told in caplog.text


def test_rows_without_a_label_where_there_need_be_none(table):
    path = table('{"text": "a", "label": null}\n{"text": "b", "label": "neg"}\n{"text": "c", "label": -1}\n', "t.jsonl")  # fmt: skip
    rows, _, _ = read_own_table(path, labels=("neg", "pos"), labelled=False)
    assert [label for _, label in rows] == [None, 0, None]
    rows, _, _ = read_own_table(table("text,label\na,\nb,-1\n", "t.csv"), "regress", labelled=False)
    assert [label for _, label in rows] == [None, -1.0]


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [("one.csv", "text\na\n\nb\n", 3), ("one.tsv", "text\na\n\nb\n", 3), ("one.jsonl", '{"text": "a"}\n\n{"text": "b"}\n', 2)],
)  # fmt: skip
def test_a_blank_line_between_rows_that_are_counted(table, name, content, line):
    with pytest.raises(DataError, match=rf"{name}:{line}: expected a row, got a blank line"):
        read_own_table(table(content, name), labels=("neg", "pos"), labelled=False)
    path = table(content.replace("\n\n", "\n") + "\n\n", name)
    rows, _, _ = read_own_table(path, labels=("neg", "pos"), labelled=False)
    assert len(rows) == 2  # at the end they are nothing


def test_a_header_over_scores_is_left_out_and_a_row_is_not(table, caplog):
    """A row that is left out would shift all predictions by a line; what is left out is told."""
    rows, _, _ = read_own_table(table("review\tstars\ngood\t4.5\nbad\t1\n"), "regress")
    assert [label for _, label in rows] == [4.5, 1.0]
    caplog.clear()
    rows, _, _ = read_own_table(table("good\t\nbad\t1\n"), "regress", TableColumns("1", "2"), labelled=False)
    assert [label for _, label in rows] == [None, 1.0]
    assert not caplog.text
    assert len(read_own_table(table("good\tn/a\nbad\t1\n"), "regress")[0]) == 1
    assert "line 1 is left out as a header, as 'n/a' is no number." in caplog.text


MANY = "".join(f"text {number}\t{'pos' if number % 2 else 'neg'}\n" for number in range(30))
OBJECTS = '{"text": "a", "label": "a"}\n{"text": "b", "label": "b"}\n'
ERRORS = [
    ("mine.tsv", "", "classify", (), ": expected rows, got an empty file"),
    ("mine.tsv", "a\tpos\nb\n", "classify", (), ":2: row: expected 2 cells, got 1. Look for a tab"),
    ("mine.csv", "text,label\na,b,pos\n", "classify", (), ":2: row: expected 2 cells, got 3. Look for a comma"),
    ("mine.tsv", "a\tpos\n\tneg\n", "classify", (), ":2: column '1': expected a text, got an empty"),
    ("mine.tsv", "a\tpos\nb\t\nc\tneg\nd\t\ne\t\n", "classify", (), ":2: column '2': expected a label, got an empty cell."),
    ("mine.jsonl", OBJECTS + '{"text": "c", "label": NaN}\n', "classify", (), ":3: column 'label': expected a label, got an empty"),
    ("mine.tsv", "a\tpos\nb\tpos\n", "classify", (), ": column '2': expected at least two labels, got only 'pos'"),
    ("mine.jsonl", '{"1": "a", "2": "much"}\n{"1": "b"}\n', "regress", ("1", "2"), ":1: score: expected a finite number, got 'much'"),
    ("mine.tsv", "a\t1\nb\tnan\n", "regress", (), ":2: score: expected a finite number, got 'nan'"),
    ("mine.tsv", "a\tpos\nb\tneg\n", "classify", ("review", "stars"), ": --text-column: expected a column 'review'"),
    ("mine.tsv", "text\tstars\na\tpos\n", "classify", ("text", "label"), ": --label-column: expected a column 'label'"),
    ("mine.tsv", "a\tb\tc\n", "classify", (), ": expected two columns, text and label"),
    ("mine.tsv", f"review\tstars\n{MANY}text\tmixed\n", "classify", (), ":1: expected rows of text and label, got what looks like a header"),
    ("mine.tsv", "".join(f"pos\ttext {n}\n" for n in range(30)), "classify", (), ": column '2': expected labels that occur again, got 30"),
    ("mine.jsonl", '{"text": ["The", "dog"], "label": "a"}\n' + OBJECTS, "classify", (), ":1: column 'text': expected a text, got ['The', 'dog']"),
    ("mine.jsonl", '{"text": true, "label": "a"}\n' + OBJECTS, "classify", (), ":1: column 'text': expected a text, got True"),
    ("mine.jsonl", OBJECTS + '{"text": "c", "text_pair": "d", "label": "a"}\n', "classify", (), ":3: row: expected the columns of line 1, got text_pair"),
    ("mine.parquet", "PAR1", "classify", (), ": expected a Parquet file, got: "),
    ("mine.arrow", "ARROW1", "classify", (), ": expected TSV, CSV, JSON lines or Parquet, got .arrow"),
    ("mine.csv", "text,label,text\ngood,a,x\nbad,b,y\n", "classify", (), ": line 1: expected column 'text' once"),
    ("mine.csv", '"review";"mood"\n"good";"pos"\n', "classify", (), ":1: expected commas between the cells of a CSV file, got semicolons"),
    ("mine.csv", "good\tpos\nbad\tneg\n", "classify", (), ":1: expected commas between the cells of a CSV file, got tabs"),
    ("mine.csv", 'text,label\n"good,pos\nbad,neg\n', "classify", (), ": expected CSV with every quote closed"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "kind", "columns", "problem"), ERRORS)
def test_tables_that_cannot_be_used(table, name, content, kind, columns, problem):
    path = table(content, name)
    with pytest.raises((DataError, ConfigError), match=rf"^{path}(:\d+)?{re.escape(problem)}"):
        read_own_table(path, kind, TableColumns(*columns))


def test_columns_that_are_known_but_not_read_are_named(table, messages):
    path = table("text,label,score\ngood,1,0.7\nbad,0,0.2\nodd,1,0.3\n", "mine.csv")
    rows, columns, _ = read_own_table(path, "regress")
    assert (columns.label, [label for _, label in rows]) == ("score", [0.7, 0.2, 0.3])
    assert f"{path}: 'text', 'score' are read, 'label' not." in messages.text
    assert read_own_table(path)[1].label == "label"
    assert f"{path}: 'text', 'label' are read, 'score' not." in messages.text


def test_what_is_read_for_a_trained_model(table):
    """Texts may hold separators; a missing column is named without the options of training."""
    path = table("good film; bad end\nbad film\n", "texts.csv")
    rows, _, _ = read_own_table(path, labels=("neg", "pos"), labelled=False)
    assert [texts for texts, _ in rows] == [("good film; bad end",), ("bad film",)]
    path = table("text,label\na,pos\n", "texts.csv")
    with pytest.raises(DataError, match=r"texts\.csv: text, as in training: expected a column 'review'"):
        read_own_table(path, "classify", TableColumns("review"), ("neg", "pos"), labelled=False)


# Training and development data.


@pytest.mark.parametrize(
    ("task", "data", "told"),
    [
        ("squad", {"text_column": "x"}, "data.text_column"),
        ("squad", {"label_column": "x", "quotes": "csv"}, "data.quotes, data.label_column"),
        ("ner", {"text_pair_column": "x", "text_column": "1"}, "data.text_pair_column"),
        ("ner", {"quotes": "text"}, "data.quotes"),
    ],
)
def test_options_for_tables_are_refused_where_files_are_none(table, read, task, data, told):
    with pytest.raises(ConfigError, match=rf"^--task {task}: expected no option of tables, got {told}\."):
        read(table("a\tO\n"), task=task, **data)


def test_data_that_a_run_cannot_use(table, read, tmp_path):
    with pytest.raises(DataError, match=r"few\.tsv: expected at least 20 rows to hold a tenth out, got 2"):
        read(table("a\tpos\nb\tneg\n", "few.tsv"))
    alone = table("".join(f"text {row}\tclass{row}\n" for row in range(20)), "alone.tsv")
    with pytest.raises(DataError, match=r"alone\.tsv: expected a label with two rows, one of which can be h"):
        read(alone)
    same = table("a\t1.0\nb\t1.0\n", "same.tsv")
    with pytest.raises(DataError, match=r"label: expected at least two different ones .* got only 1\.0"):
        read(same, same, task="regress")
    official = {"task": "cola", "model": "x", "output": tmp_path / "out"}
    named = {**official, "data": {"dir": tmp_path, "text_column": "text"}}
    for options, key in ({**official, "task": "classify"}, "train"), (official, "data"), (named, "columns"):
        with pytest.raises(ConfigError, match=rf"^{key}: expected"):
            read_finetune_data(load_finetune(options))


def _held_classes(data):
    return Counter(data.task.labels[example.label] for example in data.dev.examples)


def test_a_tenth_of_each_class_is_held_out_and_the_same_one_every_time(table, read, messages):
    rows = [f"text {n}\t{'rare' if n % 20 == 7 else 'usual'}\n" for n in range(200)]
    first, again = (read(table("".join(rows))) for _ in range(2))
    assert first.dev.examples == again.dev.examples
    assert _held_classes(first) == {"usual": 19, "rare": 1}
    assert len(first.train) == 180
    train, dev = ({example.line for example in texts.examples} for texts in (first.train, first.dev))
    assert not train & dev
    rows += [f"more {n}\tthird\n" for n in range(14)]
    assert _held_classes(read(table("".join(rows)))) == {"usual": 19, "rare": 1, "third": 1}
    assert "expected every class" not in messages.text
    for lone in ("lonely text\trare\n", "one text\trare\n" * 3):  # one row or text cannot be in both parts
        messages.clear()
        data = read(table("".join(f"text {n}\t{'ab'[n % 2]}\n" for n in range(60)) + lone))
        assert set(_held_classes(data)) == {"a", "b"}
        assert "expected every class among the 6 development rows, got none of rare" in messages.text


def test_rows_that_are_held_out_are_numbered_as_in_their_file(table, read):
    """A file of parses has a sentence for each row; line 1 of this table is row 0."""
    rows = [f"text {n}\t{'ab'[n % 2]}\n" for n in range(60)]
    for share, n_train in ((1.0, 54), (0.5, 27)):
        data = read(table("".join(rows)), fraction=share)
        assert (len(data.train), len(data.dev)) == (n_train, 6)
        for texts in (data.train, data.dev):
            assert texts.text_rows == [example.line - 1 for example in texts.examples]


def test_equal_texts_are_not_held_out_from_themselves(table, read, messages):
    content = "".join(f"text {number // 3}\t{'pos' if number % 2 else 'neg'}\n" for number in range(60))
    data = read(table(content))
    assert (len(data.train), len(data.dev)) == (54, 6)
    train, dev = ({example.texts for example in texts.examples} for texts in (data.train, data.dev))
    assert not train & dev
    assert "equal texts" not in messages.text
    few = read(table("one\tpos\ntwo\tneg\n" * 20, "few.tsv"))  # no text could be spared
    assert "few.tsv: both parts have equal texts" in messages.text
    assert (len(few.train), len(few.dev)) == (36, 4)


@pytest.mark.parametrize("n_shared", [3, 0])
def test_dev_rows_that_are_trained_on_are_counted(table, read, messages, n_shared):
    rows = [f"text {number}\t{'ab'[number % 2]}\n" for number in range(24)]
    dev = table("".join([*rows[5 : 5 + n_shared], "other\ta\n", "another\tb\n"]), "dev.tsv")
    read(table("".join(rows)), dev)
    assert messages.text.count("3 of its 5 rows have texts of the training rows") == bool(n_shared)
    assert messages.text.count("texts of the training rows") == bool(n_shared)


def test_several_labels_of_which_one_or_none_occurs(table, read):
    def lists(name, *labels):
        rows = (f'{{"text": "t {i}", "labels": {labels[i % len(labels)]}}}\n' for i in range(40))
        return table("".join(rows), name)

    assert read(lists("one.jsonl", '["spam"]', "[]"), task="multilabel").task.labels == ("spam",)
    for rows, told in (
        (['["spam"]'], r"got only \('spam',\)"),
        (["[]"], "labels: expected some to learn, got none"),
        ([*["[]"] * 39, '["spam"]'], r"got only \(\)"),
    ):
        with pytest.raises(DataError, match=told):
            read(lists("rows.jsonl", *rows), rows=20 if len(rows) > 1 else None, task="multilabel")


def test_the_annotator_of_a_table_is_of_its_language(table, tmp_path, messages):
    """Else German would be parsed as English without a word; official tasks are English."""

    def chosen(*lines, named=None):
        rows = [f"{line} {row}\t{'xy'[row % 2]}\n" for row, line in enumerate(lines * 20)]
        options = {"task": "classify", "model": "x", "output": tmp_path, "annotation": {"annotator": named}}
        config = load_finetune({**options, "data": {"train": str(table("".join(rows)))}})
        return _named_or_bundled(config, read_finetune_data(config), {"upos"})

    german = "Ein Hund bellt den großen Mann an.", "Zwei Frauen laufen über die Straße."
    assert chosen("A dog barks at the tall man.", "Two women run across the street.") == "en"
    assert chosen(*german) == "de"
    with pytest.raises(ConfigError, match="for fr, the language of the texts"):
        chosen("Le chat dort sur le tapis.", "Nous allons à la plage.")
    assert chosen(*german, named="de+phrases") == "de+phrases"
    assert "but the language" not in messages.text
    assert chosen(*german, named="en+phrases") == "en+phrases"
    told = "annotation.annotator: en+phrases, but the language of the texts, says py3langid, is de"
    assert told in messages.text


# Quotes.

HEAD, QUOTED = ("text", "label"), ('he said "the cat" twice', "a")
DOUBLED = "they enclose cells, and quotes inside cells are doubled"
NOTHING = "nothing tells for sure: they enclose cells, but none is doubled"
ONLY_SO = "only so have all rows as many cells"


def written(path, rows, **how):
    """As pandas' `to_csv(sep="\\t")` writes a table."""
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n", **how).writerows(rows)
    return path


@pytest.mark.parametrize(
    ("rows", "how", "said"),
    [
        ([HEAD, QUOTED, ("plain", "b")], {}, DOUBLED),
        ([QUOTED, ("plain", "b")], {}, DOUBLED),
        ([HEAD, ('"all of it"', "a"), ("plain", "b")], {}, DOUBLED),
        ([HEAD, ("a tab\tinside", "a"), ("plain", "b")], {}, ONLY_SO),
        ([HEAD, ("two\nlines", "a"), ("plain", "b")], {}, ONLY_SO),
        ([HEAD, ("plain", "a"), ("more", "b")], {"quoting": csv.QUOTE_ALL}, "they enclose cells, also in line 1"),
    ],
)  # fmt: skip
def test_a_tsv_that_is_quoted_as_csv(read, messages, tmp_path, rows, how, said):
    path = written(tmp_path / "mine.tsv", rows, **how)
    data = read(path, path)
    texts = [" ".join(text.split()) for text, _ in rows if text != "text"]
    assert [example.texts[0] for example in data.train.examples] == texts
    told = f"{path}: quotes are read as in CSV, and removed: {said}. Otherwise set data.quotes=text."
    assert messages.messages.count(told) == 2  # training and development


@pytest.mark.parametrize(
    ("content", "texts", "said"),
    [
        ('"Fine," he said.\ta\nplain\tb\n', ['"Fine," he said.', "plain"], "some do not enclose a cell"),
        ('"open\ta\n"so ""and"" so"\tb\n', ['"open', '"so ""and"" so"'], "some do not enclose a cell"),
        ('"one line\ta\nanother."\tb\n', ['"one line', 'another."'], "some do not enclose a cell"),
        ('"a quotation"\ta\nplain\tb\n', ['"a quotation"', "plain"], NOTHING),
        ('a 5" pipe\ta\nplain ""\tb\n', ['a 5" pipe', 'plain ""'], None),
    ],
)
def test_a_tsv_whose_quotes_are_text(table, read, messages, content, texts, said):
    path = table(content)
    data = read(path, path)
    assert [example.texts[0] for example in data.train.examples] == texts
    told = [record for record in messages.records if "are read as part of the text" in record.getMessage()]
    assert [said in record.getMessage() for record in told] == [True] * 2 * bool(said)
    assert {record.levelname == "WARNING" for record in told} <= {said == NOTHING}


def test_the_reading_of_quotes_can_be_set_and_official_files_have_none(table, read, tmp_path):
    path = table('"a quotation"\ta\nplain\tb\n')
    assert read(path, path, quotes="csv").train.examples[0].texts == ("a quotation",)
    path = written(tmp_path / "mine.tsv", [QUOTED, ("plain", "b")])
    assert read(path, path, quotes="text").train.examples[0].texts == ('"he said ""the cat"" twice"',)
    table('gj04\t1\t\t"He ""said"" so."\ngj04\t0\t*\tHim said.\n', "train.tsv")
    assert read_any_split(TASKS["cola"], tmp_path, "train").examples[0].texts == ('"He ""said"" so."',)


CELLS = ["=cmd|' /C calc'!A0", "@SUM(A1)", "-", "-1+1", "'=1", "''-", "\t=1", "+49 30", "a=1", "'s", "", "-0.5", "+1", "-1e-5"]  # fmt: skip


def test_held_out_rows_are_no_formulas_for_a_spreadsheet_and_are_read_back_as_they_were(tmp_path):
    rows = [["=text", "label"], *([cell, "x"] for cell in CELLS)]
    _write_rows(tmp_path, SimpleNamespace(held_out=rows, train=SimpleNamespace(examples=[])))
    with (tmp_path / "held_out.csv").open(newline="") as file:
        head, *stored = csv.reader(file)
    assert head == ["'=text", "label"]
    quoted = [f"'{cell}" for cell in CELLS[:8]]
    assert [row[0] for row in stored] == [*quoted, *CELLS[8:]]  # and numbers stay numbers
    table = read_table(tmp_path / "held_out.csv")
    assert table.columns == ["=text", "label"]
    assert [row.cells["=text"] for row in table.rows] == CELLS
    (tmp_path / "held_out.csv").rename(tmp_path / "mine.csv")  # of the user's own, quotes are text
    assert read_table(tmp_path / "mine.csv").rows[0].cells["'=text"] == quoted[0]


def test_predicted_labels_are_no_formulas_for_a_spreadsheet():
    labels = ("=cmd|x", "-1", "fine")
    head, *rows = OneLabel(labels).table(Predictions(list(labels), [[1.0, 0.0, 0.0]] * 3))
    assert [row.split("\t")[0] for row in rows] == ["'=cmd|x", "-1", "fine"]
    assert head.split("\t") == ["prediction", "p(=cmd|x)", "p(-1)", "p(fine)"]
    texts = TextSet("test", "test.tsv", [TextExample(("x",), index="0")])
    _, row = submission_rows(TASKS["cola"], "test", texts, Predictions(["=cmd|x"], None))
    assert row == "0\t=cmd|x"  # the server reads the label itself
