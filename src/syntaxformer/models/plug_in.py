"""`infuse`: put syntax into a pretrained encoder in place; `load` and `save_pretrained` for the result.

The model stays the object that it was, of its own class, with its own parameter names; all that is new is one
module, `model.infusion`.
"""

from __future__ import annotations

import inspect
import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel
from transformers.utils import GENERATION_CONFIG_NAME

from syntaxformer.errors import CheckpointError, ConfigError
from syntaxformer.folders import read_json
from syntaxformer.infusion_config import InfusionConfig
from syntaxformer.models.families import Parts, parts_of
from syntaxformer.models.infused_attention import IMPLEMENTATION, FoldedLinear, Place
from syntaxformer.models.infusion import BATCH_KEYS, Infusion

__all__ = ["INFUSION_FILE", "infuse", "infusion_parameters", "load"]

INFUSION_FILE = "infusion.json"
"""Beside `config.json` in a model folder."""

_PREFIX = "infusion."


def infuse(model: PreTrainedModel, config: InfusionConfig | str) -> PreTrainedModel:
    """Infuse an encoder with syntax.

    Its `forward` then takes, as the config needs, `syntax` (uint8 `[batch, trees, pieces, pieces]`),
    `pos_ids` and `governors` (int64 `[batch, pieces]`), as `SyntaxCollator` makes them. With the preset
    "preserving" it computes what it did before, until it is trained.

    Args:
        model: BERT, RoBERTa, XLM-R, ELECTRA, DistilBERT, ALBERT, ModernBERT or T5 (its encoder), with any
            head or none.
        config: What to infuse; or its shorthand, "masks,pos_add".

    Returns:
        The same object.

    Raises:
        ConfigError: A model of another kind, an infused one, layers or heads that it has not, or `pos="let"`
            without a head that takes the final vector of the sentence.

    Source: Bai et al. (2021), "Syntax-BERT"; Sundararaman et al. (2019); Strubell et al. (2018).
    """
    if hasattr(model, "infusion"):
        raise ConfigError(
            f"model: expected one that is not infused, got {type(model).__name__} with an infusion. "
            "Load the plain checkpoint again."
        )
    config = InfusionConfig.of(config)
    parts = parts_of(model)
    n_heads = parts.stack.config.num_attention_heads
    _check(config, parts, n_heads, type(model).__name__)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        infusion = Infusion(config, parts, n_heads)
    weight = parts.output(0).weight
    model.infusion = infusion.to(weight.device, weight.dtype).train(model.training)
    _place(model, infusion, parts)
    _hook(model, infusion, parts)
    model.save_pretrained = partial(_save, model)
    if hasattr(model, "_validate_model_kwargs"):
        model._validate_model_kwargs = partial(_validate_generation, model)
    return model


def infusion_parameters(model: PreTrainedModel) -> list[tuple[str, nn.Parameter]]:
    """The new parameters with their names, for a learning rate of their own."""
    return [(_PREFIX + name, parameter) for name, parameter in _infusion_of(model).named_parameters()]


def load(folder: str | Path) -> PreTrainedModel:
    """Load what an infused model's `save_pretrained` wrote.

    Raises:
        CheckpointError: Not such a folder, or its weights do not fit its config.
    """
    folder = Path(folder)
    stored = read_json(folder / INFUSION_FILE)
    model_class = getattr(transformers, str(stored.get("architecture")), None)
    if not (isinstance(model_class, type) and issubclass(model_class, PreTrainedModel)):
        raise CheckpointError(
            f"{folder / INFUSION_FILE}: expected the name of a transformers model as architecture, got "
            f"{stored.get('architecture')!r}. The folder was altered or written by another version."
        )
    try:
        config = InfusionConfig.from_json(stored.get("infusion"), str(folder / INFUSION_FILE))
    except ConfigError as error:
        raise CheckpointError(str(error)) from error
    weights = _read_weights(folder)
    ours = {
        name.removeprefix(_PREFIX): weights.pop(name) for name in list(weights) if name.startswith(_PREFIX)
    }
    model = infuse(_backbone(model_class, weights, folder), config)
    _fill(model.infusion, ours, folder)
    return model


def _backbone(
    model_class: type[PreTrainedModel], weights: dict[str, Tensor], folder: Path
) -> PreTrainedModel:
    """The plain model; every parameter must be there, since a random one would go unnoticed."""
    options: dict[str, Any] = {
        "config": model_class.config_class.from_pretrained(folder),
        "state_dict": weights,
    }
    poolable = "add_pooling_layer" in inspect.signature(model_class.__init__).parameters
    if poolable and not any(name.startswith("pooler.") for name in weights):
        options["add_pooling_layer"] = False
    try:
        loaded: Any = model_class.from_pretrained(None, output_loading_info=True, **options)
    except RuntimeError as error:
        raise CheckpointError(
            f"{folder}: expected weights that fit config.json, got: {_short(error)}"
        ) from error
    model, found = loaded
    odd = sorted({*found["missing_keys"], *found["unexpected_keys"]})
    if odd:
        raise CheckpointError(
            f"{folder}: expected exactly the parameters of {model_class.__name__}, differing: "
            f"{', '.join(odd[:3])}. The folder was altered."
        )
    if model.can_generate() and (folder / GENERATION_CONFIG_NAME).is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    return model


