"""`syntaxformer data report|get`: what is wrong with parallel text, and the corpora that recipes name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import options

data = options.App(
    name="data",
    help="Report faults of parallel text, and get corpora.\n\nsyntaxformer data report train.en train.de",
    no_args_is_help=True,
)


@data.command()
def report(
    files: Annotated[
        list[Path],
        Argument(metavar="SRC TGT [DEV_SRC DEV_TGT]...", help="Training pairs; then sets to keep out."),
    ],
    src_language: options.LanguageOption = None,
    tgt_language: options.LanguageOption = None,
    all_lines: Annotated[
        bool, Option("--all", help="Identify the language of all lines, not of 10,000.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Report duplicates, overlap with dev and test, copies, odd lengths, other languages and scripts.

    syntaxformer data report train.en train.de valid.en valid.de test.en test.de
    """
    from syntaxformer.base.languages import language_of_file
    from syntaxformer.translation.data_report import read_pair_files, report_pairs

    if len(files) % 2:
        raise ConfigError(f"files: expected pairs SRC TGT, got {len(files)} files. Name both sides of each.")
    languages = (
        src_language or language_of_file(files[0]).code,
        tgt_language or language_of_file(files[1]).code,
    )
    pairs = list(zip(files[::2], files[1::2], strict=True))
    held_out = {str(src): read_pair_files(src, tgt) for src, tgt in pairs[1:]}
    text, name = read_pair_files(*pairs[0]), f"{files[0]}, {files[1]}"
    report = report_pairs(name, text, languages, held_out, all_languages=all_lines)
    options.echo(json.dumps(report.to_dict()) if as_json else report)


@data.command()
def get(
    corpus: Annotated[str, Argument(help="multi30k, tatoeba, iwslt14 or wmt14.")],
    output: Annotated[Path | None, Option("-o", "--output", help="Folder; default: data/CORPUS.")] = None,
) -> None:
    """Get a corpus that a recipe names: from the mirror folder SYNTAXFORMER_DATA if that is set, or its home.

    syntaxformer data get multi30k -o data/multi30k
    """
    from syntaxformer.translation.fetch import fetch_corpus

    mirror = os.environ.get("SYNTAXFORMER_DATA")
    folder = output or Path("data") / corpus
    files = fetch_corpus(corpus, folder, Path(mirror) if mirror else None)
    options.echo(f"{folder}: {len(files)} files")
