"""Time and memory of an infused network beside the plain one of the same shape, on this machine.

    python benchmarks/infusion_cost.py CHECKPOINT --infuse masks,lisa [--pieces 32 128 512]

Only shapes count: networks have random weights, and batches random pieces and random trees. It needs torch,
transformers and pydantic alone, so a machine that has an accelerator and little else can run it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel

from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.cost import parameter_report, twins
from syntaxformer.syntax import TreeOptions, batch_dependency_relations

_TASKS = {"target_tags": ("target_pos", "tags", 1), "parse": ("parse_task", "labels", 2)}
"""What only training reads: key of the config, its values, how many a piece (of `en`: 2.9 labels a word)."""


def infusion_of(model: PreTrainedModel) -> InfusionConfig:
    """What is put inside a model's encoder; nothing for a plain one."""
    infusion = getattr(model, "infusion", None)
    return InfusionConfig() if infusion is None else infusion.config


def random_relations(n_rows: int, n_pieces: int, options: TreeOptions) -> Tensor:
    """Relations of random trees over words of one piece each, uint8 `[rows, trees, pieces, pieces]`."""
    n_trees, places = len(options.planes), np.arange(n_pieces)
    size = n_rows * n_trees, n_pieces
    governors = np.random.default_rng(0).integers(np.maximum(0, places - 9), np.maximum(1, places), size)
    governors[:, 0] = -1
    relations = batch_dependency_relations(governors, np.full(len(governors), n_pieces), options.max_distance)
    return torch.from_numpy(relations.reshape(n_rows, n_trees, n_pieces, n_pieces))


def random_batch(model: PreTrainedModel, n_rows: int, n_pieces: int) -> dict[str, Tensor]:
    """Labelled inputs of a model without padding, with the syntax that it reads, on its device."""
    config, section, numbers = model.config, infusion_of(model), torch.Generator().manual_seed(1)

    def draw(high: int, *shape: int) -> Tensor:
        return torch.randint(high, (n_rows, *shape), generator=numbers)

    labels = draw(config.vocab_size, n_pieces) if config.is_encoder_decoder else draw(2)
    sizes = [len(vocabulary) for vocabulary in section.vocabularies.values()]
    if factor_sizes := getattr(config, "factor_sizes", None):  # a file has them by name, in another order
        sizes += [factor_sizes[name] for name in config.width_plan.factor_widths]
    if (getattr(config, "infusion", None) or {}).get("kind") == "prepend":  # tags are pieces
        n_pieces, sizes = n_pieces * (1 + len(sizes)), []
    pieces = draw(getattr(config, "source_vocab_size", None) or config.vocab_size, n_pieces)
    pieces[pieces == config.pad_token_id] += 1 if config.pad_token_id == 0 else -1
    batch = {"input_ids": pieces, "labels": labels}
    for name, (key, values, n_each) in _TASKS.items():
        if task := getattr(config, key, None):
            batch[name] = draw(len(task[values]), n_each * labels.shape[-1])
    if sizes:
        batch["factor_ids"] = torch.stack([draw(size, n_pieces) for size in sizes], -1)
    if section.tree_options is not None:
        batch["syntax"] = random_relations(n_rows, n_pieces, section.tree_options)
    if section.lisa is not None and section.lisa.supervised:
        batch["governors"] = draw(n_pieces, n_pieces)
        batch["first_pieces"] = torch.ones(n_rows, n_pieces, dtype=torch.bool)
    return {name: tensor.to(model.device) for name, tensor in batch.items()}


