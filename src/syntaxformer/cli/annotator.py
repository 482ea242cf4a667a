"""`syntaxformer annotator train|evaluate`: a tagger and parser for your language, and scores of any."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import options

annotator = options.App(
    name="annotator",
    help="Train a tagger and parser on a treebank, and score annotators.\n\n"
    "syntaxformer annotator train cs_pdt-ud-train.conllu --dev cs_pdt-ud-dev.conllu -o annotators/cs",
    no_args_is_help=True,
)


@annotator.command()
def train(
    treebanks: Annotated[list[Path], Argument(metavar="TREEBANK...", help="CoNLL-U files, plain or packed.")],
    output: Annotated[Path, Option("-o", "--output", help="Folder of the annotator.")],
    dev: Annotated[Path | None, Option(help="CoNLL-U file that chooses the best state.")] = None,
    language: Annotated[
        str | None, Option(help="Code of the language; default: by the file's name, cs of cs_pdt-….")
    ] = None,
    steps: Annotated[int | None, Option(min=1, help="Updates; default: by the number of words.")] = None,
    width: Annotated[int, Option(min=16, max=4096, help="Width of the network.")] = 128,
    seed: Annotated[int, Option(help="Of weights and order.")] = 13,
    overwrite: options.OverwriteOption = False,
) -> None:
    """Train a tagger, parser and, if the treebank has lemmas and morphology, these, too.

    syntaxformer annotator train cs_pdt-ud-train.conllu --dev cs_pdt-ud-dev.conllu -o annotators/cs
    """
    from syntaxformer.annotate.training import train_annotator
    from syntaxformer.runs.export import output_problems

    named = re.match(r"[a-z]{2,3}(?=_)", treebanks[0].name)
    problems = output_problems(output, "meta.json", overwrite)
    if language is None and named is None:
        problems.append(f"--language: expected a code, as {treebanks[0].name} begins with none, got none.")
    if problems:
        raise ConfigError(problems)
    code = language or named[0]  # type: ignore[index]
    scores = train_annotator(treebanks, dev, output, code, steps=steps, width=width, seed=seed)
    options.echo(f"{_table(scores)}\nwrote {output}: use it as annotation.annotator={output}")


@annotator.command()
def evaluate(
    name: Annotated[str, Argument(metavar="ANNOTATOR", help="Folder, or a name such as en or stanza:cs.")],
    treebank: Annotated[Path, Argument(help="CoNLL-U file, plain or packed.")],
    as_json: options.JsonOption = False,
) -> None:
    """Score an annotator on a treebank's own words, which it is given (gold tokenisation).

    syntaxformer annotator evaluate annotators/cs cs_pdt-ud-test.conllu
    """
    from syntaxformer.annotate import load_annotator
    from syntaxformer.annotate.training import read_treebank, score_annotator

    loaded = load_annotator(name)
    parser = getattr(getattr(loaded, "annotator", loaded), "parser", None)  # also below +phrases
    sentences = read_treebank(treebank, getattr(parser, "nlp", None))
    scores = {"words": sum(map(len, sentences)), **score_annotator(loaded, sentences)}
    options.echo(json.dumps(scores) if as_json else _table(scores))


def _table(scores: Mapping[str, float]) -> str:
    cells = [(name, str(value)) for name, value in scores.items()]
    rows = ("  ".join(f"{cell[row]:>{max(map(len, cell))}}" for cell in cells) for row in (0, 1))
    return "\n".join(["% of the treebank's own words (gold tokenisation), with punctuation:", *rows])
