"""`syntaxformer evaluate`: scores models on a test set, or compares scores of any metric."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.cli import options
from syntaxformer.cli.predict import UNCHANGED, predict

if TYPE_CHECKING:
    from syntaxformer.translation.translator import Translator

_OF_CLASSIFIERS = (
    *("data", "split", "shuffle", "blank"),
    *("annotator", "device", "as_json", "output", "trust_annotator"),
)
_OF_SCORES = {"scores", "baseline_scores", "as_json"}
_OF_FINISHED = {"src", "ref", "hyp", "test_set", "pair", "origin", "paired_ar", "as_json", "split"}
"""Options that a classifier takes, scores of any metric, and finished translations without a model."""

MOST_ORIGINS = 500
"""A file with more different lines names no origins."""


def evaluate(
    model: Annotated[Path | None, Argument(help="Folder that `train`, `finetune` or `export` wrote.")] = None,
    rows: Annotated[
        str | None, Argument(metavar="[IN]", help="For a classifier: a table with labels, as in training.")
    ] = None,
    src: Annotated[Path | None, Option(help="Source text, plain or packed.")] = None,
    ref: options.ReferenceOption = None,
    hyp: Annotated[
        list[Path] | None,
        Option(help="Finished translations, beside a model or instead of it, line by line; repeatable."),
    ] = None,
    test_set: Annotated[
        str | None, Option(help="Instead of --src and --ref: a test set in sacreBLEU's cache, such as wmt19.")
    ] = None,
    pair: Annotated[str | None, Option(help="Languages of --test-set, such as en-de.")] = None,
    origin: Annotated[
        str | None, Option(help="Score each origin, too: a file with that of each line, or a field: docid.")
    ] = None,
    paired_ar: Annotated[
        bool, Option("--paired-ar", help="p by approximate randomisation; default: by paired bootstrap.")
    ] = False,
    output: Annotated[
        Path | None, Option("-o", "--output", help="File for the translations, plain or packed.")
    ] = None,
    baseline: options.BaselineOption = None,
    scores: Annotated[
        Path | None, Option(help="Instead of a model: any metric's score of each line, such as COMET's.")
    ] = None,
    baseline_scores: Annotated[Path | None, Option(help="The same metric's scores of a baseline.")] = None,
    data: Annotated[str | None, Option(help="For a classifier: as in predict.")] = None,
    split: Annotated[str | None, Option(help="Split of --data. Default: dev.")] = None,
    beam_size: options.BeamSizeOption = None,
    no_repeat_ngram_size: options.NoRepeatOption = None,
    to: options.ToOption = None,
    as_json: options.JsonOption = False,
    annotator: options.ModelAnnotatorOption = None,
    factor: options.FactorOption = None,
    terms: Annotated[
        Path | None, Option(metavar="FILE", help="Count terms that are kept; models that can are given them.")
    ] = None,
    shuffle: options.ShuffleOption = None,
    blank: options.BlankOption = None,
    device: options.DeviceOption = None,
    trust_annotator: options.TrustOption = False,
) -> None:
    """Translate a test set and score it, cased and detokenised unless the model is not; prints signatures.

    Finished files are scored likewise, a classifier on a table with labels, or on official files.

    syntaxformer evaluate runs/sit --src test2016.en --ref test2016.de --baseline runs/base

    syntaxformer evaluate --hyp sit.de --hyp base.de --ref test2016.de

    syntaxformer evaluate runs/bias held_out.csv --baseline runs/plain
    """
    used = {name: value for name, value in locals().items() if value}
    from syntaxformer.base.files import atomic_text, read_lines

    if rows is not None or data is not None:
        if model is None or not used.keys() <= {"model", "rows", "baseline", *_OF_CLASSIFIERS}:
            problem = "evaluate: expected a classifier and its table or --data only, got more."
            raise ConfigError(f"{problem} For a translator, name the text with --src.")
        arguments = {name: used[name] for name in _OF_CLASSIFIERS if name in used}
        predict(model, rows, baseline=baseline or [], **arguments)
        return
    if scores is not None or baseline_scores is not None:
        _compare_files(scores, baseline_scores, as_json, used.keys() - _OF_SCORES)
        return
    if model is None and not used.keys() <= _OF_FINISHED:
        raise ConfigError("evaluate: expected MODEL with its options, got finished translations alone.")
    n_systems = (model is not None) * (1 + len(baseline or ()) + bool(shuffle or blank)) + len(hyp or ())
    if paired_ar and n_systems < 2:
        raise ConfigError("--paired-ar: expected two systems or more, got one.")
    if len({*(hyp or ())}) < len(hyp or ()):
        raise ConfigError("--hyp: expected different files, got one twice.")
    fields = {} if test_set is None and pair is None else _test_set(test_set, pair, src, ref)
    if fields:
        src, ref = fields["src"], [path for field, path in fields.items() if field.startswith("ref")]
    if not ref or split is not None or (hyp is None if model is None else src is None):
        more = "fewer" if split is None else "--split without --data"
        problem = "MODEL, --src and --ref, or --hyp and --ref, or --scores"
        raise ConfigError(f"evaluate: expected {problem}, got {more}.")
    from syntaxformer.base.languages import language_of_file
    from syntaxformer.translation import scoring
    from syntaxformer.translation.terms import read_terms
    from syntaxformer.translation.translator import Translator

    options.refuse_inputs(output, [src, terms, *ref, *(hyp or ()), *options.factor_files(factor).values()])
    origins = _origins(origin, fields)
    sources, texts = options.read_parallel(src, ref) if src else ([], [[*read_lines(path)] for path in ref])
    hypotheses = {str(path): [*read_lines(path)] for path in hyp or ()}
    files = dict(zip(map(str, ref), texts, strict=True)) | hypotheses
    files |= {} if origins is None else {str(origin): origins}
    for path, lines in files.items():
        options.check_parallel(ref[0], texts[0], Path(path), lines)
    references = texts if len(texts) > 1 else texts[0]
    folders = [] if model is None else [model, *(baseline or ())]
    options.spare_torch(folders, annotator)
    systems: dict[str, Translator] = {}
    ablation = bool(shuffle or blank)
    for path in folders:
        is_itself = bool(ablation and systems) and path.resolve() == folders[0].resolve()
        name = UNCHANGED if is_itself else options.system_name(path, systems)
        systems[name] = Translator.load(path, annotator, device, None, trust_annotator)
    if ablation:
        from syntaxformer.study.ablation import Ablation, ablate_translator

        (name, intact), *others = systems.items()
        ablated = ablate_translator(intact, Ablation.parse(shuffle, blank))
        systems = {name: ablated, **dict(others or [(UNCHANGED, intact)])}
    systems = {name: system.to(to) for name, system in systems.items()}
    infos = [system.info for system in systems.values()]
    if infos:
        options.check_languages(infos[0], src, *ref, *(hyp or ()))
        common = scoring.common_scoring(infos, "--baseline")
    else:
        common = scoring.scoring_of(pair.partition("-")[2] if pair else language_of_file(ref[0]).code)
    options.check_factor_names(options.factor_files(factor), systems.values())
    texts, report = {}, {}
    term_list = None if terms is None else read_terms(terms)
    for name, system in systems.items():
        search = {"no_repeat_ngram_size": no_repeat_ngram_size}
        search |= {} if system.info.terms is None else {"terms": term_list}
        arguments = sources, references, beam_size, options.read_factors(factor), f"translating with {name}"
        with options.errors_of_factors(factor):
            result = scoring.score_translator(system, *arguments, **search)
        report = report or {"model": name, **asdict(result.scores), "n_loops": result.n_loops}
        texts[name] = result.hypotheses
    if output is not None:
        with atomic_text(output) as file:
            file.writelines(f"{line}\n" for line in texts[str(model)])
    texts |= hypotheses
    if systems:
        references = scoring.written_references([*systems.values()], references)
    for system in systems.values():  # text that one model cannot write must not decide between them
        texts = {name: system.as_written(lines) for name, lines in texts.items()}
    note = next(filter(None, map(scoring.reference_note, infos)), None)
    if not report:
        name, lines = next(iter(texts.items()))
        report = {"model": name, **asdict(scoring.score_translations(lines, references, **common))}
    table = {"note": note, "intervals": hyp is not None, "paired_ar": paired_ar, "origins": origins}
    report |= scoring.score_table(texts, references, **common, **table)
    if len(texts) > 1:
        _, name, *_ = texts
        table_notes = (_table_note(folders[0], Path(folder)) for folder in [*systems][1:])
        table_note = next(filter(None, table_notes), None)
        report |= {"baseline": name, **report["systems"][name]["against"]["BLEU"], "note": table_note}
    if term_list is not None:
        report["terms"] = scoring.kept_terms_of(systems, term_list, sources, texts)
    options.echo(json.dumps(report)) if as_json else _print(report)


def score_rows(report: dict[str, Any]) -> tuple[list[list[str]], list[str]]:
    """The table of a `score_table`, and in words how the first system differs from the others."""
    from syntaxformer.base.statistics import difference_in_words

    systems, signatures = report["systems"], report["signatures"]
    rows, columns = [["", *signatures, "length"]], [*signatures, "length_ratio"]
    for name, row in systems.items():
        halves = {key: f" ± {half:.2f}" for key, half in row.get("half_widths", {}).items()}
        cells = ("–" if row[key] is None else f"{row[key]:.2f}{halves.get(key, '')}" for key in columns)
        rows.append([name, *cells])
    differences = []
    for name, row in systems.items():
        tests = row.get("against", {}).items()
        differences += [f"{metric:6} {difference_in_words(test, name)}" for metric, test in tests]
    return rows, differences


def _print(report: dict[str, Any]) -> None:
    from syntaxformer.translation.decoding import loops_in_words

    systems, signatures = report["systems"], report["signatures"]
    rows, differences = score_rows(report)
    options.echo_table(rows)
    for line in (*differences, *(f"{metric:6} {signature}" for metric, signature in signatures.items())):
        options.echo(line)
    for name, counts in report.get("terms", {}).items():
        summary = f"{name}, {'given' if counts['given'] else 'not given'}: {counts['exact']} in that form"
        summary += "" if counts["by_lemma"] is None else f", {counts['by_lemma']} in any form"
        options.echo(f"{'terms':6} {summary}, of {counts['n_terms']}")
    if "origin_lines" in report:
        header = [f"{metric} {name}" for name in systems for metric in signatures]
        table = [["", "lines", *header]]
        for origin, n in report["origin_lines"].items():
            cells = (f"{score:.2f}" for row in systems.values() for score in row["origins"][origin].values())
            table.append([origin, str(n), *cells])
        options.echo_table(table)
    if report.get("n_loops"):
        options.echo(loops_in_words(report["n_loops"], report["n_lines"]), err=True)
    if report.get("note"):
        options.echo(report["note"], err=True)


def _test_set(name: str | None, pair: str | None, *files: Any) -> dict[str, Path]:
    """The files of a test set in sacreBLEU's cache, by field."""
    from syntaxformer.translation.scoring import cached_test_set

    if name is None or pair is None or any(files):
        got = "one of them alone" if not any(files) else "also --src or --ref"
        raise ConfigError(f"--test-set: expected --pair with it and no files of text, got {got}.")
    return cached_test_set(name, pair)


