"""What an infusion costs: parameters, time and memory of a model beside the plain model of the same shape.

Only shapes count: networks have random weights, and batches random pieces and random trees. It needs torch,
transformers and pydantic alone, so a machine that has an accelerator and little else can run it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, PreTrainedModel

from syntaxformer.base.errors import ConfigError
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.infusion import infusion_parameters
from syntaxformer.infusion.plug_in import infuse
from syntaxformer.syntax import TreeOptions, batch_dependency_relations

PARTS = {
    "topical": ("topical attention", "Bai et al. (2021), BERT-base: 1.0 million"),
    "gates": ("gates", "ours"),
    "relation_bias": ("relation bias", "ours"),
    "lisa": ("LISA", "Bai et al. (2021), BERT-base, all layers: 0.6 million"),
    "embedding": ("factor embedding", "Sundararaman et al. (2019) and Patricia et al. (2023)"),
    "task": ("target tags and parses", "ours"),
}
_OF_SYNTAX = ("infusion", "factor_sizes", "lisa", "masks", "relation_bias", "target_pos", "parse_task")
"""Keys of the config of our translator."""
_TASKS = {"target_tags": ("target_pos", "tags", 1), "parse": ("parse_task", "labels", 2)}
"""What only training reads: key of the config, its values, how many a piece (of `en`: 2.9 labels a word)."""


def parameter_counts(model: PreTrainedModel, plain: PreTrainedModel | None = None) -> dict[str, int]:
    """Count the parameters by purpose; those of the infusion, or all that `plain` has not, count as added.

    Raises:
        ConfigError: The model is not infused.
    """
    added = infusion_parameters(model) if plain is None or model.infusion is not None else []
    tasks = "target_tagger.", "parse_labels."
    added += [
        (f"infusion.task.{key}", parameter)
        for key, parameter in model.named_parameters()
        if key.startswith(tasks)
    ]
    n_all, n_added = _count(model.parameters()), _count(parameter for _, parameter in added)
    n_plain = n_all - n_added if plain is None else _count(plain.parameters())
    counts = {"backbone": n_plain}
    for key, (title, _) in PARTS.items():
        counts[title] = _count(parameter for name, parameter in added if f"infusion.{key}." in name)
    counts |= {"source words and factors": n_all - n_plain - n_added, "added in all": n_all - n_plain}
    return {title: count for title, count in counts.items() if count}


def parameter_report(model: PreTrainedModel, plain: PreTrainedModel | None = None) -> str:
    """Count the parameters as `parameter_counts` does, one line each, beside the papers' numbers.

    Raises:
        ConfigError: The model is not infused.
    """
    (title, n_plain), *counts = parameter_counts(model, plain).items()
    beside = dict(PARTS.values()) | {"added in all": f"{counts[-1][1] / n_plain:.2%} of the backbone"}
    lines = [f"{title:26}{count:>+13,}   ({beside.get(title, 'ours')})" for title, count in counts]
    return "\n".join([f"{title:26}{n_plain:>13,}", *lines])


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def infusion_of(model: PreTrainedModel) -> InfusionConfig:
    """What is put inside a model's encoder; nothing for a plain one."""
    infusion = getattr(model, "infusion", None)
    return InfusionConfig() if infusion is None else infusion.config


def twins(config: Any, infusion: InfusionConfig) -> tuple[PreTrainedModel, PreTrainedModel]:
    """Make a plain network and an infused one of a config, in fp32 with random weights.

    The config of our translator may say itself what is infused; `infusion` then is empty.

    Raises:
        ConfigError: The model is not supported or cannot be infused so.
    """
    auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForSequenceClassification
    if type(config) not in auto._model_mapping:
        raise ConfigError(f"model: expected a supported encoder, got one of the kind {config.model_type!r}.")
    plain, infused = deepcopy(config), deepcopy(config)
    if config.model_type == "syntaxformer":
        plain.update(dict.fromkeys(_OF_SYNTAX))
    elif not config.is_encoder_decoder:
        plain.num_labels = infused.num_labels = 2
        plain.problem_type = infused.problem_type = "single_label_classification"
    torch.manual_seed(0)
    models = [auto.from_config(of_twin, dtype=torch.float32) for of_twin in (plain, infused)]
    return models[0], models[1] if infusion.is_plain else infuse(models[1], infusion)


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
