"""`syntaxformer cost`: what syntax costs beside the plain model: parameters, time, memory, annotation."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import options


def cost(
    model: Annotated[
        str, Argument(help="Checkpoint (folder or name on the Hub), model folder, or recipe (a YAML file).")
    ],
    settings: options.SettingsArgument = None,
    infuse: Annotated[
        str, Option(help="What is put into a plain checkpoint: masks, lisa, pos_add, …, with commas.")
    ] = "none",
    pieces: Annotated[
        list[int] | None,
        Option(min=1, max=2**16, help="Length of a line, repeatable. Default: 32, 128, 512."),
    ] = None,
    rounds: Annotated[int, Option(min=1, help="Turns of each model; the median counts.")] = 3,
    annotator: Annotated[str | None, Option(help="Parser that is timed. Default: the model's.")] = None,
    as_json: options.JsonOption = False,
    device: options.DeviceOption = None,
) -> None:
    """Measure what syntax costs beside the plain model. Weights are random, since only shapes count.

    syntaxformer cost CHECKPOINT --infuse masks,lisa

    syntaxformer cost recipes/multi30k.yaml infusion.kind=sum_then_concat --pieces 16 --pieces 32
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its profiler writes to stderr
    import torch

    from syntaxformer.infusion import cost as costs
    from syntaxformer.infusion.config import InfusionConfig
    from syntaxformer.runs.loading import longest_input, pick_device
    from syntaxformer.runs.processes import pick_precision

    config, infusion, parser = _read(model, InfusionConfig.parse(infuse).fitted(), settings or [])
    place = pick_device(device and device.removesuffix(":bf16"))
    wanted = "fp32" if place.type == "cpu" and torch.cuda.is_available() else "auto"  # that of the card
    precision = "bf16" if str(device).endswith(":bf16") else pick_precision(wanted)
    plain, infused = (twin.to(place) for twin in costs.twins(config, infusion))
    budget, longest = 512 if place.type == "cpu" else 8192, longest_input(infused)
    rows = {n: max(1, budget // n) for n in pieces or [min(n, longest) for n in (32, 128, 512)]}
    if max(rows) > longest:
        raise ConfigError(f"--pieces: expected up to {longest}, the positions of {model}, got {max(rows)}.")
    given = rounds, torch.bfloat16 if precision == "bf16" else torch.float32
    pair, masks = {"plain": plain, "infused": infused}, costs.infusion_of(infused).masks
    on = torch.cuda.get_device_name(place) if place.type == "cuda" else f"threads: {torch.get_num_threads()}"
    report: dict[str, Any] = {
        "model": f"{model} ({config.model_type}); {place}, {on}, {precision}, median of {rounds} turns",
        "annotation": _annotation(infused, model, annotator, parser),
        "parameters": costs.parameter_counts(infused, plain),
        "lengths": {n: {"lines": m, **costs.compare(pair, m, n, *given)} for n, m in rows.items()},
        "attention_s": {n: costs.attention_seconds(infused, n, rounds) for n in rows if masks},
    }
    table = [report["model"], costs.parameter_report(infused, plain), *_table(report)]
    options.echo(json.dumps(report) if as_json else "\n".join(table))


def _read(model: str, infusion: Any, settings: list[str]) -> tuple[Any, Any, str | None]:
    """Config of the network, what is infused into it unless its config says it, and its annotator."""
    from transformers import AutoConfig

    from syntaxformer.base.files import fetched, read_json
    from syntaxformer.infusion.config import InfusionConfig
    from syntaxformer.runs.loading import checkpoint_errors, kind_of
    from syntaxformer.translation.checkpoint import stored_infusion

    if Path(model).suffix in (".yaml", ".yml"):
        config, stored, parser = _of_recipe(model, settings)
    elif settings or not (folder := fetched(model)).is_dir():
        expected = "a recipe before settings" if settings else "a folder, a name on the Hub or a recipe"
        raise ConfigError(f"model: expected {expected}, got {model}.")
    else:
        with checkpoint_errors(model):
            found: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        config, stored = getattr(found, "host", found), stored_infusion(str(folder)) or InfusionConfig()
        parser = read_json(folder / kind).get("annotator") if (kind := kind_of(folder)) else None
    own = "plug_in", "factor_sizes", "target_pos", "parse_task"
    says = not stored.is_plain or any(getattr(config, key, None) for key in own)
    if says != infusion.is_plain:
        wanted = "none, as the model says what is infused" if says else "what to put into the plain model"
        raise ConfigError(f"--infuse: expected {wanted}, got {'one' if says else 'none'}: {model}.")
    return config, stored if says else infusion, parser


def _of_recipe(path: str, settings: list[str]) -> tuple[Any, Any, str | None]:
    """As `_read`; pieces are not learned, only counted."""
    import torch
    from transformers import AutoConfig

    from syntaxformer.infusion.config import InfusionConfig
    from syntaxformer.syntax import FACTORS, build_vocabularies
    from syntaxformer.translation.recipe import load_recipe
    from syntaxformer.translation.source import SourceEncoder
    from syntaxformer.translation.training import build_model

    class Counted(list[int]):
        pad_token_id, bos_token_id, eos_token_id = range(3)

    recipe = load_recipe(path, settings, "command line")
    sizes, parser = recipe.subwords, recipe.annotation.annotator
    factors, unsized = [*recipe.width_plan().factor_widths], sizes.vocab_size is None and not recipe.is_hosted
    of_data = [f"factor {name}" for name in factors if not (name in FACTORS and FACTORS[name].values)]
    of_data += ["parse_task"] * bool(recipe.parse_task) + ["subwords.vocab_size"] * unsized
    if of_data:
        remedy = "Set subwords.vocab_size=N, or train" if of_data == ["subwords.vocab_size"] else "Train"
        wrong = f"expected sizes that need no data, got none for {', '.join(of_data)}"
        raise ConfigError(f"{path}: {wrong}. {remedy} first and give the model's folder.")
    vocabularies = build_vocabularies([], factors)
    if recipe.is_hosted:
        config: Any = AutoConfig.from_pretrained(recipe.start, trust_remote_code=False)
        return config, recipe.host_infusion(vocabularies), parser
    source, target = (Counted(range(n or sizes.vocab_size)) for n in (None, sizes.target_vocab_size))
    encoder: Any = SourceEncoder(source, vocabularies, own_target=None if sizes.joint else target)
    with torch.device("meta"):
        return build_model(recipe, encoder).config, InfusionConfig(), parser


def _annotation(model: Any, path: str, named: str | None, stored: str | None) -> dict[str, Any] | None:
    """Milliseconds of an annotator for a line of the demo's; None if nothing is read of it.

    Raises:
        CheckpointError: The model's folder names an annotator that may not be loaded.
    """
    from syntaxformer.annotate import prepare
    from syntaxformer.annotate.wrappers import trusted_annotator
    from syntaxformer.base.files import fetched
    from syntaxformer.demo.corpus import read_pairs
    from syntaxformer.encoders.classifier import needed_columns
    from syntaxformer.infusion.cost import infusion_of
    from syntaxformer.syntax import FACTORS

    factors = FACTORS.keys() & (getattr(model.config, "factor_sizes", None) or ())
    needed = needed_columns(infusion_of(model)).union(*(FACTORS[name].needs for name in factors))
    if not (needed or named):
        return None
    is_own = Path(path).suffix in (".yaml", ".yml")  # a recipe
    name = stored if is_own else trusted_annotator(stored, named, fetched(path))
    parser = prepare(named or name or "en", needs=needed)
    lines = [pair[parser.name.startswith("de")] for pair in read_pairs()["valid"]]
    parser.annotate(lines[:64])
    start = time.perf_counter()
    sentences = parser.annotate(lines)
    ms = 1000 * (time.perf_counter() - start) / len(lines)
    return {"annotator": parser.name, "ms_a_line": ms, "words_a_line": sum(map(len, sentences)) / len(lines)}


_ROWS = {"step_s": "training step, ms", "use_s": "forward pass, ms", "peak_mib": "peak, MiB"}
_COMPLEXITY = {
    "plain": ("plain attention", "O(D N²)"),
    "by_masks": ("M masked attentions, one by one", "O(M D N²)"),
    "at_once": ("the same in one pass, as it is done here", "none"),
}


def _table(report: dict[str, Any]) -> Iterator[str]:
    yield f"\n{'lines × pieces':17}{'':20}{'plain':>10}{'infused':>10}{'times':>7}"
    for n_pieces, found in report["lengths"].items():
        for key, title in _ROWS.items():
            plain, infused = (
                (value or math.nan) * 1000 ** key.endswith("_s") for value in found[key].values()
            )
            times = f"{plain:>10,.1f}{infused:>10,.1f}{infused / plain:>7.2f}"
            yield f"{found['lines']:>5} × {n_pieces:<9}{title:20}{times}"
    if found := report["annotation"]:
        about = f"{found['ms_a_line']:.2f} ms a line of {found['words_a_line']:.1f} words"
        yield f"\nannotation by {found['annotator']}: {about}"
    if times := report["attention_s"]:
        yield "\nBai et al. (2021), section 5.1: one line of N pieces in one layer, ms"
        yield f"{'N':42}{'paper':10}" + "".join(f"{n:>11}" for n in times)
        for key, (title, order) in _COMPLEXITY.items():
            yield f"{title:42}{order:10}" + "".join(f"{1000 * one[key]:>11.3f}" for one in times.values())
