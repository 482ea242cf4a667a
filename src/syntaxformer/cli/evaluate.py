"""`syntaxformer evaluate`: scores a model on a test set with sacreBLEU's BLEU and chrF."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

from typer import Option, echo

from syntaxformer.cli.options import (
    BeamSizeOption,
    BlankOption,
    DeviceOption,
    FactorOption,
    JsonOption,
    ModelAnnotatorOption,
    RefOption,
    ShuffleOption,
    SrcOption,
    TranslatorArgument,
    TrustOption,
    check_factor_names,
    check_parallel,
    factor_files,
    read_factors,
    refuse_inputs,
)


def evaluate(
    model: TranslatorArgument,
    src: SrcOption,
    ref: RefOption,
    output: Annotated[
        Path | None, Option("-o", "--output", help="File for the translations, plain or .gz.")
    ] = None,
    baseline: Annotated[
        Path | None, Option(help="A second model; the difference is reported with its p-value.")
    ] = None,
    beam_size: BeamSizeOption = None,
    as_json: JsonOption = False,
    annotator: ModelAnnotatorOption = None,
    factor: FactorOption = None,
    shuffle: ShuffleOption = None,
    blank: BlankOption = None,
    device: DeviceOption = None,
    trust_annotator: TrustOption = False,
) -> None:
    """Translate a test set and score it, cased and detokenised unless the model is not; prints signatures.

    syntaxformer evaluate runs/sit --src test2016.en --ref test2016.de --baseline runs/base
    """
    from syntaxformer.base.files import atomic_text, read_lines
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
    check_parallel(src, sources, {ref: references})
    folders = [one for one in (model, baseline) if one is not None]
    translators = {one: Translator.load(one, annotator, device, None, trust_annotator) for one in folders}
    ablation, intact = Ablation.parse(shuffle, blank), Path("the model as it is")
    if ablation and (baseline is None or baseline.resolve() == model.resolve()):
        translators[intact], baseline = translators[model], intact
    if ablation:
        translators[model] = ablate_translator(translators[model], ablation)
    common = common_scoring([one.info for one in translators.values()], "--baseline")
    check_factor_names(read_factors(factor), translators.values())
    found = score_translator(translators[model], sources, references, beam_size, read_factors(factor))
    if output is not None:
        with atomic_text(output) as file:
            file.writelines(f"{line}\n" for line in found.hypotheses)
    report: dict[str, Any] = {"model": str(model), **found.scores.as_dict(), "n_loops": found.n_loops}
    if baseline is not None:
        others = best_translations(translators[baseline], sources, beam_size, read_factors(factor))
        info = translators[model].info
        clean = info.preparation(info.tgt).clean
        sides = others, found.hypotheses, [clean(line) for line in references]
        for one in translators.values():  # text that one model cannot write must not decide between them
            sides = tuple(map(one.as_written, sides))
        comparison = compare_translations(*sides, **common)
        report |= {
            "baseline": str(baseline),
            "difference": comparison.difference,
            "p_value": None if math.isnan(comparison.p_value) else comparison.p_value,
            "no_p": comparison.no_p,
            "note": _table_note(model, baseline),
        }
    echo(json.dumps(report)) if as_json else _print(report)


def _print(report: dict[str, Any]) -> None:
    from syntaxformer.translation.decoding import loops_in_words

    echo(f"BLEU {report['bleu']:.2f}  {report['bleu_signature']}")
    echo(f"chrF {report['chrf']:.2f}  {report['chrf_signature']}")
    if report["n_loops"]:
        echo(loops_in_words(report["n_loops"], report["n_lines"]), err=True)
    if "baseline" in report:
        p_value = report["p_value"]
        shown = f"no p: {report['no_p']}" if p_value is None else f"p = {p_value:.3f} (paired bootstrap)"
        echo(f"BLEU {report['difference']:+.2f} against {report['baseline']}, {shown}")
        if report["note"]:
            echo(report["note"], err=True)


def _table_note(model: Path, baseline: Path) -> str | None:
    """A note if only one model has a separate table for source words, which may cause a difference."""
    from syntaxformer.base.files import read_json
    from syntaxformer.runs.run_folder import RUN

    kinds = {
        read_json(one / RUN).get("source_table"): one for one in (model, baseline) if (one / RUN).exists()
    }
    if kinds.keys() != {"shared", "own"}:
        return None
    return (
        f"{kinds['shared']} shares its table of source words with the target side, {kinds['own']} has a "
        "separate one, which may cause part of the difference. To find out, train "
        f"{kinds['shared']} with model.share_source_embedding=false."
    )
