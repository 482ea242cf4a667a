"""The collapsed syntax attention is the loop over masks: values and all gradients; its graph for export in values."""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import patch

import pytest
import torch

from syntaxformer.nn import (
    RelationIndex,
    syntax_attention,
    syntax_attention_graph,
    syntax_attention_reference,
    syntax_graph,
)

BATCH, HEADS, KEYS, D_HEAD, MAX_DISTANCE = 3, 2, 11, 5, 7
N_IDS = 3 * MAX_DISTANCE + 2
MODES = list(itertools.product(("multiplicative", "additive"), ("full", "zero")))


def _inputs(n_trees: int, dtype: torch.dtype = torch.float32, shared_bias: bool = True) -> dict[str, Any]:
    torch.manual_seed(n_trees)
    ids = torch.randint(0, N_IDS, (BATCH, n_trees, KEYS, KEYS), dtype=torch.uint8)
    ids[torch.rand(ids.shape) < 0.4] = 0
    sizes = {
        **dict.fromkeys(("query", "key", "value"), (BATCH, HEADS, KEYS, D_HEAD)),
        "topical_query": (HEADS, D_HEAD),
        "position_bias": (1 if shared_bias else BATCH, HEADS, KEYS, KEYS),
        "gate": (HEADS,),
    }
    tensors = {name: torch.randn(size).to(dtype).requires_grad_() for name, size in sizes.items()}
    return {"relations": ids, "max_distance": MAX_DISTANCE, **tensors}


def _padding() -> torch.Tensor:
    """A whole sentence, one of seven pieces, one of nothing but padding."""
    return torch.arange(KEYS) < torch.tensor([KEYS, 7, 0])[:, None]


