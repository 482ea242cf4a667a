"""Where the parts that syntax is infused into live in each family of encoders: a table of names, no subclass.

Paths are those of transformers 5. A family is known by its `config.model_type`; all else is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from torch import nn
from transformers import PreTrainedModel

from syntaxformer.base.errors import ConfigError

__all__ = ["FAMILIES", "Family", "Parts", "parts_of"]


@dataclass(frozen=True, slots=True)
class Family:
    """Role names of a family.

    Args:
        title: Its name for people.
        layers: Path of the list of layers, from the stack; a second step where layers stand in groups.
        attention: Path of the self-attention, from a layer; it calls the attention interface.
        output: Path of W_O, from a layer.
        final: Paths from the model of the module that takes the final vector of the sentence: the first that
            is there.
        stack: Path of the encoder, from `model.base_model`.
    """

    title: str
    layers: tuple[str, ...]
    attention: str
    output: str
    final: tuple[str, ...]
    stack: str = ""


def _like_bert(title: str, *final: str) -> Family:
    return Family(title, ("encoder.layer",), "attention.self", "attention.output.dense", final)


_ALBERT_LAYERS = ("encoder.albert_layer_groups", "albert_layers")
_T5_ATTENTION = "layer.0.SelfAttention"

FAMILIES: dict[str, Family] = {
    "bert": _like_bert("BERT", "bert.pooler", "pooler"),
    "roberta": _like_bert("RoBERTa", "classifier", "pooler"),
    "xlm-roberta": _like_bert("XLM-R", "classifier", "pooler"),
    "electra": _like_bert("ELECTRA", "classifier"),
    "distilbert": Family(
        "DistilBERT", ("transformer.layer",), "attention", "attention.out_lin", ("pre_classifier",)
    ),
    "albert": Family("ALBERT", _ALBERT_LAYERS, "attention", "attention.dense", ("albert.pooler", "pooler")),
    "modernbert": Family("ModernBERT", ("layers",), "attn", "attn.Wo", ("head",)),
    "t5": Family("T5", ("block",), _T5_ATTENTION, f"{_T5_ATTENTION}.o", ("classification_head",), "encoder"),
}
"""By `config.model_type`."""

_REASONS = {
    "mpnet": "MPNet computes its attention itself, without transformers' attention interface",
    "deberta": "DeBERTa computes its attention itself, without transformers' attention interface",
    "deberta-v2": "DeBERTa-v2 computes its attention itself, without transformers' attention interface",
}


@dataclass(frozen=True, slots=True)
class Parts:
    """The modules of one model.

    Args:
        family: Its role names.
        stack: The encoder, whose `forward` takes the pieces.
        layers: Its layers; where layers share parameters (ALBERT), each set of parameters once.
        final: What takes the final vector of the sentence; None where nothing does.
    """

    family: Family
    stack: PreTrainedModel
    layers: tuple[nn.Module, ...]
    final: nn.Module | None

    def attention(self, layer: int) -> nn.Module:
        """Self-attention of a layer."""
        return self.layers[layer].get_submodule(self.family.attention)

    def output(self, layer: int) -> nn.Linear:
        """W_O of a layer."""
        return cast("nn.Linear", self.layers[layer].get_submodule(self.family.output))


def parts_of(model: PreTrainedModel) -> Parts:
    """Find the parts of a model.

    Raises:
        ConfigError: A model of another kind, or one whose attention looks only back.
    """
    family = _family_of(model)
    stack = model.base_model.get_submodule(family.stack)
    layers = list(_listed(stack, family.layers[0]))
    for step in family.layers[1:]:
        layers = [layer for group in layers for layer in _listed(group, step)]
    return Parts(family, stack, tuple(layers), _final(model, family))


def _listed(module: nn.Module, path: str) -> nn.ModuleList:
    return cast("nn.ModuleList", module.get_submodule(path))


def _family_of(model: PreTrainedModel) -> Family:
    name, kind = type(model).__name__, getattr(getattr(model, "config", None), "model_type", None)
    supported = ", ".join(family.title for family in FAMILIES.values())
    remedy = f"Supported: {supported}."
    if not isinstance(model, PreTrainedModel):
        raise ConfigError(f"model: expected a transformers PreTrainedModel, got {name}. {remedy}")
    if kind in _REASONS:
        raise ConfigError(f"model: expected a supported encoder, got {name}: {_REASONS[kind]}. {remedy}")
    looks_back = not model.config.is_encoder_decoder and (
        getattr(model.config, "is_decoder", False) or "CausalLM" in name or "LMHead" in name
    )
    if looks_back:
        raise ConfigError(
            f"model: expected an encoder, got the decoder-only {name}: a syntax tree links words in both "
            f"directions, this model looks only back. {remedy}"
        )
    if kind not in FAMILIES:
        raise ConfigError(f"model: expected a supported encoder, got {name} of the kind {kind!r}. {remedy}")
    return FAMILIES[kind]


def _final(model: PreTrainedModel, family: Family) -> nn.Module | None:
    for path in family.final:
        head, _, rest = path.partition(".")
        # A head over pieces takes all final vectors, not that of the sentence.
        if head in _HEADS and not type(model).__name__.endswith("ForSequenceClassification"):
            continue
        found = getattr(model, head, None)
        found = getattr(found, rest, None) if rest else found
        if found is not None:
            return found
    return None


_HEADS = {"classifier", "pre_classifier", "head", "classification_head"}
