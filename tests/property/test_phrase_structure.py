"""Whatever the parse, its phrases hold every word once, in order; making a tree projective keeps ancestors."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syntaxformer.syntax import WordColumns
from syntaxformer.syntax.piece_relations import phrases_of, phrases_of_lines
from syntaxformer.syntax.relations import phrase_columns
from syntaxformer.trees import (
    ROOT,
    Sentence,
    format_tree,
    leaves_of,
    parse_tree,
    phrase_structure,
    projective_governors,
    tags_of,
)
from syntaxformer.trees.phrase_structure import brackets_of_parse

RELATION_NAMES = (
    "nsubj csubj expl obj iobj obl obl:unmarked nmod nmod:poss nmod:desc amod nummod det case mark aux aux:pass "
    "cop conj cc cc:preconj punct advmod advcl acl acl:relcl xcomp ccomp parataxis flat fixed goeswith compound "
    "compound:prt appos list discourse vocative dislocated orphan dep root reparandum made-up"
)
TAG_NAMES = "NOUN PROPN PRON VERB AUX ADJ ADV ADP DET NUM SYM PART SCONJ CCONJ INTJ X PUNCT made-up"
RELATIONS, TAGS = RELATION_NAMES.split(), TAG_NAMES.split()
WORDS = [
    "w", "who", "that", "das", "to", "according", "``", "''", '"', ",", ".", "?", "(", ")", "--", "\u00a0",
]  # fmt: skip


@st.composite
def forests(draw):
    """Governors without cycles, often not projective, with any number of roots."""
    order = draw(st.permutations(range(draw(st.integers(1, 14)))))
    governors = [ROOT] * len(order)
    for rank, word in enumerate(order[1:], 1):
        governors[word] = draw(st.sampled_from([*order[:rank], *order[:rank], ROOT]))
    return tuple(governors)


@st.composite
def parses(draw):
    governors = draw(forests())

    def column(values):
        return draw(st.tuples(*[st.sampled_from(values)] * len(governors)))

    return Sentence.from_words(
        column(WORDS), upos=column(TAGS), governors=governors, deprels=column(RELATIONS)
    )


@given(parses())
def test_every_word_once_and_in_order(parse):
    tree = phrase_structure(parse)
    assert leaves_of(tree) == parse.words
    assert tags_of(tree) == parse.upos
    assert parse_tree(format_tree(tree)) == tree
    assert phrase_structure(parse) == tree


def ancestors(word, governors):
    above = []
    while (word := governors[word]) != ROOT:
        above.append(word)
    return above


@given(forests())
def test_words_only_move_up_and_no_further_than_needed(governors):
    lifted = projective_governors(governors)
    assert projective_governors(lifted) == lifted
    for word, governor in enumerate(lifted):
        path = [*ancestors(word, governors), ROOT]
        assert governor in path
        for passed in path[: path.index(governor)]:
            between = range(min(word, passed) + 1, max(word, passed))
            assert any(passed not in ancestors(other, governors) for other in between)


def same(first, second):
    return all(map(np.array_equal, first.arrays, second.arrays))


@given(parses())
def test_columns_of_a_parse_are_those_of_its_brackets(parse):
    lazy = replace(parse, constituency=brackets_of_parse)
    written = replace(parse, constituency=lazy.constituency)
    assert lazy == written
    assert same(phrases_of(lazy), phrases_of(written))
    assert same(phrases_of(lazy), phrases_of(parse))
    for governors in (None, parse.governors):
        assert same(phrase_columns(parse, governors), phrase_columns(written.constituency, governors))
    lines = [WordColumns.from_sentences([line, replace(line)]) for line in (lazy, written)]
    assert same(*map(phrases_of_lines, lines))