def _run(function: Any, arguments: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Output, weights and the gradients of everything that has one."""
    arguments = {**arguments}
    output, weights = function(**arguments)
    torch.manual_seed(5)
    loss = (output * torch.randn(output.shape)).sum() + (weights * torch.randn(weights.shape)).sum()
    leaves = {
        name: tensor
        for name, tensor in arguments.items()
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad
    }
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return {
        "output": output.detach(),
        "weights": weights.detach(),
        **dict(zip(leaves, gradients, strict=True)),
    }


def _assert_same(arguments: dict[str, Any], tolerance: float = 1e-5) -> None:
    reference = _run(syntax_attention_reference, arguments)
    graphs = []
    for multiplies in (False, True):  # as compilers and as ONNX have it
        with torch.no_grad(), patch.object(syntax_graph, "multiplies", return_value=multiplies):
            output = syntax_attention_graph(**arguments)
        graphs.append(dict(zip(("output", "weights"), output, strict=True)))
    for found in (_run(syntax_attention, arguments), *graphs):
        for name, tensor in found.items():
            expected = reference[name]
            assert torch.isfinite(tensor).all(), name
            scale = max(1.0, float(expected.abs().max()))
            difference = float((tensor.float() - expected.float()).abs().max()) / scale
            assert difference < tolerance, f"{name}: {difference}"


@pytest.mark.parametrize(("mode", "on_empty_row"), MODES)
@pytest.mark.parametrize("n_trees", [1, 2])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("include_full", [False, True])
@pytest.mark.parametrize("bias", ["none", "shared", "each"])
def test_equals_the_loop(
    mode: str, on_empty_row: str, n_trees: int, padded: bool, include_full: bool, bias: str
) -> None:
    arguments = _inputs(n_trees, shared_bias=bias == "shared")
    arguments |= {"mode": mode, "on_empty_row": on_empty_row, "include_full": include_full, "gate": None}
    arguments["key_mask"] = _padding() if padded else None
    if bias == "none":
        arguments["position_bias"] = None
    else:
        arguments["scaling"] = 1.0
    _assert_same(arguments)


@pytest.mark.parametrize(("mode", "on_empty_row"), MODES)
@pytest.mark.parametrize("one_gate", [False, True])
@pytest.mark.parametrize("include_full", [False, True])
def test_gates(mode: str, on_empty_row: str, one_gate: bool, include_full: bool) -> None:
    arguments = _inputs(2) | {"mode": mode, "on_empty_row": on_empty_row, "include_full": include_full}
    arguments["key_mask"] = _padding()
    if one_gate:
        arguments["gate"] = torch.tensor(0.3, requires_grad=True)
    _assert_same(arguments)


@pytest.mark.parametrize(("mode", "on_empty_row"), MODES)
@pytest.mark.parametrize("summation", ["sum", "scaled", "mean"])
def test_without_topical_attention(mode: str, on_empty_row: str, summation: str) -> None:
    arguments = _inputs(2) | {"mode": mode, "on_empty_row": on_empty_row, "summation": summation}
    _assert_same(arguments | {"topical_query": None, "key_mask": _padding()}, 3e-5)


@pytest.mark.parametrize(("mode", "on_empty_row"), MODES)
@pytest.mark.parametrize("topical", [False, True])
def test_some_sub_networks(mode: str, on_empty_row: str, topical: bool) -> None:
    active = torch.zeros(2 * (N_IDS - 1) + 1, dtype=torch.bool)
    active[[0, 3, 29, -1]] = True
    arguments = _inputs(2) | {"mode": mode, "on_empty_row": on_empty_row, "include_full": True}
    arguments |= {"active": active.tolist(), "key_mask": _padding()}
    if not topical:
        arguments["topical_query"] = None
    _assert_same(arguments)
    weights = _run(syntax_attention, arguments)["weights"]
    assert weights[..., ~active].abs().max() == 0


@pytest.mark.parametrize(("mode", "on_empty_row"), MODES)
def test_bf16(mode: str, on_empty_row: str) -> None:
    """Against the loop in float32 on the same numbers."""
    arguments = _inputs(2, torch.bfloat16) | {"mode": mode, "on_empty_row": on_empty_row}
    arguments["key_mask"] = _padding()
    exact = {
        name: value.detach().float().requires_grad_() if name != "key_mask" and isinstance(value, torch.Tensor)
        and value.is_floating_point() else value
        for name, value in arguments.items()
    }  # fmt: skip
    fast, reference = _run(syntax_attention, arguments), _run(syntax_attention_reference, exact)
    for name, expected in reference.items():
        assert fast[name].dtype == torch.bfloat16, name
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(fast[name].float(), expected, atol=2e-2 * scale, rtol=2e-2)


def test_logits_of_bf16_states_are_not_rounded() -> None:
    """Near 40, bf16 would round them by up to 0.125: by an eighth of the attention of a key."""
    query, key, value = (torch.zeros(1, 1, 3, 2, dtype=torch.bfloat16) for _ in range(3))
    query[..., 0, 0], query[..., 0, 1], key[..., 1, :], key[..., 2, 0] = 6.28125, 1.0, 6.28125, 6.28125
    key[..., 1, 1], value[..., 1, :] = 0.0625, 1.0
    relations = torch.zeros(1, 1, 3, 3, dtype=torch.uint8)
    arguments = {"mode": "additive", "include_full": True, "scaling": 1.0, "max_distance": MAX_DISTANCE}
    for function in (syntax_attention, syntax_attention_graph):
        out, _ = function(
            query, key, value, relations, None, active=[False] * (N_IDS - 1) + [True], **arguments
        )
        exact = torch.tensor([0.0, 6.28125**2 + 0.0625, 6.28125**2]).softmax(0)[1]
        assert float(out[0, 0, 0, 0]) == pytest.approx(float(exact), abs=2e-3)


@pytest.mark.parametrize(("mode", "on_empty_row"), MODES)
def test_gradcheck(mode: str, on_empty_row: str) -> None:
    arguments = _inputs(2, torch.float64) | {"mode": mode, "on_empty_row": on_empty_row}
    arguments |= {"include_full": True, "key_mask": _padding()}
    names = [name for name, value in arguments.items() if getattr(value, "requires_grad", False)]

    def function(*tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return syntax_attention(**{**arguments, **dict(zip(names, tensors, strict=True))})

    assert torch.autograd.gradcheck(function, [arguments[name] for name in names], fast_mode=True)


@pytest.mark.parametrize("block", [1, HEADS * KEYS * 3, HEADS * KEYS * KEYS * 2])
def test_blocks_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One query a block, three, two sentences."""
    arguments = _inputs(2, shared_bias=False) | {"key_mask": _padding()}
    whole = _run(syntax_attention, arguments)
    monkeypatch.setattr("syntaxformer.nn.kernels.syntax_kernel._CPU_BLOCK", block)
    for name, tensor in _run(syntax_attention, arguments).items():
        torch.testing.assert_close(tensor, whole[name], atol=1e-5, rtol=1e-5)


def test_an_index_made_once_is_the_same() -> None:
    arguments = _inputs(2) | {"key_mask": _padding()}
    direct = _run(syntax_attention, arguments)
    index = RelationIndex.of(arguments["relations"], arguments["key_mask"], MAX_DISTANCE)
    shared = _run(syntax_attention, arguments | {"relations": index, "key_mask": None})
    for name, tensor in shared.items():
        assert torch.equal(tensor, direct[name])


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
@pytest.mark.parametrize("spread", [30.0, 45.0])
def test_large_logits(mode: str, spread: float) -> None:
    """Logits of ±30 and ±45, more than T5 has, where e^s of a whole row would overflow without a shift."""
    arguments = _inputs(2) | {"mode": mode, "gate": None}
    arguments["position_bias"] = (torch.randn(1, HEADS, KEYS, KEYS).sign() * spread).requires_grad_()
    arguments |= {"scaling": 1.0, "on_empty_row": "zero"}
    _assert_same(arguments, 3e-5)


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
@pytest.mark.parametrize("below", [20.0, 90.0])
@pytest.mark.parametrize("gate", [None, 0.0, 0.3])
def test_rows_far_below_zero(mode: str, below: float, gate: float | None) -> None:
    """Logits about -20 and -90, as T5's may be: e^s is nothing beside the 1 of masked keys, but not in full."""
    arguments = _inputs(2) | {"mode": mode, "include_full": True, "key_mask": _padding()}
    arguments["position_bias"] = (arguments["position_bias"].detach() - below).requires_grad_()
    arguments["gate"] = None if gate is None else torch.tensor(gate, requires_grad=True)
    _assert_same(arguments, 3e-5)


def test_a_closed_gate_is_plain_attention_on_rows_far_below_zero() -> None:
    for below in (10.0, 20.0, 90.0):
        arguments = _inputs(2) | {"include_full": True, "gate": torch.zeros(HEADS)}
        bias = arguments["position_bias"].detach() - below
        output, _ = syntax_attention(**arguments | {"position_bias": bias})
        query, key, value = (arguments[name] for name in ("query", "key", "value"))
        plain = torch.nn.functional.scaled_dot_product_attention(query, key, value, bias)
        torch.testing.assert_close(output, plain, atol=2e-5, rtol=0)


def test_dropout_of_the_graph_is_of_the_attention() -> None:
    arguments = _inputs(2)
    plain, dropped = (syntax_attention_graph(**arguments, dropout=prob)[0] for prob in (0.0, 0.5))
    assert not torch.equal(plain, dropped)
    torch.manual_seed(0)
    drawn = torch.stack([syntax_attention_graph(**arguments, dropout=0.5)[0] for _ in range(600)]).mean(0)
    assert (drawn - plain).abs().mean() < 0.1 * plain.abs().mean()
