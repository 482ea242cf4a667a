"""Widths add up or say why not; the joined vector is what the paper's formula says."""

from __future__ import annotations

import pytest
import torch

from syntaxformer.nn import InfusedEmbedding, plan_widths
from syntaxformer.nn.infused_embedding import WidthPlan

SIZES = {"pos": 20, "case": 4, "subword": 6}


@pytest.mark.parametrize(
    ("kind", "settings", "widths", "arithmetic"),
    [
        ("sum_then_concat", {}, (492, 20, 20, 20), "492 (word) + 20 (pos + case + subword, summed) = 512"),
        ("concat", {"widths": {"pos": 12, "case": 4, "subword": 4}}, (492, 12, 4, 4), "492 (word) + 12 (pos) + 4 (case) + 4 (subword) = 512"),
        ("concat", {}, (492, 12, 4, 4), "492 (word) + 12 (pos) + 4 (case) + 4 (subword) = 512"),
        ("concat_pos", {}, (492, 20), "492 (word) + 20 (pos) = 512"),
        ("add", {}, (512, 512), None),
        ("none", {}, (512,), None),
    ],
)  # fmt: skip
def test_widths_add_up(kind, settings, widths, arithmetic) -> None:
    """As in Sundararaman et al.; where none is given, factors share the width."""
    plan = plan_widths(kind, 512, **settings)
    assert (plan.word_width, *(width for _, width in plan.factors)) == widths
    assert tuple(plan.factor_widths) == ("pos", "case", "subword")[: len(widths) - 1]
    assert arithmetic in (None, plan.arithmetic())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"kind": "sum_then_concat", "d_model": 512, "word_width": 500},
            r"d_model = 512, got 500 .* = 520\.",
        ),
        ({"kind": "sum_then_concat", "d_model": 16}, r"got -4 \(word\)"),
        ({"kind": "concat", "d_model": 64, "widths": {"pos": 3}}, "each of .*'pos', 'case', 'subword'"),
        ({"kind": "gated", "d_model": 64}, r"infusion kind: .*'gated'\."),
        ({"kind": "concat", "d_model": 64, "factors": []}, r"kind 'concat', got none\."),
    ],
)
def test_widths_that_do_not_add_up(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_widths(**arguments)


def test_a_plan_survives_json_with_the_order_of_its_columns() -> None:
    """A mapping would be sorted by name in config.json and the columns would slip."""
    import json

    plan = plan_widths("concat", 64, ["subword", "pos", "case"], width=20)
    stored = json.loads(json.dumps(plan.as_dict(), sort_keys=True))
    assert list(WidthPlan.from_dict(stored).factor_widths) == ["subword", "pos", "case"]


@pytest.mark.parametrize("kind", ["sum_then_concat", "concat", "concat_pos", "add"])
def test_the_joined_vector_by_hand(kind: str) -> None:
    plan = plan_widths(kind, 29, width=11)
    layer = InfusedEmbedding(plan, 31, SIZES)
    pieces = torch.tensor([[5, 7]])
    ids = torch.tensor([[[3, 1, 2], [0, 0, 4]]])[..., : len(plan.factors)]
    out = layer(pieces, ids)
    assert out.shape == (1, 2, 29)
    tables = dict(layer.factors.items())
    for position in range(2):
        word = layer.word.weight[pieces[0, position]]
        vectors = [tables[name].weight[ids[0, position, column]] for column, name in enumerate(tables)]
        if kind == "add":
            expected = word + vectors[0]
        elif kind == "sum_then_concat":
            expected = torch.cat([word, vectors[0] + vectors[1] + vectors[2]])
        else:
            expected = torch.cat([word, *vectors])
        torch.testing.assert_close(out[0, position], expected)


def test_missing_columns_and_sizes() -> None:
    layer = InfusedEmbedding(plan_widths("concat", 29, width=11), 31, SIZES)
    with pytest.raises(
        ValueError, match=r"factor_ids: expected columns \['pos', 'case', 'subword'\], got 0 columns\."
    ):
        layer(torch.tensor([[5]]))
    with pytest.raises(ValueError, match=r"factor_sizes: .* got none for \['case', 'subword'\]\."):
        InfusedEmbedding(plan_widths("concat", 29, width=11), 31, {"pos": 20})
