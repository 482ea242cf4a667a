"""Tables of the user's own: which column is what, and everything that can be wrong with them."""

from __future__ import annotations

import csv
from types import SimpleNamespace

import pytest

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.encoders import task_data
from syntaxformer.encoders.finetune_config import load_finetune
from syntaxformer.encoders.finetuning import _wanted, _write_rows
from syntaxformer.encoders.tables import read_table
from syntaxformer.encoders.task_data import TableColumns, read_finetune_data
from syntaxformer.encoders.task_types import OneLabel, Predictions
from syntaxformer.encoders.tasks import OWN_TASKS


@pytest.fixture
def table(tmp_path):
    def make(content: str, name: str = "mine.tsv"):
        path = tmp_path / name
        path.write_text(content)
        return path

    return make


def read_own_table(path, kind, columns, labels=(), **how):
    labels = tuple(labels) if kind == "classify" else None
    task_type = OWN_TASKS[kind].model_copy(update={"labels": labels}).task_type
    texts, found, task_type = task_data.read_own_table(path, task_type, columns, **how)
    return texts, found, getattr(task_type, "labels", None)


def shown(found):
    texts, columns, labels = found
    return [(one.texts, one.label) for one in texts.examples], columns, labels


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
    assert shown(read_own_table(table(content, name), "classify", TableColumns())) == (
        TWO,
        columns,
        ("neg", "pos"),
    )


def test_columns_that_the_user_names(table):
    path = table("id\treview\tstars\n7\tgood film\t5\n8\tbad film\t-1\n")
    found = shown(read_own_table(path, "regress", TableColumns("review", "stars")))
    assert found == ([(("good film",), 5.0), (("bad film",), -1.0)], TableColumns("review", "stars"), None)
    path = table("7\tgood film\tpos\n8\tbad film\tneg\n")
    assert shown(read_own_table(path, "classify", TableColumns("2", "3")))[0] == TWO


def test_pairs_and_quotes_over_several_lines(table):
    path = table('sentence1,sentence2,label\n"A, b\nc",D,1\nE,F,0\n', "pairs.csv")
    found = shown(read_own_table(path, "classify", TableColumns()))
    assert found[0] == [(("A, b c", "D"), 1), (("E", "F"), 0)]
    assert found[1].pair == "sentence2"


@pytest.mark.parametrize(
    "labels",
    [
        ("2", "9", "10"),
        ("-1", "0.5", "1"),
        ("False", "True"),
        ("negative", "no", "positive", "yes"),
        ("1", "2", "nan", "none"),
    ],
)
def test_labels_are_sorted_by_name_and_numbers_by_value(table, labels):
    """`f1` judges the second of two classes, so it must be "True" and not the longer name."""
    content = "".join(f"text {label}\t{label}\n" * 2 for label in reversed(labels))
    assert read_own_table(table(content), "classify", TableColumns())[2] == labels


def test_a_cell_like_the_number_of_a_column_is_no_header(table):
    """Labels 1 and 2 in columns 1 and 2: training settles the numbers, dev and `predict` are read by them."""
    content, named = "Nice film\t1\nBad film\t2\n", TableColumns("1", "2")
    found = shown(read_own_table(table(content), "classify", named))
    assert found == ([(("Nice film",), 0), (("Bad film",), 1)], named, ("1", "2"))
    texts, _, _ = read_own_table(table(content), "classify", named, ("1", "2"), labelled=False)
    assert [one.texts for one in texts.examples] == [("Nice film",), ("Bad film",)]
    pandas = table("1,2\nNice film,1\nBad film,2\n", "pandas.csv")
    assert len(read_own_table(pandas, "classify", named)[0]) == 2


def test_a_number_is_the_same_label_however_it_is_written(table):
    """pandas writes 1.0 for 1 as soon as one number of a column is missing."""
    learned = read_own_table(table("a\t0.0\nb\t1.0\n"), "classify", TableColumns())[2]
    assert learned == ("0.0", "1.0")
    found = read_own_table(table("a\t1\nb\t0\n"), "classify", TableColumns(), learned)[0]
    assert [one.label for one in found.examples] == [1, 0]
    with pytest.raises(DataError, match=r"expected one of 1\.10, 2, got '1\.1'"):  # a version is no number
        read_own_table(table("a\t1.1\n"), "classify", TableColumns(), ("1.10", "2"))


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (("neg", "Neg", "pos"), "labels 'Neg', 'neg' are classes of their own. Are they one? Then write them alike."),
        (("neg", "neg\u200b"), r"labels 'neg', 'neg\u200b' are classes of their own."),
        (("1", "1.0", "2"), "labels '1', '1.0' are classes of their own."),
        (("nan", "pos"), "'nan' is learned as a class. If it means no label, leave it out."),
        (("N/A", "pos"), "'N/A' is learned as a class."),
        (("neg", "pos", "1", "2"), ""),
    ],
)  # fmt: skip
def test_labels_that_are_hardly_meant_are_named(table, caplog, labels, told):
    read_own_table(table("".join(f"text {one}\t{one}\n" for one in labels)), "classify", TableColumns())
    assert caplog.text.count("WARNING") == bool(told)
    assert told in caplog.text


