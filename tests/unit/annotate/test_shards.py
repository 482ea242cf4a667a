"""Shards without Ray: what workers do, resume, errors, the audit."""

import gzip
import logging
from dataclasses import replace
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from syntaxformer.annotate import (
    annotate_to_file,
    annotator_identity,
    load_annotator,
    read_annotations,
    shards,
    store,
    write_annotations,
)
from syntaxformer.annotate.shards import Job, SourceLines, annotate_shard, annotate_sharded, in_processes
from syntaxformer.base.errors import DataError

LINES = [f"John slipped {number} times. John slipped." if number % 7 else "" for number in range(103)]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


@pytest.fixture
def job(source, annotator, tmp_path):
    return Job(str(source), tmp_path / "out.parquet", annotator.name, annotator.version)


@pytest.fixture
def english_job(source, tmp_path):
    """A job of an annotator that processes load by its name."""
    return Job(str(source), tmp_path / "out.parquet", *annotator_identity("en"))


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(shards, "LINES_PER_SHARD", 10)


def here(annotator, seen=None):
    """The engine of this process; `seen` gets the numbers of the first lines of its shards."""

    def work(waiting):
        for shard in waiting:
            if seen is not None:
                seen.append(shard.first)
            yield annotate_shard(annotator, shard)

    return work


def test_shards_give_what_one_process_gives(job, source, annotator, tmp_path):
    (corpus,) = annotate_sharded([job], here(annotator))
    annotate_to_file(tmp_path / "plain.parquet", LINES, annotator)
    assert job.target.read_bytes() == (tmp_path / "plain.parquet").read_bytes()
    assert [sentence.text for sentence in corpus] == LINES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.parquet", "plain.parquet"]


@pytest.mark.slow
@pytest.mark.parametrize("n_processes", [1, 2])
def test_processes_here_give_what_one_process_gives(english_job, tmp_path, n_processes):
    annotate_sharded([english_job], in_processes("en", n_processes))
    annotate_to_file(tmp_path / "plain.parquet", LINES, load_annotator("en"))
    assert english_job.target.read_bytes() == (tmp_path / "plain.parquet").read_bytes()


def test_a_finished_job_does_no_work_and_says_so(job, annotator, caplog):
    seen = []
    annotate_sharded([job], here(annotator, seen))
    before = job.target.stat().st_mtime_ns
    with caplog.at_level(logging.INFO):
        (corpus,) = annotate_sharded([job], here(annotator, seen))
    assert seen == list(range(0, 103, 10))
    assert len(corpus) == 103
    assert job.target.stat().st_mtime_ns == before
    assert "nothing to do: all 1 file(s) are annotated" in caplog.text


def test_a_broken_run_goes_on_where_it_was(job, annotator, caplog):
    def stop_early(waiting):
        yield from here(annotator)(islice(waiting, 4))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        annotate_sharded([job], stop_early)
    (folder,) = job.target.parent.glob(".out.parquet.*.shards")
    # A shard that was changed, one that was cut off, and one of other lines are made again.
    paths = sorted(folder.glob("*.parquet"))
    content = paths[0].read_bytes()
    paths[0].write_bytes(content[:200] + bytes([content[200] ^ 0xFF]) + content[201:])
    paths[1].write_bytes(b"")
    paths[2].write_bytes(paths[3].read_bytes())
    seen = []
    with caplog.at_level(logging.INFO):
        annotate_sharded([job], here(annotator, seen))
    assert seen == [0, 10, 20, *range(40, 103, 10)]
    assert "going on: 1 of 11 shards are done" in caplog.text
    assert [sentence.text for sentence in read_annotations(job.target)] == LINES


@pytest.mark.parametrize("rows", [["x", "a" * 30_000_000, "y"], ["a" * 1_000_001]], ids=["packed", "long"])
def test_a_row_of_parquet_is_a_line_and_has_its_bound(tmp_path, rows):
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": rows}), path, compression="zstd" if len(rows) > 1 else "none")
    with pytest.raises(DataError, match=r"in\.parquet.*column text: expected .*at most [0-9,]+ bytes"):
        len(SourceLines(str(path)))


