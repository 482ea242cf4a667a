"""From lines of text to cases: annotated, prepared and compared as the models that wrote them have it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from syntaxformer.annotate import WordsAsGiven
from syntaxformer.study.cases import Case, compare_cases, word_counts
from syntaxformer.translation.model_folder import FolderInfo
from syntaxformer.translation.scoring import scoring

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator

__all__ = ["cases_of_lines"]


def cases_of_lines(
    sources: Sequence[str],
    references: Sequence[str],
    outputs: tuple[Sequence[str], Sequence[str]],
    parser: Annotator,
    tagger: Annotator,
    infos: Sequence[FolderInfo] = (),
    train: Iterable[str] = (),
) -> list[Case]:
    """Annotate lines and compare two systems on them.

    Args:
        sources: Source lines.
        references: Reference translations.
        outputs: Of the first system, the baseline, and of the second.
        parser: Of the source.
        tagger: Of the target: it splits references and outputs into words, by one rule.
        infos: Of the models that made the outputs, as far as models made them: lines are cleaned, split and
            compared as `evaluate` does for them. Case does not count where it does not for one of them.
        train: Source lines in which words are rare or not; none to leave that out.

    Raises:
        ValueError: Other numbers of lines, or none.
    """
    if any(info.tokenized for info in infos):
        parser, tagger = WordsAsGiven(parser), WordsAsGiven(tagger)
    for preparation in dict.fromkeys(info.preparation(info.src) for info in infos):
        sources, train = [preparation.clean(one) for one in sources], map(preparation.clean, train)
    for preparation in dict.fromkeys(info.preparation(info.tgt) for info in infos):
        references = [preparation.clean(one) for one in references]
    n_lines, n_first = len(references), len(references) + len(outputs[0])
    tagged = tagger.annotate([*references, *outputs[0], *outputs[1]])
    counts = word_counts(one.words for one in parser.stream(train))
    lowercase = any(scoring(info)["lowercase"] for info in infos)
    parts = tagged[:n_lines], tagged[n_lines:n_first], tagged[n_first:]
    return compare_cases(parser.annotate(sources), *parts, counts or None, lowercase)
