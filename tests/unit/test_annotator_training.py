"""How treebank sentences become training documents: words, merged tokens, altered copies."""

from pathlib import Path

import pytest
from spacy.vocab import Vocab

ROOT = Path(__file__).resolve().parents[2]
ZUM_HAUS = """\
# newdoc id = d1
# text = Geh zum Haus.
1\tGeh\tgehen\tVERB\t_\t_\t0\troot\t_\t_
2-3\tzum\t_\t_\t_\t_\t_\t_\t_\t_
2\tzu\tzu\tADP\t_\t_\t4\tcase\t_\t_
3\tdem\tder\tDET\t_\t_\t4\tdet\t_\t_
4\tHaus\tHaus\tNOUN\t_\t_\t1\tobl\t_\tSpaceAfter=No
4.1\tleer\t_\t_\t_\t_\t_\t_\t_\t_
5\t.\t.\tPUNCT\t_\t_\t1\tpunct\t_\t_

1\tJa\tja\tINTJ\t_\t_\t0\troot\t_\t_
"""


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from annotators import corpus, treebank

    return treebank, corpus


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "zum.conllu"
    path.write_text(ZUM_HAUS, encoding="utf-8")
    return path


def test_syntactic_words(modules, file):
    treebank, _ = modules
    sentence, _ = treebank.read_treebank(file, merge_multiword=False)
    assert sentence.words == ("Geh", "zu", "dem", "Haus", ".")
    assert sentence.spaces == (True, False, True, False, False)
    assert sentence.governors == (0, 3, 3, 0, 0)


def test_surface_tokens(modules, file):
    treebank, _ = modules
    first, second = treebank.read_treebank(file, merge_multiword=True)
    assert first.words == ("Geh", "zum", "Haus", ".")
    assert first.upos == ("VERB", "ADP", "NOUN", "PUNCT")
    assert first.governors == (0, 2, 0, 0)
    assert first.deprels == ("ROOT", "case", "obl", "punct")
    assert first.text == "Geh zum Haus."
    assert (first.document, second.document) == ("d1", "d1")


def test_doc_round_trip(modules, file):
    treebank, corpus = modules
    for sentence in treebank.read_treebank(file, merge_multiword=True):
        assert corpus._from_doc(treebank.to_doc(sentence, Vocab())) == sentence


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("lower_frac", ("geh", "zum", "haus", ".")),
        ("bare_frac", ("Geh", "zum", "Haus")),
        ("joined_frac", ("Geh", "zum", "Haus", ".", "Ja")),
    ],
)
def test_altered_copies(modules, file, tmp_path, option, words):
    import spacy
    from annotators.convert import write_docbin

    treebank, corpus = modules
    write_docbin(tmp_path / "x.spacy", treebank.read_treebank(file, merge_multiword=True))
    examples = list(corpus.gold_words(tmp_path / "x.spacy", **{option: 1.0})(spacy.blank("de")))
    found = [example.reference for example in examples]
    assert [tuple(token.text for token in doc) for doc in found[:2]] == [("Geh", "zum", "Haus", "."), ("Ja",)]
    (copy,) = [doc for doc in found[2:] if tuple(token.text for token in doc) == words]
    assert sum(token.head.i == token.i for token in copy) == (2 if option == "joined_frac" else 1)


def test_unknown_words_keep_first_letter_and_ending(modules):
    import random

    treebank, corpus = modules
    words = ("Gelegenheit", "haben", "Gelegenheit", "besuchen")
    sentence = treebank.GoldSentence("", words, (True,) * 4, ("X",) * 4, (0,) * 4, ("ROOT",) + ("dep",) * 3)
    disguised = corpus._unknown([sentence])([sentence], 0, random.Random(3)).words
    assert disguised[:3] == words[:3]
    assert disguised[3] != "besuchen"
    assert (disguised[3][0], disguised[3][-3:], len(disguised[3])) == ("b", "hen", 7)
