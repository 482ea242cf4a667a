#!/usr/bin/env bash
# One process, two, two with shards, and two that one goes on from: 200 updates on digit reversal, fp32, no dropout; how far
# losses and weights differ. About three minutes on two cores. With --device cuda each process takes a GPU of its own (NCCL),
# which was not yet tried.
#
#   scripts/two_processes.sh [--device cpu|cuda] [WIDTH] [FEED_FORWARD]
set -euo pipefail
DEVICE=cpu
if [ "${1:-}" = --device ]; then
  DEVICE=${2:?--device: expected cpu or cuda, got nothing.}
  shift 2
fi
case $DEVICE in
  cpu) export CUDA_VISIBLE_DEVICES="" ;;
  cuda)
    python - << 'PYTHON'
import sys

import torch

if (found := torch.cuda.device_count()) < 2:
    sys.exit(f"error: --device: expected cuda where two GPUs are, one for each process, got {found}. Use --device cpu.")
PYTHON
    ;;
  *)
    echo "error: --device: expected cpu or cuda, got $DEVICE." >&2
    exit 2
    ;;
esac
WIDTH=${1:-64}
FEED_FORWARD=${2:-128}
export OMP_NUM_THREADS=1 SYNTAXFORMER_CACHE=runs/two_processes/cache
mkdir -p runs/two_processes/data

PYTHONPATH=tests${PYTHONPATH:+:$PYTHONPATH} python - << 'PYTHON'
from pathlib import Path

from digit_pairs import digit_pairs

pairs = digit_pairs(2304, seed=1, min_digits=3, max_digits=6)
for name, part in {"train": pairs[:2203], "dev": pairs[2203:]}.items():
    folder = Path("runs/two_processes/data")
    (folder / f"{name}.en").write_text("".join(f"{pair.source}\n" for pair in part))
    (folder / f"{name}.de").write_text("".join(f"{pair.target}\n" for pair in part))
PYTHON

train() { # NAME PROCESSES SETTING...
  local name=$1 processes=$2
  shift 2
  python -m torch.distributed.run --standalone --nproc-per-node="$processes" -m syntaxformer.cli.main --quiet train tiny \
    data.dir=runs/two_processes/data data.dev=dev subwords.vocab_size=301 infusion.kind=sum_then_concat infusion.width=8 \
    model.d_model="$WIDTH" model.d_ff="$FEED_FORWARD" model.n_heads=2 model.dropout=0 training.max_batch_tokens=211 \
    training.accumulate=2 training.max_steps=200 training.eval_every=50 training.log_every=1 training.precision=fp32 \
    training.tensorboard=false output="runs/two_processes/$name" "$@"
}
train one 1 --overwrite
train two 2 --overwrite
train shards 2 --overwrite training.sharded=true
train two_then_one 2 --overwrite training.max_steps=100
train two_then_one 1 --resume

python - << 'PYTHON'
import json
from pathlib import Path

import torch
from safetensors.torch import load_file

folder = Path("runs/two_processes")


def losses(name: str) -> torch.Tensor:
    state = json.loads((folder / name / "checkpoints" / "checkpoint-200" / "trainer_state.json").read_text())
    return torch.tensor([entry["loss"] for entry in state["log_history"] if "loss" in entry], dtype=torch.float64)


one, weights = losses("one"), load_file(folder / "one" / "model.safetensors")
for name in ("two", "shards", "two_then_one"):
    apart = (losses(name) - one).abs()
    others = load_file(folder / name / "model.safetensors")
    same = sum(torch.equal(others[key], weights[key]) for key in weights)
    print(f"{name}: {len(apart)} losses, apart by at most {apart.max():.1e} (update {int(apart.argmax()) + 1}); "
          f"{same} of {len(weights)} weights equal bit for bit")
PYTHON
