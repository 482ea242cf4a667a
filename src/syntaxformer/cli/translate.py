"""`syntaxformer translate`: raw text in, raw text out, line for line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syntaxformer.cli.options import (
    BeamSizeOption,
    DeviceOption,
    FactorOption,
    ModelAnnotatorOption,
    TrustOption,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from syntaxformer.translation.translator import Translator

__all__ = ["check_factor_names", "read_factors", "translate"]


def translate(
    model: Annotated[Path, typer.Argument(help="Folder that `train` or `export` wrote.")],
    source: Annotated[
        Path | None, typer.Argument(metavar="[IN]", help="Text file, plain or .gz; default stdin.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Text file, plain or .gz; default: stdout.")
    ] = None,
    beam_size: BeamSizeOption = None,
    length_penalty: Annotated[float | None, typer.Option(help="Default: the model's setting.")] = None,
    n_best: Annotated[
        int,
        typer.Option(min=1, help="Translations of each line, best first, as lines number|||text|||score."),
    ] = 1,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Lines decoded together.")] = None,
    annotator: ModelAnnotatorOption = None,
    factor: FactorOption = None,
    inject: Annotated[
        bool | None,
        typer.Option(
            "--inject/--no-inject",
            help="LISA's head looks at the annotator's governors; default: as trained.",
        ),
    ] = None,
    device: DeviceOption = None,
    trust_annotator: TrustOption = False,
) -> None:
    """Translate text; tags are made on the fly.

    echo "A man is standing on a ladder." | syntaxformer translate runs/sit
    """
    from syntaxformer.base.errors import ConfigError
    from syntaxformer.base.files import atomic_text, read_lines
    from syntaxformer.base.progress import standard_input, track
    from syntaxformer.cli.options import factor_files, refuse_inputs
    from syntaxformer.translation.translator import Translator

    refuse_inputs(output, [source, *factor_files(factor)])
    translator = Translator.load(model, annotator, device, inject, trust_annotator)
    if n_best > (beam := beam_size or translator.info.decoding.beam_size):
        raise ConfigError(f"--n-best: expected at most the beam size, {beam}, got {n_best}.")
    lines = standard_input() if source is None else read_lines(source)
    results = translator.translate(
        lines, beam_size, length_penalty, n_best, batch_size, n_best > 1, read_factors(factor or ())
    )
    results = track(results, f"translating {source}", enabled=output is not None and source is not None)
    rows = _rows(results, n_best)
    if output is None:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        for row in rows:
            print(row, flush=source is None)
        return
    with atomic_text(output) as file:
        file.writelines(f"{row}\n" for row in rows)


def read_factors(settings: Sequence[str]) -> dict[str, Iterator[list[str]]]:
    """Open the factor files of `--factor NAME=FILE`.

    Raises:
        ConfigError: A setting of another form.
    """
    from syntaxformer.base.errors import ConfigError
    from syntaxformer.syntax import read_user_values

    pairs = [setting.partition("=") for setting in settings]
    problems = [
        f"--factor: expected NAME=FILE, got {name}{equals}{path}."
        for name, equals, path in pairs
        if not (name and path)
    ]
    if problems:
        raise ConfigError(problems)
    return {name: read_user_values(path) for name, _, path in pairs}


def check_factor_names(given: Collection[str], translators: Iterable[Translator]) -> None:
    """Hold that one of the models reads each factor that is given.

    Raises:
        ConfigError: None does.
    """
    from syntaxformer.base.errors import ConfigError

    known = {name for translator in translators for name in translator.encoder.factors}
    if unknown := set(given) - known:
        raise ConfigError(f"--factor: expected a factor of the model, got {', '.join(sorted(unknown))}.")


def _rows(results: Iterable[list], n_best: int) -> Iterator[str]:
    for number, hypotheses in enumerate(results, 1):
        if n_best == 1:
            yield hypotheses[0].text
        else:
            yield from (f"{number}|||{one.text}|||{one.score:.6f}" for one in hypotheses)