def test_labels_are_one_line_of_text(table):
    path = table('text,label\na,"very\n good"\nb,very\u00a0good\nc,bad\n', "broken.csv")
    assert shown(read_own_table(path, "classify", TableColumns()))[2] == ("bad", "very good")


def test_rows_without_a_label_where_there_need_be_none(table):
    path = table(
        '{"text": "a", "label": null}\n{"text": "b", "label": "neg"}\n{"text": "c", "label": -1}\n', "t.jsonl"
    )
    texts, _, _ = read_own_table(path, "classify", TableColumns(), ("neg", "pos"), labelled=False)
    assert [one.label for one in texts.examples] == [None, 0, None]
    path = table("text,label\na,\nb,-1\n", "t.csv")
    texts, _, _ = read_own_table(path, "regress", TableColumns(), labelled=False)
    assert [one.label for one in texts.examples] == [None, -1.0]


@pytest.mark.parametrize(("name", "content", "line"), [
    ("one.csv", "text\na\n\nb\n", 3),
    ("one.tsv", "text\na\n\nb\n", 3),
    ("one.jsonl", '{"text": "a"}\n\n{"text": "b"}\n', 2),
])  # fmt: skip
def test_a_blank_line_between_rows_that_are_counted(table, name, content, line):
    path = table(content, name)
    with pytest.raises(DataError, match=rf"{name}:{line}: expected a row, got a blank line, after which"):
        read_own_table(path, "classify", TableColumns(), ("neg", "pos"), labelled=False)
    path = table(content.replace("\n\n", "\n") + "\n\n", name)
    texts, _, _ = read_own_table(path, "classify", TableColumns(), ("neg", "pos"), labelled=False)
    assert len(texts) == 2  # those at the end count for nothing


def test_a_line_of_tabs_is_a_row_without_text(table):
    with pytest.raises(DataError, match=r":2: column '1': expected a text, got an empty one"):
        read_own_table(table("a\tpos\n\t\nb\tneg\n"), "classify", TableColumns("1", "2"), ("neg", "pos"))


def test_a_header_over_scores_is_left_out(table):
    texts, _, _ = read_own_table(table("review\tstars\ngood\t4.5\nbad\t1\n"), "regress", TableColumns())
    assert [one.label for one in texts.examples] == [4.5, 1.0]


def test_a_first_row_without_a_score_is_no_header(table, caplog):
    """It would shift all predictions by a line; what is left out is told."""
    path, columns = table("good\t\nbad\t1\n"), TableColumns("1", "2")
    texts, _, _ = read_own_table(path, "regress", columns, labelled=False)
    assert [one.label for one in texts.examples] == [None, 1.0]
    assert not caplog.text
    texts, _, _ = read_own_table(table("good\tn/a\nbad\t1\n"), "regress", TableColumns())
    assert [one.label for one in texts.examples] == [1.0]
    assert "line 1 is left out as a header, as 'n/a' is no number." in caplog.text


