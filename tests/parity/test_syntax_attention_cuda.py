"""The Triton kernel is the loop over masks, in Triton's interpreter: values and gradients, with every option."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

import pytest
import torch

from syntaxformer.nn import syntax_attention, syntax_attention_reference
from syntaxformer.nn.relation_biases import relation_bias, relation_bias_graph

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)
if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("triton was imported without TRITON_INTERPRET=1", allow_module_level=True)

HEADS, D_HEAD, MAX_DISTANCE = 3, 2, 3
N_IDS = 3 * MAX_DISTANCE + 2


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes the place of the plain operation; blocks of keys and queries are small and ragged."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # read when the kernel's module is imported
    finders = [one for one in sys.meta_path if "jaxtyping" not in type(one).__module__]
    with monkeypatch.context() as without_checks:  # of shapes, which would wrap the kernel
        without_checks.setattr(sys, "meta_path", finders)
        from syntaxformer.nn.kernels import on_cuda
    from syntaxformer.nn import relation_biases, syntax

    for module in (syntax, relation_biases):
        monkeypatch.setattr(module, "takes_cuda_path", lambda _: True)
    for name, size in {"SUM_KEYS": 16, "PAIR_KEYS": 16, "GROUP": 4}.items():
        monkeypatch.setattr(on_cuda, name, size)


def _inputs(
    n_trees: int = 2, dtype: torch.dtype = torch.float32, lengths: tuple[int, ...] = (5, 4, 0)
) -> dict[str, Any]:
    torch.manual_seed(n_trees)
    batch, keys = len(lengths), max(lengths)
    ids = torch.randint(0, N_IDS, (batch, n_trees, keys, keys), dtype=torch.uint8)
    ids[torch.rand(ids.shape) < 0.4] = 0
    sizes = {
        **dict.fromkeys(("query", "key", "value"), (batch, HEADS, keys, D_HEAD)),
        "topical_query": (HEADS, D_HEAD),
        "position_bias": (1 if n_trees == 2 else batch, HEADS, keys, keys),
        "gate": (HEADS,),
    }
    tensors = {name: torch.randn(size).to(dtype) for name, size in sizes.items()}
    for name in ("query", "key"):  # stored with heads after keys, as a layer gives them
        tensors[name] = tensors[name].transpose(1, 2).contiguous().transpose(1, 2)
    for tensor in tensors.values():
        tensor.requires_grad_()
    padding = torch.arange(keys) < torch.tensor(lengths)[:, None]
    return {"relations": ids, "max_distance": MAX_DISTANCE, "key_mask": padding, **tensors}


def _run(function: Any, arguments: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The output, and the gradients of everything that has one."""
    output, _ = function(**arguments, return_weights=False)
    torch.manual_seed(5)
    leaves = {
        name: one for name, one in arguments.items() if isinstance(one, torch.Tensor) and one.requires_grad
    }
    gradients = torch.autograd.grad((output * torch.randn(output.shape)).sum(), list(leaves.values()))
    return {"output": output.detach(), **dict(zip(leaves, gradients, strict=True))}


def _assert_same(arguments: dict[str, Any]) -> None:
    fast, reference = _run(syntax_attention, arguments), _run(syntax_attention_reference, arguments)
    for name, expected in reference.items():
        error = float((fast[name] - expected).norm() / expected.norm().clamp(min=1.0))
        assert error < 2e-6, f"{name}: {error}"


OPTIONS: dict[str, dict[str, Any]] = {
    "multiplicative": {},
    "additive, full": {"mode": "additive"},
    "additive, zero": {"mode": "additive", "on_empty_row": "zero"},
    "full network": {"include_full": True},
    "additive, full network": {"mode": "additive", "include_full": True},
    "plain": {"gate": None, "position_bias": None, "key_mask": None},
    "summation": {"topical_query": None, "summation": "sum"},
    "some networks": {"active": [n % 3 > 0 for n in range(2 * N_IDS - 2)], "mode": "additive"},
}


def test_the_smallest() -> None:
    _assert_same(_inputs(lengths=(2,)))


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_equals_the_loop(options: dict[str, Any]) -> None:
    arguments = _inputs() | options
    _assert_same(arguments)


