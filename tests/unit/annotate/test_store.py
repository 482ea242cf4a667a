"""Annotated text on disk: files, the cache, and lines that were annotated before."""

import errno
import hashlib
import logging
import multiprocessing
import os
import pickle
from copy import copy
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from syntaxformer.annotate import (
    AnnotatedBefore,
    annotate_cached,
    annotate_to_file,
    read_annotations,
    store,
    write_annotations,
)
from syntaxformer.annotate.annotator import SpacedWords, blank_sentence, hash_lines
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.trees import Sentence
from table_annotator import TableAnnotator

CAT = Sentence.from_words(["the", "cat"], upos=("DET", "NOUN"), governors=(1, -1), deprels=("det", "root"))
SAT = Sentence.from_words(
    ["it", "sat", "."], upos=("PRON", "VERB", "PUNCT"), governors=(1, -1, 1), deprels=("a", "root", "c")
)
EMPTY = blank_sentence("", frozenset({"upos", "governors", "deprels"}))
SENTENCES = [CAT, EMPTY, SAT, CAT]
ABOUT = {"annotator": "en", "version": "1", "content_hash": "x"}


class CountingAnnotator(SpacedWords):
    """Counts the lines that it sees."""

    n_lines = 0

    def stream(self, lines, *, n_processes=1):
        for sentence in super().stream(lines):
            self.n_lines += 1
            yield sentence


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.parquet"


BARE = Sentence.from_words(["bare"])
ZUM = Sentence(
    "zum", ("zu", "dem"), ((0, 3), (0, 3)), lemmas=("zu", "der"), xpos=("A", "B"), constituency="(X zum)"
)


@pytest.mark.parametrize("rows_per_group", [1, 3, 4096])
@pytest.mark.parametrize("parts", [[SENTENCES, [SAT]], [[EMPTY], [], [CAT, BARE]], [[ZUM, CAT], [BARE]], []])
def test_sentences_come_back_and_merged_files_are_as_one(path, tmp_path, monkeypatch, parts, rows_per_group):
    monkeypatch.setattr(store, "ROWS_PER_GROUP", rows_per_group)
    sentences, tables = [sentence for chunk in parts for sentence in chunk], []
    write_annotations(path, sentences, **ABOUT)
    for number, chunk in enumerate(parts):
        write_annotations(tmp_path / f"{number}.parquet", chunk, **ABOUT)
        tables += read_annotations(tmp_path / f"{number}.parquet").tables()
    store.write_tables(tmp_path / "merged.parquet", tables, **ABOUT)
    assert (tmp_path / "merged.parquet").read_bytes() == path.read_bytes()
    annotated = read_annotations(path)
    assert list(annotated) == annotated[:] == list(pickle.loads(pickle.dumps(annotated))) == sentences
    assert len(annotated.columns().row_offsets) == len(annotated) + 1 == len(sentences) + 1


def test_header_and_flat_arrays(path):
    write_annotations(path, SENTENCES, **ABOUT)
    annotated = read_annotations(path)
    header = annotated.header
    assert (header.annotator, header.version, header.content_hash) == ("en", "1", "x")
    assert (header.n_lines, header.n_words) == (4, 7)
    assert header.columns == ("upos", "deprels", "governors")
    assert annotated[-1] == CAT
    columns = annotated.columns()
    assert columns.row_offsets.tolist() == [0, 2, 2, 5, 7]
    assert columns.starts.tolist() == [0, 4, 0, 3, 7, 0, 4]
    assert columns.ends.tolist() == [3, 7, 2, 6, 8, 3, 7]
    assert columns.values["upos"].tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert columns.values["governors"].tolist() == [1, -1, 1, -1, 1, 1, -1]
    assert columns.values["governors"].dtype == np.int16
    assert columns.tags["upos"] == ("DET", "NOUN", "PRON", "VERB", "PUNCT")
    assert "xpos" not in columns.values
    assert annotated.columns(4).row_offsets.tolist() == [0]
    with pytest.raises(IndexError, match="line: expected 0 to 3, got 4"):
        annotated[4]
    write_annotations(path, [CAT, BARE], **ABOUT)
    assert not read_annotations(path).columns().values  # which some sentences lack


