"""`syntaxformer evaluate`: sacreBLEU and chrF of a model on a test set."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syntaxformer.cli.options import (
    BeamSizeOption,
    DeviceOption,
    FactorOption,
    JsonOption,
    ModelAnnotatorOption,
    RefOption,
    SrcOption,
    TrustOption,
)

if TYPE_CHECKING:
    from syntaxformer.translation.translator import Translator


def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder that `train` or `export` wrote.")],
    src: SrcOption,
    ref: RefOption,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the translations here, plain or .gz.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="A second model: report the difference and its p-value.")
    ] = None,
    beam_size: BeamSizeOption = None,
    as_json: JsonOption = False,
    annotator: ModelAnnotatorOption = None,
    factor: FactorOption = None,
    shuffle: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Shuffle a factor, a tree, syntax or governors: does the model use it?"
        ),
    ] = None,
    blank: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="The same, emptied; also parent, child, sibling. Repeatable."),
    ] = None,
    device: DeviceOption = None,
    trust_annotator: TrustOption = False,
) -> None:
    """Translate a test set and score it, with signatures: cased and detokenised, unless the model is not.

    syntaxformer evaluate runs/sit --src test2016.en --ref test2016.de --baseline runs/base
    """
    from syntaxformer.base.errors import DataError
    from syntaxformer.base.files import atomic_text, read_lines
    from syntaxformer.cli.options import factor_files, refuse_inputs
    from syntaxformer.cli.translate import check_factor_names, read_factors
    from syntaxformer.study.ablation import Ablation, ablate_translator
    from syntaxformer.translation.scoring import (
        best_translations,
        common_scoring,
        compare_translations,
        score_translator,
    )
    from syntaxformer.translation.translator import Translator

    refuse_inputs(output, [src, ref, *factor_files(factor)])
    sources, references = list(read_lines(src)), list(read_lines(ref))
    if len(sources) != len(references) or not sources:
        raise DataError(
            f"expected as many lines as {src}, at least one; got {len(references)} and {len(sources)}.", ref
        )

    folders = [one for one in (model, baseline) if one is not None]
    translators = {one: Translator.load(one, annotator, device, None, trust_annotator) for one in folders}
    ablation, intact = Ablation.parse(shuffle, blank), Path("the model as it is")
    if ablation and (baseline is None or baseline.resolve() == model.resolve()):
        translators[intact], baseline = translators[model], intact
    if ablation:
        translators[model] = ablate_translator(translators[model], ablation)
    common = common_scoring([one.info for one in translators.values()], "--baseline")
    check_factor_names(read_factors(factor or ()), translators.values())
    found = score_translator(translators[model], sources, references, beam_size, read_factors(factor or ()))
    hypotheses, scores = found.hypotheses, found.scores
    if output is not None:
        with atomic_text(output) as file:
            file.writelines(f"{line}\n" for line in hypotheses)
    report: dict[str, object] = {"model": str(model), **scores.as_dict()}
    if baseline is not None:
        others = best_translations(translators[baseline], sources, beam_size, read_factors(factor or ()))
        info = translators[model].info
        clean = info.preparation(info.tgt).clean
        sides = (others, hypotheses, [clean(line) for line in references])
        alike = (_as_all_write(lines, translators.values()) for lines in sides)
        comparison = compare_translations(*alike, **common)
        report |= {
            "baseline": str(baseline),
            "difference": comparison.difference,
            "p_value": None if math.isnan(comparison.p_value) else comparison.p_value,
            "note": _table_note(model, baseline),
        }
    if as_json:
        typer.echo(json.dumps(report))
        return
    typer.echo(f"BLEU {scores.bleu:.2f}  {scores.bleu_signature}")
    typer.echo(f"chrF {scores.chrf:.2f}  {scores.chrf_signature}")
    if baseline is not None:
        _print_difference(report)


def _as_all_write(lines: list[str], translators: Iterable[Translator]) -> list[str]:
    """Lines without what one of the models cannot write, so that it decides nothing between them."""
    for translator in translators:
        lines = translator.as_written(lines)
    return lines


def _print_difference(report: Mapping[str, Any]) -> None:
    p_value = report["p_value"]
    shown = "no p: too few lines" if p_value is None else f"p = {p_value:.3f} (paired bootstrap)"
    typer.echo(f"BLEU {report['difference']:+.2f} against {report['baseline']}, {shown}")
    if report["note"]:
        typer.echo(report["note"], err=True)


def _table_note(model: Path, baseline: Path) -> str | None:
    """What a difference may be of besides syntax: one model has a table for source words alone."""
    from syntaxformer.base.files import read_json
    from syntaxformer.runs.run_folder import RUN

    kinds = {
        one: read_json(one / RUN).get("source_table") for one in (model, baseline) if (one / RUN).exists()
    }
    if {*kinds.values()} != {"shared", "own"}:
        return None
    shared, own = sorted(kinds, key=lambda one: kinds[one] == "own")
    return (
        f"{shared} shares its table of source words with the target side, {own} has one of its own: part of "
        f"the difference may be the table's. Train {shared} with model.share_source_embedding=false to tell."
    )
