"""Training speed: our trainer against the bare loop, same shapes, same batches, same precision, in turns.

python benchmarks/training.py [--data DIR] [--rounds 3] [--updates 20]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bare_loop import BareTransformer, seconds_per_run
from transformers import TrainerCallback

from syntaxformer.base.files import read_lines
from syntaxformer.nn import plan_widths
from syntaxformer.runs.processes import pick_precision
from syntaxformer.translation.batches import EncodedPairs, TokenBudgetBatches, TranslationCollator
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig
from syntaxformer.translation.recipe import Recipe
from syntaxformer.translation.source import EncodedText
from syntaxformer.translation.training import SyntaxTrainer

VOCAB, WIDTH = 8000, 20
FACTOR_ROWS = {"pos": 20, "case": 4, "subword": 6}
SHAPE = {"d_model": 256, "d_ff": 512, "n_heads": 4, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.3}
WARM_UP = 4


def padding_share(lengths: Any, batches: Any) -> float:
    """Share of padded cells among all cells of one side, over some batches."""
    taken = [lengths[rows] for rows in batches]
    cells = sum(len(one) * int(one.max()) for one in taken)
    return 1 - sum(int(one.sum()) for one in taken) / cells if cells else 0.0


class Clock(TrainerCallback):
    """Seconds between the end of the warm-up and the end of the last update."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.start = self.seconds = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == WARM_UP:
            self.start = time.perf_counter()
        elif state.global_step == self.last:
            self.seconds = time.perf_counter() - self.start


def pairs_like_multi30k(data: Path | None, n_pairs: int = 29_000) -> EncodedPairs:
    """Random pieces in sentences as long as Multi30k's (words × 1.25), or of made-up lengths without it."""
    random = np.random.default_rng(1)
    if data is not None and (data / "multi30k").is_dir():
        words = [
            [len(line.split()) for line in read_lines(data / "multi30k" / f"train.{side}.gz")][:n_pairs]
            for side in ("en", "de")
        ]
    else:
        src = random.integers(6, 25, n_pairs)
        words = [src, np.maximum(4, src + random.integers(-3, 4, n_pairs))]
    src, tgt = (np.ceil(np.array(lengths) * 1.25).astype(np.int64) + 1 for lengths in words)
    return EncodedPairs(_text(src, random), _text(tgt, random))


def _text(lengths: np.ndarray, random: np.random.Generator) -> EncodedText:
    splits = np.concatenate([[0], np.cumsum(lengths)])
    factors = random.integers(0, 4, (splits[-1], len(FACTOR_ROWS))).astype(np.int32)
    return EncodedText(random.integers(4, VOCAB, splits[-1]).astype(np.int32), splits, factors)


def _recipe(folder: str, updates: int, precision: str) -> Recipe:
    training = {
        "max_steps": updates, "max_batch_tokens": 2048, "eval_every": 10_000, "precision": precision,
        "schedule": "constant", "learning_rate": 1e-4, "warmup_steps": 0, "log_every": 10_000,
        "tensorboard": False,
    }  # fmt: skip
    sections = {"data": {"dir": "."}, "training": training, "infusion": {"kind": "sum_then_concat"}}
    return Recipe.model_validate({"output": folder, **sections, "model": SHAPE | {"attention_dropout": 0.0}})


def seconds_of_ours(pairs: EncodedPairs, updates: int, precision: str) -> float:
    """Train with our trainer; seconds of the updates after the warm-up."""
    config = SyntaxTransformerConfig(
        vocab_size=VOCAB,
        **SHAPE | {"attention_dropout": 0.0},
        infusion=plan_widths("sum_then_concat", SHAPE["d_model"], width=WIDTH).as_dict(),
        factor_sizes=FACTOR_ROWS,
        label_smoothing=0.1,
    )
    with tempfile.TemporaryDirectory() as folder:
        few = EncodedPairs(*(_first_pieces(side, 8) for side in (pairs.src, pairs.tgt)))
        trainer = SyntaxTrainer(SyntaxTransformer(config), _recipe(folder, updates, precision), pairs, few, 0)
        trainer.add_callback(clock := Clock(updates))
        trainer.train()
    return clock.seconds


def _first_pieces(text: EncodedText, n_pieces: int) -> EncodedText:
    return EncodedText(text.pieces[:n_pieces], np.array([0, n_pieces]), text.factors[:n_pieces])


def _bare(pairs: EncodedPairs, updates: int, precision: str) -> float:
    batches = list(map(TranslationCollator(pairs, 0), islice(_batches(pairs), updates)))
    model = BareTransformer(VOCAB, SHAPE, list(FACTOR_ROWS.values()), WIDTH)
    return seconds_per_run(model, batches, WARM_UP, precision)


def _batches(pairs: EncodedPairs) -> TokenBudgetBatches:
    return TokenBudgetBatches(pairs.src.lengths, pairs.tgt.lengths, 2048, seed=1)


def run(data: Path | None = None, rounds: int = 3, updates: int = 20) -> dict[str, Any]:
    """Target pieces a second of both, their ratio, and the share of padding."""
    pairs = pairs_like_multi30k(data)
    timed = list(islice(_batches(pairs), WARM_UP, updates))
    pieces = int(sum(pairs.tgt.lengths[rows].sum() for rows in timed))
    result: dict[str, Any] = {"threads": torch.get_num_threads(), "updates": updates - WARM_UP}
    for precision in dict.fromkeys(("fp32", pick_precision("auto"))):
        ratios, ours, bare = [], [], []
        for _ in range(rounds):
            ours.append(pieces / seconds_of_ours(pairs, updates, precision))
            bare.append(pieces / _bare(pairs, updates, precision))
            ratios.append(ours[-1] / bare[-1])
        result[precision] = {
            "ours_pieces_per_s": round(statistics.median(ours)),
            "bare_pieces_per_s": round(statistics.median(bare)),
            "ratio": round(statistics.median(ratios), 3),
            "ratios": [round(ratio, 3) for ratio in ratios],
        }
    lengths = (pairs.src.lengths, pairs.tgt.lengths)
    shares = [padding_share(side, iter(_batches(pairs))) for side in lengths]
    pieces_of = [int(side.sum()) for side in lengths]
    cells = [n / (1 - share) for n, share in zip(pieces_of, shares, strict=True)]
    result["padding_share"] = {
        "src": round(shares[0], 4),
        "tgt": round(shares[1], 4),
        "both": round(1 - sum(pieces_of) / sum(cells), 4),
    }
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=20)
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.data, arguments.rounds, arguments.updates), indent=1))
