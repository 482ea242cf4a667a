"""Annotate large or many files in shards: each shard is made once, stored, and merged in order.

A shard is a run of lines of one source. A process here or a Ray actor elsewhere writes its sentences to one
file, whole or not at all. A killed worker leaves nothing behind, and a file of other lines is ignored. The
result is, byte for byte, what one process writes.
"""

# pyright: basic
# (pyarrow has no complete types.)

from __future__ import annotations

import glob
import hashlib
import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from syntaxformer.annotate.annotator import (
    Annotator,
    chunks_of,
    hash_lines,
    hashed_line,
    map_in_processes,
    short_enough,
)
from syntaxformer.annotate.registry import load_annotator
from syntaxformer.annotate.store import (
    FORMAT,
    AnnotatedCorpus,
    read_annotations,
    read_if_current,
    write_annotations,
    write_tables,
)
from syntaxformer.base import files
from syntaxformer.base.errors import BackendMissingError, ConfigError, DataError, SyntaxformerError, one_line
from syntaxformer.base.progress import MAX_CHARACTERS, track

LINES_PER_SHARD = 5_000
"""Lines of a shard, a quarter of a minute of work for one core; as many as `controls.LINES_PER_POOL`."""

TEXT_COLUMN = "text"
_ROWS_AT_A_TIME = 256
_MOST_PACKED = 200  # no text is packed to less than a two-hundredth
_LINE_ENDS = re.compile(r"\r?\n")
_KEY_LENGTH = 12

_log = logging.getLogger(__name__)


