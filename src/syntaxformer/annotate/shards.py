"""Annotation of big or many files in shards: each made once, kept once, and put together in order.

A shard is a run of lines of one source. Whoever works on it (a process here, a Ray actor elsewhere) writes
its sentences to a temporary name, renames, and leaves a record of what it made; a killed worker leaves
nothing, and a record that does not fit its file counts for nothing. The result is, byte for byte, what one
process writes.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from syntaxformer.annotate.annotator import Annotator
from syntaxformer.annotate.columns import FORMAT
from syntaxformer.annotate.corpus import AnnotatedCorpus, read_annotations
from syntaxformer.annotate.fingerprint import hash_lines
from syntaxformer.annotate.merge import merge_annotations
from syntaxformer.annotate.parallel import map_in_processes, short_enough
from syntaxformer.annotate.registry import load_annotator
from syntaxformer.annotate.sources import SourceLines
from syntaxformer.annotate.store import read_if_current, write_annotations
from syntaxformer.base.errors import BackendMissingError, ConfigError, DataError, SyntaxformerError
from syntaxformer.base.files import atomic_file, remove_partials
from syntaxformer.base.progress import track

__all__ = [
    "LINES_PER_SHARD",
    "Engine",
    "Job",
    "Shard",
    "annotate_shard",
    "annotate_sharded",
    "in_processes",
    "in_this_process",
]

LINES_PER_SHARD = 20_000
"""Lines of a shard: about a minute of one core."""

MAX_ATTEMPTS = 5
"""Workers that a shard may cost in one run."""

_KEY_LENGTH = 12

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """One source and where its annotation goes.

    Args:
        source: Its path.
        target: The Parquet file. For workers on several machines it must be on a disk that all see.
        annotator: Name that workers load.
        version: Version that they must have.
    """

    source: str
    target: Path
    annotator: str
    version: str


@dataclass(frozen=True, slots=True)
class Shard:
    """A run of lines.

    Args:
        source: Its path.
        first: Its first line, from 0.
        n_lines: Its lines.
        n_chars: Their characters.
        content_hash: `hash_lines` of them.
        path: The Parquet file to make.
        annotator: Name of the annotator.
        version: Its version.
    """

    source: str
    first: int
    n_lines: int
    n_chars: int
    content_hash: str
    path: str
    annotator: str
    version: str

    @property
    def record(self) -> Path:
        """The file that says what was made."""
        return Path(f"{self.path}.json")

    @property
    def attempts(self) -> Path:
        """The file with a byte for each worker that began it."""
        return Path(f"{self.path}.attempts")

    def is_done(self) -> bool:
        """Whether its file is there and is what its record says."""
        try:
            record = json.loads(self.record.read_text("utf-8"))
            path = Path(self.path)
            return (
                record["shard"] == asdict(self)
                and "error" not in record
                and record["bytes"] == path.stat().st_size
                and record["sha256"] == _sha256(path)
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False


Engine = Callable[[Sequence[Shard]], Iterator[dict[str, Any]]]
"""Works on shards, in any order, and yields the record of each when it is done."""


def annotate_shard(shard: Shard, load: Callable[[], Annotator]) -> dict[str, Any]:
    """Annotate a shard and write its file, then its record; an error is a record, too.

    Args:
        shard: What to do.
        load: Gives who does it.

    Returns:
        The record: `shard`, `pid`, and either `bytes`, `sha256` and `n_words` or `error`.
    """
    record: dict[str, Any] = {"shard": asdict(shard), "pid": os.getpid()}
    try:
        _count_attempt(shard)
        record |= _made(shard, load())
    except SyntaxformerError as error:
        record["error"] = str(error)
    except Exception as error:  # a parser's own: this shard is lost, the others need not be
        record["error"] = f"{type(error).__name__}: {error}"
    try:
        with atomic_file(shard.record) as temporary:
            temporary.write_text(json.dumps(record, ensure_ascii=False), "utf-8")
    except DataError as error:
        record.setdefault("error", str(error))
    return record


def _count_attempt(shard: Shard) -> None:
    """Leave a trace of each attempt: a shard that kills whoever takes it is given up, not tried for ever."""
    with shard.attempts.open("ab") as file:
        file.write(b".")
    if (n_attempts := shard.attempts.stat().st_size) > MAX_ATTEMPTS:
        raise DataError(
            f"expected workers to outlive their shards, got {n_attempts - 1} killed by this one "
            "(out of memory?)."
        )


def _made(shard: Shard, annotator: Annotator) -> dict[str, Any]:
    if annotator.version != shard.version:
        raise ConfigError(
            f"annotator {shard.annotator}: expected version {shard.version} on every worker, got "
            f"{annotator.version}. Install the same packages and models everywhere."
        )
    part = SourceLines(shard.source).part(shard.first, shard.n_lines)
    lines = list(short_enough(part, shard.source, shard.first))
    if hash_lines(lines) != shard.content_hash:
        raise DataError(
            "expected the lines that were counted, got others: the file was changed.", shard.source
        )
    write_annotations(
        shard.path,
        annotator.stream(lines),
        annotator=shard.annotator,
        version=shard.version,
        content_hash=shard.content_hash,
    )
    path = Path(shard.path)
    return {
        "bytes": path.stat().st_size,
        "sha256": _sha256(path),
        "n_words": read_annotations(path).header.n_words,
    }


def in_this_process(annotator: Annotator) -> Engine:
    """Return the engine that works on one shard after the other, here."""
    return lambda shards: (_with(annotator, shard) for shard in shards)


def in_processes(name: str, n_processes: int) -> Engine:
    """Return the engine of processes here, each of which loads annotator `name` once; of one, this."""

    def work(shards: Sequence[Shard]) -> Iterator[dict[str, Any]]:
        if n_processes == 1 or len(shards) == 1:
            return in_this_process(load_annotator(name))(shards)
        return map_in_processes(name, _with, shards, min(n_processes, len(shards)))

    return work


def _with(annotator: Annotator, shard: Shard) -> dict[str, Any]:
    return annotate_shard(shard, lambda: annotator)


def annotate_sharded(
    jobs: Sequence[Job], engine: Engine, *, lines_per_shard: int = LINES_PER_SHARD, progress: bool = False
) -> list[AnnotatedCorpus]:
    """Annotate sources in shards; what is done already, as a whole or in shards, is not done again.

    Args:
        jobs: Sources and targets.
        engine: Who works.
        lines_per_shard: Lines of a shard.
        progress: Show a bar.

    Returns:
        The corpus of each job.

    Raises:
        DataError: A source cannot be read or changed meanwhile, or shards failed: the other ones are kept,
            the other sources are finished, and the same call goes on with those that failed.
    """
    plans, unreadable = _plans(jobs, lines_per_shard)
    waiting = [shard for plan in plans if not plan.is_current for shard in plan.shards if not shard.is_done()]
    # The longest first: nobody should begin a long one when the others are about to be out of work.
    waiting.sort(key=lambda shard: shard.n_chars, reverse=True)
    n_shards = sum(len(plan.shards) for plan in plans)
    if not unreadable and not waiting and all(plan.is_current for plan in plans):
        _log.info("nothing to do: all %d file(s) are annotated", len(plans))
    elif len(waiting) < n_shards:
        _log.info("going on: %d of %d shards are done", n_shards - len(waiting), n_shards)
    name = jobs[0].annotator if jobs else ""
    for shard in waiting:
        Path(shard.path).parent.mkdir(parents=True, exist_ok=True)
        shard.attempts.unlink(missing_ok=True)
    records = engine(waiting) if waiting else iter(())
    failed = [
        record
        for record in track(
            records, f"annotating ({name})", len(waiting), "shards", enabled=progress and bool(waiting)
        )
        if "error" in record
    ]
    broken = {record["shard"]["path"] for record in failed}
    # Another command on the same output may have been first, and have deleted shards that it needed no more.
    lost = [plan for plan in plans if not (broken.isdisjoint(plan.paths) or plan.is_made())]
    corpora = [plan.finish() for plan in plans if plan not in lost]
    broken = {path for plan in lost for path in plan.paths}
    failed = [record for record in failed if record["shard"]["path"] in broken]
    problems = ([_failure(failed, n_shards)] if failed else []) + unreadable
    if problems:
        raise DataError("\n".join(problems))
    return corpora


def _plans(jobs: Sequence[Job], lines_per_shard: int) -> tuple[list[_Plan], list[str]]:
    """A plan of each source that can be read, and what is wrong with the others.

    Raises:
        DataError: None can be read.
        BackendMissingError: None can be read, the first for want of a package.
    """
    plans: list[_Plan] = []
    unreadable: list[SyntaxformerError] = []
    for job in jobs:
        try:
            plans.append(_Plan.of(job, lines_per_shard))
        except (DataError, BackendMissingError) as error:
            unreadable.append(error)
            if len(jobs) > 1:
                _log.warning("left out: %s", error)
    if unreadable and not plans:
        raise unreadable[0]
    return plans, [str(error) for error in unreadable]


def _failure(failed: Sequence[dict[str, Any]], n_shards: int) -> str:
    first = failed[0]
    shard = first["shard"]
    return (
        f"annotation: expected all {n_shards} shards to succeed, got {len(failed)} that failed, the first "
        f"{shard['source']}, lines {shard['first'] + 1} to {shard['first'] + shard['n_lines']}: "
        f"{first['error']} The others are kept; the same command goes on with those that failed."
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """A job cut into shards."""

    job: Job
    content_hash: str
    n_lines: int
    shards: tuple[Shard, ...]
    is_current: bool

    @classmethod
    def of(cls, job: Job, lines_per_shard: int) -> _Plan:
        """Count and hash the lines of a source, and cut it."""
        whole = hashlib.sha256()
        shards: list[Shard] = []
        first = 0
        lines = iter(SourceLines(job.source))
        folder = _folder(job, lines_per_shard)
        while chunk := list(islice(lines, lines_per_shard)):
            for line in chunk:
                whole.update(line.encode("utf-8", "surrogatepass"))
                whole.update(b"\n")
            path = folder / f"{len(shards):06d}.parquet"
            rest = (str(path), job.annotator, job.version)
            n_chars = sum(map(len, chunk))
            shards.append(Shard(job.source, first, len(chunk), n_chars, hash_lines(chunk), *rest))
            first += len(chunk)
        content_hash = whole.hexdigest()
        current = read_if_current(job.target, (job.annotator, job.version, content_hash)) is not None
        return cls(job, content_hash, first, tuple(shards), current)

    @property
    def paths(self) -> list[str]:
        """Files of the shards."""
        return [shard.path for shard in self.shards]

    def is_made(self) -> bool:
        """Whether the target is there, whoever made it."""
        wanted = (self.job.annotator, self.job.version, self.content_hash)
        return read_if_current(self.job.target, wanted) is not None

    def finish(self) -> AnnotatedCorpus:
        """Put the shards together, look whether all lines are there in order, and delete them.

        Another command may be at the same: what it makes is the same, and once the target is there neither
        needs shards or anything half-written any more.
        """
        job = self.job
        if not self.is_current:
            try:
                merge_annotations(
                    job.target,
                    self.paths,
                    annotator=job.annotator,
                    version=job.version,
                    content_hash=self.content_hash,
                )
            except DataError:
                if not self.is_made():
                    raise
        name = glob.escape(job.target.name)
        # Those of another size or annotator, too: nobody comes back for them.
        for folder in job.target.parent.glob(f".{name}.{'[0-9a-f]' * _KEY_LENGTH}.shards"):
            shutil.rmtree(folder, ignore_errors=True)
        remove_partials(job.target.parent, of=job.target.name)
        return read_annotations(job.target)


def _folder(job: Job, lines_per_shard: int) -> Path:
    """Where the shards of a job wait; another annotator or size has another folder."""
    identity = "\0".join([str(FORMAT), job.source, job.annotator, job.version, str(lines_per_shard)])
    key = hashlib.sha256(identity.encode()).hexdigest()[:_KEY_LENGTH]
    return job.target.parent / f".{job.target.name}.{key}.shards"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
