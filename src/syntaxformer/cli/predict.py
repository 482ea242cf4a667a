"""`syntaxformer predict`: predicts labels or scores of texts with a fine-tuned model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.options import (
    BlankOption,
    DeviceOption,
    JsonOption,
    ModelAnnotatorOption,
    ShuffleOption,
    TrustOption,
    refuse_inputs,
)

_AGAINST = (
    "; unchanged {unchanged:.4f}, difference {difference:+.4f}, p = {p:.3f} "
    "(approximate randomization over {n} rows)"
)


def predict(
    model: Annotated[Path, Argument(help="Folder that `finetune` wrote.")],
    source: Annotated[
        str | None,
        Argument(metavar="[IN]", help="One text on each line, or a table as in training; - for stdin."),
    ] = None,
    task: Annotated[str | None, Option(help="Task of --data. Default: the task of the model.")] = None,
    data: Annotated[
        str | None, Option(help="Folder of the task's official files or of a saved data set.")
    ] = None,
    split: Annotated[
        str | None,
        Option(
            help="Split of --data: dev, test, test_mismatched, …; a test split gives the file for the GLUE "
            "server. Default: dev."
        ),
    ] = None,
    output: Annotated[
        Path | None, Option("-o", "--output", help="File, or folder for a file with the usual name.")
    ] = None,
    annotator: ModelAnnotatorOption = None,
    batch_size: Annotated[int | None, Option(min=1, help="Number of texts in a batch.")] = None,
    shuffle: ShuffleOption = None,
    blank: BlankOption = None,
    as_json: JsonOption = False,
    device: DeviceOption = None,
    trust_annotator: TrustOption = False,
) -> None:
    """Predict labels or scores, and score the predictions if the data has labels.

    With --shuffle or --blank, the scores stand beside those of the unchanged inputs, with p over rows.

    syntaxformer predict runs/cola --data glue/CoLA

    syntaxformer predict runs/cola --data glue/CoLA --split test -o submission/

    echo "They drank the pub dry." | syntaxformer predict runs/cola -
    """
    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.encoders.prediction import read_split_for, read_texts_for, submission_rows, write_rows
    from syntaxformer.encoders.tasks import missed_note
    from syntaxformer.study.ablation import Ablation, ablate_classifier

    if (source is None) == (data is None):
        raise ConfigError("input: expected either a file (or -) or --data, got both or none.")
    if source is not None and (given := split or task):
        name = "--split" if split else "--task"
        raise ConfigError(f"{name}: expected none with a file, got {given}. It belongs to --data.")
    split = split or "dev"
    classifier = Classifier.from_folder(model, annotator, device, trust_annotator)
    unchanged = classifier
    if ablation := Ablation.parse(shuffle, blank):
        classifier = ablate_classifier(classifier, ablation)
    known = None
    if data is not None:
        known, texts = read_split_for(classifier.info, task, data, split)
    else:
        texts = read_texts_for(classifier.info, str(source))
    labelled = all(one.label is not None for one in texts.examples)
    submitted = known.submission.get(split) if known is not None and not labelled else None
    target = output
    if output is not None and (output.is_dir() or not output.suffix):
        target = output / (submitted or "predictions.tsv")
    refuse_inputs(target, [source if data is None else texts.source])
    predictions = classifier.predict_set(texts, batch_size, cached=data is not None)
    if predictions.n_truncated:
        echo(f"warning: {classifier.cut_note(predictions)}", err=True)
    if known is not None and submitted is not None:
        rows = submission_rows(known, split, texts, predictions)
    else:
        rows = classifier.task_type.table(predictions)
    if target is not None:
        write_rows(target, rows)
    elif not labelled:
        for row in rows:
            echo(row)
    if labelled:
        scores = classifier.score(texts, predictions)
        beside = unchanged.predict_set(texts, batch_size, cached=data is not None) if ablation else None
        tests = {} if beside is None else classifier.compare(texts, predictions, beside)
        if as_json:
            echo(json.dumps({**scores, "against_unchanged": tests} if tests else scores))
        for key, value in {} if as_json else scores.items():
            echo(f"{key} {value:.4f}" + (_AGAINST.format(**tests[key], n=len(texts)) if tests else ""))
        if missed := classifier.never_predicted(texts, predictions):
            echo(f"warning: {missed_note(missed)}", err=True)
