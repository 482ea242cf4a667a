"""How treebank sentences become training documents: words, merged tokens, altered copies; how annotators are scored."""

import random
from types import SimpleNamespace

import pytest
import spacy

from syntaxformer.annotate.training import _agreement, _altered, _blank, _row, read_treebank, score_annotator
from syntaxformer.base.errors import ConfigError
from syntaxformer.trees import Sentence

ZUM_HAUS = """\
# text = Geh zum Haus.
1\tGeh\tgehen\tVERB\t_\t_\t0\troot\t_\t_
2-3\tzum\t_\t_\t_\t_\t_\t_\t_\t_
2\tzu\tzu\tADP\t_\t_\t4\tcase\t_\t_
3\tdem\tder\tDET\t_\tCase=Dat\t4\tdet\t_\t_
4\tHaus\tHaus\tNOUN\t_\tCase=Dat\t1\tobl\t_\tSpaceAfter=No
5\t.\t.\tPUNCT\t_\t_\t1\tpunct\t_\t_

1\tJa\tja\tINTJ\t_\t_\t0\troot\t_\t_

# text = I don't.
1\tI\tI\tPRON\t_\t_\t2\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
2\tdo\tdo\tAUX\t_\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\t_\t_\t2\tadvmod\t_\t_
4\t.\t.\tPUNCT\t_\t_\t2\tpunct\t_\t_
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "zum.conllu"
    path.write_text(ZUM_HAUS, encoding="utf-8")
    return path


def test_a_multiword_token_is_one_word_unless_the_tokenizer_makes_its_words(file):
    first, second, third = read_treebank(file, spacy.blank("en"))
    assert first.words == ("Geh", "zum", "Haus", ".")
    assert first.upos == ("VERB", "ADP", "NOUN", "PUNCT")
    assert first.governors == (-1, 2, 0, 0)
    assert first.deprels == ("root", "case", "obl", "punct")
    assert first.lemmas == ("gehen", "zu", "Haus", ".")
    assert first.feats == ("_", "_", "Case=Dat", "_")
    assert second.words == ("Ja",)
    assert third.words == ("I", "do", "n't", ".")
    assert third.governors == (1, -1, 1, 1)
    assert third.offsets == ((0, 1), (2, 7), (2, 7), (7, 8))
    assert read_treebank(file)[0].words == ("Geh", "zu", "dem", "Haus", ".")


def test_altered_copies(file):
    rows = [_row(sentence) for sentence in read_treebank(file)]
    copies = [copy for seed in range(400) for copy in _altered(rows, random.Random(seed))]
    texts = {copy["words"] for copy in copies}
    assert ("geh", "zu", "dem", "haus", ".") in texts
    assert ("I", "do", "n\u2019t", ".") in texts
    assert ("Geh", "zu", "dem", "Haus") in texts
    (joined, *_) = [copy for copy in copies if copy["words"] == ("Geh", "zu", "dem", "Haus", ".", "Ja")]
    assert joined["governors"] == (-1, 3, 3, 0, 0, -1)
    for copy in copies:
        assert len({len(values) for values in copy.values()}) == 1


def test_rare_words_are_disguised_and_their_lemmas_are_not_learned():
    words = ("Gelegenheit", "haben", "Gelegenheit", "besuchen")
    tree = {"upos": ("X",) * 4, "governors": (-1, 0, 0, 0), "deprels": ("root", *("dep",) * 3)}
    row = {"words": words, **tree, "lemmas": words}
    copy = next(copy for copy in _altered([row], random.Random(3)) if copy["words"][3] != "besuchen")
    assert copy["words"][:3] == words[:3]
    hidden = copy["words"][3]
    assert (hidden[0], hidden[-3:], len(hidden)) == ("b", "hen", 7)
    assert copy["lemmas"] == (*words[:3], "_")


def _scores(gold, **columns):
    """Of an annotator that gives these columns for the words of a gold sentence."""
    annotated = [Sentence.from_words(gold.words, **columns)]
    return score_annotator(SimpleNamespace(annotate_words=lambda _: annotated), [gold])


def test_scores_by_hand():
    gold = Sentence.from_words(
        ("a", "b", "c", "."), upos=("NOUN", "VERB", "NOUN", "PUNCT"), governors=(1, -1, 1, 1),
        deprels=("nsubj", "root", "obl", "punct"), lemmas=("a", "b", "c", "."), feats=("B=2|A=1", "_", "D=4", "_"),
    )  # fmt: skip
    tree = {"governors": (1, -1, 1, 2), "deprels": ("nsubj:pass", "root", "obj", "punct")}
    scores = _scores(gold, upos=("NOUN",) * 4, **tree, feats=("A=1|B=2", "_", "_", "C=3"))
    # Of four words, two tags, three governors, two of them with their relation, and two features are right.
    assert scores == {"UPOS": 50, "UAS": 75, "LAS": 50, "feats": 50}


def test_any_lemma_is_right_where_the_treebank_has_none():
    """As in the script of the CoNLL 2018 shared task."""
    gold = Sentence.from_words(("a", "b", "c"), lemmas=("a", "_", "c"))
    assert _scores(gold, lemmas=("a", "x", "y")) == {"lemma": 66.67}


def test_a_language_without_a_tokenizer_of_its_own_is_said(caplog):
    assert [_blank(code).lang for code in ("no", "de-AT", "pt-BR", "nn")] == ["nb", "de", "pt", "nn"]
    assert not caplog.text
    assert _blank("tlh").lang == "xx"
    assert "spaCy has no tokenizer of 'tlh': words are cut as in any language (xx)" in caplog.text


def test_a_tokenizer_that_needs_a_package_is_refused_with_its_name(monkeypatch):
    def fail(_: str) -> None:
        raise ImportError("Japanese support\nrequires SudachiPy.")

    monkeypatch.setattr(spacy, "blank", fail)
    with pytest.raises(ConfigError, match=r"^language: "):
        _blank("ja")


def test_how_well_the_tokenizer_agrees_with_the_treebank(file):
    sentences = read_treebank(file)
    # On raw text: Geh zum Haus . | Ja | I do n't . are 9 words, the treebank has 10, and 8 are the same.
    assert _agreement(spacy.blank("en"), sentences) == round(200 * 8 / 19, 2)