class SourceLines:
    """The lines of a source, which can be read any number of times.

    Args:
        source: A path; packed text is unpacked, `.parquet` gives its column `text`, one line for each row:
            line ends in a row become spaces.

    Raises:
        DataError: During iteration: the source cannot be read, a line is not UTF-8 or holds a NUL, or there
            is no such column.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    def __iter__(self) -> Iterator[str]:
        return self._column() if self.source.endswith(".parquet") else files.read_lines(self.source)

    def __len__(self) -> int:
        return sum(1 for _ in self) if self.source.endswith(".parquet") else files.count_lines(self.source)

    def _column(self) -> Iterator[str]:
        try:
            with files.open_bytes(self.source) as file:
                table = pq.ParquetFile(file)
                self._check_sizes(table.metadata)
                if TEXT_COLUMN not in table.schema_arrow.names:
                    names = ", ".join(table.schema_arrow.names)
                    raise DataError(f"expected a column {TEXT_COLUMN!r}, got {names[:100]}.", self.source)
                batches = table.iter_batches(_ROWS_AT_A_TIME, columns=[TEXT_COLUMN])
                yield from self._checked(value.as_py() for batch in batches for value in batch.column(0))
        except SyntaxformerError:
            raise
        except Exception as error:
            raise DataError(f"expected a Parquet file, got: {one_line(error, 160)}.", self.source) from error

    def _check_sizes(self, metadata: Any) -> None:
        """Refuse a column of text that unpacks to far more than any text, before it is unpacked."""
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        for column in (group.column(index) for group in groups for index in range(group.num_columns)):
            most = max(files.max_line_bytes(), _MOST_PACKED * column.total_compressed_size)
            if column.path_in_schema == TEXT_COLUMN and column.total_uncompressed_size > most:
                problem = f"column {TEXT_COLUMN}: expected it to unpack to at most {most:,} bytes, got more."
                raise DataError(f"{problem} {files.larger_bound()}", self.source)

    def _checked(self, values: Iterable[Any]) -> Iterator[str]:
        bound = files.max_line_bytes()
        for row, value in enumerate(values, 1):
            if isinstance(value, str) and len(value.encode()) > bound:
                problem = f"column {TEXT_COLUMN}: expected at most {bound:,} bytes in a row, got more."
                raise DataError(f"{problem} {files.larger_bound()}", self.source, row)
            if not isinstance(value, str) or "\0" in value:
                content = "a NUL" if isinstance(value, str) else repr(value)
                raise DataError(
                    f"column {TEXT_COLUMN}: expected text in each row, got {content} in row {row}.",
                    self.source,
                )
            yield _LINE_ENDS.sub(" ", value)


@dataclass(frozen=True, slots=True)
class Job:
    """One source and its Parquet file, on a disk that the workers on all machines can reach."""

    source: str
    target: Path
    annotator: str
    version: str


@dataclass(frozen=True, slots=True)
class Shard:
    """Lines of a source, the first counted from 0, and the Parquet file at `path` to write."""

    job: Job
    first: int
    lines: list[str]
    path: Path


Engine = Callable[[Iterator[Shard]], Iterator[tuple[Path, str | None]]]
"""Works on shards, taking few ahead, and yields the path of each when it is done, with its error or None."""


def annotate_shard(annotator: Annotator, shard: Shard) -> tuple[Path, str | None]:
    """Annotate a shard and write its file; return its path with the error, or with None if it is done.

    Raises:
        DataError: The file cannot be written, nor then could those of the shards to come.
    """
    job, path = shard.job, shard.path
    try:
        if annotator.version != job.version:
            raise ConfigError(
                f"annotator {job.annotator}: expected version {job.version} on every worker, got "
                f"{annotator.version}. Install the same packages and models everywhere."
            )
        lines = list(short_enough(shard.lines, job.source, shard.first))
        about = {"annotator": job.annotator, "version": job.version, "content_hash": hash_lines(lines)}
        write_annotations(path, annotator.stream(lines), **about, first=shard.first)
        return path, None
    except SyntaxformerError as error:
        # Without the folder, another command has finished first and deleted it.
        if getattr(error, "path", None) == str(path) and path.parent.is_dir():
            raise
        reason = str(error)
    except Exception as error:  # a parser's own error: only this shard is lost
        reason = f"{type(error).__name__}: {error}"
    return path, f"{job.source}, lines {shard.first + 1} to {shard.first + len(shard.lines)}: {reason}"


def in_processes(name: str, n_processes: int) -> Engine:
    """Return the engine of processes here, each of which loads annotator `name` once; 1 is this process."""

    def work(shards: Iterator[Shard]) -> Iterator[tuple[Path, str | None]]:
        if n_processes > 1:
            return map_in_processes(name, annotate_shard, shards, n_processes)
        annotator = load_annotator(name)
        return (annotate_shard(annotator, shard) for shard in shards)

    return work


def annotate_sharded(jobs: Sequence[Job], engine: Engine, *, progress: bool = False) -> list[AnnotatedCorpus]:
    """Return the corpus of each job, made in shards; finished sources and shards are not made again.

    Raises:
        DataError: A source cannot be read or has changed meanwhile, or shards failed. The other shards are
            kept, the other sources are finished, and the same call retries those that failed.
    """
    plans: list[_Plan] = []
    unreadable: list[SyntaxformerError] = []
    for job in jobs:
        try:
            plans.append(_plan(job))
        except (DataError, BackendMissingError) as error:
            unreadable.append(error)
            if len(jobs) > 1:
                _log.warning("left out: %s", error)
    if unreadable and not plans:
        raise unreadable[0]
    left = [plan for plan in plans if not plan.is_finished()]
    n_shards, n_done = (sum(len(getattr(plan, name)) for plan in left) for name in ("hashes", "done"))
    if not (unreadable or left):
        _log.info("nothing to do: all %d file(s) are annotated", len(plans))
    elif n_done:
        _log.info("going on: %d of %d shards are done", n_done, n_shards)
    n_waiting = n_shards - n_done
    results = engine(chain.from_iterable(plan.waiting() for plan in left)) if n_waiting else iter(())
    description = f"annotating ({jobs[0].annotator if jobs else ''})"
    results = track(results, description, n_waiting, "shards", enabled=progress and n_waiting > 0)
    errors = {path: error for path, error in results if error}
    # Another command on the same output may have finished first and deleted the shards.
    failed = {path.parent for path in errors}
    lost = [plan for plan in left if plan.folder in failed and not plan.is_finished()]
    corpora = [_finish(plan, plan in left) for plan in plans if plan not in lost]
    problems = [str(error) for error in unreadable]
    if lost:
        folders = {plan.folder for plan in lost}
        reasons = [error for path, error in errors.items() if path.parent in folders]
        problems[:0] = [
            f"annotation: expected all {n_shards} shards to succeed, got {len(reasons)} that failed, the "
            f"first {reasons[0]} The others are kept; the same command retries those that failed."
        ]
    if problems:
        raise DataError("\n".join(problems))
    return corpora


@dataclass(frozen=True, slots=True)
class _Plan:
    """A job cut into shards: the hash of all lines, those of each shard, and the numbers of finished ones."""

    job: Job
    content_hash: str
    folder: Path
    hashes: list[str]
    done: set[int]

    def is_finished(self) -> bool:
        """Whether the target exists, whichever command wrote it."""
        identity = (self.job.annotator, self.job.version, self.content_hash)
        return read_if_current(self.job.target, identity) is not None

    def waiting(self) -> Iterator[Shard]:
        """The shards that are still to be made; DataError if the source is no longer as it was counted."""
        self.folder.mkdir(parents=True, exist_ok=True)
        first = 0
        for number, lines in enumerate(_chunks(self.job)):
            if number not in self.done:
                if hash_lines(lines) not in self.hashes[number : number + 1]:
                    expected = "expected the lines that were counted, got others: the file was changed."
                    raise DataError(expected, self.job.source)
                yield Shard(self.job, first, lines, _path(self.folder, number))
            first += len(lines)


def _chunks(job: Job) -> Iterator[list[str]]:
    return chunks_of(SourceLines(job.source), LINES_PER_SHARD, MAX_CHARACTERS)


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.parquet"


def _plan(job: Job) -> _Plan:
    """Count, hash and cut the lines of a source; each annotator and shard size has its own folder."""
    identity = "\0".join([str(FORMAT), job.source, job.annotator, job.version, str(LINES_PER_SHARD)])
    key = hashlib.sha256(identity.encode()).hexdigest()[:_KEY_LENGTH]
    folder = job.target.parent / f".{job.target.name}.{key}.shards"
    whole, hashes = hashlib.sha256(), list[str]()
    for lines in _chunks(job):
        for line in lines:
            whole.update(hashed_line(line))
        hashes.append(hash_lines(lines))
    done = {
        number
        for number, content_hash in enumerate(hashes)
        if read_if_current(_path(folder, number), (job.annotator, job.version, content_hash)) is not None
    }
    return _Plan(job, whole.hexdigest(), folder, hashes, done)


def _finish(plan: _Plan, must_merge: bool) -> AnnotatedCorpus:
    """Merge the shards, check that all lines are there in order, and delete the shards.

    Another command may do the same work. Its result is the same, and once the target exists, neither command
    needs the shards or partial files.
    """
    job, target = plan.job, plan.job.target
    if must_merge:
        about = {"annotator": job.annotator, "version": job.version, "content_hash": plan.content_hash}
        try:
            write_tables(target, _merged(plan), **about)
        except DataError:
            if not plan.is_finished():
                raise
    # Also those of another size or annotator, which nobody needs any more.
    for folder in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * _KEY_LENGTH}.shards"):
        shutil.rmtree(folder, ignore_errors=True)
    files.remove_partials(target.parent, of=target.name)
    return read_annotations(target)


def _merged(plan: _Plan) -> Iterator[Any]:
    """The rows of all shards, in order; DataError at the end where they are not the lines of the text."""
    digest, n_lines = hashlib.sha256(), 0
    for number in range(len(plan.hashes)):
        for table in read_annotations(_path(plan.folder, number)).tables():
            n_lines += len(table)
            for text in table["text"].to_pylist():
                digest.update(hashed_line(text))
            yield table
    if digest.hexdigest() != plan.content_hash:
        raise DataError(
            f"expected the parts to hold the lines of the text in their order, got {n_lines} lines that "
            "differ. Nothing was written.",
            plan.job.target,
        )
