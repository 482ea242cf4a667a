"""Merged corpora are, byte for byte, what writing all sentences gives."""

import pytest

from syntaxformer.annotate import read_annotations, write_annotations
from syntaxformer.annotate.annotator import blank_sentence, hash_lines
from syntaxformer.annotate.corpora.stored import merge_annotations
from syntaxformer.base.errors import DataError
from syntaxformer.trees import Sentence

CAT = Sentence.from_words(["the", "cat"], upos=("DET", "NOUN"), governors=(1, -1), deprels=("det", "root"))
SAT = Sentence.from_words(
    ["it", "sat", "."], upos=("PRON", "VERB", "PUNCT"), governors=(1, -1, 1), deprels=("a", "root", "c")
)
TREE = Sentence.from_words(
    ["cats", "sat"], upos=("NOUN", "VERB"), lemmas=("cat", "sit"), constituency="(S (NN cats) (VB sat))"
)
ZUM = Sentence("zum Ä", ("zu", "dem", "Ä"), ((0, 3), (0, 3), (4, 5)), upos=("ADP", "DET", "NOUN"))
BARE = Sentence.from_words(["bare"])
EMPTY = blank_sentence("", frozenset({"upos", "governors", "deprels"}))
ABOUT = {"annotator": "en", "version": "1"}


def _merged(tmp_path, parts):
    """Bytes of the merged file, and of the file written at once."""
    sentences = [sentence for part in parts for sentence in part]
    content_hash = hash_lines(sentence.text for sentence in sentences)
    paths = [tmp_path / f"{number}.parquet" for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        write_annotations(path, part, content_hash="of the part", **ABOUT)
    merge_annotations(tmp_path / "merged.parquet", paths, content_hash=content_hash, **ABOUT)
    write_annotations(tmp_path / "whole.parquet", sentences, content_hash=content_hash, **ABOUT)
    return (tmp_path / "merged.parquet").read_bytes(), (tmp_path / "whole.parquet").read_bytes()


@pytest.mark.parametrize(
    "parts",
    [
        [[CAT, SAT], [SAT, EMPTY, CAT]],
        [[SAT], [], [EMPTY, EMPTY], [CAT]],
        [[EMPTY], [CAT, BARE, CAT]],
        [[TREE, ZUM], [CAT, TREE], [BARE]],
        [[EMPTY]],
        [],
    ],
)
@pytest.mark.parametrize("rows_per_group", [1, 2, 3, 4096])
def test_merged_is_written_at_once(tmp_path, monkeypatch, parts, rows_per_group):
    monkeypatch.setattr("syntaxformer.annotate.corpora.stored.ROWS_PER_GROUP", rows_per_group)
    merged, whole = _merged(tmp_path, parts)
    assert merged == whole
    assert list(read_annotations(tmp_path / "merged.parquet")) == [one for part in parts for one in part]


def test_many_groups(tmp_path):
    sizes = (4096, 1, 5003, 0, 8191)
    parts = [[(CAT, SAT, EMPTY)[(7 * row + size) % 3] for row in range(size)] for size in sizes]
    merged, whole = _merged(tmp_path, parts)
    assert merged == whole


def test_other_lines(tmp_path):
    write_annotations(tmp_path / "part.parquet", [CAT, SAT], content_hash="x", **ABOUT)
    with pytest.raises(
        DataError, match=r"the parts to hold the lines .* got 2 lines that differ\. Nothing was"
    ):
        merge_annotations(
            tmp_path / "m.parquet", [tmp_path / "part.parquet"], content_hash=hash_lines(["a", "b"]), **ABOUT
        )
    assert not (tmp_path / "m.parquet").exists()
