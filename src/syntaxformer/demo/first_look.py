"""The demo: baseline and infused translator on the generated corpus, compared on its test set."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from syntaxformer.base.errors import ConfigError
from syntaxformer.base.files import read_lines
from syntaxformer.demo.generated import write_demo
from syntaxformer.runs.run_folder import empty_folder
from syntaxformer.study import cross_attention, draw_attention
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.scoring import (
    Comparison,
    TranslationScores,
    compare_translations,
    score_translations,
)
from syntaxformer.translation.training import train_translator
from syntaxformer.translation.translator import Translator

__all__ = ["DemoReport", "DemoSystem", "Example", "run_demo"]

CORPUS = "corpus"

OWN = {"attention.png", "baseline", "cache", CORPUS, "infused"}
"""What the demo writes, and `--overwrite` may delete."""

SYSTEMS = {
    "baseline": ("infusion.kind=none", "model.share_source_embedding=false"),
    "infused": ("infusion.kind=sum_then_concat",),
}
"""Settings of each. The infused one needs a source table of its own: without one for the baseline, too, the
difference would be partly that of the tables."""


@dataclass(frozen=True)
class DemoSystem:
    """One trained system: its folder, its scores, its size and its training time in seconds."""

    name: str
    folder: Path
    scores: TranslationScores
    n_parameters: int
    seconds: float


@dataclass(frozen=True)
class Example:
    """A test sentence: source with its tags, reference, and the translation of each system."""

    tagged: str
    reference: str
    translations: dict[str, str]


@dataclass(frozen=True)
class DemoReport:
    """What the demo found."""

    systems: list[DemoSystem]
    comparison: Comparison
    examples: list[Example]
    figure: Path


def run_demo(folder: Path, overwrite: bool = False, settings: Sequence[str] = ()) -> DemoReport:
    """Write the corpus, train both systems, translate the test set, draw the attention of one sentence.

    Args:
        folder: Gets `corpus`, `baseline`, `infused` and `attention.png`.
        overwrite: Delete an older demo there.
        settings: "key.sub=value" over the recipe `tiny`, for both systems.

    Raises:
        ConfigError: The folder is not empty, or a setting is wrong.
        DataError: The folder cannot be written.
    """
    _make_room(folder, overwrite)
    corpus = folder / CORPUS
    write_demo(corpus)
    seconds = {name: _train(folder, corpus, name, own, settings) for name, own in SYSTEMS.items()}
    sources, references = list(read_lines(corpus / "test.en")), list(read_lines(corpus / "test.de"))
    translators = {name: Translator.load(folder / name) for name in SYSTEMS}
    outputs = {
        name: [best[0].text for best in translator.translate(sources)]
        for name, translator in translators.items()
    }
    systems = [
        DemoSystem(
            name,
            folder / name,
            score_translations(outputs[name], references),
            sum(parameter.numel() for parameter in translator.model.parameters()),
            seconds[name],
        )
        for name, translator in translators.items()
    ]
    examples = _examples(translators["infused"], sources, references, outputs)
    figure = folder / "attention.png"
    line = max(sources, key=lambda source: len(set(source)))
    draw_attention({name: cross_attention(one, line) for name, one in translators.items()}, figure)
    return DemoReport(systems, compare_translations(*outputs.values(), references), examples, figure)


def _make_room(folder: Path, overwrite: bool) -> None:
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    is_older_demo = CORPUS in names and OWN.issuperset(names)
    if (folder.exists() and not folder.is_dir()) or (names and not (overwrite and is_older_demo)):
        remedy = " or give --overwrite" if is_older_demo else ""
        raise ConfigError(
            f"output: expected a new or empty folder, got {folder}, which holds "
            f"{', '.join(names[:3]) or 'a file'}. Choose another{remedy}."
        )
    if names:
        empty_folder(folder, last=CORPUS)


def _train(folder: Path, corpus: Path, name: str, own: Sequence[str], settings: Sequence[str]) -> float:
    start = time.monotonic()
    places = [f"data.dir={corpus}", f"data.cache={folder / 'cache'}", f"output={folder / name}"]
    train_translator(load_recipe("tiny", [*places, *own, *settings]))
    return time.monotonic() - start


def _examples(
    tagger: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    outputs: dict[str, list[str]],
    n: int = 5,
) -> list[Example]:
    """The first sentences on which the systems differ, then others."""
    differing = [row for row in range(len(sources)) if len({output[row] for output in outputs.values()}) > 1]
    rows = (differing + [row for row in range(len(sources)) if row not in differing])[:n]
    annotator = tagger.annotator
    sentences = annotator.annotate([sources[row] for row in rows]) if annotator else []
    tagged = [
        " ".join(f"{word}/{tag}" for word, tag in zip(one.words, one.upos or (), strict=True))
        for one in sentences
    ]
    return [
        Example(tags, references[row], {name: output[row] for name, output in outputs.items()})
        for tags, row in zip(tagged, rows, strict=True)
    ]
