"""POS embeddings leave a pretrained model as it is at the start, and learn from there."""

from __future__ import annotations

import torch

from syntaxformer.nn import PosAdd, PosConcat, PosLet

BATCH, PIECES, D_MODEL, D_POS, N_TAGS = 2, 5, 7, 3, 11
TAGS = torch.tensor([[1, 2, 3, 4, 0], [5, 6, 0, 0, 0]])


def test_add() -> None:
    module, words = PosAdd(N_TAGS, D_MODEL), torch.randn(BATCH, PIECES, D_MODEL)
    assert torch.equal(module(words, TAGS), words)
    module(words, TAGS).sum().backward()
    assert module.table.weight.grad[6].tolist() == [1.0] * D_MODEL
    with torch.no_grad():
        module.table.weight[3] = 2.0
    torch.testing.assert_close(module(words, TAGS)[0, 2], words[0, 2] + 2)


def test_concat() -> None:
    module, words = PosConcat(N_TAGS, D_MODEL, D_POS), torch.randn(BATCH, PIECES, D_MODEL)
    torch.testing.assert_close(module(words, TAGS), words)
    assert module.join.weight.shape == (D_MODEL, D_MODEL + D_POS)
    module(words, TAGS).square().sum().backward()
    assert module.join.weight.grad[:, D_MODEL:].abs().sum() > 0
    torch.nn.init.normal_(module.join.weight)
    joined = torch.cat([words[1, 1], module.table.weight[6]])
    torch.testing.assert_close(module(words, TAGS)[1, 1], module.join(joined))


def test_let() -> None:
    module, final = PosLet(N_TAGS, D_MODEL, D_POS), torch.randn(BATCH, D_MODEL)
    torch.testing.assert_close(module(final, TAGS), final)
    torch.nn.init.normal_(module.join.weight)
    mask = torch.tensor([[True, True, False, False, False], [False] * PIECES])
    first = torch.cat([final[0], (module.table.weight[1] + module.table.weight[2]) / 2])
    nothing = torch.cat([final[1], torch.zeros(D_POS)])
    expected = module.join(torch.stack([first, nothing]))
    torch.testing.assert_close(module(final, TAGS, mask), expected)
    everything = torch.cat([final[1], module.table.weight[TAGS[1]].mean(0)])
    torch.testing.assert_close(module(final, TAGS)[1], module.join(everything))


def test_half_precision() -> None:
    for module in (PosAdd(N_TAGS, D_MODEL), PosConcat(N_TAGS, D_MODEL, D_POS)):
        words = torch.randn(BATCH, PIECES, D_MODEL).bfloat16()
        assert module.bfloat16()(words, TAGS).dtype == torch.bfloat16
