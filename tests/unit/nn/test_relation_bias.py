"""The learned bias of relations."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from syntaxformer.nn import RelationBias, attend
from syntaxformer.nn.kernels.on_cpu import plain_operations
from syntaxformer.nn.relation_biases import relation_bias, starting_biases
from syntaxformer.syntax import dependency_relations

BATCH, TREES, KEYS, HEADS, MAX_DISTANCE = 2, 3, 7, 5, 2
N_IDS = 3 * MAX_DISTANCE + 2


def _relations() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randint(0, N_IDS, (BATCH, TREES, KEYS, KEYS), dtype=torch.uint8)


@pytest.mark.parametrize("as_elsewhere", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_a_loop_in_values_and_gradients(dtype: torch.dtype, as_elsewhere: bool) -> None:
    """On a processor, and by the sums of other devices, which are made without atomic additions."""
    relations, weight = _relations(), torch.randn(TREES, N_IDS, HEADS).to(dtype).requires_grad_()
    biases = relation_bias(relations, weight)
    outer = torch.randn(BATCH, HEADS, KEYS, KEYS).to(dtype)
    with plain_operations() if as_elsewhere else nullcontext():
        (gradient,) = torch.autograd.grad((biases * outer).sum(), weight)
    assert biases.dtype == gradient.dtype == dtype
    expected, expected_gradient = torch.zeros(biases.shape), torch.zeros(weight.shape)
    for b, tree, i, j in torch.cartesian_prod(*map(torch.arange, relations.shape)).tolist():
        relation = int(relations[b, tree, i, j])
        expected[b, :, i, j] += weight.detach()[tree, relation].float()
        expected_gradient[tree, relation] += outer[b, :, i, j].float()
    tolerance = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 5e-2, "rtol": 2e-2}
    torch.testing.assert_close(biases.detach().float(), expected, **tolerance)
    torch.testing.assert_close(gradient.float(), expected_gradient, **tolerance)


def test_gradcheck() -> None:
    weight = torch.randn(TREES, N_IDS, HEADS, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda biases: relation_bias(_relations(), biases), weight, fast_mode=True
    )


def test_starts_at_zero() -> None:
    module = RelationBias(HEADS, TREES, MAX_DISTANCE)
    biases = module(_relations())
    assert biases.shape == (BATCH, HEADS, KEYS, KEYS)
    assert biases.abs().max() == 0
    # ... and learns from there, added to the logits of a plain attention.
    query, key, value = (torch.randn(BATCH, HEADS, KEYS, 3) for _ in range(3))
    attention = (query @ key.transpose(-1, -2) / 3**0.5 + biases).softmax(-1)
    torch.testing.assert_close(attention @ value, attend(query, key, value))
    (attention @ value).square().sum().backward()
    assert module.weight.grad.abs().sum() > 0


def test_refuses_another_number_of_trees() -> None:
    with pytest.raises(ValueError, match=r"relations: expected 2 trees, got 3\."):
        RelationBias(HEADS, 2, MAX_DISTANCE)(_relations())


def test_relations_that_take_no_part_have_no_bias() -> None:
    """Relation 3 of the first tree is left out; 0, "none", never is, and what stands behind does not matter."""
    module = RelationBias(HEADS, TREES, MAX_DISTANCE)
    with torch.no_grad():
        module.weight.normal_()
    active = torch.ones(TREES * (N_IDS - 1) + 1, dtype=torch.bool)
    active[2] = active[-1] = False
    expected = module.weight.detach().clone()
    expected[0, 3] = 0
    assert torch.equal(module.weight_of(active.tolist()), expected)
    assert torch.equal(module(_relations(), active.tolist()), relation_bias(_relations(), expected))


def test_starts_by_distance_in_a_tree_by_hand() -> None:
    """0 <- 1 -> 2 -> 3, D = 3: word 3 hangs on word 2, whose governor is word 1, the root."""
    ids = torch.from_numpy(dependency_relations([1, -1, 1, 2], 3))[None, None]
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1], [3, 2, 1, 0]])
    for start, sigma, distances in (
        ("distance", 1.0, edges),
        ("distance", 2.0, edges),
        ("governor", 1.0, torch.stack([edges[1], edges[1] + 1, edges[1], edges[2]])),  # of the root: one more
        ("zero", 1.0, edges * 0),
    ):
        module = RelationBias(HEADS, 1, 3, start, sigma)
        expected = -(distances.float() ** 2) / (2 * sigma**2)
        for head in module(ids)[0]:
            assert head.equal(expected), start
        with torch.no_grad():
            module.weight += 1
        module.reset_parameters()
        assert module(ids)[0, 0].equal(expected)
    assert starting_biases("distance", 3)[-1] == starting_biases("governor", 3)[-1] == 0, "other segments"
