"""`syntaxformer predict`: predicts labels or scores of texts with a fine-tuned model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import options

UNCHANGED = "the model as it is"
"""Name of a model beside its own copy that reads changed inputs."""


def predict(
    model: Annotated[Path, Argument(help="Folder that `finetune` wrote.")],
    source: Annotated[
        str | None,
        Argument(metavar="[IN]", help="One text on each line, or a table or data set; or else stdin."),
    ] = None,
    task: Annotated[str | None, Option(help="Task of --data. Default: the task of the model.")] = None,
    data: Annotated[
        str | None, Option(help="Folder of the task's official files or of a saved data set, or hub:NAME.")
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
    baseline: options.BaselineOption = None,
    annotator: options.ModelAnnotatorOption = None,
    batch_size: Annotated[int | None, Option(min=1, max=2**16, help="Number of texts in a batch.")] = None,
    shuffle: options.ShuffleOption = None,
    blank: options.BlankOption = None,
    as_json: options.JsonOption = False,
    device: options.DeviceOption = None,
    trust_annotator: options.TrustOption = False,
) -> None:
    """Predict labels or scores, and score the predictions if the data has labels.

    With --baseline, --shuffle or --blank, the scores are tested against another model or unchanged inputs.

    syntaxformer predict runs/cola --data glue/CoLA

    syntaxformer predict runs/bias held_out.csv --baseline runs/plain

    syntaxformer predict runs/cola --data glue/CoLA --split test -o submission/

    echo "They drank the pub dry." | syntaxformer predict runs/cola
    """
    from syntaxformer.base.files import atomic_text
    from syntaxformer.encoders import prediction
    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.encoders.tables import is_dataset
    from syntaxformer.study.ablation import Ablation, ablate_classifier

    if source is not None and data is not None:
        raise ConfigError("input: expected either a file or --data, got both.")
    if source is not None and is_dataset(source):
        data, source = source, None
    if source is None and data is None and sys.stdin is not None and sys.stdin.isatty():
        raise ConfigError("input: expected a file, --data, or text on standard input, got none.")
    if data is None and (other := split or task):
        name = "--split" if split else "--task"
        raise ConfigError(f"{name}: expected none without --data, got {other}.")
    split, loading = split or "dev", (annotator, device, trust_annotator)
    batches = {"batch_size": batch_size, "cached": data is not None}
    classifier = unchanged = Classifier.from_folder(model, *loading)
    if ablation := Ablation.parse(shuffle, blank):
        classifier = ablate_classifier(classifier, ablation)
    if data is not None:
        official_task, texts = prediction.read_split_for(classifier.info, task, data, split)
    else:
        official_task, texts = None, prediction.read_texts_for(classifier.info, source or prediction.STDIN)
    n_labelled = sum(example.label is not None for example in texts.examples)
    labelled = n_labelled == len(texts)
    if n_labelled and not labelled:
        share = f"{n_labelled} of {len(texts)} rows have a label"
        options.echo(f"warning: {share}; only if all have one, predictions are scored.", err=True)
    if ablation and not labelled:
        raise ConfigError("--shuffle, --blank: expected labels, whose scores they compare, got rows without.")
    if as_json and not labelled and baseline is None:
        raise ConfigError("--json: expected labels, whose scores it prints, got none. Leave it out.")
    submitted = official_task.submission.get(split) if official_task is not None and not labelled else None
    target = _file_of(output, submitted, classifier.task_type)
    options.refuse_inputs(target, [source if data is None else texts.source])
    predictions = classifier.predict_set(texts, **batches)
    if predictions.n_truncated:
        options.echo(f"warning: {classifier.cut_note(predictions)}", err=True)
    rows = classifier.task_type.table(predictions)
    if official_task is not None and submitted is not None:
        rows = prediction.submission_rows(official_task, split, texts, predictions)
    if target is not None:
        with atomic_text(target) as file:
            file.writelines(f"{row}\n" for row in rows)
    elif not labelled and baseline is None:
        for row in rows:
            options.echo(row)
    if labelled or baseline is not None:  # `evaluate` gives a list, if need be an empty one
        systems, folders = {str(model): predictions}, {str(model): model}
        systems |= {UNCHANGED: unchanged.predict_set(texts, **batches)} if ablation else {}
        for folder in baseline or ():
            name = options.system_name(folder, systems)
            folders[name] = folder
            systems[name] = prediction.predictions_beside(folder, classifier.info, texts, loading, **batches)
        _say_scores(classifier, texts, systems, folders, as_json)


def _file_of(output: Path | None, submitted: str | None, task_type: Any) -> Path | None:
    """The file to write, whose name does not promise another format; a folder gets the usual name."""
    if output is None:
        return None
    written = ".json" if task_type.parts == "span" else ".tsv"
    if output.suffix in {".csv", ".json", ".jsonl"} - {written}:
        message = f"expected a name ending in {written}, the format that is written, got {output.name}."
        raise ConfigError(f"-o: {message}")
    return output / (submitted or f"predictions{written}") if output.is_dir() or not output.suffix else output


def _say_scores(classifier: Any, texts: Any, systems: Any, folders: dict[str, Path], as_json: bool) -> None:
    """Print the scores of systems, their differences and classes, and what makes them worth little."""
    from syntaxformer.base.statistics import difference_in_words
    from syntaxformer.study.labelled import class_rows, judge, value_notes

    judged = judge(classifier, texts, systems, folders)
    name, first = next(iter(judged.items()))
    if as_json:
        options.echo(json.dumps({"model": name, **first["scores"], "n_rows": len(texts), "systems": judged}))
    elif len(judged) == 1:
        for metric, value in first["scores"].items():
            options.echo(f"{metric} {value:.4f}")
    else:
        table = [["", *first["scores"]]]
        for system, row in judged.items():
            table.append([system, *(f"{value:.4f}" for value in row["scores"].values())])
        options.echo_table(table)
        for system, row in judged.items():
            for metric, comparison in row.get("against", {}).items():
                options.echo(f"{metric} {difference_in_words(comparison, system, 4)}")
    if not as_json:
        options.echo_table(class_rows({system: row["classes"] for system, row in judged.items()}))
    for note in value_notes(judged, len(texts)):
        options.echo(f"warning: {note}", err=True)
