"""`syntaxformer score`: how probable given translations are, and contrastive tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import options

if TYPE_CHECKING:
    from syntaxformer.translation.contrast import Contrast
    from syntaxformer.translation.decoding import Score
    from syntaxformer.translation.translator import Translator


def score(
    models: Annotated[
        list[Path],
        Argument(metavar="MODEL...", help="Model folders; several average their log-probabilities."),
    ],
    src: Annotated[Path | None, Option(help="Source text, plain or .gz.")] = None,
    tgt: options.TargetsOption = None,
    contrast: options.ContrastOption = None,
    by: options.ByOption = None,
    baseline: options.BaselineOption = None,
    output: Annotated[
        Path | None, Option("-o", "--output", help="Table of the scores, plain or .gz; default: stdout.")
    ] = None,
    pieces: Annotated[bool, Option("--pieces", help="Also the log-probability of each piece.")] = False,
    as_json: options.JsonOption = False,
    batch_size: options.BatchSizeOption = None,
    annotator: options.ModelAnnotatorOption = None,
    to: options.ToOption = None,
    factor: options.FactorOption = None,
    device: options.DeviceOption = None,
    trust_annotator: options.TrustOption = False,
) -> None:
    """Score given translations by a model's log-probability, or test whether it prefers right ones.

    syntaxformer score runs/sit --src test.en --tgt test.de -o scores.tsv

    syntaxformer score runs/sit --contrast lingeval97.json --by distance --baseline runs/base
    """
    from syntaxformer.base.files import atomic_text
    from syntaxformer.translation.translator import Translator

    options.refuse_inputs(output, [src, *(tgt or ()), contrast, *options.factor_files(factor).values()])
    is_test = contrast is not None or len(tgt or ()) > 1
    for name, value in {"--by": by, "--baseline": baseline, "--json": as_json}.items():
        if value and not is_test:
            raise ConfigError(f"{name}: expected a contrastive test, several --tgt or --contrast, got none.")
    if pieces and is_test and output is None:
        raise ConfigError("--pieces: expected -o with it, for the scores of a contrastive test, got none.")
    if factor and contrast is not None:
        raise ConfigError("--factor: expected --src and several --tgt with it, got --contrast.")
    contrasts = contrasts_of(src, tgt, contrast, by)
    options.spare_torch([*models, *(baseline or ())], annotator)
    settings = annotator, device, None, trust_annotator
    translators = {", ".join(map(str, models)): Translator.load_ensemble(models, *settings).to(to)}
    for path in baseline or ():
        translators[options.system_name(path, translators)] = Translator.load(path, *settings).to(to)
    options.check_languages(next(iter(translators.values())).info, src, *(tgt or ()))
    is_shown = is_test or output is not None
    systems: dict[str, Any] = score_with(translators, contrasts, batch_size, factor, is_shown)
    if is_test:
        systems = {name: list(scores) for name, scores in systems.items()}
    rows = _rows(next(iter(systems.values())), pieces)
    if output is not None:
        with atomic_text(output) as file:
            file.writelines(f"{row}\n" for row in rows)
    elif not is_test:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        for row in rows:
            options.echo(row)
    if is_test:
        from syntaxformer.translation.contrast import contrast_table

        report = contrast_table(contrasts, systems, by)
        if as_json:
            options.echo(json.dumps({"by": by, "groups": report}))
            return
        table, differences = contrast_rows(report)
        options.echo_table(table)
        for words in differences:
            options.echo(words)


def contrasts_of(
    src: Path | None, tgt: list[Path] | None, contrast: Path | None, by: str | None
) -> list[Contrast]:
    """The sources and their translations, of files of lines or of a contrastive test with the key `by`."""
    from syntaxformer.translation.contrast import Contrast, WrongTranslation, check_key, read_contrasts

    if (contrast is None) != (src is not None and bool(tgt)) or (src is None) != (not tgt):
        got = "fewer" if contrast is None else "more"
        raise ConfigError(f"score: expected --src and --tgt, or --contrast alone, got {got}.")
    contrasts = [] if contrast is None else read_contrasts(contrast)
    sources, texts = options.read_parallel(src, tgt) if src is not None and tgt else ([], [])
    for source, (right, *others) in zip(sources, zip(*texts, strict=True), strict=True):
        errors = [WrongTranslation.model_construct(contrastive=text) for text in others]
        contrasts.append(Contrast.model_construct(source=source, reference=right, errors=errors))
    if by is not None:
        check_key(contrasts, by)
    return contrasts


def score_with(
    translators: dict[str, Translator],
    contrasts: list[Contrast],
    batch_size: int | None = None,
    factor: list[str] | None = None,
    is_shown: bool = True,
) -> dict[str, Iterator[list[Score]]]:
    """The scores that models give; each reads those of the user's factors that it was trained with."""
    from syntaxformer.base.progress import track
    from syntaxformer.translation.scoring import check_directions

    check_directions([translator.info for translator in translators.values()], "MODEL")
    options.check_factor_names(options.factor_files(factor), translators.values())
    texts, results = [[line.source for line in contrasts], [line.translations for line in contrasts]], {}
    for name, translator in translators.items():
        names = {key for member in (translator, *translator.others) for key in member.encoder.factors}
        factors = {key: rows for key, rows in options.read_factors(factor).items() if key in names}
        scores = translator.score(*texts, batch_size, factors)
        results[name] = track(scores, f"scoring with {name}", len(contrasts), enabled=is_shown)
    return results


def _rows(scores: Iterable[list[Score]], pieces: bool) -> Iterator[str]:
    """Lines of the output: a header, and one for each translation."""
    yield "line\ttranslation\tlog_prob\tpieces\tmean" + "\tpiece_log_probs" * pieces
    for line, of_line in enumerate(scores, 1):
        for number, score in enumerate(of_line, 1):
            row = f"{line}\t{number}\t{score.log_prob:.6f}\t{len(score.pieces)}\t{score.mean:.6f}"
            logs = (f"{piece}={log:.6f}" for piece, log in zip(score.pieces, score.log_probs, strict=True))
            yield f"{row}\t{' '.join(logs)}" if pieces else row


def contrast_rows(report: list[dict[str, Any]]) -> tuple[list[list[str]], list[str]]:
    """The table of a contrastive test, and how the first system differs from the others, in words."""
    from syntaxformer.base.statistics import difference_in_words

    rows = [["", "n", *(cell for name in report[0]["systems"] for cell in (name, "95 %"))]]
    for group in report:
        row = [group["group"], str(group["n"])]
        for system in group["systems"].values():
            row += [f"{system['mean']:.1f}", f"{system['low']:.1f} to {system['high']:.1f}"]
        rows.append(row)
    base, *others = report[0]["systems"]
    tests = {name: report[0]["systems"][name]["against"] for name in others}
    return rows, [f"{base} {difference_in_words(test, name)}" for name, test in tests.items()]
