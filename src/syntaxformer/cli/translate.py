"""`syntaxformer translate`: translates raw text line for line."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError, visible
from syntaxformer.cli import options

_SEARCH = (
    *("beam_size", "length_penalty", "n_best", "batch_size", "no_repeat_ngram_size", "temperature"),
    *("top_k", "seed", "min_length", "coverage_penalty", "split_sentences"),
)
"""Options that `Translator.translate` has by the same names."""

_ROWS = "{0}|||{1.text}|||{1.score:.6f}", "{0} ||| {1.text} ||| Score= {1.score:.6f} ||| {1.score:.6f}"
"""A row of a list of several translations, and as Moses has it."""


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
    to: options.ToOption = None,
    temperature: options.TemperatureOption = None,
    top_k: options.TopKOption = None,
    seed: options.SeedOption = None,
    min_length: Annotated[int, Option(min=0, max=4096, help="Fewest pieces of a translation.")] = 0,
    max_length_ratio: Annotated[
        float | None, Option(help="Most pieces: so many times the source's, and 10; default: the model's.")
    ] = None,
    coverage_penalty: Annotated[
        float, Option(min=0, max=100, help="Exports: prefer translations that attend to all of the source.")
    ] = 0.0,
    prefix: Annotated[
        Path | None, Option(help="How each line's translation must begin, line by line; empty: any.")
    ] = None,
    split_sentences: Annotated[
        Literal["never", "auto", "always"],
        Option(help="Translate the sentences of a line one by one; auto: where training had no such lines."),
    ] = "never",
    annotator: options.ModelAnnotatorOption = None,
    factor: options.FactorOption = None,
    alignments: Annotated[
        Path | None,
        Option(help="File for the links between words, 0-0 1-2, a line for each line of output."),
    ] = None,
    markup: Annotated[
        bool, Option("--markup", help="The text is HTML, whose inline tags go where their words go.")
    ] = False,
    terms: Annotated[
        Path | None, Option(metavar="FILE", help="Terms and their translations: term, tab, translation.")
    ] = None,
    inject: Annotated[
        bool | None,
        Option(
            "--inject/--no-inject",
            help="Let LISA's head attend to the annotator's governors; default: as trained.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        Option(help="Table of what data.protect could not keep: line, what happened, text."),
    ] = None,
    device: options.DeviceOption = None,
    trust_annotator: options.TrustOption = False,
    resume: options.ResumeOption = False,
) -> None:
    """Translate text, which is tagged automatically; several models average their log-probabilities.

    echo "A man is standing on a ladder." | syntaxformer translate runs/sit
    """
    settings = {name: value for name, value in locals().items() if name not in ("output", "resume")}
    from syntaxformer.base.files import atomic_text, continued_text, is_plain_output, read_lines
    from syntaxformer.base.progress import standard_input, track
    from syntaxformer.translation.decoding import loops_in_words
    from syntaxformer.translation.markup import translate_markup
    from syntaxformer.translation.terms import read_terms
    from syntaxformer.translation.translator import Translator

    *models, source = [*paths, None] if len(paths) == 1 or paths[-1].is_dir() else paths
    source = None if source == Path("-") else source
    factor_files = options.factor_files(factor)
    inputs = [source, terms, prefix, *factor_files.values()]
    options.refuse_inputs(output, inputs)
    options.refuse_inputs(alignments, [*inputs, output], "--alignments")
    options.refuse_inputs(report, [*inputs, output, alignments], "--report")
    if alignments is not None and markup:
        problem = f"expected none with --markup, whose tags are no words, got {alignments}"
        raise ConfigError(f"--alignments: {problem}. Translate the text without its tags for them.")
    stays = output is not None and is_plain_output(output) and source is not None and source.is_file()
    if resume and not stays:
        raise ConfigError("--resume: expected a text file to read and -o with a file to write, got others.")
    if resume and (alignments or report):
        raise ConfigError("--resume: expected neither --alignments nor --report, whose files begin anew.")
    options.spare_torch(models, annotator)
    translator = Translator.load_ensemble(models, annotator, device, inject, trust_annotator).to(to)
    if temperature is None and n_best > (beam := beam_size or translator.info.decoding.beam_size):
        raise ConfigError(f"--n-best: expected at most the beam size, {beam}, got {n_best}.")
    if report is not None and not translator.info.protect:
        raise ConfigError("--report: expected a model trained with data.protect, got one without it.")
    options.check_languages(translator.info, source)
    loops: Counter[bool] = Counter()
    options.check_factor_names(factor_files, [translator, *translator.others])
    with options.errors_of_factors(factor), ExitStack() as stack:
        file, n_done = None, 0
        if output is not None and stays:
            annotation = translator.annotator and (translator.annotator.name, translator.annotator.version)
            origin = _origin([*settings.items(), annotation, *factor_files.values()])
            n_together = translator.chunk_lines(batch_size) * n_best if resume else None
            file, n_rows = stack.enter_context(continued_text(output, origin, n_together))
            n_done = n_rows // n_best
        elif output is not None:
            file = stack.enter_context(atomic_text(output))
        if resume:
            options.echo(f"{output}: begins after line {n_done:,} of what the same command wrote", err=True)
        lines = standard_input() if source is None else read_lines(source, n_done)
        factors = {name: islice(rows, n_done, None) for name, rows in options.read_factors(factor).items()}
        search = {
            **{name: settings[name] for name in _SEARCH},
            "scored": n_best > 1 or moses,
            "user_factors": factors,
            "first_line": n_done + 1,
            "terms": None if terms is None else read_terms(terms),
            "prefixes": None if prefix is None else read_lines(prefix, n_done),
            "max_length_factor": max_length_ratio,
        }
        if markup:
            results = translate_markup(translator, lines, **search)
        else:
            results = translator.translate(lines, alignments=alignments is not None, **search)
        repair_file = None if report is None else stack.enter_context(atomic_text(report))
        link_file = None if alignments is None else stack.enter_context(atomic_text(alignments))
        results = track(results, f"translating {source}", enabled=output is not None and source is not None)
        if file is None:
            sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        for number, hypotheses in enumerate(results, n_done + 1):
            loops[hypotheses[0].loops] += 1
            if repair_file is not None:
                repairs = [repair for hypothesis in hypotheses for repair in hypothesis.repairs]
                repair_file.writelines(f"{number}\t{fault}\t{text}\n" for fault, text in repairs)
            if link_file is not None:
                link_file.writelines(f"{hypothesis.alignment or ''}\n" for hypothesis in hypotheses)
            rows = [hypotheses[0].text]
            if n_best > 1 or moses:
                rows = [_ROWS[moses].format(number - moses, hypothesis) for hypothesis in hypotheses]
            for row in rows:
                row = visible(row) if file is None and sys.stdout.isatty() else row
                print(row, file=file, flush=stays or (file is None and source is None))
    if loops[True]:
        options.echo(loops_in_words(loops[True], loops.total()), err=True)


def backtranslate(
    model: Annotated[Path, Argument(help="Folder that `train` or `export` wrote.")],
    mono: Annotated[Path, Argument(help="Text in the language that MODEL reads, plain or packed.")],
    output: Annotated[Path, Option("-o", "--output", help="Folder of the pairs, for data.synthetic.")],
    beam_size: options.BeamSizeOption = None,
    batch_size: options.BatchSizeOption = None,
    temperature: options.TemperatureOption = None,
    top_k: options.TopKOption = None,
    seed: options.SeedOption = None,
    to: options.ToOption = None,
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

    translator = Translator.load(model, annotator, device, None, trust_annotator).to(to)
    options.check_languages(translator.info, mono)
    search = {"beam_size": beam_size, "batch_size": batch_size, "temperature": temperature}
    factors = options.factor_files(factor)
    counts = backtranslate(translator, model, mono, output, factors, **search, top_k=top_k, seed=seed)
    left_out = "".join(f", left out {n:,} {why}" for why, n in counts["left_out"].items())
    options.echo(f"{output}: {counts['pairs']:,} pairs of {counts['lines']:,} lines{left_out}")


def _origin(settings: list[Any]) -> str:
    """Eight characters for all that a translation depends on, with files and models by their content."""
    from syntaxformer import __version__
    from syntaxformer.base.files import MANIFEST, hash_file

    def content(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [content(element) for element in value]
        path = value / MANIFEST if isinstance(value, Path) and value.is_dir() else value
        return hash_file(path) if isinstance(path, Path) and path.is_file() else value

    return sha256(repr((__version__, content(settings))).encode()).hexdigest()[:8]
