"""Widths add up or say why not; the joined vector and the parameters of each kind are what the papers' formulas say."""

from __future__ import annotations

import pytest
import torch

from syntaxformer.nn import InfusedEmbedding, plan_widths
from syntaxformer.nn.infused_embedding import ENCODER_KINDS, WidthPlan

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
        # Kapadia et al. (2020)
        ("onehot_concat", {}, (512, None), "512 (word) + one for each value (pos), linear to 512 = 512"),
        ("learned_concat", {}, (512, 24), "512 (word) + 24 (pos), linear to 512 = 512"),
        ("prepend", {}, (512, 512), "512 (word, and pos before each) = 512"),
        ("pos_encoder", {}, (512, 512), "512 (word), beside it 512 (pos) = 512"),
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
        (
            {"kind": "let", "d_model": 22, "word_width": 5, "kinds": ENCODER_KINDS},
            r"d_model = 22, got 5 \(word\) \+ 20 \(pos\), linear to 22 = 5\.",
        ),
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
    with pytest.raises(ValueError, match=r"factor_ids: .*'pos', 'case', 'subword'\], got 0"):
        layer(torch.tensor([[5]]))
    with pytest.raises(ValueError, match=r"factor_sizes: .* got none for \['case', 'subword'\]\."):
        InfusedEmbedding(plan_widths("concat", 29, width=11), 31, {"pos": 20})


V, D = 31, 28


def _layer(kind: str, **settings: object) -> InfusedEmbedding:
    torch.manual_seed(3)
    return InfusedEmbedding(plan_widths(kind, D, **settings), V, SIZES, padding_id=0)


def _n(layer: InfusedEmbedding) -> int:
    return sum(parameter.numel() for parameter in layer.parameters())


def test_onehot_is_fixed_and_mapped_back():
    """Parameters: the word table and a map of D + 20 columns; nothing for the one-hot vectors."""
    layer = _layer("onehot_concat")
    assert _n(layer) == V * D + (D + 20) * D + D
    pieces, ids = torch.tensor([[5, 7]]), torch.tensor([[[3], [19]]])
    output = layer(pieces, ids)
    for position, tag in enumerate((3, 19)):
        one_hot = torch.zeros(20)
        one_hot[tag] = 1
        joined = torch.cat([layer.word.weight[pieces[0, position]], one_hot])
        torch.testing.assert_close(output[0, position], layer.map.weight @ joined + layer.map.bias)


def test_learned_concat_by_hand():
    layer = _layer("learned_concat", width=11)
    assert _n(layer) == V * D + 20 * 11 + (D + 11) * D + D
    output = layer(torch.tensor([[5]]), torch.tensor([[[3]]]))
    joined = torch.cat([layer.word.weight[5], layer.factors["pos"].weight[3]])
    torch.testing.assert_close(output[0, 0], layer.map.weight @ joined + layer.map.bias)


def test_two_factors_share_the_width_or_have_their_own():
    assert plan_widths("learned_concat", D, ["pos", "case"]).factors == (("pos", 20), ("case", 4))
    layer = _layer("learned_concat", factors=["pos", "case"], widths={"pos": 5, "case": 3})
    assert layer.map.in_features == D + 8
    assert _layer("onehot_concat", factors=["pos", "case"]).map.in_features == D + 24


def test_prepended_tags_are_rows_behind_the_words():
    layer = _layer("prepend", factors=["pos", "case"])
    assert _n(layer) == V * D + (20 + 4) * D
    output = layer(torch.tensor([[V + 3, 5, V + 20 + 1, 0]]))
    expected = [layer.factors["pos"].weight[3], layer.word.weight[5], layer.factors["case"].weight[1]]
    torch.testing.assert_close(output[0, :3], torch.stack(expected))
    assert not output[0, 3].any()
    output.sum().backward()
    assert layer.word.weight.grad[5].any()
    assert layer.word.weight.grad.any(-1).sum() == 1


def test_words_of_a_pos_encoder_are_plain():
    layer = _layer("pos_encoder")
    assert _n(layer) == V * D
    torch.testing.assert_close(layer(torch.tensor([[5]]), torch.tensor([[[3]]]))[0, 0], layer.word.weight[5])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "none", "factors": ["pos"]}, r"infusion\.factors: .*'none', got pos\."),
        ({"kind": "sum_then_concat", "widths": {"pos": 3}}, r"infusion\.widths: .*'sum_then_concat', got \{'pos': 3\}\."),
        ({"kind": "onehot_concat", "widths": {"pos": 3}}, r"infusion\.widths: .*'onehot_concat'"),
        ({"kind": "prepend", "word_width": 20}, "infusion widths: .*d_model = 28, got 20 "),
    ],
)  # fmt: skip
def test_what_a_kind_has_no_use_for_is_refused(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        plan_widths(d_model=D, **arguments)