MANY = "".join(f"text {number}\t{'pos' if number % 2 else 'neg'}\n" for number in range(30))
ERRORS = [
    ("", "classify", TableColumns(), ": expected rows, got an empty file."),
    ("a\tpos\nb\n", "classify", TableColumns(), ":2: row: expected 2 cells, got 1. Look for a tab or an unclosed quote inside a text."),
    ("a\tpos\n\tneg\n", "classify", TableColumns(), ":2: column '1': expected a text, got an empty one. Remove the row."),
    ("a\tpos\nb\t\n", "classify", TableColumns(), ":2: column '2': expected a label, got an empty cell. Leave out rows without a label."),
    ("a\tpos\nb\t\nc\tneg\nd\t\ne\t\n", "classify", TableColumns(), ":2: column '2': expected a label, got an empty cell. Rows without one: 3. Leave out rows without a label."),
    ("a\tpos\nb\tpos\n", "classify", TableColumns(), ": column '2': expected at least two labels, got only 'pos'."),
    ("a\t1\nb\tnan\n", "regress", TableColumns(), ":2: score: expected a finite number, got 'nan'."),
    ("a\tpos\nb\tneg\n", "classify", TableColumns("review", "stars"), ": --text-column: expected a column 'review', got 'a', 'pos'."),
    ("text\tstars\na\tpos\n", "classify", TableColumns("text", "label"), ": --label-column: expected a column 'label', got 'text', 'stars'."),
    ("a\tb\tc\n", "classify", TableColumns(), ": expected two columns, text and label, or columns named 'text' and 'label', got 3 cells in line 1: 'a', 'b', 'c'. Name yours with --text-column and --label-column."),
    (f"review\tstars\n{MANY}", "classify", TableColumns(), ":1: expected rows of text and label, got what looks like a header: 'review', 'stars'. Give --text-column review --label-column stars, or remove the line; if it is a row, put it further down."),
    (f"review\tstars\n{MANY}text\tmixed\n", "classify", TableColumns(), ":1: expected rows of text and label, got what looks like a header: 'review', 'stars'. Give --text-column review --label-column stars, or remove the line; if it is a row, put it further down."),
    ("".join(f"pos\ttext {number}\n" for number in range(30)), "classify", TableColumns(), ": column '2': expected labels that occur again, got 30 different ones in 30 rows. Name the label's column with --label-column, or use --task regress."),
]  # fmt: skip


@pytest.mark.parametrize(("content", "kind", "columns", "problem"), ERRORS)
def test_tables_that_cannot_be_used(table, content, kind, columns, problem):
    path = table(content)
    with pytest.raises((DataError, ConfigError)) as caught:
        read_own_table(path, kind, columns)
    assert str(caught.value) == f"{path}{problem}"


def test_a_comma_in_a_text_of_a_csv_is_named(table):
    path = table("text,label\na,b,pos\n", "mine.csv")
    with pytest.raises(DataError) as caught:
        read_own_table(path, "classify", TableColumns())
    told = (
        "row: expected 2 cells, got 3. Look for a comma without quotes around the cell or an unclosed quote"
    )
    assert str(caught.value) == f"{path}:2: {told} inside a text."


LINES = [
    ('{"text": ["The", "dog"], "label": "a"}', 1, "column 'text': expected a text, got ['The', 'dog']. Join words with spaces; texts have a column each."),
    ('{"text": true, "label": "a"}', 1, "column 'text': expected a text, got True. Join words with spaces; texts have a column each."),
    ('{"text": "c", "text_pair": "d", "label": "a"}', 3, "row: expected the columns of line 1, got text_pair as well. Give a second text in every row, or in none."),
]  # fmt: skip


@pytest.mark.parametrize(("line", "place", "problem"), LINES)
def test_lines_of_json_that_hold_something_else(table, line, place, problem):
    lines = ['{"text": "a", "label": "a"}', '{"text": "b", "label": "b"}']
    lines.append('{"text": "e", "label": "b", "text_pair": null}')
    lines.insert(place - 1, line)
    path = table("\n".join([*lines, ""]), "mine.jsonl")
    with pytest.raises(DataError) as caught:
        read_own_table(path, "classify", TableColumns())
    assert str(caught.value) == f"{path}:{place}: {problem}"


def test_another_format_of_tables_is_named(table):
    with pytest.raises(DataError, match=r"mine\.parquet:"):
        read_own_table(table("PAR1", "mine.parquet"), "classify", TableColumns())


@pytest.mark.parametrize("head", ["text,label,text", "text,label,label"])
def test_a_column_that_is_there_twice_is_refused(table, head):
    path = table(f"{head}\ngood,a,x\nbad,b,y\n", "mine.csv")
    twice = head.rpartition(",")[2]
    with pytest.raises(
        DataError, match=rf": line 1: expected column '{twice}' once, got it twice\. Rename one\.$"
    ):
        read_own_table(path, "classify", TableColumns())


def test_columns_that_are_known_but_not_read_are_named(table, messages):
    path = table("text,label,score\ngood,1,0.7\nbad,0,0.2\nodd,1,0.3\n", "mine.csv")
    texts, columns, _ = read_own_table(path, "regress", TableColumns())
    assert columns.label == "score"
    assert [one.label for one in texts.examples] == [0.7, 0.2, 0.3]
    told = f"{path}: 'text', 'score' are read, 'label' not. Choose by --text-column and --label-column."
    assert told in messages.text
    assert read_own_table(path, "classify", TableColumns())[1].label == "label"
    assert f"{path}: 'text', 'label' are read, 'score' not." in messages.text