def test_lines_of_a_shard_are_never_more_text_than_memory_should_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MAX_CHARACTERS", 5)
    path = tmp_path / "in.txt"
    path.write_text("123\n12\n1\n123456\n")
    plan = shards._plan(Job(str(path), tmp_path / "out.parquet", "", ""))
    assert [(shard.first, len(shard.lines)) for shard in plan.waiting()] == [(0, 2), (2, 1), (3, 1)]


class Choosy:
    """An annotator that fails on some lines."""

    def __init__(self, annotator):
        self.annotator, self.version, self.bad = annotator, annotator.version, "slipped 25 "

    def stream(self, lines):
        if any(self.bad in line for line in lines):
            raise RuntimeError("out of luck")
        return self.annotator.stream(lines)


def test_an_error_costs_its_shard_only(job, annotator, tmp_path):
    (tmp_path / "other.txt").write_text("John slipped .\n")
    second = replace(job, source=str(tmp_path / "other.txt"), target=tmp_path / "other.parquet")
    choosy = Choosy(annotator)
    with pytest.raises(
        DataError, match=r"got 1 that failed, .*in\.txt, lines 21 to 30: RuntimeError: out of"
    ):
        annotate_sharded([job, second], here(choosy))
    assert len(read_annotations(second.target)) == 1
    assert not list(tmp_path.glob(".out.parquet.*.shards/000002.parquet"))
    choosy.bad = "nothing"
    for name in (".out.parquet", ".out.parquet.zst"):  # of a writer that was killed, and of another name
        (tmp_path / f"{name}.a5nruqgv.partial").touch()
    seen = []
    annotate_sharded([job], here(choosy, seen))
    assert seen == [20]
    assert len(read_annotations(job.target)) == 103
    assert {path.name for path in tmp_path.glob(".*")} == {".out.parquet.zst.a5nruqgv.partial"}


def test_a_line_that_does_not_fit_the_file_has_its_number_in_the_source(job, source, annotator, monkeypatch):
    source.write_text("John slipped\n" * 11 + "John slipped in front of anyone\n")
    monkeypatch.setattr(store, "MAX_WORDS", 5)
    with pytest.raises(DataError, match=r"in\.txt, lines 11 to 12: line 12 of the text: expected at most 5 "):
        annotate_sharded([job], here(annotator))


@pytest.mark.slow
@pytest.mark.parametrize("n_processes", [1, 2])
def test_the_first_failed_write_ends_the_work(english_job, tmp_path, n_processes):
    (shards._plan(english_job).folder / "000000.parquet").mkdir(parents=True)  # what no file can replace
    with pytest.raises(DataError) as caught:
        annotate_sharded([english_job], in_processes("en", n_processes))
    assert ".shards/000000.parquet: expected to write the file" in str(caught.value)
    assert len(list(tmp_path.glob(".*.shards/*"))) < 7  # of 11: those that had been handed out


def test_a_worker_of_another_version_and_a_source_that_changes_are_refused(job, source, annotator):
    choosy = Choosy(annotator)
    choosy.version = "2"
    with pytest.raises(DataError, match=r"expected version .*, got 2\."):
        annotate_sharded([job], here(choosy))

    def change(waiting):
        source.write_text("other\n" * 103)
        return here(annotator)(waiting)

    with pytest.raises(DataError, match="the file was changed"):
        annotate_sharded([job], change)


@pytest.mark.parametrize(
    "spoil", [lambda lines: lines[::-1], lambda lines: lines[1:], lambda lines: [*lines, lines[0]]]
)
def test_the_audit_sees_lines_that_are_lost_doubled_or_out_of_order(job, annotator, spoil):
    def make(waiting):
        for shard in waiting:
            result = annotate_shard(annotator, shard)
            annotations = read_annotations(shard.path)
            about = {"annotator": "x", "version": "1", "content_hash": annotations.header.content_hash}
            write_annotations(shard.path, spoil(list(annotations)), **about)
            yield result

    with pytest.raises(DataError, match=r"out\.parquet: .* got \d+ lines that differ"):
        annotate_sharded([job], make)
    assert not job.target.exists()


