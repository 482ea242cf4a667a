"""Translations of terms that are put into annotated lines."""

from __future__ import annotations

import numpy as np
import pytest

from syntaxformer.syntax import WordColumns, build_vocabularies, piece_factors
from syntaxformer.syntax.columns import Injection
from syntaxformer.syntax.inputs import LineSyntax, SyntaxInputs, TreeOptions
from syntaxformer.syntax.ragged import Ragged
from syntaxformer.trees import Sentence

TREE = "(S (NP (DET an) (NOUN ice) (NOUN cream)) (VP (VERB melts)))"


def lines(tree: str | None = TREE) -> WordColumns:
    sentence = Sentence(
        "an ice cream melts.", ("an", "ice", "cream", "melts"), ((0, 2), (3, 6), (7, 12), (13, 18)),
        upos=("DET", "NOUN", "NOUN", "VERB"), governors=(2, 2, 3, -1), deprels=("det", "compound", "nsubj", "root"),
        constituency=tree,
    )  # fmt: skip
    blank = Sentence("", (), (), upos=(), governors=(), deprels=())
    user = {"tone": [["a"] * 4, [], ["b"] * 4]}
    return WordColumns.from_sentences([sentence, blank, sentence], user)


def test_words_stand_behind_their_term_and_hang_on_its_head():
    words = lines().with_injected([Injection(0, 1, 3, "kaltes Eis"), Injection(2, 3, 4, "taut")])
    first, blank, third = words.sentences()
    assert first.text == "an ice cream kaltes Eis melts."
    assert first.words == ("an", "ice", "cream", "kaltes", "Eis", "melts")
    assert first.upos == ("DET", "NOUN", "NOUN", "X", "X", "VERB")
    assert first.governors == (2, 2, 5, 2, 2, -1)
    assert first.deprels == ("det", "compound", "nsubj", "dep", "dep", "root")
    assert first.constituency == "(S (NP (DET an) (NOUN ice) (NOUN cream kaltes Eis)) (VP (VERB melts)))"
    assert blank.words == ()
    assert (third.text, third.governors) == ("an ice cream melts taut.", (2, 2, 3, -1, 3))
    assert words.terms is not None
    assert words.terms.codes.tolist() == [0, 1, 1, 2, 2, 0, 0, 0, 0, 1, 2]
    assert words.user["tone"].decode() == ["a", "a", "a", None, None, "a", "b", "b", "b", "b", None]


def test_replaced_words_stay_in_the_tree_without_characters():
    words = lines().with_injected(
        [Injection(0, 1, 3, "Eis"), Injection(0, 3, 4, "schmilzt jetzt")], replaces=True
    )
    first = next(words.sentences())
    assert first.text == "an Eis schmilzt jetzt."
    assert first.words == ("an", "", "", "Eis", "", "schmilzt", "jetzt")
    assert first.governors == (2, 2, 4, 2, -1, 4, 4)


def test_unlabelled_and_missing_trees():
    words = lines("( ( an ice cream ) melts )").with_injected([Injection(0, 0, 1, "ein ( x")])
    assert next(words.sentences()).constituency == "( ( an ein -LRB- x ice cream) melts)"
    assert lines(None).with_injected([Injection(0, 0, 1, "ein")]).constituency is None
    assert (same := lines()).with_injected([]) is same


def test_masks_see_them_as_dependents_of_the_terms_head():
    words = lines().with_injected([Injection(0, 1, 3, "Eis")])
    pieces = np.arange(5, dtype=np.int32)  # one for each word
    syntax = LineSyntax.of(
        SyntaxInputs(trees=TreeOptions(trees=("dependency",)), governors=True), words, pieces
    )
    assert syntax is not None
    batch = syntax.batch([0], np.array([0, 5]))
    parent_child = batch["syntax"][0, 0]
    assert parent_child[2, 3] == 1  # "cream" is its parent
    assert parent_child[4, 3] == 2  # "melts" is two edges above it
    assert batch["governors"].tolist() == [[2, 2, 4, 2, 4]]


@pytest.mark.parametrize("injections", [[], [Injection(0, 2, 3, "Eis")]])
def test_the_factor_says_which_word_is_which(injections):
    words = lines().with_injected(injections)
    vocabularies = build_vocabularies([words], ["term"])
    owners = Ragged.of([range(n) for n in np.diff(words.row_splits)])
    factors = piece_factors(words, owners.values, owners.splits, vocabularies)[:, 0]
    roles = vocabularies["term"].decode(factors[:5])
    assert roles == (
        ["source", "source", "source_term", "target_term", "source"] if injections else ["source"] * 5
    )
