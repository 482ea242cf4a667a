"""Syntax attention as a graph for export is syntax attention, in every mode."""

from __future__ import annotations

import itertools

import pytest
import torch

from syntaxformer.nn import syntax_attention, syntax_attention_graph, syntax_attention_reference

BATCH, HEADS, KEYS, D_HEAD, MAX_DISTANCE = 3, 2, 11, 5, 7
N_IDS = 3 * MAX_DISTANCE + 2
MODES = list(itertools.product(("multiplicative", "additive"), ("full", "zero"), (False, True)))


def _arguments(n_trees=2, padded=True):
    torch.manual_seed(n_trees)
    relations = torch.randint(0, N_IDS, (BATCH, n_trees, KEYS, KEYS), dtype=torch.uint8)
    relations[torch.rand(relations.shape) < 0.4] = 0
    query, key, value = (torch.randn(BATCH, HEADS, KEYS, D_HEAD) * 3 for _ in range(3))
    mask = torch.arange(KEYS) < torch.tensor([KEYS, 7, 0])[:, None] if padded else None
    return {
        "query": query, "key": key, "value": value, "relations": relations, "max_distance": MAX_DISTANCE,
        "topical_query": torch.randn(HEADS, D_HEAD), "key_mask": mask,
    }  # fmt: skip


def _assert_same(arguments):
    expected, weights = syntax_attention(**arguments)
    found, found_weights = syntax_attention_graph(**arguments)
    torch.testing.assert_close(found_weights, weights, atol=2e-5, rtol=2e-5)
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize(("mode", "on_empty_row", "include_full"), MODES)
@pytest.mark.parametrize("padded", [False, True])
def test_every_mode(mode, on_empty_row, include_full, padded):
    given = {"mode": mode, "on_empty_row": on_empty_row, "include_full": include_full}
    _assert_same({**_arguments(padded=padded), **given})
    bias = torch.randn(1, HEADS, KEYS, KEYS)
    _assert_same({**_arguments(1, padded), **given, "position_bias": bias, "gate": torch.randn(HEADS)})
    _assert_same({**_arguments(1, padded), **given, "gate": torch.tensor(0.3)})


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
@pytest.mark.parametrize("summation", ["sum", "scaled", "mean"])
def test_without_topical_attention_and_with_parts_left_out(mode, summation):
    active = torch.ones(2 * (N_IDS - 1) + 1, dtype=torch.bool)
    active[3:29] = False
    given = {"mode": mode, "summation": summation, "include_full": True, "active": active.tolist()}
    _assert_same({**_arguments(), **given})
    _assert_same({**_arguments(), **given, "topical_query": None})


def test_logits_of_any_size():
    arguments = _arguments()
    _assert_same({**arguments, "query": arguments["query"] * 30})


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
@pytest.mark.parametrize("below", [20.0, 90.0])
def test_rows_far_below_zero(mode, below):
    given = {"mode": mode, "include_full": True, "position_bias": torch.full((1, HEADS, KEYS, KEYS), -below)}
    for gate in (None, torch.tensor(0.0), torch.tensor(0.3)):
        arguments = {**_arguments(), **given, "gate": gate}
        _assert_same(arguments)
        reference, _ = syntax_attention_reference(**arguments)
        torch.testing.assert_close(syntax_attention_graph(**arguments)[0], reference, atol=3e-5, rtol=2e-5)


def test_dropout_is_of_the_attention():
    arguments = _arguments()
    plain, dropped = (syntax_attention_graph(**arguments, dropout=one)[0] for one in (0.0, 0.5))
    assert not torch.equal(plain, dropped)
    torch.manual_seed(0)
    drawn = torch.stack([syntax_attention_graph(**arguments, dropout=0.5)[0] for _ in range(600)]).mean(0)
    assert (drawn - plain).abs().mean() < 0.1 * plain.abs().mean()