def _infusion_of(model: PreTrainedModel) -> Infusion:
    infusion = getattr(model, "infusion", None)
    if not isinstance(infusion, Infusion):
        raise ConfigError(f"model: expected an infused one, got a plain {type(model).__name__}. Call infuse.")
    return infusion


def _check(config: InfusionConfig, parts: Parts, n_heads: int, name: str) -> None:
    """All problems between a config and a model at once."""
    n_layers, problems = len(parts.layers), []
    for section in ("masks", "relation_bias", "lisa"):
        layers = getattr(getattr(config, section), "layers", None)
        wrong = [layer for layer in layers or () if not 0 <= layer < n_layers]
        if wrong or layers == ():
            found = ", ".join(map(str, wrong)) or "none"
            problems.append(f"{section}.layers: expected layers 0 to {n_layers - 1} of {name}, got {found}.")
    if config.lisa and config.lisa.attn_head >= n_heads:
        problems.append(
            f"lisa.attn_head: expected 0 to {n_heads - 1}, a head of {name}, got {config.lisa.attn_head}."
        )
    if config.pos == "let" and parts.final is None:
        problems.append(
            f"pos: expected a model with a head that takes the sentence's final vector for let, got {name}. "
            "Use a ForSequenceClassification model, or add or concat."
        )
    if problems:
        raise ConfigError(problems)


def _place(model: PreTrainedModel, infusion: Infusion, parts: Parts) -> None:
    """Let transformers call our attention in the encoder, and fold W_V into W_O where there is one."""
    if not infusion.attends:
        return
    parts.stack.config._attn_implementation = IMPLEMENTATION
    for layer in range(len(parts.layers)):
        place = Place(infusion, layer, parts.output(layer))
        parts.attention(layer).place = place
        if infusion.topical_of(layer) is not None:
            FoldedLinear.take_over(parts.output(layer), place)


def _hook(model: PreTrainedModel, infusion: Infusion, parts: Parts) -> None:
    parts.stack.register_forward_pre_hook(infusion.receive, with_kwargs=True)
    parts.stack.register_forward_hook(infusion.close, always_call=True)
    model.register_forward_hook(infusion.finish, with_kwargs=True, always_call=True)
    if infusion.config.pos in ("add", "concat"):
        parts.embeddings.register_forward_hook(infusion.infuse_embeddings)
    if infusion.config.pos == "let":
        parts.final.register_forward_pre_hook(infusion.infuse_final)


def _save(model: PreTrainedModel, save_directory: str | Path, *args: Any, **kwargs: Any) -> None:
    """`infusion.json`, then `save_pretrained` of the model's class, which may upload both."""
    folder = Path(save_directory)
    if kwargs.get("is_main_process", True) and not folder.is_file():
        content = {
            "architecture": type(model).__name__,
            "infusion": model.infusion.config.model_dump(mode="json"),
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INFUSION_FILE).write_text(json.dumps(content, indent=1), "utf-8")
    type(model).save_pretrained(model, save_directory, *args, **kwargs)


def _validate_generation(model: PreTrainedModel, model_kwargs: dict[str, Any]) -> None:
    """`generate` refuses arguments that no `forward` names; the encoder takes these."""
    known = {key: value for key, value in model_kwargs.items() if key not in BATCH_KEYS}
    type(model)._validate_model_kwargs(model, known)


def _read_weights(folder: Path) -> dict[str, Tensor]:
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise CheckpointError(f"{folder}: expected model.safetensors, found none. Was it saved whole?")
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            weights |= load_file(file)
        except SafetensorError as error:
            raise CheckpointError(f"{file}: expected safetensors, got: {_short(error)}") from error
    return weights


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _fill(infusion: Infusion, weights: dict[str, Tensor], folder: Path) -> None:
    wanted = dict(infusion.named_parameters())
    if set(weights) != set(wanted) or any(weights[name].shape != wanted[name].shape for name in wanted):
        odd = sorted(set(weights) ^ set(wanted)) or [
            name for name in wanted if weights[name].shape != wanted[name].shape
        ]
        raise CheckpointError(
            f"{folder}: expected the parameters that {INFUSION_FILE} describes, got others: "
            f"{', '.join(odd[:3])}. The folder was altered."
        )
    infusion.load_state_dict(weights, strict=False)
