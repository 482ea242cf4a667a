"""`syntaxformer attend`: draws the attention of one sentence, or prints its spread over a test set."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.cli import options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.translation.translator import Translator

_INSTEAD = {"--annotator": "Give what the model reads as --model-annotator."}


def attend(
    model: Annotated[Path, Argument(help="Folder of `train`, or of `finetune` with masks.")],
    text: Annotated[str | None, Argument(help="The sentence.")] = None,
    output: Annotated[
        Path | None, Option("-o", "--output", help="PNG, PDF or SVG file; default: attention.png.")
    ] = None,
    beside: Annotated[
        Path | None,
        Option(help="A second translator, drawn on the left, or a model fine-tuned without masks."),
    ] = None,
    layer: Annotated[int, Option(help="Layer, counted from 0; -1 is the last.")] = -1,
    head: Annotated[int | None, Option(min=0, help="Number of a head; default: the mean over heads.")] = None,
    factor: options.FactorOption = None,
    pair: Annotated[str | None, Option(help="Second text, for a model of pairs.")] = None,
    network: Annotated[
        str | None, Option(help='Sub-network, such as "dependency sibling 3"; default: the strongest.')
    ] = None,
    spread: Annotated[
        Path | None, Option(help="Source text for which to print how widely attention is spread.")
    ] = None,
    annotator: Annotated[
        str | None,
        Option(help="Annotator whose trees --spread uses; default: the bundled one of the source."),
    ] = None,
    model_annotator: options.ModelAnnotatorOption = None,
    as_json: Annotated[bool, Option("--json", help="Print --spread as one JSON object.")] = False,
    trust_annotator: options.TrustOption = False,
) -> None:
    """Draw which source pieces each target piece attends to, or the sub-networks of a fine-tuned model.

    syntaxformer attend runs/sit "Two dogs play in the snow." --beside runs/base -o attention.png

    syntaxformer attend runs/sit --beside runs/base --spread test2016.en

    syntaxformer attend runs/cola-masks "John slipped in front of anyone who was there." --beside runs/cola
    """
    loading = {"annotator": model_annotator, "trust_annotator": trust_annotator}
    folders = [one for one in (beside, model) if one is not None]
    if spread is not None:
        unused = {"text": text, "-o": output, "--factor": factor, "--pair": pair, "--network": network}
        _refuse("--spread", unused)
        _spread(_translators(folders, loading), folders, spread, annotator, layer, head, as_json)
        return
    if text is None or not text.strip():
        raise ConfigError("text: expected a sentence, got an empty one.")
    _refuse("a sentence", {"--annotator": annotator, "--json": as_json})
    output = output or Path("attention.png")
    if (model / "classifier.json").exists():
        from syntaxformer.encoders.classifier import Classifier

        _refuse("a fine-tuned model", {"--factor": factor})
        classifiers = [(str(folder), Classifier.from_folder(folder, **loading)) for folder in folders]
        _subnetworks(classifiers, (text, pair) if pair else text, output, network, layer, head)
    else:
        _refuse("a translator", {"--pair": pair, "--network": network})
        given = {name: next(rows, []) for name, rows in options.read_factors(factor).items()}
        _cross_attention(_translators(folders, loading, given), text, output, given, layer, head)
    options.echo(output)


def _refuse(use: str, options: Mapping[str, object]) -> None:
    """Refuse options that would be ignored."""
    if problems := [
        f"{name}: expected none with {use}, got {value}. {_INSTEAD.get(name, 'Leave it out.')}"
        for name, value in options.items()
        if value
    ]:
        raise ConfigError(problems)


def _translators(
    folders: Sequence[Path], loading: Mapping[str, Any], factors: Mapping[str, object] | None = None
) -> dict[str, Translator]:
    """Folder → translator; the main one comes last."""
    from syntaxformer.translation.scoring import check_directions
    from syntaxformer.translation.translator import Translator

    loaded = {str(folder): Translator.load(folder, **loading) for folder in folders}
    options.check_factor_names(factors or {}, loaded.values())
    check_directions([one.info for one in loaded.values()], "--beside")
    return loaded


def _cross_attention(
    translators: Mapping[str, Translator],
    text: str,
    output: Path,
    factors: Mapping[str, Sequence[str]],
    layer: int,
    head: int | None,
) -> None:
    from syntaxformer.study.attention import cross_attention
    from syntaxformer.study.plots import draw_attention

    maps = {}
    for folder, translator in translators.items():
        own = {name: values for name, values in factors.items() if name in translator.encoder.factors}
        maps[folder] = cross_attention(translator, text, own)
    for folder, one in maps.items():
        of_second = "" if folder == [*maps][-1] else f" of {folder}"
        _check_place(layer, head, *one.weights.shape[:2], of_second)
    draw_attention(maps, output, layer, head)
    for folder, one in maps.items():
        options.echo(f"{folder}: {one.translation}")


def _check_place(layer: int, head: int | None, n_layers: int, n_heads: int, of: str = "") -> None:
    if not -n_layers <= layer < n_layers or (head is not None and head >= n_heads):
        raise ConfigError(
            f"layer, head: expected below {n_layers} and {n_heads}{of}, got {layer} and {head}."
        )


def _subnetworks(
    classifiers: Sequence[tuple[str, Classifier]],
    text: str | tuple[str, str],
    output: Path,
    network: str | None,
    layer: int,
    head: int | None,
) -> None:
    from syntaxformer.study.attention import plain_attention_beside, subnetwork_view
    from syntaxformer.study.plots import draw_subnetwork

    *beside, (_, infused) = classifiers
    view = subnetwork_view(infused, text)
    _check_place(layer, head, *view.logits.shape[:2])
    plain = {name: plain_attention_beside(view, one, text, layer, head) for name, one in beside}
    if network is None and not view.strongest(1):
        raise ConfigError("TEXT: expected words that a relation links, got none. Give a longer text.")
    chosen = view.strongest(1)[0] if network is None else view.network(network)
    if not view.masks[chosen].any():
        options.echo(
            f"No pieces of this text are related by {network}: the picture shows equal weights.", err=True
        )
    draw_subnetwork(view, output, chosen, layer, head=head, plain=plain)
    options.echo(f"prediction: {view.prediction}")
    weights = view.topical_weights().mean(0)
    for one in view.strongest(5):
        options.echo(f"{view.networks[one]:<28} {weights[one]:.4f}")


def _spread(
    translators: Mapping[str, Translator],
    folders: Sequence[Path],
    source: Path,
    annotator: str | None,
    layer: int,
    head: int | None,
    as_json: bool,
) -> None:
    from syntaxformer.annotate import prepare
    from syntaxformer.base.files import read_lines
    from syntaxformer.base.languages import choose_annotator, language_of_side
    from syntaxformer.study.attention import MEASURES, attention_spread

    *beside, model = map(str, folders)
    info, preparation = translators[model].info, translators[model].encoder.preparation
    chosen = choose_annotator(annotator, language_of_side(info, info.src), "--annotator")
    parser = prepare(chosen, words_given=preparation.tokenized)
    lines = [preparation.clean(line) for line in read_lines(source)]
    if preparation.unescape:  # the lines are already unescaped
        for one in translators.values():
            one.encoder.preparation = replace(one.encoder.preparation, unescape=False)
    if not any(line.strip() for line in lines):
        raise DataError("expected at least one line with text, got none.", source)
    sentences = parser.annotate(lines)
    found = {name: attention_spread(one, sentences, layer, head) for name, one in translators.items()}
    rows = {name: {key: one.interval(key).as_dict() for key in MEASURES} for name, one in found.items()}
    for baseline in beside:
        rows["difference"] = {
            key: found[model].difference(found[baseline], key).as_dict() for key in MEASURES
        }
    if as_json:
        options.echo(json.dumps(rows))
        return
    for name, row in rows.items():
        options.echo(name)
        for measure, one in row.items():
            mean, low, high = ("–" if value is None else f"{value:.3f}" for value in one.values())
            options.echo(f"  {MEASURES[measure]:<22} {mean:>8}  [{low}, {high}]")
