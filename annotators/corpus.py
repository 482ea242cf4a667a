"""The training reader: gold words from a DocBin, with a few altered copies for robustness.

It is registered for `spacy train` only; the shipped pipelines do not refer to it.
"""

import random
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from spacy import registry
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.vocab import Vocab

from annotators.treebank import GoldSentence, to_doc

CURLY = str.maketrans({"'": "\u2019", '"': "\u201d"})
MAX_JOINED = 3
MIN_UNKNOWN_LENGTH = 6
KEPT_ENDING = 3  # spaCy's SUFFIX

Change = Callable[[list[GoldSentence], int, random.Random], GoldSentence | None]


@registry.readers("syntaxformer.GoldWords.v1")
def gold_words(
    path: Path,
    seed: int = 0,
    lower_frac: float = 0.0,
    curly_frac: float = 0.0,
    bare_frac: float = 0.0,
    joined_frac: float = 0.0,
    unknown_frac: float = 0.0,
) -> Callable[[Language], Iterator[Example]]:
    """A reader that yields every sentence once, and altered copies of some of them.

    Args:
        path: a DocBin of gold sentences, in treebank order.
        seed: of the choice of sentences to copy.
        lower_frac: copies in lower case, as a fraction of the sentences.
        curly_frac: copies with typographic quotes and apostrophes.
        bare_frac: copies without their final punctuation.
        joined_frac: documents of two or three consecutive sentences, as one line may hold several.
        unknown_frac: copies in which long words that occur once keep only their first letter and their
            ending, as a model of the words that a small treebank lacks.
    """

    def read(nlp: Language) -> Iterator[Example]:
        sentences = [_from_doc(doc) for doc in DocBin().from_disk(path).get_docs(nlp.vocab)]
        fractions = {
            _lower: lower_frac,
            _curly: curly_frac,
            _bare: bare_frac,
            _joined: joined_frac,
            _unknown(sentences): unknown_frac,
        }
        copies = _altered(sentences, fractions, random.Random(seed))
        yield from (gold_example(sentence, nlp.vocab) for sentence in [*sentences, *copies])

    return read


def gold_example(sentence: GoldSentence, vocab: Vocab) -> Example:
    """A prediction target on the gold words: no tokenizer is involved."""
    bare = Doc(vocab, words=list(sentence.words), spaces=list(sentence.spaces))
    return Example(bare, to_doc(sentence, vocab))


def _altered(
    sentences: list[GoldSentence], fractions: dict[Change, float], chance: random.Random
) -> Iterable[GoldSentence]:
    for change, fraction in fractions.items():
        for index in range(len(sentences)):
            if chance.random() < fraction:
                altered = change(sentences, index, chance)
                if altered is not None:
                    yield altered


def _lower(sentences: list[GoldSentence], index: int, _: random.Random) -> GoldSentence | None:
    sentence = sentences[index]
    return replace(sentence, words=tuple(word.lower() for word in sentence.words))


def _curly(sentences: list[GoldSentence], index: int, _: random.Random) -> GoldSentence | None:
    words = tuple(word.translate(CURLY) for word in sentences[index].words)
    return replace(sentences[index], words=words) if words != sentences[index].words else None


def _bare(sentences: list[GoldSentence], index: int, _: random.Random) -> GoldSentence | None:
    sentence, last = sentences[index], len(sentences[index].words) - 1
    if last == 0 or sentence.upos[last] != "PUNCT" or last in sentence.governors:
        return None
    return GoldSentence(
        sentence.document,
        sentence.words[:last],
        (*sentence.spaces[: last - 1], False),
        sentence.upos[:last],
        sentence.governors[:last],
        sentence.deprels[:last],
    )


def _joined(sentences: list[GoldSentence], index: int, chance: random.Random) -> GoldSentence | None:
    run = sentences[index : index + chance.randint(2, MAX_JOINED)]
    run = [sentence for sentence in run if sentence.document == run[0].document]
    if len(run) == 1:
        return None
    starts = [sum(len(before.words) for before in run[:place]) for place in range(len(run))]
    return GoldSentence(
        run[0].document,
        tuple(word for sentence in run for word in sentence.words),
        tuple(space for sentence in run for space in (*sentence.spaces[:-1], True)),
        tuple(tag for sentence in run for tag in sentence.upos),
        tuple(
            start + governor
            for start, sentence in zip(starts, run, strict=True)
            for governor in sentence.governors
        ),
        tuple(label for sentence in run for label in sentence.deprels),
    )


def _unknown(sentences: list[GoldSentence]) -> Change:
    distinct = dict.fromkeys(sentences)  # a treebank may be in the training data twice
    counts = Counter(word.lower() for sentence in distinct for word in sentence.words)

    def disguise(word: str, chance: random.Random) -> str:
        if counts[word.lower()] > 1 or len(word) < MIN_UNKNOWN_LENGTH or not word.isalpha():
            return word
        return word[0] + "".join(chance.choices(string.ascii_lowercase, k=3)) + word[-KEPT_ENDING:]

    def change(sentences: list[GoldSentence], index: int, chance: random.Random) -> GoldSentence | None:
        words = tuple(disguise(word, chance) for word in sentences[index].words)
        return replace(sentences[index], words=words) if words != sentences[index].words else None

    return change


def _from_doc(doc: Doc) -> GoldSentence:
    return GoldSentence(
        doc.user_data["document"],
        tuple(token.text for token in doc),
        tuple(bool(token.whitespace_) for token in doc),
        tuple(token.pos_ for token in doc),
        tuple(token.head.i for token in doc),
        tuple(token.dep_ for token in doc),
    )
