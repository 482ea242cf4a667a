"""`syntaxformer translate`: translates raw text line for line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from syntaxformer.base.errors import ConfigError, SyntaxformerError
from syntaxformer.cli.options import (
    BeamSizeOption,
    DeviceOption,
    FactorOption,
    ModelAnnotatorOption,
    TranslatorArgument,
    TrustOption,
    factor_files,
    read_factors,
    refuse_inputs,
)


def translate(
    model: TranslatorArgument,
    source: Annotated[
        Path | None, Argument(metavar="[IN]", help="Text file, plain or .gz; default: stdin.")
    ] = None,
    output: Annotated[
        Path | None, Option("-o", "--output", help="Text file, plain or .gz; default: stdout.")
    ] = None,
    beam_size: BeamSizeOption = None,
    length_penalty: Annotated[float | None, Option(help="Default: the model's setting.")] = None,
    n_best: Annotated[
        int, Option(min=1, help="Translations of each line, best first, as lines number|||text|||score.")
    ] = 1,
    moses: Annotated[
        bool, Option("--moses", help="Write Moses' n-best list: number from 0 ||| text ||| Score= s ||| s.")
    ] = False,
    batch_size: Annotated[int | None, Option(min=1, help="Number of lines decoded together.")] = None,
    no_repeat_ngram_size: Annotated[
        int | None, Option(min=2, help="No n-gram of so many pieces twice; default: the model's setting.")
    ] = None,
    temperature: Annotated[
        float | None, Option(help="Sample instead of searching; 1: the model's own probabilities.")
    ] = None,
    top_k: Annotated[int | None, Option(min=1, help="Sample among so many pieces; default: all.")] = None,
    seed: Annotated[int | None, Option(min=0, help="Of the samples; default: 0.")] = None,
    annotator: ModelAnnotatorOption = None,
    factor: FactorOption = None,
    inject: Annotated[
        bool | None,
        Option(
            "--inject/--no-inject",
            help="Let LISA's head attend to the annotator's governors; default: as trained.",
        ),
    ] = None,
    device: DeviceOption = None,
    trust_annotator: TrustOption = False,
) -> None:
    """Translate text, which is tagged automatically.

    echo "A man is standing on a ladder." | syntaxformer translate runs/sit
    """
    from syntaxformer.base.files import atomic_text, read_lines
    from syntaxformer.base.progress import standard_input, track
    from syntaxformer.translation.decoding import loops_in_words
    from syntaxformer.translation.translator import Translator

    refuse_inputs(output, [source, *factor_files(factor)])
    _spare_torch(model, annotator)
    translator = Translator.load(model, annotator, device, inject, trust_annotator)
    if temperature is None and n_best > (beam := beam_size or translator.info.decoding.beam_size):
        raise ConfigError(f"--n-best: expected at most the beam size, {beam}, got {n_best}.")
    lines = standard_input() if source is None else read_lines(source)
    results = translator.translate(
        *(lines, beam_size, length_penalty, n_best, batch_size, n_best > 1 or moses, read_factors(factor)),
        no_repeat_ngram_size=no_repeat_ngram_size,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
    )
    results = track(results, f"translating {source}", enabled=output is not None and source is not None)
    loops: list[bool] = []
    rows = _rows(results, n_best, loops, moses)
    if output is None:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        for row in rows:
            print(row, flush=source is None)
    else:
        with atomic_text(output) as file:
            file.writelines(f"{row}\n" for row in rows)
    if any(loops):
        echo(loops_in_words(sum(loops), len(loops)), err=True)


_ROWS = "{0}|||{1.text}|||{1.score:.6f}", "{0} ||| {1.text} ||| Score= {1.score:.6f} ||| {1.score:.6f}"


def _rows(results: Iterable[list], n_best: int, loops: list[bool], moses: bool) -> Iterator[str]:
    """Lines of output; whether each line's best translation loops is added to `loops`."""
    for number, hypotheses in enumerate(results, 1):
        loops.append(hypotheses[0].loops)
        if n_best == 1 and not moses:
            yield hypotheses[0].text
        else:
            yield from (_ROWS[moses].format(number - moses, one) for one in hypotheses)


def _spare_torch(model: Path, annotator: str | None) -> None:
    """Import spaCy without torch for an export: thinc, below spaCy, would import it for nothing, in 1.5 s.

    Only this verb may, whose process loads no other annotator: thinc looks for torch once.
    """
    from syntaxformer.base.languages import BUNDLED
    from syntaxformer.translation.translator import read_info

    with suppress(SyntaxformerError, ImportError):  # `Translator.load` says what is wrong
        is_export = read_info(model).backend != "pytorch"
        if is_export and (annotator or read_info(model).annotator) in BUNDLED and "torch" not in sys.modules:
            sys.modules["torch"] = None  # type: ignore[assignment]
            import spacy  # noqa: F401
    if sys.modules.get("torch", sys) is None:
        del sys.modules["torch"]
