"""`syntaxformer finetune`: fine-tunes a pretrained encoder for a task, with or without syntax."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import options


def finetune(
    task: Annotated[
        str,
        Option(
            help="cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, sst1, sst2_trees, snli, sick, "
            "sick_relatedness; for own data classify, regress, similarity, multilabel, vector, ner or squad."
        ),
    ],
    model: Annotated[str, Option(help="Folder of a pretrained checkpoint, or its name on the Hub.")],
    output: Annotated[Path, Option("-o", "--output", help="Folder of the finished model.")],
    data: Annotated[
        str | None, Option(help="Folder of the task's official files or of a saved data set, or hub:NAME.")
    ] = None,
    infuse: Annotated[
        str, Option(help="masks, relation_bias, lisa, pos_add, pos_concat, let, with commas; or none.")
    ] = "none",
    train: Annotated[
        str | None, Option(help="Training file: TSV, CSV, JSON lines, CoNLL; plain or packed.")
    ] = None,
    dev: Annotated[
        str | None, Option(help="Development table; without it a tenth of the rows is held out.")
    ] = None,
    text_column: Annotated[str | None, Option(help="Column of the text or word: name or number.")] = None,
    text_pair_column: Annotated[str | None, Option(help="Column of a second text.")] = None,
    label_column: Annotated[
        str | None, Option(help="Column of the label, score or tag; a,b: several.")
    ] = None,
    skip_bad_rows: Annotated[
        int | None,
        Option(min=0, help="Leave out up to so many rows that cannot be used; OUTPUT/bad_rows.csv has them."),
    ] = None,
    epochs: Annotated[int | None, Option(min=1, help="Default: 3.")] = None,
    learning_rate: Annotated[
        str | None,
        Option(help="A number, or auto for the best of 5e-5, 4e-5, 3e-5, 2e-5 on dev. Default: 5e-5."),
    ] = None,
    fraction: Annotated[
        float | None, Option(min=0.0, max=1.0, help="Share of the training data; smaller ones are nested.")
    ] = None,
    annotator: Annotated[
        str | None, Option(help="Default: the bundled one of the texts' language, with +phrases if needed.")
    ] = None,
    seed: Annotated[int | None, Option(min=0, help="Default: 1.")] = None,
    seeds: Annotated[
        str | None, Option(help="1,2,3: a model for each, in OUTPUT/seed1, …, with mean and spread.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option(
            "--set", metavar="KEY=VALUE", help="Other settings, as infusion.masks.without=parent; repeatable."
        ),
    ] = None,
    resume: options.ResumeOption = False,
    overwrite: options.OverwriteOption = False,
) -> None:
    """Fine-tune a pretrained encoder and print its scores on the development set.

    syntaxformer finetune --task cola --data glue/CoLA --model CHECKPOINT --infuse masks,pos_add -o runs/cola

    syntaxformer finetune --task classify --train mine.tsv --model CHECKPOINT --seeds 1,2,3 -o runs/mine
    """
    arguments = {name: value for name, value in locals().items() if value is not None}
    columns = ("text_column", "text_pair_column", "label_column")
    sections = {
        "data": ("train", "dev", "fraction", *columns, "skip_bad_rows"),
        "annotation": ("annotator",),
        "training": ("epochs", "learning_rate"),
    }
    content = {name: arguments[name] for name in ("task", "model", "output", "seed") if name in arguments}
    for section, names in sections.items():
        content[section] = {name: arguments[name] for name in names if name in arguments}
    content["data"]["dir"] = data
    from syntaxformer.encoders.task_data import read_early

    labelled = None if resume else read_early(content, settings or ())  # before torch, which takes seconds
    from syntaxformer.base.files import read_json
    from syntaxformer.encoders.finetune_config import load_finetune
    from syntaxformer.encoders.finetuning import finetune as run
    from syntaxformer.encoders.finetuning import finetune_seeds
    from syntaxformer.encoders.tasks import missed_note
    from syntaxformer.runs.processes import process_team
    from syntaxformer.study.labelled import class_rows

    if seeds is not None:
        seed_numbers = [int(text) if text.strip().isdecimal() else -1 for text in seeds.split(",")]
        if seed is not None or min(seed_numbers) < 0 or len({*seed_numbers}) < len(seed_numbers):
            raise ConfigError(f"--seeds: expected different numbers, and no --seed with them, got {seeds}.")
        runs = [content | {"seed": number, "output": output / f"seed{number}"} for number in seed_numbers]
        configs = [load_finetune(mapping, infuse, settings or ()) for mapping in runs]
        summary = finetune_seeds(configs, resume, overwrite, labelled)
        if not process_team().is_main_process:
            return
        rows = [[name, *entry["dev"].values(), entry["model"]] for name, entry in summary["seeds"].items()]
        rows += [[name, *summary[name].values(), ""] for name in ("mean", "sd")]
        cells = [[f"{cell:.4f}" if isinstance(cell, float) else cell or "" for cell in row] for row in rows]
        options.echo_table([["seed", *summary["mean"], "model"], *cells])
        return
    folder = run(load_finetune(content, infuse, settings or ()), resume, overwrite, labelled)
    if not process_team().is_main_process:
        return
    report = read_json(folder / "run.json")
    for name, value in report["dev"].items():
        options.echo(f"{name} {value:.4f}")
    options.echo_table(class_rows({"": report["classes"]}))
    if missed := report.get("never_predicted"):
        options.echo(missed_note(missed))
    options.echo(folder)
