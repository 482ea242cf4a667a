"""Recipes with terms: what they read of a piece, and what they refuse."""

from __future__ import annotations

import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.translation.recipe import load_recipe

TERMS = "data.terms=terms.tsv"


@pytest.mark.parametrize(
    ("settings", "kind", "factors"),
    [
        ([], "add", ["term"]),
        (["infusion.kind=sum_then_concat"], "sum_then_concat", ["pos", "case", "subword", "term"]),
        (["infusion.kind=concat", "infusion.factors=[deprel]"], "concat", ["deprel", "term"]),
        (["infusion.kind=onehot_concat"], "onehot_concat", ["pos", "term"]),
        (["infusion.kind=pos_encoder", "infusion.factors=[pos]"], "pos_encoder", ["pos", "term"]),
        (["masks={}", "lisa={}", "data.term_style=replace", "data.term_share=0.3"], "add", ["term"]),
    ],
)
def test_the_last_factor_is_the_term(settings, kind, factors):
    recipe = load_recipe("tiny", [TERMS, *settings])
    assert (recipe.embedding.kind, [name for name, _ in recipe.width_plan().factors]) == (kind, factors)
    assert recipe.annotator_name() == "en"
    assert load_recipe("tiny", settings[:1]).embedding.factors is None or "factors" in settings[-1]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            ["infusion.kind=add", "infusion.factors=[pos, term]"],
            "infusion.factors: expected term only with data.terms",
        ),
        (["data.term_share=0.5"], "data: term_share: expected data.terms"),
        (["data.term_style=replace"], "data: term_style: expected data.terms"),
        (
            [TERMS, "infusion.kind=prepend"],
            "data.terms: expected an infusion.kind that joins factors to pieces, got prepend",
        ),
        ([TERMS, "parse_task={}"], "data.terms: expected no parse_task"),
        ([TERMS, "data.term_share=0"], "data.term_share: "),
        ([TERMS, "data.term_style=inline"], "data.term_style: "),
    ],
)
def test_what_is_refused(settings, problem):
    with pytest.raises(ConfigError) as error:
        load_recipe("tiny", settings)
    assert problem in str(error.value)
