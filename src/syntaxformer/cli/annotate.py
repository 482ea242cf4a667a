"""`syntaxformer annotate`: text files to annotated corpora.

One output for each input, line for line. Names and messages only; the work is in `annotate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syntaxformer.errors import ConfigError

if TYPE_CHECKING:
    from syntaxformer.annotate import AnnotatedCorpus

__all__ = ["Engine", "annotate", "output_paths"]

_SUFFIX = ".parquet"


class Engine(StrEnum):
    """Who does the work."""

    local = "local"
    ray = "ray"


def annotate(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="IN...",
            help="Text files, a sentence or segment on each line; .gz too. Also Parquet files with a column "
            "`text`, and URLs that fsspec knows.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="The Parquet file for one input; a folder for several (created)."
        ),
    ],
    annotator: Annotated[
        str,
        typer.Option(
            help="en, de, spacy:NAME_OR_PATH, stanza:LANG, benepar:NAME, corenlp:URL, conllu:PATH or "
            "ptb:PATH; +phrases behind one that parses adds phrase structure made of its dependency trees."
        ),
    ] = "en",
    processes: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    engine: Annotated[
        Engine,
        typer.Option(help="local: processes here. ray: shards on a Ray cluster, which may lose workers."),
    ] = Engine.local,
    address: Annotated[
        str | None,
        typer.Option(help="Of a running Ray cluster: auto, ray://HOST:10001. Default: one on this machine."),
    ] = None,
    lines_per_shard: Annotated[
        int, typer.Option(min=1, help="With Ray: lines that a worker takes at once, and can lose.")
    ] = 20_000,
) -> None:
    """Tag and parse text once, for training and analysis: words, parts of speech, dependency trees.

    A line is a sentence in the output, whatever it holds. An output that already holds the annotation of the
    same text by the same annotator is left as it is.
    """
    targets = output_paths(inputs, output)
    if address is not None and engine is not Engine.ray:
        raise ConfigError("--address: expected --engine ray with it, got the local engine.")
    if engine is Engine.ray:
        corpora = _by_ray(inputs, targets, annotator, processes, address, lines_per_shard)
    else:
        corpora = _here(inputs, targets, annotator, processes)
    for corpus in corpora:
        header = corpus.header
        typer.echo(
            f"{corpus.path}: {header.n_lines:,} lines, {header.n_words:,} words, "
            f"{header.annotator} {header.version}"
        )


def _here(
    inputs: Sequence[str], targets: Sequence[Path], annotator: str, processes: int
) -> Iterator[AnnotatedCorpus]:
    from syntaxformer.annotate import annotate_to_file, annotator_for, load_annotator
    from syntaxformer.annotate.sources import SourceLines

    loaded = load_annotator(annotator)
    for source, target in zip(inputs, targets, strict=True):
        one = annotator_for(loaded, _name(source).partition(".")[0])
        yield annotate_to_file(target, SourceLines(source), one, n_processes=processes, progress=True)


def _by_ray(
    inputs: Sequence[str],
    targets: Sequence[Path],
    annotator: str,
    processes: int,
    address: str | None,
    lines_per_shard: int,
) -> Iterator[AnnotatedCorpus]:
    from syntaxformer.annotate import load_annotator
    from syntaxformer.annotate.ray_engine import ray_engine
    from syntaxformer.annotate.shards import Job, annotate_sharded

    loaded = load_annotator(annotator)
    if annotator.startswith(("conllu:", "ptb:")):
        raise ConfigError(
            f"--engine ray: expected an annotator that takes any line, got {annotator}, which is read in "
            "order. Use the local engine."
        )
    jobs = [
        Job(
            source if "://" in source else str(Path(source).resolve()),
            target.resolve(),
            loaded.name,
            loaded.version,
        )
        for source, target in zip(inputs, targets, strict=True)
    ]
    yield from annotate_sharded(
        jobs, ray_engine(processes, address), lines_per_shard=lines_per_shard, progress=True
    )


def output_paths(inputs: Sequence[str | Path], output: Path) -> list[Path]:
    """Return where the annotation of each input goes.

    One input goes to `output`, or into it where that is a folder; several go into the folder `output`, each
    under its own name without `.gz` and with `.parquet`.

    Raises:
        ConfigError: Several inputs and a file as output, two inputs of one name, an input that is an output.
    """
    into_folder = len(inputs) > 1 or output.is_dir()
    if into_folder and output.suffix == _SUFFIX and not output.is_dir():
        raise ConfigError(f"-o: expected a folder for {len(inputs)} inputs, got the file {output}.")
    if into_folder:
        targets = [output / (_name(source).removesuffix(".gz") + _SUFFIX) for source in inputs]
    else:
        targets = [output]
    for source, target in zip(inputs, targets, strict=True):
        if targets.count(target) > 1:
            raise ConfigError(
                f"-o: expected inputs of different names, got two that would be {target}. Run them apart."
            )
        if target.resolve() in {Path(path).resolve() for path in inputs}:
            raise ConfigError(f"-o: expected another file than the input, got {source}.")
    return targets


def _name(source: str | Path) -> str:
    """The last part of a path or URL."""
    return Path(str(source).partition("://")[2] or source).name
