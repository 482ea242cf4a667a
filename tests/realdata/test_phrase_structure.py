"""Phrases from the bundled parser's dependencies against the Penn sample's own; and over whole UD treebanks."""

import pytest

from bracket_score import bracket_score
from syntaxformer.annotate import load_annotator
from syntaxformer.trees import (
    leaves_of,
    phrase_structure,
    read_conllu,
    read_ptb,
    remove_traces,
    strip_functions,
)

pytestmark = pytest.mark.slow

N_HELD_OUT = 414


def test_penn_sample_held_out(data_root):
    trees = list(read_ptb(data_root / "ptb_sample" / "trees.mrg.gz"))[-N_HELD_OUT:]
    gold = [strip_functions(remove_traces(tree)) for tree in trees]
    sentences = load_annotator("en").annotate_words([leaves_of(tree) for tree in gold])
    score = bracket_score(zip(map(phrase_structure, sentences), gold, strict=True))
    # 81.8 was measured; the rules were made on the other 3,500 trees.
    assert score.f1 > 0.813


@pytest.mark.parametrize("name", ["en_ewt-ud-dev", "de_gsd-ud-dev"])
def test_every_sentence_of_a_treebank(data_root, name):
    for sentence in read_conllu(data_root / "ud" / f"{name}.conllu.gz"):
        assert leaves_of(phrase_structure(sentence)) == sentence.words
