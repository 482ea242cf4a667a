"""Phrases of a parse as columns: without a tree on the way the same as through brackets, whatever the parse."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from tests.property.test_phrase_structure import parses

from syntaxformer.syntax import WordColumns
from syntaxformer.syntax.piece_relations import phrases_of, phrases_of_lines
from syntaxformer.syntax.relations import phrase_columns
from syntaxformer.trees.phrase_structure import brackets_of_parse


def same(one, other):
    return all(map(np.array_equal, one.arrays, other.arrays))


@given(parses())
def test_columns_of_a_parse_are_those_of_its_brackets(parse):
    lazy = replace(parse, constituency=brackets_of_parse)
    written = replace(parse, constituency=lazy.constituency)
    assert lazy == written
    assert same(phrases_of(lazy), phrases_of(written))
    assert same(phrases_of(lazy), phrases_of(parse))
    for governors in (None, parse.governors):
        assert same(phrase_columns(parse, governors), phrase_columns(written.constituency, governors))
    lines = [
        WordColumns.from_sentences([one, replace(one, governors=one.governors)]) for one in (lazy, written)
    ]
    assert same(*map(phrases_of_lines, lines))
