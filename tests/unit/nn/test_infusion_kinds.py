"""The infusion kinds of Kapadia et al. (2020): the joined vector, the widths and the parameters, by hand."""

from __future__ import annotations

import pytest
import torch

from syntaxformer.nn import InfusedEmbedding, plan_widths

V, D = 31, 28
SIZES = {"pos": 20, "case": 4}


def _layer(kind: str, **settings: object) -> InfusedEmbedding:
    torch.manual_seed(3)
    return InfusedEmbedding(plan_widths(kind, D, **settings), V, SIZES, padding_id=0)


def _n(layer: InfusedEmbedding) -> int:
    return sum(parameter.numel() for parameter in layer.parameters())


@pytest.mark.parametrize(
    ("kind", "factors", "arithmetic"),
    [
        ("onehot_concat", (("pos", None),), "512 (word) + one for each value (pos), linear to 512 = 512"),
        ("learned_concat", (("pos", 24),), "512 (word) + 24 (pos), linear to 512 = 512"),
        ("prepend", (("pos", 512),), "512 (word, and pos before each) = 512"),
        ("pos_encoder", (("pos", 512),), "512 (word), beside it 512 (pos) = 512"),
    ],
)
def test_widths_of_kapadia_et_al(kind, factors, arithmetic):
    plan = plan_widths(kind, 512)
    assert (plan.word_width, plan.factors, plan.arithmetic()) == (512, factors, arithmetic)


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