def test_small_tables_whose_labels_are_all_different(table):
    content = "a\tone\nb\ttwo\nc\tthree\nd\tfour\n"
    assert read_own_table(table(content), "classify", TableColumns())[2] == ("four", "one", "three", "two")
    assert len(read_own_table(table("a\t1\nb\t2\nc\t2\nd\t2\n"), "regress", TableColumns())[0]) == 4


def test_labels_are_counted_in_the_log(table, messages):
    path = table(MANY)
    read_own_table(path, "classify", TableColumns())
    assert f"{path}: labels, sorted (numbers by value): neg (15), pos (15)" in messages.text


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        ('"review";"mood"\n"good";"pos"\n', '"review";"mood"', "semicolons"),
        ("good\tpos\nbad\tneg\n", "good\tpos", "tabs"),
    ],
)
def test_a_csv_with_another_separator(table, content, line, what):
    path = table(content, "mine.csv")
    with pytest.raises(DataError, match=":1: expected commas between the cells of a CSV"):
        read_own_table(path, "classify", TableColumns())


def test_texts_with_a_semicolon_are_texts(table):
    path = table("good film; bad end\nbad film\n", "texts.csv")
    texts, _, _ = read_own_table(path, "classify", TableColumns(), ("neg", "pos"), labelled=False)
    assert [one.texts for one in texts.examples] == [("good film; bad end",), ("bad film",)]


def test_columns_of_a_model_are_named_without_the_options_of_training(table):
    path = table("text\tlabel\na\tpos\n")
    with pytest.raises(DataError, match=": text, as in training:"):
        read_own_table(path, "classify", TableColumns("review", "mood"), ("neg", "pos"), labelled=False)


def test_a_quote_that_is_never_closed(table):
    path = table('text,label\n"a,pos\nb,neg\n', "open.csv")
    with pytest.raises(DataError, match=r"open\.csv:\d: expected CSV with every quote closed, got: "):
        read_own_table(path, "classify", TableColumns())


@pytest.fixture
def read(tmp_path):
    def make(train, dev=None, task="classify", **data):
        options = {"task": task, "model": "x", "output": tmp_path / "out"}
        content = {"train": str(train), "dev": None if dev is None else str(dev), **data}
        return read_finetune_data(load_finetune({**options, "data": content}))

    return make


def test_an_unknown_label_on_dev(table, read):
    train, dev = table(MANY), table("text\tneutral\n", "dev.tsv")
    with pytest.raises(DataError, match=":1: label:"):
        read(train, dev)


def test_a_tenth_is_held_out_and_the_same_one_every_time(table, read):
    one, two = read(table(MANY)), read(table(MANY))
    assert (len(one.train), len(one.dev)) == (27, 3)
    assert one.dev.examples == two.dev.examples
    assert not {example.line for example in one.dev.examples} & {
        example.line for example in one.train.examples
    }
    with pytest.raises(DataError, match=r"few\.tsv:"):
        read(table("a\tpos\nb\tneg\n", "few.tsv"))


def test_equal_texts_are_not_held_out_from_themselves(table, read, messages):
    content = "".join(f"text {number // 3}\t{'pos' if number % 2 else 'neg'}\n" for number in range(60))
    found = read(table(content))
    assert (len(found.train), len(found.dev)) == (54, 6)
    assert not {one.texts for one in found.train.examples} & {one.texts for one in found.dev.examples}
    assert "equal texts" not in messages.text
    few = read(table("one\tpos\ntwo\tneg\n" * 20, "few.tsv"))  # no text could be spared
    assert "few.tsv: both parts have equal texts, which raises scores on dev. Give --dev." in messages.text
    assert (len(few.train), len(few.dev)) == (36, 4)


def test_nothing_to_learn_from(table, read, tmp_path):
    train = table("a\t1.0\nb\t1.0\n")
    with pytest.raises(DataError, match=": label:"):
        read(train, train, task="regress")


def test_files_that_were_not_given(read, tmp_path):
    options = {"task": "classify", "model": "x", "output": tmp_path / "out"}
    with pytest.raises(ConfigError, match=r"^train:"):
        read_finetune_data(load_finetune(options))
    with pytest.raises(ConfigError, match="data:"):
        read_finetune_data(load_finetune({**options, "task": "cola"}))
    with pytest.raises(ConfigError, match=r"^columns:"):
        read_finetune_data(
            load_finetune({**options, "task": "cola", "data": {"dir": tmp_path, "text_column": "text"}})
        )


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
    problem = rf"^--task {task}: expected no option of tables, got {told}\. Leave it out"
    with pytest.raises(ConfigError, match=problem):
        read(table("a\tO\n"), task=task, **data)