class Work:
    """Training with AdamW and use of a model on one batch, with products in `dtype`."""

    def __init__(self, model: PreTrainedModel, batch: dict[str, Tensor], dtype: torch.dtype) -> None:
        self.model, self.batch, self.dtype = model, batch, dtype
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def forward(self) -> Any:
        """The output."""
        inputs = {
            name: tensor for name, tensor in self.batch.items() if self.model.training or name not in _TASKS
        }
        with torch.autocast(self.model.device.type, self.dtype, enabled=self.dtype != torch.float32):
            return self.model(**inputs)

    def step(self) -> Tensor:
        """A training step; its loss."""
        self.model.train()
        loss = self.forward().loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    @torch.no_grad()
    def use(self) -> Any:
        """A forward pass in use."""
        self.model.eval()
        return self.forward()

    def peak_mib(self) -> float | None:
        """MiB of weights, optimizer and what a step adds at its height; None where it cannot be measured."""
        states = [tensor for state in self.optimizer.state.values() for tensor in state.values()]
        held = sum(tensor.nbytes for tensor in (*self.model.parameters(), *self.model.buffers(), *states))
        grown = _peak_bytes(self.step, self.model.device)
        return None if grown is None else (held + grown) / 2**20


def _peak_bytes(work: Callable[[], Any], device: torch.device) -> int | None:
    """Bytes by which tensors grow during some work, at their height."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - before
    if device.type != "cpu":
        return None
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else it writes of itself to stderr
    with torch.autograd.profiler.profile(use_cpu=True, profile_memory=True) as profile:
        work()
    events = [event for event in profile.kineto_results.events() if event.name() == "[memory]"]
    return max(
        accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())), default=0
    )


def medians(works: Mapping[str, Callable[[], Any]], device: torch.device, rounds: int) -> dict[str, float]:
    """Median seconds of each; they take turns, after one turn to warm up.

    On a processor with one thread it is processor time, which other work does not change.
    """
    is_alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if is_alone else time.perf_counter
    wait = partial(torch.accelerator.synchronize, device) if device.type != "cpu" else lambda: None
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for name, work in list(works.items()) * (rounds + 1):
        wait()
        start = clock()
        work()
        wait()
        seconds[name].append(clock() - start)
    return {name: statistics.median(taken[1:]) for name, taken in seconds.items()}


def compare(
    models: Mapping[str, PreTrainedModel], n_rows: int, n_pieces: int, rounds: int, dtype: torch.dtype
) -> dict[str, Mapping[str, float | None]]:
    """Measure models on batches of `n_rows` lines of `n_pieces` pieces, with products in `dtype`.

    Returns:
        `step_s`, `use_s` and `peak_mib`, each with the value of every model.
    """
    works = {
        name: Work(model, random_batch(model, n_rows, n_pieces), dtype) for name, model in models.items()
    }
    device = next(iter(models.values())).device
    return {
        "step_s": medians({name: work.step for name, work in works.items()}, device, rounds),
        "use_s": medians({name: work.use for name, work in works.items()}, device, rounds),
        "peak_mib": {name: work.peak_mib() for name, work in works.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", help="a folder, or a name on the Hub")
    parser.add_argument("--infuse", required=True, help="masks, lisa, pos_add, ..., with commas")
    parser.add_argument("--pieces", type=int, nargs="+", default=[32, 128, 512], help="lengths of a line")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each model; the median counts")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--precision", choices=("fp32", "bf16"), default="fp32", help="of products; weights are fp32"
    )
    options = parser.parse_args()
    config = AutoConfig.from_pretrained(options.checkpoint, trust_remote_code=False)
    pair = twins(config, InfusionConfig.parse(options.infuse).fitted())
    print(parameter_report(pair[1], pair[0]))
    models = {name: model.to(options.device) for name, model in zip(("plain", "infused"), pair, strict=True)}
    print(f"\n{'lines x pieces':17}{'':20}{'plain':>10}{'infused':>10}{'times':>7}")
    for n_pieces in options.pieces:
        n_rows = max(1, (512 if options.device == "cpu" else 8192) // n_pieces)
        dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
        measured = compare(models, n_rows, n_pieces, options.rounds, dtype)
        for key, title in ROWS.items():
            plain, infused = (
                (value or float("nan")) * 1000 ** key.endswith("_s") for value in measured[key].values()
            )
            row = f"{plain:>10,.1f}{infused:>10,.1f}{infused / plain:>7.2f}"
            print(f"{n_rows:>5} x {n_pieces:<9}{title:20}{row}")


ROWS = {"step_s": "training step, ms", "use_s": "forward pass, ms", "peak_mib": "peak, MiB"}

if __name__ == "__main__":
    main()
