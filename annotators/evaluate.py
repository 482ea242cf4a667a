"""Scores a pipeline against a treebank: UPOS accuracy, UAS and LAS over every word.

As the CoNLL 2018 evaluation counts: punctuation included, relation subtypes ignored in `las`
(`las_full` compares "nsubj:pass" whole). The tagger and parser see the sentence alone.

    python annotators/evaluate.py --language en --pipeline src/syntaxformer/annotate/pipelines/en
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import spacy
from spacy.language import Language
from spacy.tokens import Doc

if __package__ in (None, ""):  # run as a script: make the sibling modules importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from annotators.convert import LANGUAGES
from annotators.treebank import GoldSentence, to_doc

Span = tuple[int, int]


def gold_word_scores(nlp: Language, sentences: Sequence[GoldSentence]) -> dict[str, float]:
    """Scores in percent, with the treebank's own words.

    Returns:
        `upos`, `uas`, `las` (universal relation), `las_full` (with its subtype) and `one_root`,
        the share of sentences with exactly one root.
    """
    bare = [Doc(nlp.vocab, words=list(gold.words), spaces=list(gold.spaces)) for gold in sentences]
    docs = list(nlp.pipe(bare))
    right = _right(docs, [to_doc(gold, nlp.vocab) for gold in sentences])
    n_words = sum(len(gold.words) for gold in sentences)
    scores = {name: 100 * count / n_words for name, count in right.items()}
    n_one_root = sum(_n_roots(doc) == 1 for doc in docs)
    return {**scores, "one_root": 100 * n_one_root / len(sentences)}


def raw_text_scores(nlp: Language, sentences: Sequence[GoldSentence]) -> dict[str, float]:
    """F1 in percent, with the pipeline's own tokenizer: a word counts where its characters agree."""
    docs = list(nlp.pipe(gold.text for gold in sentences))
    golds = [to_doc(gold, nlp.vocab) for gold in sentences]
    n_words = sum(map(len, golds)) + sum(map(len, docs))
    spans = sum(
        len(_by_span(doc).keys() & _by_span(gold).keys()) for doc, gold in zip(docs, golds, strict=True)
    )
    right = {"words": spans, **_right(docs, golds)}
    return {name: 200 * count / n_words for name, count in right.items()}


def words_per_second(nlp: Language, texts: Sequence[str]) -> float:
    """Throughput on raw text, tokenizer included, per second of processor time.

    Other work on the machine does not count, and a second core does not help.
    """
    list(nlp.pipe(texts[:100]))  # warm-up
    start = time.process_time()
    n_words = sum(len(doc) for doc in nlp.pipe(texts))
    return n_words / (time.process_time() - start)


def _right(docs: Iterable[Doc], golds: Iterable[Doc]) -> dict[str, int]:
    """How many gold words have the right tag, governor and relation."""
    counts = dict.fromkeys(("upos", "uas", "las", "las_full"), 0)
    for doc, gold in zip(docs, golds, strict=True):
        predicted = _by_span(doc)
        for span, (upos, governor, label) in _by_span(gold).items():
            guess_upos, guess_governor, guess_label = predicted.get(span, ("", None, ""))
            attached = guess_governor == governor
            counts["upos"] += guess_upos == upos
            counts["uas"] += attached
            counts["las"] += attached and _universal(guess_label) == _universal(label)
            counts["las_full"] += attached and guess_label == label
    return counts


def _by_span(doc: Doc) -> dict[Span, tuple[str, Span, str]]:
    """UPOS, the governor's span and the relation of each word, by its character span."""
    spans = [(token.idx, token.idx + len(token)) for token in doc]
    return {spans[token.i]: (token.pos_, spans[token.head.i], token.dep_) for token in doc}


def _universal(label: str) -> str:
    return label.partition(":")[0]


def _n_roots(doc: Doc) -> int:
    return sum(token.head.i == token.i for token in doc)


def main() -> None:
    """Print the scores of one pipeline on its language's dev and test sentences as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/ud"), help="folder of the UD files")
    parser.add_argument("--language", choices=sorted(LANGUAGES), required=True)
    parser.add_argument("--pipeline", type=Path, required=True, help="a spaCy pipeline folder")
    arguments = parser.parse_args()
    nlp, language = spacy.load(arguments.pipeline), LANGUAGES[arguments.language]
    for split, name in (("dev", language.dev), ("test", language.test)):
        sentences = language.read(arguments.data, name)
        scores = {
            "gold_words": gold_word_scores(nlp, sentences),
            "raw_text": raw_text_scores(nlp, sentences),
            "words_per_cpu_s": words_per_second(nlp, [gold.text for gold in sentences]),
        }
        sys.stdout.write(json.dumps({split: scores}, default=str) + "\n")


if __name__ == "__main__":
    main()