def test_sources(tmp_path):
    pq.write_table(pa.table({"text": ["A dog\r\nruns .\nJohn", "slipped ."]}), tmp_path / "rows.parquet")
    assert list(SourceLines(str(tmp_path / "rows.parquet"))) == ["A dog runs . John", "slipped ."]
    pq.write_table(pa.table({"id": [1, 2], "text": ["a b", ""]}), tmp_path / "a.parquet")
    (tmp_path / "a.txt").write_text("a b\n\n")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a b\n\n"))
    for name in ("a.parquet", "a.txt", "a.gz"):
        lines = SourceLines(str(tmp_path / name))
        assert (list(lines), len(lines)) == (["a b", ""], 2)


def test_sources_that_cannot_be_read(tmp_path):
    pq.write_table(pa.table({"body": ["a"], "text": [3]}), tmp_path / "number.parquet")
    pq.write_table(pa.table({"text": ["a", "a\0b"]}), tmp_path / "nul.parquet")
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "other.parquet")
    (tmp_path / "no.parquet").write_text("no")
    (tmp_path / "bad.txt").write_bytes(b"\xff\n")
    packed = bytearray(gzip.compress(b"a line\n" * 50))
    packed[10] = 0xFF  # no kind of block that there is
    (tmp_path / "bad.gz").write_bytes(packed)
    for name, message in (
        ("number.parquet", "column text: expected text in each row, got 3 in row 1."),
        ("nul.parquet", "column text: expected text in each row, got a NUL in row 2."),
        ("other.parquet", "expected a column 'text', got body."),
        ("no.parquet", "expected a Parquet file, got: "),
        ("none.parquet", "expected a readable file, got: No such file or directory."),
        ("none.txt", "expected a readable file, got: No such file or directory."),
        ("bad.txt", "expected UTF-8"),
        ("bad.gz", "expected a whole file, got: Error -3 while decompressing data"),
    ):
        with pytest.raises(DataError) as caught:
            list(SourceLines(str(tmp_path / name)))
        assert message in str(caught.value)
    with pytest.raises(DataError, match=r"got: No such file or directory\. Download it first\."):
        list(SourceLines("s3://bucket/a.txt"))


def test_two_commands_on_one_output_end_alike(job, source, annotator, tmp_path):
    """The other one ends first, and deletes the shards that this one writes to."""

    def overtaken(waiting):
        yield annotate_shard(annotator, next(waiting))
        annotate_sharded([job], here(annotator))
        yield from here(annotator)(waiting)

    (corpus,) = annotate_sharded([job], overtaken)
    assert [sentence.text for sentence in corpus] == LINES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.parquet"]


def test_a_merge_that_another_command_was_faster_with(job, source, annotator, monkeypatch):
    write = shards.write_tables

    def overtaken(path, tables, **header):
        write(path, tables, **header)
        raise DataError("expected a shard, found none.", path)

    monkeypatch.setattr(shards, "write_tables", overtaken)
    (corpus,) = annotate_sharded([job], here(annotator))
    assert [sentence.text for sentence in corpus] == LINES


def test_a_source_that_cannot_be_read_does_not_stop_the_others(job, annotator, tmp_path, caplog):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"fine\n\xff\xfe\n")
    jobs = [replace(job, source=str(bad), target=tmp_path / "bad.parquet"), job]
    with pytest.raises(DataError) as caught:
        annotate_sharded(jobs, here(annotator))
    assert str(caught.value).startswith(f"{bad}:2: expected UTF-8")
    assert f"left out: {caught.value}" in caplog.messages
    assert [sentence.text for sentence in read_annotations(job.target)] == LINES
    assert not (tmp_path / "bad.parquet").exists()
    bad.write_text("fine\nnow\n")
    first, second = annotate_sharded(jobs, here(annotator))
    assert (len(first), len(second)) == (2, len(LINES))


def test_shards_of_a_longer_name_are_not_ours_to_delete(job, source, annotator, tmp_path):
    jobs = [job, replace(job, target=tmp_path / "out.parquet.parquet")]
    for corpus in annotate_sharded(jobs, here(annotator)):
        assert [sentence.text for sentence in corpus] == LINES
