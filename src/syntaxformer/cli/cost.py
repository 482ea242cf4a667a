"""`syntaxformer cost`: the parameters that syntax adds to a plain model."""

from __future__ import annotations

import json
from typing import Annotated, Any

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import options


def cost(
    model: Annotated[str, Argument(help="Checkpoint (folder or name on the Hub), or model folder.")],
    infuse: Annotated[
        str, Option(help="What is put into a plain checkpoint: masks, lisa, pos_add, …, with commas.")
    ] = "none",
    as_json: options.JsonOption = False,
) -> None:
    """Count the parameters of what is infused, beside those that the papers give. No weights are read.

    syntaxformer cost CHECKPOINT --infuse masks,lisa
    """
    from syntaxformer.infusion import cost as costs
    from syntaxformer.infusion.config import InfusionConfig

    plain, infused = costs.twins(*_read(model, InfusionConfig.parse(infuse).fitted()))
    if as_json:
        options.echo(json.dumps({"model": model, "parameters": costs.parameter_counts(infused, plain)}))
    else:
        options.echo(costs.parameter_report(infused, plain))


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
        if says:
            problem = "none, as the model says what is infused, got one"
        else:
            problem = "what to put into the plain model, got none"
        raise ConfigError(f"--infuse: expected {problem}: {model}.")
    return config, stored if says else infusion