def _origins(origin: str | None, fields: dict[str, Path]) -> list[str] | None:
    """The origin of each line, of a file or of a field of a test set."""
    from syntaxformer.base.files import read_lines

    if origin is None:
        return None
    if fields and origin not in fields:
        names = ", ".join(field for field in fields if field[:3] not in ("src", "ref"))
        raise ConfigError(f"--origin: expected {names or 'a test set with one'}, got {origin}.")
    origins = [*read_lines(fields.get(origin, Path(origin)))]
    if (n := len({*origins})) > MOST_ORIGINS:
        raise ConfigError(f"--origin: expected at most {MOST_ORIGINS} different ones, got {n}.")
    return origins


def _compare_files(path: Path | None, baseline: Path | None, as_json: bool, others: set[str]) -> None:
    """Compare two files of any metric's scores of lines."""
    import numpy as np

    from syntaxformer.base.statistics import difference_in_words
    from syntaxformer.translation.scoring import paired_bootstrap

    if path is None or baseline is None or others:
        got = "other options" if others else "one of the two alone"
        raise ConfigError(
            f"--scores: expected --baseline-scores with it and no option but --json, got {got}."
        )
    values = [_numbers(file) for file in (baseline, path)]
    options.check_parallel(path, values[1], baseline, values[0])
    tables = [np.array(value)[:, None] for value in values]
    comparison = paired_bootstrap(*tables, lambda sums: sums[0] / len(values[1])).as_dict()
    means = [float(table.mean()) for table in tables]
    report = {"scores": str(path), "mean": means[1], "baseline": str(baseline), "baseline_mean": means[0]}
    words = difference_in_words(comparison, str(baseline), 4)
    text = f"{means[1]:.4f}  {path}\n{means[0]:.4f}  {baseline}\n{words}"
    options.echo(json.dumps(report | comparison) if as_json else text)


def _numbers(path: Path) -> list[float]:
    """The scores of a file, one a line."""
    from syntaxformer.base.files import read_lines

    scores: list[float] = []
    for number, line in enumerate(read_lines(path), 1):
        with suppress(ValueError):
            scores.append(float(line))
        if len(scores) < number or not math.isfinite(scores[-1]):
            raise DataError(f"score: expected a number, got {line[:40]!r}. Write one a line.", path, number)
    return scores


def _table_note(model: Path, baseline: Path) -> str | None:
    """A note if only one model has a separate table for source words, which may cause a difference."""
    from syntaxformer.base.files import read_json
    from syntaxformer.runs.run_folder import RUN

    runs = [run for run in (model, baseline) if (run / RUN).exists()]
    kinds = {read_json(run / RUN).get("source_table"): run for run in runs}
    if kinds.keys() != {"shared", "own"}:
        return None
    return (
        f"{kinds['shared']} shares its table of source words with the target side, {kinds['own']} has a "
        "separate one, which may cause part of the difference. To find out, train "
        f"{kinds['shared']} with model.share_source_embedding=false."
    )
