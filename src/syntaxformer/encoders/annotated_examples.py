"""Labelled texts to examples with syntax: parsed once and cached, the corpus' own trees where it has them.

What an infusion needs of an annotator is a table; a plain model needs nothing and nothing is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from syntaxformer.base.errors import ConfigError, TreeError
from syntaxformer.encoders.collator import SyntaxExample
from syntaxformer.encoders.text_sets import TextExample
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.trees import Sentence, sentence_of_column

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator

__all__ = ["annotate_examples", "annotator_name", "load_for", "needed_columns"]

_SPACE = re.compile(r"\s")


def needed_columns(config: InfusionConfig) -> frozenset[str]:
    """Columns of a `Sentence` that an infusion reads."""
    needed: set[str] = set()
    if config.pos is not None:
        needed.add("upos")
    if config.lisa is not None:
        needed.add("governors")
    if config.tree_options is not None:
        needed |= {_COLUMN_OF_TREE[tree] for tree in config.tree_options.used_trees}
    return frozenset(needed)


_COLUMN_OF_TREE = {"dependency": "governors", "constituency": "constituency"}


def annotator_name(needed: frozenset[str], wanted: str | None = None) -> str | None:
    """Who annotates: the user's choice, else the bundled English parser; None where nobody need do so.

    Trees that the data carries take the place of the annotator's, which is needed all the same: heads of
    their phrases come from the dependencies, and text to predict for has no trees.
    """
    if not needed:
        return None
    return wanted or ("en+phrases" if "constituency" in needed else "en")


def load_for(name: str | None, needed: frozenset[str]) -> Annotator | None:
    """Load an annotator and hold that it gives what is needed.

    Raises:
        ConfigError: It does not.
        BackendMissingError: It is not installed.
    """
    if name is None:
        return None
    from syntaxformer.annotate import load_annotator

    annotator = load_annotator(name)
    if missing := needed - annotator.provides:
        makes_phrases = missing == {"constituency"} and "governors" in annotator.provides
        raise ConfigError(
            f"annotation.annotator: expected one that gives {', '.join(sorted(missing))}, got {name}. "
            f"Try {f'{name}+phrases' if makes_phrases else annotator_name(needed)}."
        )
    return annotator


def annotate_examples(
    examples: Sequence[TextExample],
    annotator: Annotator | None,
    use_trees: bool,
    cache: Path | None = None,
    processes: int = 1,
    cached: bool = True,
) -> list[SyntaxExample]:
    """Give texts their syntax.

    Args:
        examples: Texts.
        annotator: Who parses; None leaves texts plain, but for their own trees.
        use_trees: Take the constituency trees, which all examples carry; the words are then the trees' words.
        cache: Folder of the annotation cache.
        processes: Worker processes.
        cached: False parses without a look into the cache: short lists that come once.

    Raises:
        TreeError: A tree of the data does not fit its text; with the line.
        DataError: The cache cannot be written.
    """
    if use_trees:
        gold = [sentence for one in examples for sentence in _gold_sentences(one)]
        lines = [_words_line(sentence) for sentence in gold]
        parsed = _parse(lines, annotator, True, cache, processes, cached)
        sentences = iter(map(_merge, gold, parsed))
    else:
        lines = [text for one in examples for text in one.texts]
        sentences = _parse(lines, annotator, False, cache, processes, cached)
    return [SyntaxExample(tuple(next(sentences) for _ in one.texts), one.label) for one in examples]


def _gold_sentences(example: TextExample) -> list[Sentence]:
    """The sentences of an example's own trees."""
    try:
        return [
            sentence_of_column(tree or "", text)
            for tree, text in zip(example.trees, example.texts, strict=True)
        ]
    except TreeError as error:
        raise TreeError(str(error), line=example.line) from error


def _words_line(sentence: Sentence) -> str:
    """Words joined by spaces; a space inside a word (SST's "2 1/2") would cut it in two."""
    return " ".join(_SPACE.sub("_", word) for word in sentence.words)


def _parse(
    lines: list[str],
    annotator: Annotator | None,
    as_words: bool,
    cache: Path | None,
    processes: int,
    cached: bool,
) -> Iterator[Sentence]:
    if annotator is None:
        return (Sentence(line, (), ()) for line in lines)
    from syntaxformer.annotate import WordsAsGiven, annotate_cached

    annotator = WordsAsGiven(annotator) if as_words else annotator
    if cached:
        return iter(annotate_cached(lines, annotator, cache, n_processes=processes, progress=True))
    return annotator.stream(lines)


def _merge(tree: Sentence, parsed: Sentence) -> Sentence:
    """The parse of a tree's words, with the tree, and places in the text as it was read."""
    if not parsed.words:
        return tree
    return replace(
        parsed, text=tree.text, words=tree.words, offsets=tree.offsets, constituency=tree.constituency
    )
