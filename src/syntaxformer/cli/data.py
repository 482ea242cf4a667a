"""`syntaxformer data report|get`: what is wrong with the user's data, and the corpora that recipes name."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import options

data = options.App(
    name="data",
    help="Report faults of parallel text and labelled tables, and get corpora.\n\n"
    "syntaxformer data report train.en train.de",
    no_args_is_help=True,
)


@data.command()
def report(
    files: Annotated[
        list[Path],
        Argument(
            metavar="SRC TGT [DEV_SRC DEV_TGT]...",
            help="Training pairs; then sets to keep out. With --task: a table, and others to keep out.",
        ),
    ],
    src_language: options.LanguageOption = None,
    tgt_language: options.LanguageOption = None,
    all_lines: Annotated[
        bool, Option("--all", help="Identify the language of all lines, not of 10,000.")
    ] = False,
    as_json: options.JsonOption = False,
    task: Annotated[
        str | None, Option(help="Labelled tables: classify, regress, multilabel, vector, ner or squad.")
    ] = None,
    text_column: Annotated[str | None, Option(help="Column of the text, as in finetune.")] = None,
    text_pair_column: Annotated[str | None, Option(help="Column of a second text.")] = None,
    label_column: Annotated[str | None, Option(help="Column of the label.")] = None,
) -> None:
    """Report duplicates, overlap with dev and test, copies, odd lengths, other languages and scripts.

    Of labelled tables: rows that cannot be used, texts with two labels, small classes, overlap.

    syntaxformer data report train.en train.de valid.en valid.de test.en test.de

    syntaxformer data report train.tsv dev.tsv --task classify
    """
    columns = (text_column, label_column, text_pair_column)
    if task is not None:
        if src_language or tgt_language or all_lines:
            raise ConfigError("--task: expected no language and no --all with it, got one.")
        report = _report_tables(files, task, columns)
        options.echo(json.dumps(report.to_dict()) if as_json else report)
        return
    if any(columns):
        raise ConfigError("columns: expected --task with them, got none.")
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


def _report_tables(files: list[Path], task: str, columns: tuple[str | None, ...]) -> Any:
    from syntaxformer.encoders.own_tables import read_own_table
    from syntaxformer.encoders.tables import BadRows, TableColumns, find_rows
    from syntaxformer.encoders.task_data import report_labels
    from syntaxformer.encoders.tasks import OWN_TASKS
    from syntaxformer.translation.data_report import DataReport

    if task not in OWN_TASKS:
        raise ConfigError(f"--task: expected one of {', '.join(OWN_TASKS)}, got {task!r}.")
    task_type, names, sets, problems = OWN_TASKS[task].task_type, TableColumns(*columns), [], []
    for file in files:
        split = "dev" if sets else "train"
        bad = BadRows(find_rows(file, split), sys.maxsize)
        texts, names, learned = read_own_table(bad.source, task_type, names, split, bad=bad)
        task_type = task_type if sets else learned
        sets.append(texts)
        problems += bad.error.problems if bad.rows else []
    faults, warnings = report_labels(task_type, *(train := sets[0], sets[1:]))
    lines = [example.line - 1 for example in train.examples]
    return DataReport(train.source, len(train), lines, faults, problems + warnings, unit="rows")


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
