"""`syntaxformer probe`: measures how much of a parse tree is in the layers of an encoder."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import options

if TYPE_CHECKING:
    from syntaxformer.study.probing import ProbeReport


def probe(
    model: Annotated[Path, Argument(help="Folder of a translator, an infused or a Hugging Face encoder.")],
    treebank: Annotated[Path, Option(help="CoNLL-U file to train the probes, plain or packed.")],
    dev: Annotated[
        Path | None, Option(help="CoNLL-U file to stop training; default: every tenth sentence.")
    ] = None,
    test: Annotated[Path | None, Option(help="CoNLL-U file to score; default: dev.")] = None,
    layers: Annotated[str, Option(help="all, or numbers such as 0,3,6; 0 is the embeddings.")] = "all",
    rank: Annotated[int, Option(min=1, max=2**16, help="Rows of the linear map.")] = 64,
    depth: Annotated[bool, Option("--depth/--no-depth", help="Also train the depth probe.")] = True,
    controls: Annotated[
        bool, Option("--controls/--no-controls", help="Also score random vectors and a linear chain.")
    ] = True,
    annotator: Annotated[
        str | None, Option(help="Annotator for a model that needs one; default: its own.")
    ] = None,
    to: options.ToOption = None,
    max_epochs: Annotated[int, Option(min=1, help="Largest number of epochs.")] = 30,
    seed: Annotated[
        int, Option(min=0, max=2**32 - 1, help="Seed of maps, batch order and random vectors.")
    ] = 1,
    output: Annotated[Path | None, Option("-o", "--output", help="Write the scores as JSON.")] = None,
    as_json: options.JsonOption = False,
    device: options.DeviceOption = None,
    trust_annotator: options.TrustOption = False,
) -> None:
    """Train a distance probe and a depth probe on each layer, and print UUAS, Spearman and root accuracy.

    syntaxformer probe MODEL --treebank train.conllu --dev dev.conllu --test test.conllu
    """
    from syntaxformer.base.files import write_text
    from syntaxformer.study.probing import ProbeConfig, probe_model, read_probe_treebank
    from syntaxformer.study.word_states import load_word_encoder

    options.refuse_inputs(output, [treebank, dev, test])
    layer_numbers = _layers(layers)
    train_part = read_probe_treebank(treebank)
    if dev is None:
        train_part, dev_part = train_part.hold_out()
    else:
        dev_part = read_probe_treebank(dev)
    test_part = dev_part if test is None else read_probe_treebank(test)
    encoder = load_word_encoder(model, annotator, device, trust_annotator, to)
    config = ProbeConfig(rank=rank, depth=depth, controls=controls, max_epochs=max_epochs, seed=seed)
    report = probe_model(encoder, train_part, dev_part, test_part, config, layer_numbers)
    text = json.dumps({"model": str(model), **report.as_dict()}, indent=1)
    if output is not None:
        write_text(output, text)
    options.echo(text) if as_json else _print(report)


def _layers(text: str) -> list[int] | None:
    try:
        return None if text == "all" else [int(number) for number in text.split(",")]
    except ValueError as error:
        raise ConfigError(f'--layers: expected "all" or numbers with commas, got {text!r}.') from error


def _print(report: ProbeReport) -> None:
    parts = f"trained on {report.n_train} sentences, stopped on {report.n_dev}, scored on {report.n_test}"
    options.echo(f"rank {report.rank}; {parts}")
    for reason, count in report.left_out.items():
        options.echo(f"left out: {count} sentences {reason}")
    if report.n_uncovered:
        options.echo(f"{report.n_uncovered} words have no piece of their own, so their vectors are zero")
    options.echo(f"\n{'':<16} {'UUAS':>6} {'Spearman':>9} {'root':>6} {'norm Spearman':>14} {'seconds':>8}")
    for result in report.scores:
        root, norm = _shown(result.root_accuracy, 100, 1), _shown(result.norm_spearman, 1, 3)
        scores = f"{_shown(result.uuas, 100, 1):>6} {_shown(result.spearman, 1, 3):>9} {root:>6} {norm:>14}"
        options.echo(f"{result.name:<16} {scores} {result.seconds:>8.1f}")


def _shown(score: float | None, scale: float, digits: int) -> str:
    """A score as text: empty if it was not computed, a dash if it is undefined on the test set."""
    if score is None:
        return ""
    return "–" if math.isnan(score) else f"{scale * score:.{digits}f}"
