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
    """A tokenizer of whole words, as BERT's."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
