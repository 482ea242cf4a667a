"""Both probes on numbers that can be worked out by hand."""

from __future__ import annotations

import pytest
import torch

from syntaxformer.study.probing import Probe, probe_loss

# Three words in two dimensions; B keeps the first and doubles the second.
VECTORS = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [1.0, 0.5]]])
MAP = torch.tensor([[1.0, 0.0], [0.0, 2.0]])


def _with_map(probe: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        probe.map.copy_(MAP)
    return probe


def test_distances_are_squared_norms_of_mapped_differences():
    found = _with_map(Probe(2, 2, "distances"))(VECTORS)
    # B h = (0,0), (1,0), (1,1): squared distances 1, 2 and 1, those of the tree 0 - 1 - 2.
    expected = torch.tensor([[[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]])
    torch.testing.assert_close(found, expected)


def test_depths_are_squared_norms():
    torch.testing.assert_close(_with_map(Probe(2, 2, "depths"))(VECTORS), torch.tensor([[0.0, 1.0, 2.0]]))


def test_a_shift_of_all_vectors_changes_no_distance():
    torch.manual_seed(3)
    probe, vectors = Probe(11, 7, "distances"), torch.randn(2, 5, 11)
    torch.testing.assert_close(probe(vectors + 30), probe(vectors), atol=1e-4, rtol=1e-4)


def test_losses_by_hand():
    is_word = torch.tensor([[True, True, True], [True, True, False]])
    gold = torch.zeros(2, 3, 3)
    found = torch.ones(2, 3, 3)
    found[1] = 9.0  # over 4 pairs of words, 9 each; what is padded does not count
    assert float(probe_loss(found, gold, is_word)) == pytest.approx((9 / 9 + 36 / 4) / 2)
    assert float(probe_loss(found[:, 0], gold[:, 0], is_word)) == pytest.approx((3 / 3 + 18 / 2) / 2)


def test_a_probe_has_one_parameter_of_its_rank():
    assert [tuple(one.shape) for one in Probe(11, 3, "depths").parameters()] == [(11, 3)]
