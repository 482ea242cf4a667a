from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syntaxformer.annotate import read_annotations, write_annotations
from syntaxformer.base.errors import AlignmentError
from syntaxformer.syntax import CodedColumn, WordColumns
from syntaxformer.trees import Sentence

DOGS = Sentence.from_words(
    ["Dogs", "bark"], upos=("NOUN", "VERB"), governors=(1, -1), deprels=("nsubj", "root")
)
EMPTY = Sentence.from_words([])
GO = Sentence.from_words(["Go"], upos=("VERB",), governors=(-1,), deprels=("root",))


def test_from_sentences():
    columns = WordColumns.from_sentences([DOGS, EMPTY, GO], {"tone": [["a", "b"], [], ["a"]]})
    assert columns.texts == ["Dogs bark", "", "Go"]
    assert columns.row_splits.tolist() == [0, 2, 2, 3]
    assert columns.offsets.tolist() == [[0, 4], [5, 9], [0, 2]]
    assert columns.upos.decode() == ["NOUN", "VERB", "VERB"]
    assert columns.governors.tolist() == [1, -1, -1]
    assert columns.deprels.decode() == ["nsubj", "root", "root"]
    assert columns.user["tone"].decode() == ["a", "b", "a"]
    assert columns.provides == {"upos", "governors", "deprels"}


def test_no_words_and_no_annotation():
    assert WordColumns.from_sentences([]).n_words == 0
    assert WordColumns.from_sentences([EMPTY]).offsets.shape == (0, 2)
    bare = WordColumns.from_sentences([Sentence.from_words(["a"]), EMPTY])
    assert (bare.provides, bare.n_words) == (frozenset(), 1)


def test_a_line_whose_words_have_no_morphology_does_not_take_it_from_others():
    """Treebanks have lines of nothing but "***"; read from a file they are as lines without the column."""
    annotations = {"lemmas": ("dog", "bark"), "feats": ("Number=Plur", "_"), "xpos": ("NNS", "VBP")}
    columns = WordColumns.from_sentences([replace(DOGS, **annotations), EMPTY, GO])
    assert columns.provides == {"upos", "governors", "deprels", "lemmas", "feats", "xpos"}
    assert columns.feats.decode() == ["Number=Plur", "_", "_"]


ZERO = np.zeros(1, np.int32)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WordColumns.from_sentences([DOGS, EMPTY, Sentence.from_words(["x"])], first_line=10), r"line 12: .*got one line without, unlike others\."),
        (lambda: WordColumns.from_sentences([DOGS, GO], {"tone": [["a", "b"], ["c", "d"]]}, first_line=5), r"line 6: .*got 2\."),
        (lambda: WordColumns.from_sentences([DOGS, GO], {"tone": [["a", "b"]]}), r"column tone: expected 2 lines, got 1\.$"),
        (lambda: WordColumns.from_sentences([DOGS, GO]).with_user_column("tone", ["a"]), r"tone: expected 3 values, one per word, got 1\.$"),
        (lambda: WordColumns(["a"], np.array([0, 1]), ZERO, np.zeros(2, np.int32)), r"ends: expected 1 values, one per word, got 2\.$"),
        (lambda: WordColumns(["a", ""], np.array([0, 1]), ZERO, ZERO), r"row_splits: expected 3 positions for 2 lines, got 2\.$"),
        (lambda: WordColumns(["a"], np.array([0, 4]), ZERO, ZERO), r"row_splits: .*got \[0, 4\]\."),
        (lambda: CodedColumn(np.array([0, 2]), ("a", "b")), r"codes: .*got 0 to 2\."),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit(make, message):
    with pytest.raises(AlignmentError, match=f"^{message}"):
        make()


def test_coded_column():
    column = CodedColumn.from_values(["b", "a", "b"])
    assert column.values == ("b", "a")
    assert column.codes.tolist() == [0, 1, 0]
    assert column[1:].decode() == ["a", "b"]


def test_from_an_annotated_corpus(tmp_path):
    path = tmp_path / "corpus.parquet"
    sentences = [GO, DOGS, EMPTY]
    write_annotations(path, sentences, annotator="hand", version="1", content_hash="0")
    corpus = read_annotations(path)
    columns = WordColumns.from_corpus(corpus, ["Dogs bark", ""], start=1)
    expected = WordColumns.from_sentences([DOGS, EMPTY])
    for name in ("row_splits", "starts", "ends", "governors"):
        assert getattr(columns, name).tolist() == getattr(expected, name).tolist()
    for name in ("upos", "deprels"):
        assert getattr(columns, name).decode() == getattr(expected, name).decode()
    assert columns.first_line == 2
    with pytest.raises(AlignmentError, match=r"^row_splits: expected 5 positions for 4 lines, got 4\.$"):
        WordColumns.from_corpus(corpus, ["Go", "Dogs bark", "", "more"])