def test_the_annotator_of_a_table_is_of_its_language(table, tmp_path, messages):
    """Else German would be parsed as English without a word; official tasks are English."""

    def chosen(*lines, named=None):
        rows = [f"{line} {row}\t{'xy'[row % 2]}\n" for row, line in enumerate(lines * 20)]
        options = {
            "task": "classify",
            "model": "x",
            "output": tmp_path / "out",
            "annotation": {"annotator": named},
        }
        config = load_finetune({**options, "data": {"train": str(table("".join(rows)))}})
        return _wanted(config, read_finetune_data(config), {"upos"})

    german = "Ein Hund bellt den großen Mann an.", "Zwei Frauen laufen über die Straße."
    assert chosen("A dog barks at the tall man.", "Two women run across the street.") == "en"
    assert chosen(*german) == "de"
    with pytest.raises(ConfigError, match=r"for fr, the language of the texts, .*, or"):
        chosen("Le chat dort sur le tapis.", "Nous allons à la plage.")
    told = "annotation.annotator: en+phrases, but the language of the texts, says py3langid, is de"
    assert chosen(*german, named="de+phrases") == "de+phrases"
    assert "but the language" not in messages.text
    assert chosen(*german, named="en+phrases") == "en+phrases"
    assert told in messages.text


def test_a_missing_number_is_no_label(table, read):
    """`json.dumps` writes NaN for what a pandas row lacks."""
    rows = "".join(f'{{"text": "t {i}", "label": {i % 2 if i != 7 else "NaN"}}}\n' for i in range(40))
    with pytest.raises(DataError, match=r"nan\.jsonl:8: column 'label': expected a label, got an empty cell"):
        read(table(rows, "nan.jsonl"))


def test_several_labels_of_which_one_or_none_occurs(table, read):
    def lists(name, *labels):
        rows = (f'{{"text": "t {i}", "labels": {labels[i % len(labels)]}}}\n' for i in range(40))
        return table("".join(rows), name)

    found = read(lists("one.jsonl", '["spam"]', "[]"), task="multilabel")  # it holds, or not
    assert found.task.labels == ("spam",)
    with pytest.raises(DataError, match=r"two different ones to learn from, got only \('spam',\)\."):
        read(lists("same.jsonl", '["spam"]'), task="multilabel")
    with pytest.raises(DataError, match=r"none\.jsonl: labels: expected some to learn, got none in any row"):
        read(lists("none.jsonl", "[]"), task="multilabel")
    with pytest.raises(DataError, match=r"two different ones to learn from, got only \(\)\."):
        read(lists("few.jsonl", *["[]"] * 39, '["spam"]'), rows=20, task="multilabel")


CELLS = [
    "=cmd|' /C calc'!A0",
    "@SUM(A1)",
    "-",
    "-1+1",
    "'=1",
    "''-",
    "\t=1",
    "+49 30",
    "a=1",
    "'s",
    "",
    "-0.5",
    "+1",
    "-1e-5",
]


def test_held_out_rows_are_no_formulas_for_a_spreadsheet_and_are_read_back_as_they_were(tmp_path):
    train = SimpleNamespace(examples=[])
    _write_rows(
        tmp_path,
        SimpleNamespace(held_out=[["=text", "label"], *([cell, "x"] for cell in CELLS)], train=train),
    )
    with (tmp_path / "held_out.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["'=text", "label"]
    quoted = [f"'{cell}" for cell in CELLS[:8]]
    assert [row[0] for row in rows] == [*quoted, *CELLS[8:]]  # and numbers stay numbers
    table = read_table(tmp_path / "held_out.csv")
    assert table.columns == ["=text", "label"]
    assert [row.cells["=text"] for row in table.rows] == CELLS
    (tmp_path / "held_out.csv").rename(tmp_path / "mine.csv")  # of the user's own, quotes are text
    assert next(iter(read_table(tmp_path / "mine.csv").rows)).cells["'=text"] == quoted[0]


def test_predicted_labels_are_no_formulas_for_a_spreadsheet():
    labels = ("=cmd|x", "-1", "fine")
    found = Predictions(labels=list(labels), probabilities=[[1.0, 0.0, 0.0]] * 3)
    head, *rows = OneLabel(labels).table(found)
    assert [row.split("\t")[0] for row in rows] == ["'=cmd|x", "-1", "fine"]
    assert head.split("\t") == ["prediction", "p(=cmd|x)", "p(-1)", "p(fine)"]
    assert OneLabel(labels).submitted("=cmd|x") == "=cmd|x"  # the server reads the label itself
