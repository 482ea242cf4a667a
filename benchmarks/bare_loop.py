"""The plain twin of our training: a Transformer and a loop as one would write them without a toolkit.

Same shapes as `SyntaxTransformer` with `sum_then_concat`, PyTorch's own attention, dropout and loss, one
fused optimizer, autocast for bf16. Imports nothing of the package but the batches that both sides are given.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD = 0


class Attention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, cross: bool) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query_key_value = None if cross else nn.Linear(d_model, 3 * d_model)
        self.query = nn.Linear(d_model, d_model) if cross else None
        self.key_value = nn.Linear(d_model, 2 * d_model) if cross else None
        self.output = nn.Linear(d_model, d_model)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None, causal=False
    ) -> Tensor:
        if memory is None:
            parts = self.query_key_value(x).chunk(3, -1)
        else:
            parts = (self.query(x), *self.key_value(memory).chunk(2, -1))
        query, key, value = (p.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for p in parts)
        heads = F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)
        return self.output(heads.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float, cross: bool) -> None:
        super().__init__()
        self.attention = Attention(d_model, n_heads, False)
        self.cross = Attention(d_model, n_heads, True) if cross else None
        self.feed = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        own_mask = mask if self.cross is None else None
        x = x + self.dropout(self.attention(self.norms[0](x), None, own_mask, self.cross is not None))
        if self.cross is not None:
            x = x + self.dropout(self.cross(self.norms[1](x), memory, mask))
        return x + self.dropout(self.feed(self.norms[2](x)))


class BareTransformer(nn.Module):
    def __init__(self, vocab: int, shape: dict, factor_rows: Sequence[int], width: int) -> None:
        super().__init__()
        d_model = shape["d_model"]
        block = (d_model, shape["n_heads"], shape["d_ff"], shape["dropout"])
        self.target = nn.Embedding(vocab, d_model, PAD)
        self.source = nn.Embedding(vocab, d_model - width, PAD) if factor_rows else self.target
        self.factors = nn.ModuleList(nn.Embedding(rows, width) for rows in factor_rows)
        self.encoder = nn.ModuleList(Block(*block, False) for _ in range(shape["encoder_layers"]))
        self.decoder = nn.ModuleList(Block(*block, True) for _ in range(shape["decoder_layers"]))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(2))
        self.dropout = nn.Dropout(shape["dropout"])
        rates = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000) / d_model))
        angles = torch.arange(512)[:, None] * rates
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1))
        self.scale = math.sqrt(d_model)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        x = self.source(batch["input_ids"])
        if len(self.factors):
            ids = batch["factor_ids"]
            x = torch.cat([x, sum(table(ids[..., n]) for n, table in enumerate(self.factors))], -1)
        mask = batch.get("attention_mask")
        mask = None if mask is None else mask.bool()[:, None, None]
        x = self.dropout(x * self.scale + self.positions[: x.shape[1]])
        for block in self.encoder:
            x = block(x, mask=mask)
        memory = self.norms[0](x)
        labels = batch["labels"]
        shifted = F.pad(labels[:, :-1].clamp(min=0), (1, 0), value=1)
        y = self.dropout(self.target(shifted) * self.scale + self.positions[: labels.shape[1]])
        for block in self.decoder:
            y = block(y, memory, mask)
        logits = F.linear(self.norms[1](y), self.target.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, label_smoothing=0.1)


def seconds_per_run(
    model: BareTransformer, batches: Sequence[dict[str, Tensor]], warm_up: int, precision: str
) -> float:
    """Train on the batches; seconds for those after the warm-up."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model.train()
    start = time.perf_counter()
    for number, batch in enumerate(batches):
        if number == warm_up:
            start = time.perf_counter()
        casting = torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
        with casting:
            loss = model(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return time.perf_counter() - start
