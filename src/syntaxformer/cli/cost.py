"""`syntaxformer cost`: what syntax costs beside the plain model: parameters, time, memory."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Annotated, Any

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import options


def cost(
    model: Annotated[str, Argument(help="Checkpoint (folder or name on the Hub), or model folder.")],
    infuse: Annotated[
        str, Option(help="What is put into a plain checkpoint: masks, lisa, pos_add, …, with commas.")
    ] = "none",
    pieces: Annotated[
        list[int] | None,
        Option(min=1, max=2**16, help="Length of a line, repeatable. Default: 32, 128, 512."),
    ] = None,
    rounds: Annotated[int, Option(min=1, help="Turns of each model; the median counts.")] = 3,
    as_json: options.JsonOption = False,
    device: options.DeviceOption = None,
) -> None:
    """Measure what syntax costs beside the plain model. Weights are random, since only shapes count.

    syntaxformer cost CHECKPOINT --infuse masks,lisa

    syntaxformer cost runs/sit --pieces 16 --pieces 32
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its profiler writes to stderr
    import torch

    from syntaxformer.infusion import cost as costs
    from syntaxformer.infusion.config import InfusionConfig
    from syntaxformer.runs.loading import longest_input, pick_device
    from syntaxformer.runs.processes import pick_precision

    config, infusion = _read(model, InfusionConfig.parse(infuse).fitted())
    processor = pick_device(device and device.removesuffix(":bf16"))
    choice = "fp32" if processor.type == "cpu" and torch.cuda.is_available() else "auto"  # that of the card
    precision = "bf16" if str(device).endswith(":bf16") else pick_precision(choice)
    plain, infused = (twin.to(processor) for twin in costs.twins(config, infusion))
    budget, longest = 512 if processor.type == "cpu" else 8192, longest_input(infused)
    rows = {n: max(1, budget // n) for n in pieces or [min(n, longest) for n in (32, 128, 512)]}
    if max(rows) > longest:
        raise ConfigError(f"--pieces: expected up to {longest}, the positions of {model}, got {max(rows)}.")
    settings = rounds, torch.bfloat16 if precision == "bf16" else torch.float32
    pair = {"plain": plain, "infused": infused}
    on = (
        torch.cuda.get_device_name(processor)
        if processor.type == "cuda"
        else f"threads: {torch.get_num_threads()}"
    )
    report: dict[str, Any] = {
        "model": f"{model} ({config.model_type}); {processor}, {on}, {precision}, median of {rounds} turns",
        "parameters": costs.parameter_counts(infused, plain),
        "lengths": {n: {"lines": m, **costs.compare(pair, m, n, *settings)} for n, m in rows.items()},
    }
    table = [report["model"], costs.parameter_report(infused, plain), *_table(report)]
    options.echo(json.dumps(report) if as_json else "\n".join(table))


def _read(model: str, infusion: Any) -> tuple[Any, Any]:
    """Config of the network, and what is infused into it unless its config says it."""
    from transformers import AutoConfig

    from syntaxformer.base.files import fetched
    from syntaxformer.infusion.config import InfusionConfig
    from syntaxformer.runs.loading import checkpoint_errors
    from syntaxformer.translation.checkpoint import stored_infusion

    if not (folder := fetched(model)).is_dir():
        remedy = " Of a recipe, give the folder that `train` wrote." * model.endswith((".yaml", ".yml"))
        raise ConfigError(f"model: expected a folder or a name on the Hub, got {model}.{remedy}")
    with checkpoint_errors(model):
        config: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    config, stored = getattr(config, "host", config), stored_infusion(str(folder)) or InfusionConfig()
    syntax_keys = "plug_in", "factor_sizes", "target_pos", "parse_task"
    says = not stored.is_plain or any(getattr(config, key, None) for key in syntax_keys)
    if says != infusion.is_plain:
        requirement = (
            "none, as the model says what is infused" if says else "what to put into the plain model"
        )
        raise ConfigError(f"--infuse: expected {requirement}, got {'one' if says else 'none'}: {model}.")
    return config, stored if says else infusion


_ROWS = {"step_s": "training step, ms", "use_s": "forward pass, ms", "peak_mib": "peak, MiB"}


def _table(report: dict[str, Any]) -> Iterator[str]:
    yield f"\n{'lines × pieces':17}{'':20}{'plain':>10}{'infused':>10}{'times':>7}"
    for n_pieces, measurements in report["lengths"].items():
        for key, title in _ROWS.items():
            plain, infused = (
                (value or math.nan) * 1000 ** key.endswith("_s") for value in measurements[key].values()
            )
            times = f"{plain:>10,.1f}{infused:>10,.1f}{infused / plain:>7.2f}"
            yield f"{measurements['lines']:>5} × {n_pieces:<9}{title:20}{times}"
