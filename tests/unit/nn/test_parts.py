"""Positions, dropout and layers."""

from __future__ import annotations

import math

import pytest
import torch

from syntaxformer.nn import Dropout
from syntaxformer.nn.attention import SelfAttention
from syntaxformer.nn.kernels.on_cpu import drop
from syntaxformer.nn.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    SinusoidalPositions,
    sinusoids,
)


def test_sinusoids_by_hand() -> None:
    table = sinusoids(3, 4)
    slow = 1 / 10_000
    expected = [[math.sin(p), math.sin(p * slow), math.cos(p), math.cos(p * slow)] for p in range(3)]
    torch.testing.assert_close(table, torch.tensor(expected))


def test_positions_go_on_where_a_cache_ends() -> None:
    layer = SinusoidalPositions(6)
    whole = layer(torch.zeros(1, 300, 6))
    torch.testing.assert_close(layer(torch.zeros(1, 7, 6), first=11), whole[:, 11:18])


def test_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match=r"d_model: expected an even number .* got 7\."):
        sinusoids(3, 7)


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 1e-4), (torch.bfloat16, 4e-3)])
@pytest.mark.parametrize("prob", [0.1, 0.3, 0.5])
def test_dropout_keeps_the_mean_and_drops_its_share(prob: float, dtype: torch.dtype, digits: float) -> None:
    torch.manual_seed(0)
    out = drop(torch.ones(401, 1009, dtype=dtype), prob)
    share = float((out == 0).float().mean())
    assert abs(share - prob) < 4 * math.sqrt(prob * (1 - prob) / out.numel())
    survivors = out[out != 0]
    torch.testing.assert_close(survivors, torch.full_like(survivors, 1 / (1 - prob)), rtol=digits, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_dropout_at_its_ends(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ones = torch.ones(211, 503, dtype=dtype)
    torch.testing.assert_close(drop(ones, 1e-9), ones)
    almost_all = drop(ones, 1 - 1e-9)
    assert torch.isfinite(almost_all).all()
    assert float((almost_all == 0).double().mean()) > 0.999
    assert drop(torch.empty(0, 3, dtype=dtype), 0.1).shape == (0, 3)


@pytest.mark.parametrize("prob", [-0.1, 1.0, 1.5])
def test_a_probability_that_is_none_is_refused(prob: float) -> None:
    with pytest.raises(ValueError, match=f"prob: expected at least 0 and less than 1, got {prob}"):
        drop(torch.ones(3), prob)


def test_dropout_does_not_depend_on_the_default_device() -> None:
    states = torch.ones(13, 17)
    with torch.device("meta"):
        assert drop(states, 0.4).device == drop(states.bfloat16(), 0.4).device == torch.device("cpu")


def test_elements_are_dropped_independently() -> None:
    """Neighbours share a random word of 64 bits: each pair of places in it is uncorrelated."""
    torch.manual_seed(0)
    mask = (drop(torch.ones(100_000, 4), 0.3) != 0).double()
    correlations = torch.corrcoef(torch.cat([mask[:-1], mask[1:]], 1).T) - torch.eye(8)
    assert correlations.abs().max() < 5 / math.sqrt(len(mask))


def test_dropout_has_the_gradient_of_its_mask_and_follows_the_seed() -> None:
    states = torch.ones(13, 17, requires_grad=True)
    torch.manual_seed(5)
    first = drop(states, 0.4)
    torch.manual_seed(5)
    torch.testing.assert_close(drop(states, 0.4), first)
    first.sum().backward()
    torch.testing.assert_close(states.grad, first.detach())


def test_dropout_does_nothing_in_evaluation() -> None:
    states = torch.randn(3, 5)
    assert Dropout(0.5).eval()(states) is states
    assert drop(states, 0.0) is states


def test_dropout_takes_over_that_of_a_model() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(0.25), torch.nn.Sequential(torch.nn.Dropout(1.0)))
    Dropout.take_over(model)
    assert type(model[0]) is Dropout
    assert type(model[1][0]) is torch.nn.Dropout
    model[1].eval()
    torch.manual_seed(3)
    output = model(torch.ones(17, 19))
    torch.manual_seed(3)
    assert torch.equal(output, drop(torch.ones(17, 19), 0.25))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_layer_order(norm: str) -> None:
    """With all maps at zero a pre-norm layer is the identity and a post-norm layer two normalisations."""
    layer = EncoderLayer(6, 2, 11, norm=norm).eval()
    for linear in (layer.self_attention.output, layer.feed_forward.outer):
        torch.nn.init.zeros_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
    states = torch.randn(2, 3, 6)
    out, _ = layer(states)
    once = torch.nn.functional.layer_norm(states, (6,))
    torch.testing.assert_close(out, states if norm == "pre" else torch.nn.functional.layer_norm(once, (6,)))


@pytest.mark.parametrize("kind", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_rate_of_a_layer_drops_in_training_and_keeps_the_mean(kind: str) -> None:
    torch.manual_seed(3)
    layers = EncoderLayer(12, 3, 24, **{kind: 0.4}), DecoderLayer(12, 3, 24, **{kind: 0.4})
    states, memory = (torch.randn(1, n_pieces, 12).expand(2000, -1, -1) for n_pieces in (5, 4))
    for layer, more in zip(layers, ((), (memory,)), strict=True):
        for weights in (False, True):
            with torch.no_grad():
                plain = layer.eval()(states, *more, return_weights=weights)[0][0]
                drawn = layer.train()(states, *more, return_weights=weights)[0]
            assert float((drawn[0] - plain).abs().max()) > 0.01
            # What follows the dropped part is not linear, so the mean is near, not the same.
            assert float((drawn.mean(0) - plain).abs().mean()) < 0.5 * float((drawn - plain).abs().mean())


def test_syntax_is_given_the_rate_of_attention_in_training_alone() -> None:
    attention, seen = SelfAttention(12, 3, 0.4), []

    def syntax(query, key, value, output, mask, dropout):
        seen.append(dropout)
        return query.transpose(1, 2).flatten(2), None

    for training in (True, False):
        attention.train(training)(torch.randn(2, 5, 12), syntax=syntax)
    assert seen == [0.4, 0.0]


@pytest.mark.parametrize(
    ("name", "at"), [("relu", (0.0, 2.0)), ("gelu", (-0.158655, 1.954500)), ("silu", (-0.268941, 1.761594))]
)
def test_the_feed_forward_network_by_hand(name: str, at: tuple[float, float]) -> None:
    """At -1 and 2, between two maps of one and a bias of one."""
    network = FeedForward(1, 1, activation=name)
    for linear in (network.inner, network.outer):
        torch.nn.init.ones_(linear.weight)
    torch.nn.init.zeros_(network.inner.bias)
    torch.nn.init.ones_(network.outer.bias)
    output = network(torch.tensor([[[-1.0], [2.0]]]))
    torch.testing.assert_close(output.flatten(), torch.tensor(at) + 1, atol=1e-5, rtol=0)


def test_decoder_layer_sees_no_later_piece() -> None:
    layer = DecoderLayer(6, 2, 11).eval()
    states, memory = torch.randn(1, 5, 6), torch.randn(1, 4, 6)
    before, *_ = layer(states, memory)
    states[0, 3:] += 1
    after, *_ = layer(states, memory)
    torch.testing.assert_close(before[0, :3], after[0, :3])
    assert not torch.allclose(before[0, 3:], after[0, 3:])
