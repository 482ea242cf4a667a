"""Annotate large or many files in shards: each shard is made once, stored, and merged in order.

A shard is a run of lines of one source. A process here or a Ray actor elsewhere writes its sentences to one
file, whole or not at all. A killed worker leaves nothing behind, and a file of other lines is ignored. The
result is, byte for byte, what one process writes.
"""

# pyright: basic
# (pyarrow and Ray Data have no complete types.)

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import islice
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
from syntaxformer.annotate.controls import LINES_PER_POOL
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
from syntaxformer.base.ray_cluster import connect, import_ray, reason

LINES_PER_SHARD = 20_000
"""Lines of a shard, about a minute of work for one core."""

MAX_ATTEMPTS = 5
"""Number of workers that a shard may kill in one run."""

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
        return self._from(0)

    def part(self, first: int, n_lines: int) -> list[str]:
        """Return `n_lines` lines from `first` on, fewer at the end; earlier lines are not decoded."""
        return list(islice(self._from(first), n_lines))

    def _from(self, first: int) -> Iterator[str]:
        if self.source.endswith(".parquet"):
            return islice(self._column(), first, None)
        return files.read_lines(self.source, first)

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
    """A run of lines of a source, the first counted from 0, and the Parquet file at `path` to write."""

    source: str
    first: int
    n_lines: int
    n_chars: int
    content_hash: str
    path: str
    annotator: str
    version: str

    @property
    def attempts(self) -> Path:
        """The file with one line, a process id, for each worker that has started the shard."""
        return Path(f"{self.path}.attempts")

    def is_done(self) -> bool:
        """Whether its file exists, is undamaged, and has its lines."""
        return read_if_current(Path(self.path), (self.annotator, self.version, self.content_hash)) is not None


Engine = Callable[[Sequence[Shard]], Iterator[tuple[Shard, str | None]]]
"""Works on shards in any order, and yields each when it is done, with its error or None."""


def annotate_shard(shard: Shard, load: Callable[[], Annotator]) -> str | None:
    """Annotate a shard and write its file; return the error, or None if it is done.

    Raises:
        DataError: The file cannot be written, nor then could those of the shards to come.
    """
    try:
        # Each attempt is recorded, so that a shard that kills every worker is given up at last.
        with files.disk_errors(Path(shard.path)), shard.attempts.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if (n_attempts := len(shard.attempts.read_text().splitlines())) > MAX_ATTEMPTS:
            raise DataError(
                f"expected workers to outlive their shards, got {n_attempts - 1} killed by this one "
                "(out of memory?)."
            )
        annotator = load()
        if annotator.version != shard.version:
            raise ConfigError(
                f"annotator {shard.annotator}: expected version {shard.version} on every worker, got "
                f"{annotator.version}. Install the same packages and models everywhere."
            )
        shard_lines = SourceLines(shard.source).part(shard.first, shard.n_lines)
        lines = list(short_enough(shard_lines, shard.source, shard.first))
        if hash_lines(lines) != shard.content_hash:
            raise DataError(
                "expected the lines that were counted, got others: the file was changed.", shard.source
            )
        about = {"annotator": shard.annotator, "version": shard.version, "content_hash": shard.content_hash}
        write_annotations(shard.path, annotator.stream(lines), **about)
    except SyntaxformerError as error:
        # Without the folder, another command has finished first and deleted it.
        if getattr(error, "path", None) == shard.path and Path(shard.path).parent.is_dir():
            raise
        return str(error)
    except Exception as error:  # a parser's own error: only this shard is lost
        return f"{type(error).__name__}: {error}"
    return None


def in_this_process(annotator: Annotator) -> Engine:
    """Return the engine that works on one shard after the other in this process."""
    return lambda shards: (_with(annotator, shard) for shard in shards)


def in_processes(name: str, n_processes: int) -> Engine:
    """Return the engine of processes here, each of which loads annotator `name` once; 1 is this process."""

    def work(shards: Sequence[Shard]) -> Iterator[tuple[Shard, str | None]]:
        if n_processes == 1 or len(shards) == 1:
            return in_this_process(load_annotator(name))(shards)
        return map_in_processes(name, _with, shards, min(n_processes, len(shards)))

    return work


def _with(annotator: Annotator, shard: Shard) -> tuple[Shard, str | None]:
    return shard, annotate_shard(shard, lambda: annotator)


def ray_engine(annotator: str, n_workers: int, address: str | None = None) -> Engine:
    """Return the engine of a Ray cluster: a pool of actors that each load the annotator once.

    Ray restarts actors that die and gives their shard to another. The actors, each with one processor, load
    the annotator by its name, with the backend's options; it is not written to disk. `address` is that of a
    running cluster, "auto" or "ray://host:10001"; None starts one here for this job.

    Raises:
        BackendMissingError: Ray is not installed.
        SyntaxformerError: During the work: there is no cluster at the address, or the cluster fails.
    """
    return partial(_on_ray, import_ray("ray.data"), annotator, n_workers, address)


def _on_ray(
    ray: Any, annotator: str, n_workers: int, address: str | None, shards: Sequence[Shard]
) -> Iterator[tuple[Shard, str | None]]:
    started = connect(address, n_workers + 1)
    try:
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        rows = [{"shard": json.dumps(asdict(shard))} for shard in shards]
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        # Shards are handed out one by one, each only when an actor is free to take it.
        n_actors = min(n_workers, len(rows))
        actors = ray.data.ActorPoolStrategy(size=n_actors, max_tasks_in_flight_per_actor=1)
        dataset = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
            _Worker, fn_constructor_args=(annotator,), compute=actors, num_cpus=1
        )
        # Ray reports dead workers on stdout, which is for results.
        with redirect_stdout(sys.stderr):
            for row in dataset.iter_rows():
                yield Shard(**json.loads(row["shard"])), row["error"] or None
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise SyntaxformerError(
            f"ray: expected the cluster to work, got: {reason(error)} Finished shards are kept; run the same "
            "command again."
        ) from error
    finally:
        if started and ray.is_initialized():
            ray.shutdown()


