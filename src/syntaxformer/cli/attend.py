"""`syntaxformer attend`: draws the attention of one sentence, or prints its spread over a test set."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.cli import options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.study.attention import SpreadOfAttention
    from syntaxformer.translation.translator import Translator
    from syntaxformer.trees import Sentence

_OF_DECODERS = (
    ("decoder_layers", "num_hidden_layers"),
    ("n_heads", "decoder_attention_heads", "num_attention_heads"),
)
_OF_ENCODERS = ("encoder_layers", "num_hidden_layers"), ("encoder_attention_heads", "num_attention_heads")
"""Where `config.json` has the layers and heads that are drawn, of a translator and of a classifier."""


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
    to: options.ToOption = None,
    as_json: Annotated[bool, Option("--json", help="Print --spread as one JSON object.")] = False,
    trust_annotator: options.TrustOption = False,
) -> None:
    """Draw which source pieces each target piece attends to, or the sub-networks of a fine-tuned model.

    syntaxformer attend runs/sit "Two dogs play in the snow." --beside runs/base -o attention.png

    syntaxformer attend runs/sit --beside runs/base --spread test2016.en

    syntaxformer attend runs/cola-masks "John slipped in front of anyone who was there." --beside runs/cola
    """
    loading = {"annotator": model_annotator, "trust_annotator": trust_annotator}
    folders = [folder for folder in (beside, model) if folder is not None]
    _check_stored_shapes(folders, layer, head)
    if spread is not None:
        unused = {"text": text, "-o": output, "--factor": factor, "--pair": pair, "--network": network}
        _refuse("--spread", unused)
    elif text is None or not text.strip():
        raise ConfigError("text: expected a sentence, got an empty one.")
    else:
        _refuse("a sentence", {"--annotator": annotator, "--json": as_json})
    output = output or Path("attention.png")

    from syntaxformer.study import attention
    from syntaxformer.translation.scoring import check_directions
    from syntaxformer.translation.translator import Translator

    if spread is None and (model / "classifier.json").exists():
        from syntaxformer.encoders.classifier import Classifier

        _refuse("a fine-tuned model", {"--factor": factor, "--to": to})
        classifiers = [(str(folder), Classifier.from_folder(folder, **loading)) for folder in folders]
        _subnetworks(classifiers, (text, pair) if pair else text, output, network, layer, head)
        options.echo(output)
        return
    _refuse("a translator", {"--pair": pair, "--network": network})
    factors = {name: next(rows, []) for name, rows in options.read_factors(factor).items()}
    translators = {str(folder): Translator.load(folder, **loading).to(to) for folder in folders}
    options.check_factor_names(factors, translators.values())
    check_directions([translator.info for translator in translators.values()], "--beside")
    if spread is not None:
        sentences = _parsed(translators[str(model)], spread, annotator)
        if translators[str(model)].encoder.preparation.unescape:  # the lines are already unescaped
            for translator in translators.values():
                translator.encoder.preparation = replace(translator.encoder.preparation, unescape=False)
        spreads = {}
        for name, translator in translators.items():
            spreads[name] = attention.attention_spread(translator, sentences, layer, head)
        _print_spread(spreads, beside, as_json)
        return
    from syntaxformer.study.plots import draw_attention

    maps = {}
    for name, translator in translators.items():
        values = {key: row for key, row in factors.items() if key in translator.encoder.factors}
        maps[name] = attention.cross_attention(translator, text, values)
        of_second = "" if name == str(model) else f" of {name}"
        _check_place(layer, head, *maps[name].weights.shape[:2], of_second)
    draw_attention(maps, output, layer, head)
    for name, attention_map in maps.items():
        options.echo(f"{name}: {attention_map.translation}")
    options.echo(output)


def _refuse(use: str, options: Mapping[str, object]) -> None:
    remedies = {"--annotator": "Give what the model reads as --model-annotator."}
    if problems := [
        f"{name}: expected none with {use}, got {value}. {remedies.get(name, 'Leave it out.')}"
        for name, value in options.items()
        if value
    ]:
        raise ConfigError(problems)


def _check_stored_shapes(folders: Sequence[Path], layer: int, head: int | None) -> None:
    """Refuse a layer or head that a model's settings rule out, before anything is loaded."""
    from syntaxformer.base.files import read_json

    for folder in folders:
        settings = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
        keys = _OF_ENCODERS if (folder / "classifier.json").is_file() else _OF_DECODERS
        n_layers, n_heads = (next(filter(None, map(settings.get, names)), None) for names in keys)
        if isinstance(n_layers, int) and isinstance(n_heads, int):
            _check_place(layer, head, n_layers, n_heads, "" if folder == folders[-1] else f" of {folder}")


def _check_place(layer: int, head: int | None, n_layers: int, n_heads: int, of: str = "") -> None:
    if not -n_layers <= layer < n_layers or (head is not None and head >= n_heads):
        expected = f"expected below {n_layers} and {n_heads}{of}"
        raise ConfigError(f"layer, head: {expected}, got {layer} and {head}.")


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
    plain = {name: plain_attention_beside(view, classifier, text, layer, head) for name, classifier in beside}
    if network is None and not view.strongest(1):
        raise ConfigError("TEXT: expected words that a relation links, got none. Give a longer text.")
    network_index = view.strongest(1)[0] if network is None else view.network(network)
    if not view.masks[network_index].any():
        note = f"No pieces of this text are related by {network}: the picture shows equal weights."
        options.echo(note, err=True)
    draw_subnetwork(view, output, network_index, layer, head=head, plain=plain)
    options.echo(f"prediction: {view.prediction}")
    weights = view.topical_weights().mean(0)
    for index in view.strongest(5):
        options.echo(f"{view.networks[index]:<28} {weights[index]:.4f}")


def _parsed(translator: Translator, source: Path, annotator: str | None) -> list[Sentence]:
    """The lines of a file as the translator reads them, with the trees of an annotator."""
    from syntaxformer.annotate import prepare
    from syntaxformer.base.files import read_lines
    from syntaxformer.base.languages import choose_annotator, language_of_side

    info, preparation = translator.info, translator.encoder.preparation
    name = choose_annotator(annotator, language_of_side(info, info.src), "--annotator")
    parser = prepare(name, words_given=preparation.tokenized)
    lines = [translator.clean(line) for line in read_lines(source)]
    if not any(line.strip() for line in lines):
        raise DataError("expected at least one line with text, got none.", source)
    return parser.annotate(lines)


def _print_spread(spreads: Mapping[str, SpreadOfAttention], beside: Path | None, as_json: bool) -> None:
    """Print each measure with its interval; of two models, the second's difference from the first, too."""
    from syntaxformer.study.attention import MEASURES

    rows = {name: {key: spread.interval(key) for key in MEASURES} for name, spread in spreads.items()}
    if beside is not None:
        baseline, last = spreads[str(beside)], [*spreads.values()][-1]
        rows["difference"] = {key: last.difference(baseline, key) for key in MEASURES}
    table = {name: {key: interval.as_dict() for key, interval in row.items()} for name, row in rows.items()}
    if as_json:
        options.echo(json.dumps(table))
        return
    for name, row in table.items():
        options.echo(name)
        for measure, interval in row.items():
            mean, low, high = ("–" if end is None else f"{end:.3f}" for end in interval.values())
            options.echo(f"  {MEASURES[measure]:<22} {mean:>8}  [{low}, {high}]")
