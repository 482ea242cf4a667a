"""Syntax attention by hand, on rows without keys, under permutation and padding, and its refusals."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from syntaxformer.nn import RelationIndex, attend, syntax_attention, syntax_attention_reference
from syntaxformer.nn.syntax import check_arguments

BATCH, HEADS, KEYS, D_HEAD, MAX_DISTANCE = 3, 2, 7, 5, 3
N_NETWORKS = 2 * (3 * MAX_DISTANCE + 1)
MODES = list(itertools.product(("multiplicative", "additive"), ("full", "zero")))
FUNCTIONS = [syntax_attention, syntax_attention_reference]


def _states(dtype: torch.dtype = torch.float32, keys: int = KEYS) -> list[Tensor]:
    torch.manual_seed(2)
    return [torch.randn(BATCH, HEADS, keys, D_HEAD).to(dtype).requires_grad_() for _ in range(3)]


def _relations(keys: int = KEYS) -> Tensor:
    torch.manual_seed(3)
    ids = torch.randint(0, N_NETWORKS // 2 + 1, (BATCH, 2, keys, keys), dtype=torch.uint8)
    ids[..., range(keys), range(keys)] = 0
    return ids


def _topical(dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(4)
    return torch.randn(HEADS, D_HEAD).to(dtype).requires_grad_()


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
def test_by_hand(function, mode: str) -> None:
    """Two pieces, D = 1: the first is the parent of the second. One head of one column, u = 0: α is uniform."""
    query, key = torch.tensor([[[[1.0], [0.0]]]]), torch.tensor([[[[0.5], [2.0]]]])
    value = torch.tensor([[[[3.0], [5.0]]]])
    relations = torch.tensor([[[[0, 1], [2, 0]]]], dtype=torch.uint8)
    output, weights = function(
        query, key, value, relations, torch.zeros(1, 1), None, 1.0, mode, "zero", max_distance=1
    )
    torch.testing.assert_close(weights, torch.full((1, 2, 4), 0.25))
    if mode == "multiplicative":
        # Piece 0: parent 1 has logits (0, 2); the other three networks are empty, their rows the mean.
        seen = (1 * 3 + math.exp(2) * 5) / (1 + math.exp(2))
        expected = [(seen + 3 * 4) / 4, 4.0]  # query 1 is 0: all logits are 0
    else:
        expected = [5 / 4, 3 / 4]  # the only key of its only network; the other networks give 0
    torch.testing.assert_close(output.flatten(), torch.tensor(expected))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_topical_weights_by_hand(function) -> None:
    """One piece beside its parent: networks see 5 or, being empty, the mean 4; u = 1 makes these the logits."""
    zero = torch.zeros(1, 1, 2, 1)
    value = torch.tensor([[[[3.0], [5.0]]]])
    relations = torch.tensor([[[[0, 1], [2, 0]]]], dtype=torch.uint8)
    output, weights = function(
        zero, zero, value, relations, torch.ones(1, 1), mode="additive", on_empty_row="full", max_distance=1
    )
    total = math.exp(5) + 3 * math.exp(4)
    expected = torch.tensor([math.exp(5), *3 * [math.exp(4)]]) / total
    torch.testing.assert_close(weights[0, 0], expected)
    torch.testing.assert_close(output[0, 0, 0, 0], (5 * expected[0] + 4 * (1 - expected[0])))


def test_sub_networks_are_counted_as_in_the_paper() -> None:
    """(15 · 3 + 1) · 2 = 92, and the full one."""
    query, key, value = _states()
    relations = torch.zeros(BATCH, 2, KEYS, KEYS, dtype=torch.uint8)
    for function, include_full in itertools.product(FUNCTIONS, (False, True)):
        weights = function(query, key, value, relations, _topical(), include_full=include_full)[1]
        assert weights.shape == (BATCH, KEYS, 92 + include_full)
        torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, KEYS))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("mode", "on_empty_row"), MODES)
def test_root_only_one_word_and_all_padding(
    function, dtype: torch.dtype, mode: str, on_empty_row: str
) -> None:
    """[CLS] root [SEP], where the root relates to nothing; a single piece; nothing but padding."""
    query, key, value = _states(dtype)
    relations = torch.zeros(BATCH, 2, KEYS, KEYS, dtype=torch.uint8)
    key_mask = torch.arange(KEYS) < torch.tensor([3, 1, 0])[:, None]
    output, weights = function(
        query, key, value, relations, _topical(dtype), key_mask, None, mode, on_empty_row, MAX_DISTANCE
    )
    output.float().square().sum().backward()
    assert all(torch.isfinite(tensor.grad).all() for tensor in (query, key, value))
    assert output[2].abs().max() == 0
    assert weights[2].abs().max() == 0
    expected = {
        "multiplicative": value[0, :, :3].mean(1, keepdim=True).expand(HEADS, 3, D_HEAD),
        "full": attend(query[:1, :, :3], key[:1, :, :3], value[:1, :, :3])[0],
        "zero": torch.zeros(HEADS, 3, D_HEAD),
    }[mode if mode == "multiplicative" else on_empty_row]
    torch.testing.assert_close(output[0, :, :3].float(), expected.float(), atol=2e-2, rtol=2e-2)
    one_word = torch.zeros(()) if mode == "additive" and on_empty_row == "zero" else value[1, :, 0]
    torch.testing.assert_close(output[1, :, 0].float(), one_word.float().expand(HEADS, D_HEAD))


@pytest.mark.parametrize(("mode", "on_empty_row"), MODES)
def test_a_padded_key_has_no_influence(mode: str, on_empty_row: str) -> None:
    """Values and gradients are those of the shorter sentence, whatever stands behind it."""
    short, results = KEYS - 2, []
    for keys in (KEYS, short):
        states = [tensor[:, :, :keys].detach().double() for tensor in _states()]
        for tensor in states:
            tensor[:, :, short:] = 1e4
            tensor.requires_grad_()
        key_mask = (torch.arange(keys) < short).expand(BATCH, -1)
        output, weights = syntax_attention(
            *states, _relations()[..., :keys, :keys].contiguous(), _topical(), key_mask, None, mode,
            on_empty_row, MAX_DISTANCE, include_full=True,
        )  # fmt: skip
        output[:, :, :short].square().sum().backward()
        gradients = [tensor.grad[:, :, :short] for tensor in states]
        results.append([output[:, :, :short], weights[:, :short], *gradients])
        assert all(tensor.grad[:, :, short:].abs().sum() == 0 for tensor in states[1:])
    for long, exact in zip(*results, strict=True):
        torch.testing.assert_close(long, exact, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("mode", "on_empty_row"), MODES)
def test_a_closed_gate_is_plain_attention(function, mode: str, on_empty_row: str) -> None:
    query, key, value = _states()
    key_mask = torch.arange(KEYS) < torch.tensor([KEYS, 3, 0])[:, None]
    output, _ = function(
        query, key, value, _relations(), _topical(), key_mask, None, mode, on_empty_row, MAX_DISTANCE,
        include_full=True, gate=torch.tensor(0.0),
    )  # fmt: skip
    torch.testing.assert_close(
        output, attend(query, key, value, key_mask[:, None, None]), atol=1e-6, rtol=1e-6
    )


@pytest.mark.slow
def test_dropout_keeps_the_mean_follows_the_seed_and_is_the_same_in_the_backward_pass() -> None:
    query, key, value = _states()
    arguments = (query, key, value, _relations(), _topical())
    torch.manual_seed(0)
    draws = torch.stack(
        [syntax_attention(*arguments, max_distance=MAX_DISTANCE, dropout=0.3)[0] for _ in range(400)]
    )
    plain, _ = syntax_attention(*arguments, max_distance=MAX_DISTANCE)
    assert (draws.mean(0) - plain).abs().max() < 5 * draws.std(0).max() / 20
    torch.manual_seed(1)
    first, _ = syntax_attention(*arguments, max_distance=MAX_DISTANCE, dropout=0.3)
    torch.manual_seed(1)
    again, _ = syntax_attention(*arguments, max_distance=MAX_DISTANCE, dropout=0.3)
    assert torch.equal(first, again)
    # The output is linear in the values if u = 0: <output, g> = <values, gradient>.
    torch.manual_seed(1)
    output, _ = syntax_attention(
        query, key, value, _relations(), torch.zeros(HEADS, D_HEAD), max_distance=MAX_DISTANCE, dropout=0.3
    )
    (gradient,) = torch.autograd.grad(output.square().sum() / 2, value)
    torch.testing.assert_close((gradient * value).sum(), output.square().sum(), rtol=1e-4, atol=1e-4)


def test_autocast_gives_the_type_of_the_values() -> None:
    states = [tensor.detach().bfloat16() for tensor in _states()]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, weights = syntax_attention(*states, _relations(), _topical(), max_distance=MAX_DISTANCE)
    assert output.dtype == weights.dtype == torch.bfloat16


def test_weights_only_on_request() -> None:
    for function in FUNCTIONS:
        arguments = (*_states(), _relations(), _topical())
        assert function(*arguments, max_distance=MAX_DISTANCE, return_weights=False)[1] is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"mode": "both"}, r"mode: expected one of multiplicative, additive, got 'both'\."),
        ({"on_empty_row": "nan"}, r"on_empty_row: expected one of full, zero, got 'nan'\."),
        ({"summation": "max"}, r"summation: expected one of sum, scaled, mean, got 'max'\."),
        ({"dropout": 1.0}, r"dropout: expected at least 0 and below 1, got 1\.0\."),
    ],
)
def test_refuses_unknown_names(arguments: dict, text: str) -> None:
    names = {"mode": "additive", "on_empty_row": "full", "summation": "sum", "dropout": 0.0} | arguments
    with pytest.raises(ValueError, match=text):
        check_arguments(**names, active=None, n_networks=1)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_refuses_a_dropout_of_all(function) -> None:
    with pytest.raises(ValueError, match=r"dropout: "):
        function(*_states(), _relations(), _topical(), max_distance=MAX_DISTANCE, dropout=1.0)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_refuses_networks_that_are_all_off_or_too_few(function) -> None:
    n_networks = _relations().shape[1] * (3 * MAX_DISTANCE + 1)
    for active in ([False] * n_networks, [True] * (n_networks - 1), [True] * (n_networks + 1), []):
        expected = f"active: expected one entry for each of {n_networks} sub-networks, .* got {len(active)} "
        with pytest.raises(ValueError, match=expected):
            function(*_states(), _relations(), _topical(), max_distance=MAX_DISTANCE, active=active)


def test_refuses_relations_beyond_the_largest_distance() -> None:
    relations = _relations()
    relations[1, 0, 2, 3] = 3 * MAX_DISTANCE + 2
    with pytest.raises(ValueError, match=r"relations: expected ids 0 to 10 .* got 11\. Use the max_distance"):
        RelationIndex.of(relations, max_distance=MAX_DISTANCE)


def test_refuses_a_mask_beside_an_index() -> None:
    index = RelationIndex.of(_relations(), max_distance=MAX_DISTANCE)
    with pytest.raises(ValueError, match=r"key_mask: expected None beside a RelationIndex, .* got a mask\."):
        syntax_attention(*_states(), index, _topical(), torch.ones(BATCH, KEYS, dtype=torch.bool))


def test_an_index_of_no_rows_and_of_rows_in_parts() -> None:
    index = RelationIndex.of(torch.zeros(0, 2, KEYS, KEYS, dtype=torch.uint8), max_distance=MAX_DISTANCE)
    assert index.n_networks == N_NETWORKS
    index = RelationIndex.of(_relations(), max_distance=MAX_DISTANCE)
    pairs = torch.randn(BATCH * KEYS, KEYS, 5)
    whole = index.rows(0, BATCH * KEYS).sum_by_relation(pairs)
    sums = index.rows(4, 9).sum_by_relation(pairs[4:9])
    torch.testing.assert_close(sums, whole[4:9])
    # Slot 0 is relation 0: five-line loop.
    ids = _relations().transpose(1, 2).flatten(0, 1)
    for row in range(BATCH * KEYS):
        expected = pairs[row][ids[row, 0] == 0].sum(0)
        torch.testing.assert_close(whole[row, 0], expected)
