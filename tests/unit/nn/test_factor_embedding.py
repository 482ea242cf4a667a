"""Factor embeddings leave a pretrained model as it is at the start, and learn from there."""

from __future__ import annotations

import pytest
import torch

from syntaxformer.nn import ENCODER_KINDS, FactorEmbedding, plan_widths

BATCH, PIECES, D_MODEL = 2, 5, 13
SIZES = {"pos": 11, "case": 4}
IDS = torch.tensor([[[1, 2], [2, 3], [3, 2], [0, 0], [0, 0]], [[0, 0]] * PIECES])


def _module(kind: str, names: tuple[str, ...] = ("pos", "case")) -> FactorEmbedding:
    torch.manual_seed(3)
    return FactorEmbedding(plan_widths(kind, D_MODEL, names, 7, kinds=ENCODER_KINDS), SIZES)


@pytest.mark.parametrize("names", [("pos",), ("pos", "case")])
@pytest.mark.parametrize("kind", ENCODER_KINDS)
def test_at_the_start_nothing_changes_and_everything_learns(kind, names) -> None:
    module, ids = _module(kind, names), IDS[..., : len(names)]
    states = torch.randn(BATCH, D_MODEL) if kind == "let" else torch.randn(BATCH, PIECES, D_MODEL)
    torch.testing.assert_close(module(states, ids), states)
    module(states, ids).square().sum().backward()
    learns = module.tables["pos"] if kind == "add" else module.join
    assert learns.weight.grad.abs().sum() > 0
    assert module.bfloat16()(states.bfloat16(), ids).dtype == torch.bfloat16


def test_add_is_a_sum() -> None:
    module, words = _module("add"), torch.randn(BATCH, PIECES, D_MODEL)
    with torch.no_grad():
        module.tables["pos"].weight[3], module.tables["case"].weight[2] = 2.0, 0.5
    torch.testing.assert_close(module(words, IDS)[0, 2], words[0, 2] + 2.5)


def test_concat_is_its_formula() -> None:
    module, words = _module("concat"), torch.randn(BATCH, PIECES, D_MODEL)
    assert module.join.weight.shape == (D_MODEL, D_MODEL + 3 + 4)
    torch.nn.init.normal_(module.join.weight)
    joined = torch.cat([words[0, 1], module.tables["pos"].weight[2], module.tables["case"].weight[3]])
    torch.testing.assert_close(module(words, IDS)[0, 1], module.join(joined))


def test_let_takes_the_mean_over_pieces_of_words() -> None:
    module, final = _module("let", ("pos",)), torch.randn(BATCH, D_MODEL)
    torch.nn.init.normal_(module.join.weight)
    first = torch.cat([final[0], module.tables["pos"].weight[1:4].mean(0)])
    nothing = torch.cat([final[1], torch.zeros(7)])
    torch.testing.assert_close(module(final, IDS[..., :1]), module.join(torch.stack([first, nothing])))


def test_let_counts_a_piece_that_has_any_value() -> None:
    torch.manual_seed(3)
    module = FactorEmbedding(plan_widths("let", 7, ("pos", "case"), 7, kinds=ENCODER_KINDS), SIZES)
    with torch.no_grad():
        module.join.weight.copy_(torch.cat([torch.zeros(7, 7), torch.eye(7)], 1))
    ids = torch.tensor([[[1, 0], [2, 1], [0, 0]], [[0, 0], [2, 0], [0, 0]]])
    pos, case = (module.tables[name].weight for name in ("pos", "case"))
    both = torch.cat([(pos[1] + pos[2]) / 2, (case[0] + case[1]) / 2])
    vectors = torch.stack([both, torch.cat([pos[2], case[0]])])  # of one piece, its own
    torch.testing.assert_close(module(torch.randn(2, 7), ids), vectors)
