"""Topical attention around syntax attention: the paper's equation 2, folding, gates."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from syntaxformer.nn import SyntaxGate, TopicalAttention, syntax, syntax_attention
from syntaxformer.nn.syntax import summed_weight

BATCH, HEADS, KEYS, D_HEAD, MAX_DISTANCE = 2, 3, 7, 5, 2
D_MODEL = 11
N_NETWORKS = 2 * (3 * MAX_DISTANCE + 1)


def _topical() -> TopicalAttention:
    torch.manual_seed(0)
    topical = TopicalAttention(D_MODEL, HEADS, init_std=0.7)
    nn.init.normal_(topical.value)
    return topical


def _output_layer(bias: bool = True) -> nn.Linear:
    """From heads that are together wider than the model, as T5 may have them."""
    torch.manual_seed(1)
    return nn.Linear(HEADS * D_HEAD, D_MODEL, bias)


@pytest.mark.parametrize("bias", [False, True])
def test_equation_2(bias: bool) -> None:
    """softmax_r(q (H_r W_K)ᵀ / √d) (H_r W_V) with H_r = concat_h(A_r) W_O + b, sub-network by sub-network."""
    topical, output = _topical(), _output_layer(bias)
    query, key, value = (torch.randn(BATCH, HEADS, KEYS, D_HEAD) for _ in range(3))
    relations = torch.randint(0, N_NETWORKS // 2 + 1, (BATCH, 2, KEYS, KEYS), dtype=torch.uint8)
    merged, weights = syntax_attention(
        query,
        key,
        value,
        relations,
        topical.head_queries(output.weight, topical("direction")),
        max_distance=MAX_DISTANCE,
    )
    projection = nn.functional.linear(
        merged.transpose(1, 2).flatten(2), *topical.output_layer(output.weight, output.bias)
    )

    networks = []
    for tree in range(2):
        for relation in range(1, N_NETWORKS // 2 + 1):
            mask = (relations[:, tree] == relation)[:, None]
            attention = (query @ key.transpose(-1, -2) * mask / D_HEAD**0.5).softmax(-1)
            networks.append(output((attention @ value).transpose(1, 2).flatten(2)))
    states = torch.stack(networks, 2)
    alpha = ((states @ topical.key) @ topical.task_query / D_MODEL**0.5).softmax(2)
    torch.testing.assert_close(weights, alpha, atol=1e-5, rtol=1e-4)
    expected = torch.einsum("bnr,bnrd->bnd", alpha, states @ topical.value)
    torch.testing.assert_close(projection, expected, atol=1e-5, rtol=1e-4)


def test_folded_is_the_same_as_applied_to_the_states() -> None:
    topical, output = _topical(), _output_layer()
    states = torch.randn(BATCH, KEYS, HEADS * D_HEAD)
    for gate in (None, torch.tensor(0.3)):
        folded = nn.functional.linear(states, *topical.output_layer(output.weight, output.bias, gate))
        torch.testing.assert_close(folded, topical.map(output(states), gate), atol=1e-5, rtol=1e-5)


def test_a_gate_of_each_head() -> None:
    """With equal gates as with one; a head's own gate maps its own columns."""
    topical, output = _topical(), _output_layer()
    shared_layer = topical.output_layer(output.weight, output.bias, torch.tensor(0.3))
    equal = topical.output_layer(output.weight, output.bias, torch.full((HEADS,), 0.3))
    for expected, parameter in zip(shared_layer, equal, strict=True):
        torch.testing.assert_close(parameter, expected)
    weight, _ = topical.output_layer(output.weight, None, torch.tensor([0.0, 1.0, 0.0]))
    changed = (weight - output.weight).abs().sum(0).view(HEADS, D_HEAD) > 0
    assert changed.tolist() == [[False] * D_HEAD, [True] * D_HEAD, [False] * D_HEAD]


def test_a_closed_gate_is_the_plain_layer_whatever_w_v_is() -> None:
    topical, output, gate = _topical(), _output_layer(), SyntaxGate()
    weight, bias = topical.output_layer(output.weight, output.bias, gate())
    assert torch.equal(weight, output.weight)
    assert torch.equal(bias, output.bias)
    (weight.square().sum() + bias.sum()).backward()
    assert gate.weight.grad != 0


def test_w_v_starts_as_the_identity() -> None:
    topical, output = TopicalAttention(D_MODEL, HEADS), _output_layer()
    weight, bias = topical.output_layer(output.weight, output.bias)
    assert torch.equal(weight, output.weight)
    assert torch.equal(bias, output.bias)


