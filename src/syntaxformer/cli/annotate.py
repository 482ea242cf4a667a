"""`syntaxformer annotate`: text files to annotated corpora.

One output for each input, line for line. Names and messages only; the work is in `annotate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from syntaxformer.errors import ConfigError

__all__ = ["annotate", "output_paths"]

_SUFFIX = ".parquet"


def annotate(
    inputs: Annotated[
        list[Path],
        typer.Argument(metavar="IN...", help="Text files, a sentence or segment on each line; .gz too."),
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
) -> None:
    """Tag and parse text once, for training and analysis: words, parts of speech, dependency trees.

    A line is a sentence in the output, whatever it holds. An output that already holds the annotation of the
    same text by the same annotator is left as it is.
    """
    from syntaxformer.annotate import annotate_to_file, annotator_for, load_annotator
    from syntaxformer.textfile import TextLines

    targets = output_paths(inputs, output)
    loaded = load_annotator(annotator)
    for source, target in zip(inputs, targets, strict=True):
        one = annotator_for(loaded, source.name.partition(".")[0])
        corpus = annotate_to_file(target, TextLines(source), one, n_processes=processes, progress=True)
        header = corpus.header
        typer.echo(f"{target}: {header.n_lines:,} lines, {header.n_words:,} words, {one.name} {one.version}")


def output_paths(inputs: Sequence[Path], output: Path) -> list[Path]:
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
        targets = [output / (source.name.removesuffix(".gz") + _SUFFIX) for source in inputs]
    else:
        targets = [output]
    for source, target in zip(inputs, targets, strict=True):
        if targets.count(target) > 1:
            raise ConfigError(
                f"-o: expected inputs of different names, got two that would be {target}. Run them apart."
            )
        if target.resolve() in {path.resolve() for path in inputs}:
            raise ConfigError(f"-o: expected another file than the input, got {source}.")
    return targets
