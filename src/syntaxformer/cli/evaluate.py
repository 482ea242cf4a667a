"""`syntaxformer evaluate`: scores models on a test set, or compares scores of any metric."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.cli import options
from syntaxformer.cli.predict import UNCHANGED, predict

if TYPE_CHECKING:
    from syntaxformer.translation.translator import Translator


def evaluate(
    model: Annotated[Path | None, Argument(help="Folder that `train`, `finetune` or `export` wrote.")] = None,
    rows: Annotated[
        str | None, Argument(metavar="[IN]", help="For a classifier: a table with labels, as in training.")
    ] = None,
    src: Annotated[Path | None, Option(help="Source text, plain or packed.")] = None,
    ref: options.ReferenceOption = None,
    output: Annotated[
        Path | None, Option("-o", "--output", help="File for the translations, plain or packed.")
    ] = None,
    baseline: options.BaselineOption = None,
    scores: Annotated[
        Path | None, Option(help="Instead of a model: any metric's score of each line, such as COMET's.")
    ] = None,
    baseline_scores: Annotated[Path | None, Option(help="The same metric's scores of a baseline.")] = None,
    data: Annotated[str | None, Option(help="For a classifier: as in predict.")] = None,
    split: Annotated[str | None, Option(help="Split of --data. Default: dev.")] = None,
    beam_size: options.BeamSizeOption = None,
    no_repeat_ngram_size: options.NoRepeatOption = None,
    as_json: options.JsonOption = False,
    annotator: options.ModelAnnotatorOption = None,
    factor: options.FactorOption = None,
    shuffle: options.ShuffleOption = None,
    blank: options.BlankOption = None,
    device: options.DeviceOption = None,
    trust_annotator: options.TrustOption = False,
) -> None:
    """Translate a test set and score it, cased and detokenised unless the model is not; prints signatures.

    A classifier is scored on a table with labels, or on official files.

    syntaxformer evaluate runs/sit --src test2016.en --ref test2016.de --baseline runs/base

    syntaxformer evaluate runs/bias held_out.csv --baseline runs/plain
    """
    from syntaxformer.base.files import atomic_text
    from syntaxformer.study.ablation import Ablation, ablate_translator
    from syntaxformer.translation import scoring
    from syntaxformer.translation.translator import Translator

    if rows is not None or data is not None:
        if model is None or any([src, ref, scores, baseline_scores, beam_size, factor, no_repeat_ngram_size]):
            problem = "evaluate: expected a classifier and its table or --data only, got more."
            raise ConfigError(f"{problem} For a translator, name the text with --src.")
        arguments: dict[str, Any] = {"shuffle": shuffle, "blank": blank}
        arguments |= {"annotator": annotator, "device": device}
        arguments |= {"as_json": as_json, "trust_annotator": trust_annotator, "output": output}
        predict(model, rows, data=data, split=split, baseline=baseline or [], **arguments)
        return
    if scores is not None or baseline_scores is not None:
        others: list[Any] = [model, src, ref, output, baseline, split, shuffle, blank, device, annotator]
        others += [trust_annotator, beam_size, no_repeat_ngram_size, factor]
        _compare_files(scores, baseline_scores, as_json, others)
        return
    if model is None or src is None or not ref or split is not None:
        more = "fewer" if split is None else "--split without --data"
        raise ConfigError(f"evaluate: expected MODEL, --src and --ref, or --scores, got {more}.")
    options.refuse_inputs(output, [src, *ref, *options.factor_files(factor).values()])
    sources, texts = options.read_parallel(src, ref)
    references = texts if len(texts) > 1 else texts[0]
    systems: dict[str, Translator] = {}
    ablation = Ablation.parse(shuffle, blank)
    for path in (model, *(baseline or ())):
        is_itself = bool(ablation and systems) and path.resolve() == model.resolve()
        name = UNCHANGED if is_itself else f"{path}{' (again)' * (str(path) in systems)}"
        systems[name] = Translator.load(path, annotator, device, None, trust_annotator)
    if ablation:
        (name, intact), *others = systems.items()
        systems = {name: ablate_translator(intact, ablation), **dict(others or [(UNCHANGED, intact)])}
    infos = [system.info for system in systems.values()]
    options.check_languages(infos[0], src, *ref)
    common = scoring.common_scoring(infos, "--baseline")
    options.check_factor_names(options.read_factors(factor), systems.values())
    texts, report = {}, {}
    for name, system in systems.items():
        factors, label = options.read_factors(factor), f"translating with {name}"
        scored = sources, references, beam_size, factors, label
        with options.errors_of_factors(factor):
            result = scoring.score_translator(system, *scored, no_repeat_ngram_size=no_repeat_ngram_size)
        report |= {} if report else {"model": name, **asdict(result.scores), "n_loops": result.n_loops}
        texts[name] = result.hypotheses
    if output is not None:
        with atomic_text(output) as file:
            file.writelines(f"{line}\n" for line in texts[str(model)])
    references = scoring.written_references([*systems.values()], references)
    for system in systems.values():  # text that one model cannot write must not decide between them
        texts = {name: system.as_written(lines) for name, lines in texts.items()}
    note = next(filter(None, map(scoring.reference_note, infos)), None)
    report |= scoring.score_table(texts, references, **common, note=note)
    if len(systems) > 1:
        name, *_ = others = list(systems)[1:]
        table_note = next(filter(None, (_table_note(model, Path(folder)) for folder in others)), None)
        report |= {"baseline": name, **report["systems"][name]["against"]["BLEU"], "note": table_note}
    options.echo(json.dumps(report)) if as_json else _print(report)


def _print(report: dict[str, Any]) -> None:
    from syntaxformer.base.statistics import difference_in_words
    from syntaxformer.translation.decoding import loops_in_words

    systems, signatures = report["systems"], report["signatures"]
    rows, columns = [["", *signatures, "length"]], [*signatures, "length_ratio"]
    for name, row in systems.items():
        rows.append([name, *("–" if row[key] is None else f"{row[key]:.2f}" for key in columns)])
    options.echo_table(rows)
    for name, row in systems.items():
        for metric, comparison in row.get("against", {}).items():
            options.echo(f"{metric:6} {difference_in_words(comparison, name)}")
    for metric, signature in signatures.items():
        options.echo(f"{metric:6} {signature}")
    if report["n_loops"]:
        options.echo(loops_in_words(report["n_loops"], report["n_lines"]), err=True)
    if report.get("note"):
        options.echo(report["note"], err=True)


def _compare_files(path: Path | None, baseline: Path | None, as_json: bool, others: list[Any]) -> None:
    """Compare two files of any metric's scores of lines."""
    import numpy as np

    from syntaxformer.base.statistics import difference_in_words
    from syntaxformer.translation.scoring import paired_bootstrap

    if path is None or baseline is None or any(others):
        raise ConfigError(
            "--scores: expected --baseline-scores with it and no option but --json, got "
            f"{'other options' if any(others) else 'one of the two alone'}."
        )
    values = [_numbers(file) for file in (baseline, path)]
    options.check_parallel(path, values[1], {baseline: values[0]})
    tables = [np.array(value)[:, None] for value in values]
    comparison = paired_bootstrap(*tables, lambda sums: sums[0] / len(values[1])).as_dict()
    means = [float(table.mean()) for table in tables]
    report = {"scores": str(path), "mean": means[1], "baseline": str(baseline), "baseline_mean": means[0]}
    words = difference_in_words(comparison, str(baseline), 4)
    text = f"{means[1]:.4f}  {path}\n{means[0]:.4f}  {baseline}\n{words}"
    options.echo(json.dumps(report | comparison) if as_json else text)


def _numbers(path: Path) -> list[float]:
    """The scores of a file, one a line."""
    from syntaxformer.base.files import read_lines

    scores: list[float] = []
    for number, line in enumerate(read_lines(path), 1):
        with suppress(ValueError):
            scores.append(float(line))
        if len(scores) < number or not math.isfinite(scores[-1]):
            raise DataError(f"score: expected a number, got {line[:40]!r}. Write one a line.", path, number)
    return scores


def _table_note(model: Path, baseline: Path) -> str | None:
    """A note if only one model has a separate table for source words, which may cause a difference."""
    from syntaxformer.base.files import read_json
    from syntaxformer.runs.run_folder import RUN

    kinds = {
        read_json(run / RUN).get("source_table"): run for run in (model, baseline) if (run / RUN).exists()
    }
    if kinds.keys() != {"shared", "own"}:
        return None
    return (
        f"{kinds['shared']} shares its table of source words with the target side, {kinds['own']} has a "
        "separate one, which may cause part of the difference. To find out, train "
        f"{kinds['shared']} with model.share_source_embedding=false."
    )
