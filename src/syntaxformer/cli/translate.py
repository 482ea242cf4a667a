"""`syntaxformer translate`: translates raw text line for line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError, SyntaxformerError, visible
from syntaxformer.cli import options


def translate(
    paths: Annotated[
        list[Path], Argument(metavar="MODEL... [IN]", help="Model folders; then a text, default or -: stdin.")
    ],
    output: Annotated[
        Path | None, Option("-o", "--output", help="Text file, plain or packed; default: stdout.")
    ] = None,
    beam_size: options.BeamSizeOption = None,
    length_penalty: Annotated[float | None, Option(help="Default: the model's setting.")] = None,
    n_best: Annotated[
        int,
        Option(min=1, max=256, help="Translations of each line, best first, as number|||text|||score."),
    ] = 1,
    moses: Annotated[
        bool, Option("--moses", help="Write Moses' n-best list: number from 0 ||| text ||| Score= s ||| s.")
    ] = False,
    batch_size: options.BatchSizeOption = None,
    no_repeat_ngram_size: options.NoRepeatOption = None,
    temperature: options.TemperatureOption = None,
    top_k: options.TopKOption = None,
    seed: options.SeedOption = None,
    annotator: options.ModelAnnotatorOption = None,
    factor: options.FactorOption = None,
    inject: Annotated[
        bool | None,
        Option(
            "--inject/--no-inject",
            help="Let LISA's head attend to the annotator's governors; default: as trained.",
        ),
    ] = None,
    device: options.DeviceOption = None,
    trust_annotator: options.TrustOption = False,
) -> None:
    """Translate text, which is tagged automatically; several models average their log-probabilities.

    echo "A man is standing on a ladder." | syntaxformer translate runs/sit
    """
    from syntaxformer.base.files import atomic_text, read_lines
    from syntaxformer.base.progress import standard_input, track
    from syntaxformer.translation.decoding import loops_in_words
    from syntaxformer.translation.translator import Translator

    *models, source = [*paths, None] if len(paths) == 1 or paths[-1].is_dir() else paths
    source = None if source == Path("-") else source
    options.refuse_inputs(output, [source, *options.factor_files(factor).values()])
    _spare_torch(models[0], annotator)
    translator = Translator.load_ensemble(models, annotator, device, inject, trust_annotator)
    if temperature is None and n_best > (beam := beam_size or translator.info.decoding.beam_size):
        raise ConfigError(f"--n-best: expected at most the beam size, {beam}, got {n_best}.")
    options.check_languages(translator.info, source)
    lines = standard_input() if source is None else read_lines(source)
    factors = options.read_factors(factor)
    results = translator.translate(
        *(lines, beam_size, length_penalty, n_best, batch_size, n_best > 1 or moses, factors),
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
            print(visible(row) if sys.stdout.isatty() else row, flush=source is None)
    else:
        with atomic_text(output) as file:
            file.writelines(f"{row}\n" for row in rows)
    if any(loops):
        options.echo(loops_in_words(sum(loops), len(loops)), err=True)


def backtranslate(
    model: options.TranslatorArgument,
    mono: Annotated[Path, Argument(help="Text in the language that MODEL reads, plain or packed.")],
    output: Annotated[Path, Option("-o", "--output", help="Folder of the pairs, for data.synthetic.")],
    beam_size: options.BeamSizeOption = None,
    batch_size: options.BatchSizeOption = None,
    temperature: options.TemperatureOption = None,
    top_k: options.TopKOption = None,
    seed: options.SeedOption = None,
    annotator: options.ModelAnnotatorOption = None,
    factor: options.FactorOption = None,
    device: options.DeviceOption = None,
    trust_annotator: options.TrustOption = False,
) -> None:
    """Make training pairs of target-language text, whose sources a model of the other direction writes.

    syntaxformer backtranslate runs/de_en mono.de -o runs/pairs --temperature 1
    """
    from syntaxformer.translation.backtranslation import backtranslate
    from syntaxformer.translation.translator import Translator

    translator = Translator.load(model, annotator, device, None, trust_annotator)
    options.check_languages(translator.info, mono)
    search = {"beam_size": beam_size, "batch_size": batch_size, "temperature": temperature}
    factors = options.factor_files(factor)
    done = backtranslate(translator, model, mono, output, factors, **search, top_k=top_k, seed=seed)
    left_out = "".join(f", left out {n:,} {why}" for why, n in done["left_out"].items())
    options.echo(f"{output}: {done['pairs']:,} pairs of {done['lines']:,} lines{left_out}")


_ROWS = "{0}|||{1.text}|||{1.score:.6f}", "{0} ||| {1.text} ||| Score= {1.score:.6f} ||| {1.score:.6f}"


def _rows(results: Iterable[list], n_best: int, loops: list[bool], moses: bool) -> Iterator[str]:
    """Lines of output; whether each line's best translation loops is added to `loops`."""
    for number, hypotheses in enumerate(results, 1):
        loops.append(hypotheses[0].loops)
        if n_best == 1 and not moses:
            yield hypotheses[0].text
        else:
            yield from (_ROWS[moses].format(number - moses, hypothesis) for hypothesis in hypotheses)


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
