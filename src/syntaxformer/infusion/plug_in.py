"""`infuse`: put syntax into a pretrained encoder in place.

The model stays the object that it was, with its own parameter names; all that is new is one module,
`model.infusion`, and classes of ours in front of the model's own (`hosts`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from syntaxformer.base.errors import ConfigError
from syntaxformer.infusion.config import InfusionConfig, layer_problems
from syntaxformer.infusion.families import OWN, Family, Parts, parts_of
from syntaxformer.infusion.hosts import IMPLEMENTATION, InfusedEncoder, InfusedModel, place, take_over
from syntaxformer.infusion.infusion import Infusion

__all__ = ["infuse", "infusion_parameters", "parameter_report"]

_GROUPS = {
    "topical": ("topical attention", "paper 002, BERT-base: 1.0 million"),
    "gates": ("gates", "ours"),
    "relation_bias": ("relation bias", "ours"),
    "lisa": ("LISA", "paper 002, BERT-base, all layers: 0.6 million"),
    "pos": ("part-of-speech embedding", "papers 000 and 003"),
}


def infuse(
    model: PreTrainedModel, config: InfusionConfig | str, family: Family | None = None
) -> PreTrainedModel:
    """Infuse an encoder with syntax.

    Its `forward` then takes, as the config needs, `syntax` (uint8 `[batch, trees, pieces, pieces]`),
    `pos_ids` and `governors` (int64 `[batch, pieces]`), as `SyntaxCollator` makes them. With the preset
    "preserving" it computes what it did before, until it is trained. New parameters are fp32, also in a model
    of bf16 or fp16, where small steps from 1 would be lost. The model gets a copy of its config: others that
    hold the same one stay as they are.

    Args:
        model: One of the table of families, `families.FAMILIES`, with any head or none, or of `family`; or
            PEFT's model around one, whose active adapter then trains and saves the infusion.
        config: What to infuse; or its shorthand, "masks,pos_add".
        family: Where the parts of another kind of model are, one that calls transformers' attention
            interface. Folders of the model hold it.

    Returns:
        The same object.

    Raises:
        ConfigError: A model of another kind, an infused one, layers, heads or parts that it has not, `pos` in
            our own translator, or `pos="let"` without a head that takes the final vector of the sentence.

    Source: Bai et al. (2021), "Syntax-BERT"; Sundararaman et al. (2019); Strubell et al. (2018).
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    if getattr(inner, "infusion", None) is not None:
        raise ConfigError(
            f"model: expected one that is not infused, got {type(inner).__name__} with an infusion. "
            "Load the plain checkpoint again."
        )
    config = InfusionConfig.of(config)
    parts = parts_of(inner, family)
    _check(config, parts, type(inner).__name__)
    if parts.family == OWN:
        return _infuse_own(inner, config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        infusion = Infusion(config, parts)
    weight = parts.stack.get_input_embeddings().weight
    exact = torch.promote_types(weight.dtype, torch.float32)
    inner.infusion = infusion.to(weight.device, exact).train(inner.training)
    inner._keep_in_fp32_modules_strict = {*(inner._keep_in_fp32_modules_strict or ()), "infusion"}
    _own_config(inner, parts)
    if infusion.attends:
        parts.stack.config._attn_implementation = IMPLEMENTATION
    parts.stack.syntax_root = (inner,)
    take_over(parts.stack, InfusedEncoder)
    take_over(inner, InfusedModel)
    place(inner, parts)
    if inner is not model:
        _train_with_adapter(model, inner)
    return model


def infusion_parameters(model: PreTrainedModel) -> list[tuple[str, nn.Parameter]]:
    """The new parameters with their names, for a learning rate of their own.

    Raises:
        ConfigError: A plain model.
    """
    infusion = getattr(model, "infusion", None)
    if not isinstance(infusion, nn.Module):
        raise ConfigError(f"model: expected an infused one, got a plain {type(model).__name__}. Call infuse.")
    prefix = next((name for name, module in model.named_modules() if module is infusion), "infusion")
    return [(f"{prefix}.{name}", parameter) for name, parameter in infusion.named_parameters()]


def parameter_report(model: PreTrainedModel) -> str:
    """Count parameters by what they are for, with the papers' numbers beside them, one line each.

    Raises:
        ConfigError: A plain model.
    """
    added = infusion_parameters(model)
    names = {name for name, _ in added}
    backbone = _count(parameter for name, parameter in model.named_parameters() if name not in names)
    lines = [f"{'backbone':26}{backbone:>13,}"]
    for group, (title, beside) in _GROUPS.items():
        count = _count(parameter for name, parameter in added if f"infusion.{group}." in name)
        if count:
            lines.append(f"{title:26}{count:>+13,}   ({beside})")
    total = _count(parameter for _, parameter in added)
    lines.append(f"{'added in all':26}{total:>+13,}   ({total / backbone:.2%} of the backbone)")
    return "\n".join(lines)


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _check(config: InfusionConfig, parts: Parts, name: str) -> None:
    """All problems between a config and a model at once."""
    problems = layer_problems(config, len(parts.layers), parts.n_heads, name)
    if config.pos is not None and parts.family == OWN:
        problems.append(
            f"pos: expected none in {name}, got {config.pos}. Its tags are factors of the source: see "
            "infusion.kind of a recipe."
        )
    elif config.pos == "let" and parts.final is None:
        problems.append(
            f"pos: expected a model with a head that takes the sentence's final vector for let, got {name}. "
            "Use a ForSequenceClassification model, or add or concat."
        )
    if problems:
        raise ConfigError(problems)


def _infuse_own(model: Any, config: InfusionConfig) -> PreTrainedModel:
    """Our own translator: its config says what is infused, its layers call the plug-in themselves."""
    for name in ("masks", "relation_bias", "lisa"):
        section = getattr(config, name)
        setattr(model.config, name, None if section is None else section.model_dump(mode="json"))
    weight, encoder = model.get_input_embeddings().weight, model.encoder
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        encoder.infuse(config)
    encoder.infusion.to(weight.device, weight.dtype).train(model.training)
    return model


def _own_config(model: PreTrainedModel, parts: Parts) -> None:
    """Give the model a copy of its config, and an encoder beside a decoder one of its own."""
    of_stack: dict[int, Any] = {}
    of_model = {} if model.config.is_encoder_decoder else of_stack
    done: set[int] = set()
    for module, copies in [(one, of_stack) for one in parts.stack.modules()] + [
        (one, of_model) for one in model.modules()
    ]:
        config = getattr(module, "config", None)
        if isinstance(config, PreTrainedConfig) and id(config) not in done:
            if id(config) not in copies:
                copies[id(config)] = copy.deepcopy(config)
                done.add(id(copies[id(config)]))
            module.config = copies[id(config)]


def _train_with_adapter(peft_model: Any, inner: PreTrainedModel) -> None:
    """Have PEFT's active adapter train and save the infusion, as `modules_to_save` does from the start."""
    from peft.utils import ModulesToSaveWrapper

    name = peft_model.active_adapter
    adapter = peft_model.peft_config[name]
    adapter.modules_to_save = [*(adapter.modules_to_save or ()), "infusion"]
    inner.infusion = ModulesToSaveWrapper(inner.infusion, name)
    inner.infusion.set_adapter(name)
