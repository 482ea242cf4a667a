"""`syntaxformer compare`: two translators, or two files of translations, sentence by sentence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, echo

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.options import (
    ModelAnnotatorOption,
    RefOption,
    SrcOption,
    TrustOption,
    check_parallel,
    refuse_inputs,
    refuse_other_endings,
)

if TYPE_CHECKING:
    from syntaxformer.translation.translator import Translator


def compare(
    first: Annotated[Path, Argument(help="The baseline: a model folder or a file of translations.")],
    second: Annotated[Path, Argument(help="The other model or its translations.")],
    src: SrcOption,
    ref: RefOption,
    output: Annotated[
        Path | None, Option("-o", "--output", help="Report, .md or .html; default: print to the terminal.")
    ] = None,
    train: Annotated[
        Path | None, Option(help="Source text of training, to group sentences by rare words.")
    ] = None,
    annotator: Annotated[
        str | None, Option(help="Annotator of the source; default: the bundled one of its language.")
    ] = None,
    model_annotator: ModelAnnotatorOption = None,
    target_annotator: Annotated[
        str | None,
        Option(help="Annotator of references and outputs; default: the bundled one of the target language."),
    ] = None,
    examples: Annotated[int, Option(min=0, help="Number of example sentences for each system.")] = 10,
    names: Annotated[str | None, Option(help="Names of the systems: baseline,syntax.")] = None,
    trust_annotator: TrustOption = False,
) -> None:
    """Show where two systems differ: by length, tree depth, part of speech and rare words, with examples.

    syntaxformer compare runs/base runs/sit --src test2016.en --ref test2016.de -o cases.md
    """
    from syntaxformer.annotate import prepare
    from syntaxformer.base.files import read_lines, write_text
    from syntaxformer.base.languages import choose_annotator, language_of_file, language_of_side
    from syntaxformer.study.cases import case_blocks, cases_of_lines
    from syntaxformer.study.document import to_html, to_markdown
    from syntaxformer.translation.scoring import check_directions

    refuse_inputs(output, [first, second, src, ref, train])
    refuse_other_endings(output, (".md", ".html"))
    called = tuple(names.split(",")) if names else _names(first, second)
    if len(called) != 2 or called[0] == called[1]:
        raise ConfigError(f"--names: expected two names with a comma between, got {names}.")
    sources, references = list(read_lines(src)), list(read_lines(ref))
    (one, one_model), (other, other_model) = (
        _outputs(path, sources, model_annotator, trust_annotator) for path in (first, second)
    )
    check_parallel(src, sources, {ref: references, first: one, second: other})
    models = [model for model in (one_model, other_model) if model is not None]
    infos = [model.info for model in models]
    check_directions(infos, "FIRST, SECOND")
    texts = [language_of_file(src), language_of_file(ref)]
    if infos:
        texts = [language_of_side(infos[0], ending) for ending in (infos[0].src, infos[0].tgt)]
    parser = prepare(choose_annotator(annotator, texts[0], "--annotator"))
    tagger = prepare(choose_annotator(target_annotator, texts[1], "--target-annotator"))
    for model in (one for one in models if one.info.rewrites_target):
        clean = model.info.preparation(model.info.tgt).clean  # as in training
        cleaned = [clean(line) for line in references]
        references, one, other = map(model.as_written, (cleaned, one, other))
    counted = () if train is None else read_lines(train)
    cases = cases_of_lines(sources, references, (one, other), parser, tagger, infos, counted)
    blocks = case_blocks(cases, (called[0], called[1]), examples)
    if output is None:
        echo(to_markdown(blocks))
        return
    text = to_html(blocks, output.parent) if output.suffix == ".html" else to_markdown(blocks)
    write_text(output, text)
    echo(output)


def _names(first: Path, second: Path) -> tuple[str, str]:
    """The last parts in which two paths differ: a and b for cells/a/model and cells/b/model."""
    pairs = zip(reversed(first.absolute().parts), reversed(second.absolute().parts), strict=False)
    return next(((one, other) for one, other in pairs if one != other), (f"{first}", f"{second} (again)"))


def _outputs(
    path: Path, sources: list[str], annotator: str | None, trust: bool
) -> tuple[list[str], Translator | None]:
    """The translations, and the model that made them or None for a file."""
    from syntaxformer.base.files import read_lines
    from syntaxformer.syntax import FACTORS
    from syntaxformer.translation.scoring import best_translations
    from syntaxformer.translation.translator import Translator

    if not path.is_dir():
        return list(read_lines(path)), None
    translator = Translator.load(path, annotator, None, None, trust)
    if own := [name for name in translator.encoder.factors if name not in FACTORS]:
        raise ConfigError(
            f"{path}: expected a model without factors of your own, got one that reads {', '.join(own)}. "
            "Write its translations with `syntaxformer translate` and --factor, and compare that file."
        )
    return best_translations(translator, sources), translator
