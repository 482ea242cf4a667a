"""`syntaxformer attend`: attention of one sentence as a figure, or its spread over a test set as numbers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syntaxformer.cli.options import TrustOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from syntaxformer.base.statistics import Interval
    from syntaxformer.study import SpreadOfAttention

_INSTEAD = {"--annotator": "Give what the model reads as --model-annotator."}


def attend(
    model: Annotated[Path, typer.Argument(help="Folder that `train` wrote, or `finetune` with masks.")],
    text: Annotated[str | None, typer.Argument(help="The sentence.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="PNG, PDF or SVG; default: attention.png.")
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option(help="A second translator, drawn to the left; or a model fine-tuned without masks."),
    ] = None,
    layer: Annotated[int, typer.Option(help="Layer, counted from 0; -1 is the last.")] = -1,
    head: Annotated[int | None, typer.Option(min=0, help="One head; default: the mean.")] = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="Values of a factor of your own; repeatable."),
    ] = None,
    pair: Annotated[str | None, typer.Option(help="Second text of a fine-tuned model of pairs.")] = None,
    network: Annotated[
        str | None, typer.Option(help='Sub-network: "dependency sibling 3"; default: the strongest.')
    ] = None,
    spread: Annotated[
        Path | None, typer.Option(help="Source text: print how widely its attention is spread.")
    ] = None,
    annotator: Annotated[
        str | None,
        typer.Option(help="Whose trees --spread counts edges in; default: the bundled one of the source."),
    ] = None,
    model_annotator: Annotated[
        str | None, typer.Option(help="Annotator that the models read; default: their own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print --spread as one JSON object.")] = False,
    trust_annotator: TrustOption = False,
) -> None:
    """Draw which source pieces each target piece attends to; of a fine-tuned model, its sub-networks.

    syntaxformer attend runs/sit "Two dogs play in the snow." --beside runs/base -o attention.png

    syntaxformer attend runs/sit --beside runs/base --spread test2016.en

    syntaxformer attend runs/cola-masks "John slipped in front of anyone who was there." --beside runs/cola
    """
    from syntaxformer.base.errors import ConfigError

    loading = {"annotator": model_annotator, "trust_annotator": trust_annotator}
    if spread is not None:
        unused = {"text": text, "-o": output, "--factor": factor, "--pair": pair, "--network": network}
        _refuse("--spread", unused)
        _spread(model, beside, spread, annotator, loading, layer, head, as_json)
        return
    if text is None or not text.strip():
        raise ConfigError("text: expected a sentence, got an empty one.")
    _refuse("a sentence", {"--annotator": annotator, "--json": as_json})
    output = output or Path("attention.png")
    if (model / "classifier.json").exists():
        _refuse("a fine-tuned model", {"--factor": factor})
        _subnetworks(model, beside, loading, (text, pair) if pair else text, output, network, layer, head)
    else:
        _refuse("a translator", {"--pair": pair, "--network": network})
        _cross_attention(model, beside, loading, text, output, layer, head, factor or ())
    typer.echo(output)


def _refuse(use: str, options: Mapping[str, object]) -> None:
    """Options that would be passed over in silence."""
    from syntaxformer.base.errors import ConfigError

    if problems := [
        f"{name}: expected none with {use}, got {value}. {_INSTEAD.get(name, 'Leave it out.')}"
        for name, value in options.items()
        if value
    ]:
        raise ConfigError(problems)


def _cross_attention(
    model: Path,
    beside: Path | None,
    loading: dict[str, Any],
    text: str,
    output: Path,
    layer: int,
    head: int | None,
    factor: Sequence[str],
) -> None:
    from syntaxformer.cli.translate import check_factor_names, read_factors
    from syntaxformer.study import cross_attention, draw_attention
    from syntaxformer.translation.scoring import check_directions
    from syntaxformer.translation.translator import Translator

    given = {name: next(rows, []) for name, rows in read_factors(factor).items()}
    folders = (one for one in (beside, model) if one is not None)
    translators = {folder: Translator.load(folder, **loading) for folder in folders}
    check_factor_names(given, translators.values())
    check_directions([one.info for one in translators.values()], "--beside")
    maps = {}
    for folder, translator in translators.items():
        own = {name: values for name, values in given.items() if name in translator.encoder.factors}
        maps[str(folder)] = cross_attention(translator, text, own)
    for folder, one in maps.items():
        of_second = "" if folder == str(model) else f" of {folder}"
        _check_place(layer, head, *one.weights.shape[:2], of_second)
    draw_attention(maps, output, layer, head)
    for folder, one in maps.items():
        typer.echo(f"{folder}: {one.translation}")


def _check_place(layer: int, head: int | None, n_layers: int, n_heads: int, of: str = "") -> None:
    from syntaxformer.base.errors import ConfigError

    if not -n_layers <= layer < n_layers or (head is not None and head >= n_heads):
        raise ConfigError(
            f"layer, head: expected below {n_layers} and {n_heads}{of}, got {layer} and {head}."
        )


def _subnetworks(
    model: Path,
    beside: Path | None,
    loading: dict[str, Any],
    text: str | tuple[str, str],
    output: Path,
    network: str | None,
    layer: int,
    head: int | None,
) -> None:
    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.study import draw_subnetwork, plain_attention_beside, subnetwork_view

    view = subnetwork_view(Classifier.from_folder(model, **loading), text)
    _check_place(layer, head, *view.logits.shape[:2])
    plain = None
    if beside is not None:
        other = Classifier.from_folder(beside, **loading)
        plain = plain_attention_beside(view, other, text, layer, head)
    chosen = view.strongest(1)[0] if network is None else view.network(network)
    draw_subnetwork(view, output, chosen, layer, head=head, plain=plain, plain_name=str(beside))
    typer.echo(f"prediction: {view.prediction}")
    weights = view.topical_weights().mean(0)
    for one in view.strongest(5):
        typer.echo(f"{view.networks[one]:<28} {weights[one]:.4f}")


def _spread(
    model: Path,
    beside: Path | None,
    source: Path,
    annotator: str | None,
    loading: dict[str, Any],
    layer: int,
    head: int | None,
    as_json: bool,
) -> None:
    from syntaxformer import annotate
    from syntaxformer.base.errors import DataError
    from syntaxformer.base.files import read_lines
    from syntaxformer.base.languages import choose_annotator, language_of_side
    from syntaxformer.study import attention_spread
    from syntaxformer.study.attention import MEASURES
    from syntaxformer.translation.scoring import check_directions
    from syntaxformer.translation.translator import Translator

    translators = {str(one): Translator.load(one, **loading) for one in (beside, model) if one is not None}
    preparation = translators[str(model)].encoder.preparation
    check_directions([one.info for one in translators.values()], "--beside")
    info = translators[str(model)].info
    chosen = choose_annotator(annotator, language_of_side(info, info.src), "--annotator")
    parser = annotate.prepare(chosen, words_given=preparation.tokenized)
    lines = [preparation.clean(line) for line in read_lines(source)]
    if preparation.unescape:  # done with: "&amp;quot;" is text now
        for one in translators.values():
            one.encoder.preparation = replace(one.encoder.preparation, unescape=False)
    if not any(line.strip() for line in lines):
        raise DataError("expected at least one line with text, got none.", source)
    sentences = parser.annotate(lines)
    found = {name: attention_spread(one, sentences, layer, head) for name, one in translators.items()}
    rows = {name: {measure: one.interval(measure) for measure in MEASURES} for name, one in found.items()}
    if beside is not None:
        rows["difference"] = _differences(found[str(model)], found[str(beside)], MEASURES)
    if as_json:
        content = {name: {key: _plain(one) for key, one in row.items()} for name, row in rows.items()}
        typer.echo(json.dumps(content))
    else:
        _print_spread(rows)


def _differences(
    system: SpreadOfAttention, baseline: SpreadOfAttention, measures: Sequence[str]
) -> dict[str, Interval]:
    return {measure: system.difference(baseline, measure) for measure in measures}


def _print_spread(rows: Mapping[str, Mapping[str, Interval]]) -> None:
    titles = {
        "entropy": "entropy, bits",
        "words": "mean distance, words",
        "edges": "mean distance, edges",
        "on_words": "weight on words",
    }
    for name, row in rows.items():
        typer.echo(name)
        for measure, one in row.items():
            mean, low, high = ("–" if value is None else f"{value:.3f}" for value in _plain(one).values())
            typer.echo(f"  {titles[measure]:<22} {mean:>8}  [{low}, {high}]")


def _plain(one: Interval) -> dict[str, float | None]:
    """Mean, low and high; None for what is not known."""
    return {name: None if math.isnan(value) else value for name, value in vars(one).items()}