def test_columns_over_many_batches(path, monkeypatch):
    monkeypatch.setattr(store, "ROWS_PER_GROUP", 2)
    sentences = [SENTENCES[i % 4] for i in range(23)]
    write_annotations(path, sentences, **ABOUT)
    annotated = read_annotations(path)
    assert list(annotated) == sentences
    for start, stop in ((0, 23), (1, 2), (3, 8), (7, 7), (22, 23)):
        columns, rows = annotated.columns(start, stop), sentences[start:stop]
        assert columns.row_offsets.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
        assert columns.values["governors"].tolist() == [value for row in rows for value in row.governors]
        tags = [columns.tags["deprels"][code] for code in columns.values["deprels"]]
        assert tags == [deprel for row in rows for deprel in row.deprels]
    rows = np.random.default_rng(7).permutation(23)
    assert list(store.sentences_of(annotated.take(rows))) == [sentences[row] for row in rows]


def test_no_lines(path):
    write_annotations(path, [], **ABOUT)
    annotated = read_annotations(path)
    assert len(annotated) == len(list(annotated)) == 0
    assert annotated.columns().row_offsets.tolist() == [0]
    with pytest.raises(IndexError, match="line: expected 0 to -1, got 0"):
        annotated[0]


def test_a_line_of_5000_words_fits_and_what_does_not_fit_is_refused(path):
    long = Sentence.from_words(["w"] * 5000, governors=tuple(range(-1, 4999)))
    write_annotations(path, [long], **ABOUT)
    assert read_annotations(path)[0] == long
    with pytest.raises(DataError, match=r"^line 2 of the text: .* 32,767 words, got 40,000"):
        write_annotations(path, [CAT, Sentence.from_words(["w"] * 40_000)], **ABOUT)
    assert read_annotations(path)[0] == long
    with pytest.raises(DataError, match=r"text: expected characters that UTF-8 can hold, got '\\ud800'"):
        write_annotations(path, [Sentence.from_words(["\ud800"])], **ABOUT)


def test_a_full_disk_leaves_nothing(path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fail)
    with pytest.raises(DataError, match=r"a\.parquet: .*No space left on device"):
        write_annotations(path, SENTENCES, **ABOUT)
    assert list(path.parent.iterdir()) == []


DAMAGES = {
    "missing": lambda path, content: path.unlink(),
    "truncated": lambda path, content: path.write_bytes(content[: len(content) // 2]),
    "flipped": lambda path, content: path.write_bytes(_flipped(content, 200)),
    "empty": lambda path, content: path.write_bytes(b""),
    "foreign": lambda path, content: pq.write_table(pa.table({"text": ["a"]}), path),
}


def _flipped(content, position):
    return content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_files_are_named(path, damage):
    write_annotations(path, SENTENCES * 100, **ABOUT)
    damage(path, path.read_bytes())
    with pytest.raises(DataError, match=r"a\.parquet: .*`syntaxformer annotate`"):
        list(read_annotations(path))


def test_a_file_of_another_format_and_one_that_lost_rows_are_refused(path, monkeypatch):
    monkeypatch.setattr("syntaxformer.annotate.store.FORMAT", 99)
    write_annotations(path, SENTENCES, **ABOUT)
    header = pq.ParquetFile(path).metadata.metadata
    monkeypatch.undo()
    pq.write_table(pq.read_table(path)[:1].replace_schema_metadata(header), path)
    with pytest.raises(DataError, match="expected 4 rows with columns text, words"):
        read_annotations(path)
    old = header[b"syntaxformer"].replace(b'"format": 3', b'"format": 99').replace(b"n_words", b"n_tokens")
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"syntaxformer": old}), path)
    with pytest.raises(DataError, match="header: expected format 3, got 99"):
        read_annotations(path)


def test_nothing_is_tagged_twice_unless_it_is_damaged(tmp_path, caplog):
    annotator = CountingAnnotator()
    lines = ["a b", "", "c"]
    first = annotate_cached(lines, annotator, tmp_path)
    left = first.path.with_name(f".{first.path.name}.abcdefgh.partial")
    left.touch()  # by a writer that was killed
    again = annotate_cached(iter(lines), annotator, tmp_path)
    assert annotator.n_lines == 3
    assert list(first) == list(again)
    assert first.header.content_hash == hash_lines(lines)
    annotate_cached(["a b", "", "d"], annotator, tmp_path)
    assert annotator.n_lines == 6
    annotator.version = "2"
    annotated = annotate_cached(lines, annotator, tmp_path)
    assert annotator.n_lines == 9
    assert not left.exists()
    annotated.path.write_bytes(_flipped(annotated.path.read_bytes(), 10))
    assert list(annotate_cached(lines, annotator, tmp_path)) == list(first)
    assert annotator.n_lines == 12
    assert "annotating again" in caplog.text


