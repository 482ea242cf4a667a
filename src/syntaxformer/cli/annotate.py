"""`syntaxformer annotate`: annotates text files.

Each input gives one output, line for line. Only names and messages are here; the work is in `annotate`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import options

if TYPE_CHECKING:
    from syntaxformer.annotate import AnnotatedCorpus, Annotator
    from syntaxformer.annotate.shards import Engine as ShardEngine
    from syntaxformer.annotate.shards import SourceLines

_SUFFIX = ".parquet"
_URL = re.compile(r"[A-Za-z][\w+.-]+:/")


def annotate(
    inputs: Annotated[
        list[str],
        Argument(
            metavar="IN...",
            help="Text files with a sentence or segment on each line, plain or packed, or Parquet files with "
            "a column `text`.",
        ),
    ],
    output: Annotated[
        Path | None,
        Option("-o", "--output", help="Parquet file, or folder for several inputs; default: print them."),
    ] = None,
    form: Annotated[
        Literal["conllu", "table", "json"] | None, Option("--format", help="Of what is printed without -o.")
    ] = None,
    annotator: Annotated[
        str | None,
        Option(
            help="For example en or spacy:NAME_OR_PATH; `syntaxformer doctor` lists all. +phrases after a "
            "parser adds phrase structure made from its dependency trees. Default: the bundled one of the "
            "language."
        ),
    ] = None,
    language: options.LanguageOption = None,
    processes: Annotated[int, Option(min=1, max=2**16, help="Number of worker processes.")] = 1,
    engine: Annotated[
        Literal["local", "ray"],
        Option(help="local: processes on this machine. ray: a Ray cluster with the same disks."),
    ] = "local",
    address: Annotated[
        str | None, Option(help="Ray cluster: auto, ray://HOST:10001. Default: start one on this machine.")
    ] = None,
) -> None:
    """Tag and parse text once, for training and analysis: words, parts of speech, dependency trees.

    Each line becomes one sentence of the output. An output that already has the annotation of the same text
    by the same annotator does not change; an interrupted one is continued.

    syntaxformer annotate train.en -o train.parquet --annotator en+phrases

    syntaxformer annotate test.en --format table
    """
    from syntaxformer.annotate.backends import is_file
    from syntaxformer.base.languages import TextLanguage, choose_annotator, language_of_file

    if address is not None and engine != "ray":
        raise ConfigError("--address: expected --engine ray with it, got the local engine.")
    if output is None and engine == "ray":
        raise ConfigError("--engine ray: expected -o with it. Leave one out.")
    if output is not None and form is not None:
        raise ConfigError("--format: expected none with -o, which writes Parquet. Leave one out.")
    targets = [] if output is None else output_paths(inputs, output)
    text_language = language and TextLanguage(language, f"--language={language}")
    texts = [text_language or language_of_file(path) for path in inputs]
    names = {choose_annotator(annotator, text, "--annotator", "--language=CODE") for text in texts}
    annotator, *rest = sorted(names)
    if rest:
        raise ConfigError(f"IN: expected texts of one language, got some for {annotator} and for {rest[0]}.")
    options.spare_torch([], annotator)
    if output is None:
        _print(inputs, annotator, processes, form or "conllu")
        return
    if is_file(annotator):
        of_others = {"--engine ray": engine == "ray", "--processes": processes > 1}
        expected = f"expected an annotator that takes any line, got {annotator}, which is read in order"
        if problems := [f"{name}: {expected}. Leave it out." for name, has in of_others.items() if has]:
            raise ConfigError(problems)
        from syntaxformer.annotate import annotate_to_file

        texts_of_targets = zip(targets, _readers(inputs, annotator), strict=True)
        corpora = (annotate_to_file(path, *text, progress=True) for path, text in texts_of_targets)
    elif engine == "ray":
        from syntaxformer.annotate.ray_engine import on_ray

        corpora = _in_shards(inputs, targets, annotator, on_ray(annotator, processes, address))
    else:
        from syntaxformer.annotate.shards import in_processes

        corpora = _in_shards(inputs, targets, annotator, in_processes(annotator, processes))
    for target, corpus in zip(targets, corpora, strict=True):
        header = corpus.header
        counts = f"{header.n_lines:,} lines, {header.n_words:,} words"
        options.echo(f"{target}: {counts}, {header.annotator} {header.version}")


def _print(inputs: Sequence[str], annotator: str, processes: int, form: str) -> None:
    """Print the sentences of texts, as CoNLL-U, as JSON lines, or as tables with a row for each word."""
    from syntaxformer.trees.conllu import format_conllu
    from syntaxformer.trees.sentence import COLUMNS, PER_WORD

    for lines, file_annotator in _readers(inputs, annotator):
        for sentence in file_annotator.stream(lines, n_processes=processes):
            values = {name: getattr(sentence, name) for name in ("text", "words", "offsets", *COLUMNS)}
            values = {name: column for name, column in values.items() if column is not None}
            if form == "json":
                options.echo(json.dumps(values, ensure_ascii=False))
            elif form == "conllu":
                options.echo(format_conllu(sentence).removesuffix("\n"))
            elif sentence.words:
                values |= {"governors": [str(word + 1) for word in values.get("governors", ())] or None}
                names = [name for name in PER_WORD if values.get(name)]
                numbers = map(str, range(1, len(sentence.words) + 1))
                rows = zip(sentence.words, numbers, *(values[name] for name in names), strict=True)
                options.echo_table([("word", "", *names), *rows])
                options.echo("")


def _readers(inputs: Sequence[str], annotator: str) -> Iterator[tuple[SourceLines, Annotator]]:
    """The lines of each input, and the annotator of them."""
    from syntaxformer.annotate import annotator_for, load_annotator
    from syntaxformer.annotate.shards import SourceLines

    loaded = load_annotator(annotator)
    for source in inputs:
        yield SourceLines(source), annotator_for(loaded, Path(source).name.partition(".")[0])


def _in_shards(
    inputs: Sequence[str], targets: Sequence[Path], annotator: str, work: ShardEngine
) -> Iterator[AnnotatedCorpus]:
    from syntaxformer.annotate import annotator_identity
    from syntaxformer.annotate.shards import Job, annotate_sharded

    for source in inputs:
        if Path(source).is_fifo() or Path(source).is_char_device():
            requirement = "a file, which can be read more than once"
            raise ConfigError(f"INPUT: expected {requirement}, got the pipe {source}. Save it.")
    identity = annotator_identity(annotator)
    paths = zip(inputs, targets, strict=True)
    jobs = [Job(str(Path(source).resolve()), target.resolve(), *identity) for source, target in paths]
    yield from annotate_sharded(jobs, work, progress=True)


def output_paths(inputs: Sequence[str | Path], output: Path) -> list[Path]:
    """The path of the annotation of each input: `output`, or under the input's name in that folder."""
    from syntaxformer.base.files import without_packing

    if urls := [str(source) for source in inputs if _URL.match(str(source))]:
        raise ConfigError(f"INPUT: expected a file, got the URL {urls[0]}. Download it first.")
    if _URL.match(str(output)):
        raise ConfigError(
            "-o: expected a path on a disk of this machine or a shared one, got a URL. "
            "Write to a disk and copy the file."
        )
    into_folder = len(inputs) > 1 or output.is_dir()
    if into_folder and output.suffix == _SUFFIX and not output.is_dir():
        raise ConfigError(f"-o: expected a folder for {len(inputs)} inputs, got the file {output}.")
    if into_folder:
        targets = [output / (without_packing(source) + _SUFFIX) for source in inputs]
    else:
        options.refuse_other_endings(output, (_SUFFIX,))
        targets = [output]
    for target in targets:
        if targets.count(target) > 1:
            raise ConfigError(
                f"-o: expected inputs of different names, got two for {target}. Annotate them separately."
            )
        options.refuse_inputs(target, inputs)
    return targets