@pytest.mark.slow
@pytest.mark.parametrize(("n_trees", "lengths"), [(1, (7, 5)), (3, (7, 5)), (2, (17,))])
def test_trees_and_blocks(n_trees: int, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """One tree and three; a block of four of seven queries; more keys than are taken at a time."""
    from syntaxformer.nn.kernels import on_cuda

    monkeypatch.setattr(on_cuda, "_BLOCK", 4 * HEADS * 7 if n_trees != 2 else 1 << 18)
    _assert_same(_inputs(n_trees, lengths=lengths))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
def test_bf16(mode: str) -> None:
    arguments = _inputs(dtype=torch.bfloat16) | {"mode": mode}
    exact = {
        name: one.detach().float().requires_grad_() if getattr(one, "requires_grad", False) else one
        for name, one in arguments.items()
    }
    fast, reference = _run(syntax_attention, arguments), _run(syntax_attention_reference, exact)
    for name, expected in reference.items():
        assert fast[name].dtype == torch.bfloat16
        assert float((fast[name].float() - expected).norm() / expected.norm()) < 2e-2, name


@pytest.mark.slow
@pytest.mark.parametrize(("n_trees", "dtype"), [(1, torch.float32), (2, torch.float32), (2, torch.bfloat16)])
def test_relation_biases(n_trees: int, dtype: torch.dtype) -> None:
    """Values, and gradients of the table, which are sums over all pairs."""
    relations = torch.randint(0, N_IDS, (2, n_trees, 7, 7), dtype=torch.uint8)
    weight, grad = torch.randn(n_trees, N_IDS, 3, requires_grad=True), torch.randn(2, 3, 7, 7).to(dtype)
    biases, expected = relation_bias(relations, weight, dtype), relation_bias_graph(relations, weight)
    assert biases.dtype == dtype
    rounding = 0.0 if dtype == torch.float32 else 2**-7  # the interpreter cuts off what does not fit
    torch.testing.assert_close(biases, expected.to(dtype), rtol=rounding, atol=0)
    of_table, of_graph = (
        torch.autograd.grad(one, [weight], grad.to(one.dtype))[0] for one in (biases, expected)
    )
    torch.testing.assert_close(of_table, of_graph)


@pytest.mark.slow
def test_small_sums_beside_large_ones() -> None:
    """A relation whose only key is e^-30 of the best: additively it has all of its sub-network's attention."""
    query, key, value = (
        torch.ones(1, 1, 3, 1),
        torch.tensor([[[[30.0], [0.0], [0.0]]]]),
        torch.randn(1, 1, 3, 1),
    )
    relations = torch.tensor([[[[0, 1, 2]] * 3]], dtype=torch.uint8)
    output, _ = syntax_attention(
        query, key, value, relations, None, scaling=1.0, mode="additive", on_empty_row="zero",
        max_distance=MAX_DISTANCE, summation="sum", return_weights=False,
    )  # fmt: skip
    torch.testing.assert_close(output[0, 0, 0], value[0, 0, 1:].sum(0))


@pytest.mark.slow
def test_dropout_is_the_same_in_both_passes() -> None:
    """The output is linear in values: its derivative is the output itself, if the same weights are dropped."""
    arguments = _inputs(lengths=(5,)) | {"topical_query": None, "dropout": 0.3, "gate": None}
    value = arguments["value"]
    torch.manual_seed(1)
    output, _ = syntax_attention(**arguments, return_weights=False)
    (grad,) = torch.autograd.grad((output * output.detach()).sum(), [value])
    torch.testing.assert_close((grad * value).sum(), output.square().sum())
    query, direction = arguments["query"], torch.randn(value.shape)

    def at(step: float) -> torch.Tensor:
        torch.manual_seed(1)
        moved = arguments | {"query": query + step * direction}
        return (syntax_attention(**moved, return_weights=False)[0] * value).sum()

    (d_query,) = torch.autograd.grad(at(0.0), [query])
    slope = (at(1e-2) - at(-1e-2)) / 2e-2
    torch.testing.assert_close((d_query * direction).sum(), slope, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
def test_share_of_dropped_weights() -> None:
    """Values are unit vectors, so outputs are weights: a fifth is zero, the others grow by 5 / 4."""
    keys = 13
    arguments = _inputs(lengths=(keys,)) | {"value": torch.eye(keys).expand(1, HEADS, -1, -1)}
    arguments |= dict.fromkeys(("query", "key"), torch.randn(1, HEADS, keys, keys))
    arguments |= {"topical_query": None, "key_mask": None, "position_bias": None}
    weights, _ = syntax_attention(**arguments, return_weights=False)
    dropped, _ = syntax_attention(**arguments, dropout=0.2, return_weights=False)
    kept = dropped != 0
    assert float(kept.float().mean()) == pytest.approx(0.8, abs=0.06)
    torch.testing.assert_close(dropped[kept], 1.25 * weights[kept])
    assert not torch.equal(kept[0, 0], kept[0, 1])
    assert not torch.equal(kept[0, 0, 0], kept[0, 0, 1])