def test_an_annotation_that_lacks_columns_is_made_again(tmp_path):
    """As after an object of the same name and version that gave less."""
    fewer = TableAnnotator()
    fewer.provides = frozenset({"upos"})
    annotate = fewer.stream
    fewer.stream = lambda lines, **how: (
        replace(sentence, governors=None, deprels=None) for sentence in annotate(lines, **how)
    )
    assert annotate_cached(["the cat sat ."], fewer, tmp_path).header.columns == ("upos",)
    annotations = annotate_cached(["the cat sat ."], TableAnnotator(), tmp_path)
    assert {"upos", "governors", "deprels"} <= set(annotations.header.columns)
    assert annotate_cached(["the cat sat ."], fewer, tmp_path).header.columns == annotations.header.columns


def test_the_cache_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTAXFORMER_CACHE", str(tmp_path / "here"))
    assert store.cache_folder() == tmp_path / "here"
    assert annotate_cached(["a"], CountingAnnotator()).path.parent == tmp_path / "here" / "annotations"
    monkeypatch.delenv("SYNTAXFORMER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store.cache_folder() == tmp_path / "syntaxformer"


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="expected a cache folder to write to, got: "):
        annotate_cached(["a"], CountingAnnotator(), tmp_path / "file")


def _annotate_in_process(folder, ready, results):
    annotator = CountingAnnotator()
    ready.wait()
    annotated = annotate_cached(["some text"] * 2000, annotator, folder)
    results.put((annotator.n_lines, len(annotated)))


@pytest.mark.slow
def test_two_processes_at_once_annotate_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(2), context.Queue()
    workers = [
        context.Process(target=_annotate_in_process, args=(tmp_path, ready, results)) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    counts = sorted(results.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    assert counts == [(0, 2000), (2000, 2000)]


def test_a_break_within_a_line_is_no_end_of_a_line():
    """Cells of a table may have breaks: their annotation was once that of two other lines."""
    assert hash_lines(["a\nb"]) != hash_lines(["a", "b"])
    assert hash_lines(["a", "b"]) == hashlib.sha256(b"a\nb\n").hexdigest(), "as that of a file"


LINES = ["John slipped .", "", "It rains .", "John slipped .", "A new line .", "It rains ."]


@pytest.fixture
def file(annotator, tmp_path):
    path = tmp_path / "before.parquet"
    annotate_to_file(path, ["It rains .", "unused", "", "John slipped ."], annotator)
    return path


@pytest.fixture
def listening(annotator):
    """The annotator, which remembers the lines that reach it."""
    listening, seen = copy(annotator), []
    listening.stream = lambda lines, **how: annotator.stream(
        [seen.append(line) or line for line in lines], **how
    )
    listening.seen = seen
    return listening


@pytest.mark.parametrize("at_a_time", [1, 2, 100])
def test_only_lines_that_are_in_no_file_are_annotated(
    file, annotator, listening, monkeypatch, caplog, at_a_time
):
    monkeypatch.setattr(store, "_LINES_AT_A_TIME", at_a_time)
    before = AnnotatedBefore(listening, [file])
    with caplog.at_level(logging.INFO):
        assert list(before.stream(iter(LINES))) == list(annotator.stream(LINES))
    assert listening.seen == ["A new line ."]
    assert "annotation: 5 of 6 lines were annotated before" in caplog.text
    assert (before.name, before.version) == (annotator.name, annotator.version)
    assert before.annotate_words([["It", "rains"]]) == annotator.annotate_words([["It", "rains"]])


def test_two_texts_of_one_hash_are_told_apart(file, annotator, monkeypatch):
    monkeypatch.setattr(store, "_hashes", lambda lines: np.full(len([*lines]), 7, np.uint64))
    assert list(AnnotatedBefore(annotator, [file]).stream(LINES)) == list(annotator.stream(LINES))


@pytest.mark.parametrize(
    ("change", "match"),
    [({"version": "2"}, r"before\.parquet by "), ({"provides": frozenset({"constituency"})}, "constituency")],
)
def test_a_file_of_another_annotator_is_refused(file, listening, change, match):
    vars(listening).update(change)
    with pytest.raises(ConfigError, match=rf"annotation\.annotated: .*{match}"):
        AnnotatedBefore(listening, [file])