class _Worker:
    """An actor that loads its annotator with the first shard, so that an error then belongs to that shard."""

    def __init__(self, annotator: str) -> None:
        self.name = annotator

    @cached_property
    def annotator(self) -> Annotator:
        return load_annotator(self.name)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        error = annotate_shard(Shard(**json.loads(row["shard"])), lambda: self.annotator)
        return {**row, "error": error or ""}


def annotate_sharded(
    jobs: Sequence[Job], engine: Engine, *, lines_per_shard: int = LINES_PER_SHARD, progress: bool = False
) -> list[AnnotatedCorpus]:
    """Return the corpus of each job, made in shards; finished sources and shards are not made again.

    Raises:
        ConfigError: The shards would cut the pools of `other_sentence`.
        DataError: A source cannot be read or has changed meanwhile, or shards failed. The other shards are
            kept, the other sources are finished, and the same call retries those that failed.
    """
    if lines_per_shard % LINES_PER_POOL and any("other_sentence(" in job.annotator for job in jobs):
        expected = f"expected a multiple of {LINES_PER_POOL:,}, among which other_sentence draws"
        raise ConfigError(f"lines_per_shard: {expected}, got {lines_per_shard:,}. Leave it out.")
    plans: list[_Plan] = []
    unreadable: list[SyntaxformerError] = []
    for job in jobs:
        try:
            plans.append(_plan(job, lines_per_shard))
        except (DataError, BackendMissingError) as error:
            unreadable.append(error)
            if len(jobs) > 1:
                _log.warning("left out: %s", error)
    if unreadable and not plans:
        raise unreadable[0]
    left = [plan for plan in plans if not plan.is_finished()]
    waiting = [shard for plan in left for shard in plan.shards if not shard.is_done()]
    # The longest first, so that no worker begins a long one when the others have nearly finished.
    waiting.sort(key=lambda shard: shard.n_chars, reverse=True)
    n_shards = sum(len(plan.shards) for plan in plans)
    if not (unreadable or left):
        _log.info("nothing to do: all %d file(s) are annotated", len(plans))
    elif len(waiting) < n_shards:
        _log.info("going on: %d of %d shards are done", n_shards - len(waiting), n_shards)
    for shard in waiting:
        Path(shard.path).parent.mkdir(parents=True, exist_ok=True)
        shard.attempts.unlink(missing_ok=True)
    description = f"annotating ({jobs[0].annotator if jobs else ''})"
    results = engine(waiting) if waiting else iter(())
    errors = dict(track(results, description, len(waiting), "shards", enabled=progress and bool(waiting)))
    # Another command on the same output may have finished first and deleted the shards.
    lost = [plan for plan in left if any(map(errors.get, plan.shards)) and not plan.is_finished()]
    corpora = [_finish(plan, plan in left) for plan in plans if plan not in lost]
    failed = [shard for plan in lost for shard in plan.shards if errors.get(shard)]
    problems = [str(error) for error in unreadable]
    if failed:
        first = failed[0]
        problems[:0] = [
            f"annotation: expected all {n_shards} shards to succeed, got {len(failed)} that failed, the "
            f"first {first.source}, lines {first.first + 1} to {first.first + first.n_lines}: "
            f"{errors[first]} The others are kept; the same command retries those that failed."
        ]
    if problems:
        raise DataError("\n".join(problems))
    return corpora


@dataclass(frozen=True, slots=True)
class _Plan:
    """A job cut into shards; `content_hash` is that of all lines."""

    job: Job
    content_hash: str
    shards: tuple[Shard, ...]

    def is_finished(self) -> bool:
        """Whether the target exists, whichever command wrote it."""
        identity = (self.job.annotator, self.job.version, self.content_hash)
        return read_if_current(self.job.target, identity) is not None


def _plan(job: Job, lines_per_shard: int) -> _Plan:
    """Count, hash and cut the lines of a source; each annotator and shard size has its own folder."""
    identity = "\0".join([str(FORMAT), job.source, job.annotator, job.version, str(lines_per_shard)])
    key = hashlib.sha256(identity.encode()).hexdigest()[:_KEY_LENGTH]
    folder = job.target.parent / f".{job.target.name}.{key}.shards"
    whole = hashlib.sha256()
    shards: list[Shard] = []
    first = 0
    for chunk in chunks_of(SourceLines(job.source), lines_per_shard, MAX_CHARACTERS):
        for line in chunk:
            whole.update(hashed_line(line))
        path = str(folder / f"{len(shards):06d}.parquet")
        size = (first, len(chunk), sum(map(len, chunk)))
        shards.append(Shard(job.source, *size, hash_lines(chunk), path, job.annotator, job.version))
        first += len(chunk)
    return _Plan(job, whole.hexdigest(), tuple(shards))


def _finish(plan: _Plan, must_merge: bool) -> AnnotatedCorpus:
    """Merge the shards, check that all lines are there in order, and delete the shards.

    Another command may do the same work. Its result is the same, and once the target exists, neither command
    needs the shards or partial files.
    """
    job, target = plan.job, plan.job.target
    if must_merge:
        try:
            write_tables(
                target,
                _merged(plan),
                annotator=job.annotator,
                version=job.version,
                content_hash=plan.content_hash,
            )
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
    for shard in plan.shards:
        for table in read_annotations(shard.path).tables():
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
