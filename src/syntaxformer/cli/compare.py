"""`syntaxformer compare`: translators, files of their translations, or classifiers, sentence by sentence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import options
from syntaxformer.cli.evaluate import score_rows
from syntaxformer.cli.score import contrast_rows, contrasts_of, score_with

if TYPE_CHECKING:
    from syntaxformer.study.document import Block
    from syntaxformer.translation.contrast import Contrast
    from syntaxformer.translation.translator import Translator


def compare(
    systems: Annotated[
        list[Path], Argument(help="Two to eight models or files of translations, the baseline first.")
    ],
    src: Annotated[Path | None, Option(help="Translators: source text, plain or packed.")] = None,
    ref: options.ReferenceOption = None,
    tgt: options.TargetsOption = None,
    contrast: options.ContrastOption = None,
    by: options.ByOption = None,
    data: Annotated[
        str | None, Option(help="Classifiers: a table with labels, or a folder of official files (dev).")
    ] = None,
    output: Annotated[
        Path | None, Option("-o", "--output", help="Report, .md or .html; default: print to the terminal.")
    ] = None,
    train: Annotated[
        Path | None, Option(help="Source text of training, to group sentences by rare words.")
    ] = None,
    annotator: Annotated[
        str | None, Option(help="Translators: annotator of the source; default: the bundled one.")
    ] = None,
    model_annotator: options.ModelAnnotatorOption = None,
    to: options.ToOption = None,
    target_annotator: Annotated[
        str | None,
        Option(help="Translators: annotator of references and outputs; default: the bundled one."),
    ] = None,
    examples: Annotated[int, Option(min=0, help="Number of example sentences for each system.")] = 10,
    names: Annotated[str | None, Option(help="Names of the systems: baseline,syntax.")] = None,
    trust_annotator: options.TrustOption = False,
) -> None:
    """Show where systems differ: by length, tree depth, part of speech and rare words, with examples.

    Classifiers are compared by scores and classes, with the rows on which they differ.

    syntaxformer compare runs/base runs/sit --src test2016.en --ref test2016.de -o cases.md

    syntaxformer compare runs/plain runs/bias runs/masks --data held_out.csv
    """
    from syntaxformer.annotate import prepare
    from syntaxformer.base.files import read_lines
    from syntaxformer.base.languages import choose_annotator, language_of_file, language_of_side
    from syntaxformer.study.cases import case_blocks, cases_of_lines
    from syntaxformer.translation import scoring
    from syntaxformer.translation.translator import Translator

    options.refuse_inputs(output, [*systems, src, *(ref or ()), *(tgt or ()), contrast, train, data])
    options.refuse_other_endings(output, (".md", ".html"))
    if not 2 <= len(systems) <= 8:
        raise ConfigError(f"SYSTEMS: expected two to eight, the baseline first, got {len(systems)}.")
    called = tuple(names.split(",")) if names else _names(*systems)
    if len(called) != len(systems) or len(set(called)) < len(systems):
        raise ConfigError(f"--names: expected {len(systems)} names with commas between, got {names}.")
    is_test = contrast is not None or len(tgt or ()) > 1
    if (tgt or contrast or by) and (
        not is_test or any((ref, data, train, annotator, target_annotator, examples != 10))
    ):
        got = "other options" if is_test else "fewer"
        raise ConfigError(f"compare: expected --contrast, or --src with several --tgt, alone, got {got}.")
    load_options = model_annotator, None, None, trust_annotator
    if is_test:
        contrasts, paths = contrasts_of(src, tgt, contrast, by), dict(zip(called, systems, strict=True))
        _write(_contrast_blocks(contrasts, paths, by, to, load_options), output)
        return
    if data is not None and not any((src, ref, train, annotator, target_annotator, to)):
        classifier_options = model_annotator, None, trust_annotator
        _write(_classifier_blocks(systems, called, data, examples, classifier_options), output)
        return
    if src is None or not ref or data is not None:
        got = ", got --annotator with --data. Use --model-annotator." if annotator and data else "."
        requirement = "--src and --ref, or for classifiers --data and --model-annotator"
        raise ConfigError(f"compare: expected {requirement}{got}")
    of_models = {"--model-annotator": model_annotator, "--to": to}
    unused = [name for name, value in of_models.items() if value]
    if unused and not any(path.is_dir() for path in systems):
        problem = f"expected a translator among SYSTEMS, got files alone. Leave {' and '.join(unused)} out."
        raise ConfigError(f"{unused[0]}: {problem}")
    sources, references = options.read_parallel(src, ref)
    outputs: list[list[str]] = []
    models: list[Translator] = []
    for path in systems:
        if path.is_dir():
            models.append(Translator.load(path, *load_options).to(to))
            outputs.append(_translations(path, models[-1], sources))
        else:
            outputs.append(list(read_lines(path)))
        options.check_parallel(src, sources, path, outputs[-1])
    infos = [model.info for model in models]
    scoring.check_directions(infos, "SYSTEMS")
    texts = [language_of_file(src), language_of_file(ref[0])]
    if infos:
        texts = [language_of_side(infos[0], ending) for ending in (infos[0].src, infos[0].tgt)]
    parser = prepare(choose_annotator(annotator, texts[0], "--annotator"))
    tagger = prepare(choose_annotator(target_annotator, texts[1], "--target-annotator"))
    written = scoring.written_references(models, references) if models else references
    for model in (translator for translator in models if translator.info.rewrites_target):
        clean = model.info.preparation(model.info.tgt).clean  # as in training
        references = [model.as_written(list(map(clean, text))) for text in references]
        outputs = [model.as_written(text) for text in outputs]
    training_lines = () if train is None else read_lines(train)
    cases = cases_of_lines(sources, references, outputs, parser, tagger, infos, training_lines)
    title, *blocks = case_blocks(cases, called, examples)
    _write([title, *_score_blocks(called, outputs, written, infos, texts[1].code), *blocks], output)


def _score_blocks(
    names: tuple[str, ...], outputs: list[list[str]], references: Any, infos: list[Any], code: str | None
) -> list[Block]:
    """The table that `evaluate` prints of the same translations."""
    from syntaxformer.study.document import Paragraph, Table
    from syntaxformer.translation import scoring

    try:
        common = scoring.common_scoring(infos, "SYSTEMS") if infos else scoring.scoring_of(code)
    except ConfigError as error:
        return [Paragraph(f"No scores of whole texts: {error}")]
    report = scoring.score_table(dict(zip(names, outputs, strict=True)), references, **common, intervals=True)
    (header, *rows), differences = score_rows(report)
    signatures = [f"{metric} {signature}" for metric, signature in report["signatures"].items()]
    of_first = [f"{names[0]}: {words}" for words in differences]
    return [Table(header, rows), *map(Paragraph, of_first), *map(Paragraph, signatures)]


def _contrast_blocks(
    contrasts: list[Contrast], systems: dict[str, Path], by: str | None, to: str | None, load_options: Any
) -> list[Block]:
    """The report on a contrastive test; `load_options` are further arguments of `Translator.load`."""
    from syntaxformer.study.document import Heading, Paragraph, Table
    from syntaxformer.translation.contrast import contrast_table
    from syntaxformer.translation.translator import Translator

    translators = {name: Translator.load(path, *load_options).to(to) for name, path in systems.items()}
    scores = {name: [*of_system] for name, of_system in score_with(translators, contrasts).items()}
    (header, *rows), differences = contrast_rows(contrast_table(contrasts, scores, by))
    title = Heading("How often the right translation is more probable, in per cent", 1)
    return [title, Table(header, rows), *map(Paragraph, differences)]


def _write(blocks: list[Block], output: Path | None) -> None:
    from syntaxformer.base.files import write_text
    from syntaxformer.study.document import to_html, to_markdown

    if output is None:
        options.echo(to_markdown(blocks))
        return
    text = to_html(blocks, output.parent) if output.suffix == ".html" else to_markdown(blocks)
    write_text(output, text)
    options.echo(output)


def _classifier_blocks(
    folders: list[Path], names: tuple[str, ...], data: str, n_examples: int, load_options: Any
) -> list[Block]:
    """The report on classifiers; `load_options` is as in `predictions_beside`."""
    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.encoders.prediction import predictions_beside, read_split_for, read_texts_for
    from syntaxformer.study.labelled import judge, labelled_blocks

    first = Classifier.from_folder(folders[0], *load_options)
    is_table = Path(data).is_file()
    texts = read_texts_for(first.info, data) if is_table else read_split_for(first.info, None, data, "dev")[1]
    others = (predictions_beside(folder, first.info, texts, load_options) for folder in folders[1:])
    systems = dict(zip(names, [first.predict_set(texts), *others], strict=True))
    judged = judge(first, texts, systems, dict(zip(names, folders, strict=True)), True)
    return labelled_blocks(judged, first.task_type, texts, systems, n_examples)


def _names(*paths: Path) -> tuple[str, ...]:
    """The last parts in which all paths differ: a and b for cells/a/model and cells/b/model."""
    parts = zip(*(reversed(path.absolute().parts) for path in paths), strict=False)
    again = (f"{path}{' (again)' * paths[:index].count(path)}" for index, path in enumerate(paths))
    return next((names for names in parts if len(set(names)) == len(names)), tuple(again))


def _translations(path: Path, translator: Translator, sources: list[str]) -> list[str]:
    from syntaxformer.base.progress import track
    from syntaxformer.syntax import FACTORS

    if factors := [name for name in translator.encoder.factors if name not in FACTORS]:
        raise ConfigError(
            f"{path}: expected a model without factors of your own, got one that reads {', '.join(factors)}. "
            "Write its translations with `syntaxformer translate` and --factor, and compare that file."
        )
    hypotheses = track(translator.translate(sources), f"translating with {path}", len(sources))
    return [best[0].text for best in hypotheses]