def test_gates_are_of_the_layer_or_of_its_heads() -> None:
    assert SyntaxGate().weight.shape == (1,), "FSDP shards no scalars"
    for n_heads, shape in ((None, ()), (HEADS, (HEADS,))):
        gate = SyntaxGate(n_heads)
        assert torch.equal(gate(), torch.zeros(shape))
        nn.init.constant_(gate.weight, 0.7)
        assert torch.equal(gate(), torch.full(shape, 0.7).tanh())


def test_under_autocast() -> None:
    topical, output = _topical(), _output_layer()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for gate in (None, torch.tensor(0.3), torch.full((HEADS,), 0.3)):
            weight, _ = topical.output_layer(output.weight, output.bias, gate)
            states = nn.functional.linear(torch.randn(KEYS, HEADS * D_HEAD), weight)
            assert states.dtype == torch.bfloat16
        assert topical.head_queries(output.weight, topical("direction")).shape == (HEADS, D_HEAD)
    states = torch.randn(KEYS, D_MODEL)
    for gate in (None, torch.tensor(0.3)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mapped = topical.map(states, gate)
        torch.testing.assert_close(mapped, topical.map(states, gate), atol=0.1, rtol=0.02)


@pytest.mark.parametrize(
    "gate", [None, torch.tensor(0.3), torch.full((HEADS,), 0.3)], ids=["none", "one", "heads"]
)
@pytest.mark.parametrize("n_rows", [1, 5 * D_MODEL])
def test_a_small_batch_is_projected_as_a_large_one(n_rows, gate, monkeypatch):
    topical, output = _topical(), _output_layer()
    heads = torch.randn(n_rows, output.in_features)
    folded = torch.nn.functional.linear(heads, *topical.output_layer(output.weight, output.bias, gate))
    assert torch.equal(topical.project(heads, output.weight, output.bias, gate), folded)  # in training
    calls = []
    monkeypatch.setattr(
        topical,
        "output_layer",
        lambda *arguments: calls.append(arguments) or type(topical).output_layer(topical, *arguments),
    )
    with torch.inference_mode():
        projection = topical.project(heads, output.weight, output.bias, gate)
    torch.testing.assert_close(projection, folded.detach())
    assert len(calls) == (n_rows > 1 or (gate is not None and gate.ndim > 0))


def test_weights_of_plain_sums():
    assert [summed_weight(summation, 4) for summation in ("sum", "scaled", "mean")] == [1.0, 0.5, 0.25]


def test_the_folded_bias_has_the_mean_of_the_gates():
    torch.manual_seed(2)
    topical, bias, gate = TopicalAttention(6, 2), torch.randn(6), torch.tensor([0.1, 0.5])
    torch.nn.init.normal_(topical.value)
    _, folded = topical.output_layer(torch.randn(6, 6), bias, gate)
    torch.testing.assert_close(folded, 0.3 * (bias @ topical.value) + 0.7 * bias)


@pytest.mark.parametrize("gate", [None, 0.0, 0.3])
@pytest.mark.parametrize("is_autocast", [False, True])
def test_in_16_bits_on_cuda_w_v_takes_the_states(gate, is_autocast, monkeypatch):
    """As on the device; the gradient of every parameter is that of the folded layer but for rounding."""
    results = []
    for is_on_cuda in (False, True):
        topical, output = _topical(), _output_layer()
        module = SyntaxGate()
        torch.nn.init.constant_(module.weight, gate or 0.0)
        monkeypatch.setattr(syntax, "takes_cuda_path", lambda _, there=is_on_cuda: there)
        heads = torch.randn(KEYS, output.in_features, generator=torch.Generator().manual_seed(3))
        if is_on_cuda:
            heads = heads.bfloat16()
        weight, bias = output.weight, output.bias
        if is_on_cuda and not is_autocast:
            weight, bias = weight.bfloat16(), bias.bfloat16()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast and is_on_cuda):
            states = topical.project(heads, weight, bias, None if gate is None else module())
        assert states.dtype == heads.dtype
        states.float().square().sum().backward()
        gradients = [output.weight.grad, output.bias.grad, topical.value.grad]
        if gate is not None:
            gradients.append(module.weight.grad)
        results.append([states.detach().float(), *gradients])
        if gate == 0.0:
            plain = nn.functional.linear(heads, weight.to(heads.dtype), bias.to(heads.dtype))
            assert torch.equal(states, plain)
    for expected, fast in zip(*results, strict=True):
        assert float((fast - expected).norm() / expected.norm().clamp(min=1e-3)) < 2e-2
