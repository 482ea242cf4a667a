"""Which subjects each test of the contract takes."""

from __future__ import annotations

import pytest

from subjects import COMPILED, SUBJECTS, TRAINED
from tiny_hosts import EXHAUSTIVE


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`subject`: all; `translator` and `encoder`: those of the kind; `trained` and `compiled`: a few."""
    chosen = {
        "subject": SUBJECTS,
        "translator": [subject for subject in SUBJECTS if subject.is_translator],
        "encoder": [subject for subject in SUBJECTS if not subject.is_seq2seq],
        "trained": [subject for subject in SUBJECTS if EXHAUSTIVE or subject.name in TRAINED],
    }
    if "compiled" in metafunc.fixturenames:
        ids = ["-".join(one[0]) if len(one) == 1 else "several" for one in COMPILED]
        metafunc.parametrize("compiled", COMPILED, ids=ids)
    for argument, subjects in chosen.items():
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, subjects, ids=[subject.name for subject in subjects])


@pytest.fixture(scope="session")
def word_tokenizer():
    """A tokenizer of letters, as BERT's."""
    from transformers import BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    return BertTokenizerFast(vocab={word: place for place, word in enumerate(words)})
