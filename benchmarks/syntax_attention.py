"""Cost of syntax attention: a fine-tuning step beside the vanilla model's, an attention beside the loop.

Run: OMP_NUM_THREADS=1 python benchmarks/syntax_attention.py

The model is a BERT of base width with few layers, infused by `infuse`; 92 sub-networks over the relations of
random trees of sentence pairs; dropout 0.1, AdamW. Ratios are of medians of processor time, of steps that
take turns, so that what else the machine does falls on both. Memory is the growth of a process of its own.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import turns
from torch import Tensor
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification

from syntaxformer.infusion import InfusionConfig, infuse
from syntaxformer.nn import RelationIndex, syntax_attention, syntax_attention_reference
from syntaxformer.syntax import batch_dependency_relations, pair_relation

WIDTH, HEADS, LAYERS, BATCH, PIECES = 768, 12, 2, 8, 128
LENGTHS = (32, 64, 128, 256, 512)
VARIANTS = ("vanilla", "paper", "preserving")
ROUNDS = 9


def relations_of_random_trees(batch: int, n_pieces: int) -> Tensor:
    """Ids `[batch, 2, pieces, pieces]` of two random trees a segment, pair relations included."""
    rng = np.random.default_rng(0)
    half = n_pieces // 2
    governors = np.array(
        [[-1, *(int(rng.integers(max(0, w - 9), w)) for w in range(1, half))] for _ in range(4 * batch)]
    )
    ids = np.full((batch, 2, n_pieces, n_pieces), pair_relation(), np.uint8)
    of_trees = batch_dependency_relations(governors, np.full(4 * batch, half)).reshape(
        batch, 2, 2, half, half
    )
    ids[:, :, :half, :half], ids[:, :, half:, half:] = of_trees[:, :, 0], of_trees[:, :, 1]
    return torch.from_numpy(ids)


def make_step(variant: str, n_pieces: int, batch: int = BATCH) -> Callable[[], None]:
    """A whole step of fine-tuning: forward, backward, AdamW."""
    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=LAYERS, num_labels=2, attn_implementation="sdpa")
    model = BertForSequenceClassification(config)
    pieces = torch.randint(1000, 30000, (batch, n_pieces))
    inputs = {"input_ids": pieces, "labels": torch.zeros(batch, dtype=torch.int64)}
    if variant != "vanilla":
        infuse(model, InfusionConfig(preset=variant, masks={}))
        inputs["syntax"] = relations_of_random_trees(batch, n_pieces)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> None:
        model(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def make_attention(kind: str, n_pieces: int) -> Callable[[], None]:
    """Forward and backward of an attention by itself."""
    torch.manual_seed(0)
    states = [torch.randn(BATCH, n_pieces, HEADS, WIDTH // HEADS).transpose(1, 2) for _ in range(3)]
    query, key, value = (tensor.requires_grad_() for tensor in states)
    topical_query = (0.02 * torch.randn(HEADS, WIDTH // HEADS)).requires_grad_()
    relations = relations_of_random_trees(BATCH, n_pieces)
    index = RelationIndex.of(relations)
    kinds: dict[str, Callable[[], Tensor]] = {
        "vanilla": lambda: F.scaled_dot_product_attention(query, key, value),
        "syntax": lambda: syntax_attention(query, key, value, index, topical_query)[0],
        "loop": lambda: syntax_attention_reference(query, key, value, relations, topical_query)[0],
    }
    return lambda: kinds[kind]().sum().backward()


def medians(works: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median processor seconds of each."""
    return {name: statistics.median(taken) for name, taken in turns(works, rounds).items()}


def _peak_mib(variant: str, n_pieces: int) -> float:
    torch.set_num_threads(1)
    before = _high_water_mib()
    step = make_step(variant, n_pieces)
    for _ in range(2):
        step()
    return _high_water_mib() - before


def _high_water_mib() -> float:
    """Largest memory of this process so far; `ru_maxrss` would include that of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def peak_mib(variant: str, n_pieces: int = PIECES) -> float:
    """MiB by which a fresh process grows, from before the model is made to the height of a step."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_mib, (variant, n_pieces))


def run(rounds: int = ROUNDS, loop_rounds: int = 1) -> dict[str, Any]:
    """All figures of one run.

    Returns:
        `step_s`, `step_ratio` and `memory_ratio` (to vanilla) at 128 pieces; `step_by_pieces`, seconds of a
        vanilla and an infused step over the same number of pieces in sentences of 32 to 512, and their ratio;
        `attention_by_pieces`, the same of an attention by itself, in milliseconds; `times_faster_than_loop`
        at 128.
    """
    torch.set_num_threads(1)
    step_s = medians({variant: make_step(variant, PIECES) for variant in VARIANTS}, 2 * rounds)
    memory = {variant: peak_mib(variant) for variant in VARIANTS}
    by_pieces, steps_by_pieces = {}, {}
    for n_pieces in LENGTHS:
        taken = medians({kind: make_attention(kind, n_pieces) for kind in ("vanilla", "syntax")}, rounds)
        by_pieces[n_pieces] = {
            **{f"{kind}_ms": round(1000 * s, 2) for kind, s in taken.items()},
            "ratio": round(taken["syntax"] / taken["vanilla"], 2),
        }
        batch = BATCH * PIECES // n_pieces
        steps = {name: make_step(name, n_pieces, batch) for name in ("vanilla", "preserving")}
        taken = medians(steps, max(1, rounds // 2))
        steps_by_pieces[n_pieces] = {
            **{f"{name}_s": round(s, 3) for name, s in taken.items()},
            "ratio": round(taken["preserving"] / taken["vanilla"], 2),
        }
    loop_s = medians({"loop": make_attention("loop", PIECES)}, loop_rounds)["loop"]
    syntax_s = medians({"syntax": make_attention("syntax", PIECES)}, rounds)["syntax"]  # short, so many turns
    return {
        "model": f"BERT, width {WIDTH}, {LAYERS} layers, batch {BATCH}, {PIECES} pieces, 92 sub-networks",
        "step_s": {variant: round(seconds, 3) for variant, seconds in step_s.items()},
        "step_ratio": {name: round(step_s[name] / step_s["vanilla"], 3) for name in VARIANTS[1:]},
        "memory_mib": {variant: round(mib) for variant, mib in memory.items()},
        "memory_ratio": {name: round(memory[name] / memory["vanilla"], 3) for name in VARIANTS[1:]},
        "step_by_pieces": steps_by_pieces,
        "attention_by_pieces": by_pieces,
        "times_faster_than_loop": round(loop_s / syntax_s, 1),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
