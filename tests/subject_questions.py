"""Questions in SQuAD's format about sentences: who does what its verb says; one in four has no answer.

    python tests/subject_questions.py UD.conllu 200 > questions.json

makes them of a treebank: "Which word is the subject of VERB?".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

VERBS = ("sees", "likes")


def questions(sentences: Iterable[list[str]]) -> dict[str, Any]:
    """Of sentences such as "the dog sees …": "who sees ?", and "who runs ?", which they do not answer."""
    return {
        "version": "v2.0",
        "data": [_row(place, words, words[1], words[2]) for place, words in enumerate(sentences)],
    }


def _row(
    place: int, words: list[str], subject: str, verb: str, asked: str = "who {} ?", none: str = "runs"
) -> Any:
    context = " ".join(words)
    start = len(" ".join([*words[: words.index(subject)], ""]))
    question = {
        "id": str(place),
        "question": asked.format(verb),
        "answers": [{"text": subject, "answer_start": start}],
    }
    if place % 4 == 3:
        question |= {"question": asked.format(none), "answers": [], "is_impossible": True}
    return {"title": str(place), "paragraphs": [{"context": context, "qas": [question]}]}


def of_treebank(path: str, n: int) -> dict[str, Any]:
    """The first `n` sentences of a treebank with a verb that has one subject, a word that occurs once."""
    from syntaxformer.trees import read_conllu

    rows: list[Any] = []
    for one in read_conllu(path):
        pairs = [
            (place, governor)
            for place, governor in enumerate(one.governors or ())
            if one.deprels and one.deprels[place] == "nsubj"
        ]
        words = list(one.words)
        if len(pairs) == 1 and all(words.count(words[word]) == 1 for word in pairs[0]) and len(rows) < n:
            subject, verb = (words[word] for word in pairs[0])
            rows.append(_row(len(rows), words, subject, verb, "Which word is the subject of {}?", "snowing"))
    return {"version": "v2.0", "data": rows}


if __name__ == "__main__":
    print(json.dumps(of_treebank(sys.argv[1], int(sys.argv[2])), indent=1))
