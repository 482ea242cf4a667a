"""Where each family of encoders keeps the modules that syntax is infused into: a table, no subclasses.

Paths are those of transformers 5. A family is recognised by its `config.model_type`; for another one, pass
your own `Family` to `infuse`. Every other model is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from torch import nn
from transformers import PreTrainedModel

from syntaxformer.base.errors import ConfigError
from syntaxformer.nn import ENCODER_KINDS, INFUSION_KINDS


@dataclass(frozen=True, slots=True)
class Family:
    """Paths to the modules of a family of encoders.

    Args:
        title: Its name in messages and documentation.
        layers: Path of the list of layers, from the stack; with a second step if layers come in groups.
        attention: Path of the self-attention, from a layer; it calls the attention interface.
        output: Path of W_O, from a layer.
        final: Paths, from the model, where the module that takes the final vector of the sentence may be;
            the first that exists counts.
        stack: Path of the encoder, from `model.base_model`.
        note: A remark for the documentation.
        kinds: Kinds of embedding that it takes.
    """

    title: str
    layers: tuple[str, ...]
    attention: str
    output: str
    final: tuple[str, ...]
    stack: str = ""
    note: str = ""
    kinds: tuple[str, ...] = tuple(ENCODER_KINDS)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], source: str) -> Family:
        """Read what `dataclasses.asdict` returned, even if JSON has turned tuples into lists.

        Raises:
            ConfigError: A name is missing or unknown, or a value has the wrong type.
        """
        names = {one.name: one for one in fields(cls)}
        content = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
        try:
            family = cls(**content)
        except TypeError:
            family = None
        wanted = {"layers": tuple, "final": tuple, "kinds": tuple}
        if family is None or any(
            not isinstance(getattr(family, name), wanted.get(name, str)) for name in names
        ):
            raise ConfigError(f"{source}: family: expected {', '.join(names)}, got {dict(stored)!r}.")
        return family


def _like_bert(title: str, *final: str) -> Family:
    return Family(title, ("encoder.layer",), "attention.self", "attention.output.dense", final)


OWN = Family(
    "SyntaxTransformer",
    ("layers",),
    "self_attention",
    "self_attention.output",
    (),
    "encoder",
    "our own translator: its factors come with the source text, and a recipe sets the rest",
    tuple(INFUSION_KINDS),
)
"""Our own translator, whose layers call the plug-in themselves: its classes stay as they are."""

FAMILIES: dict[str, Family] = {
    "syntaxformer": OWN,
    "bert": _like_bert("BERT", "bert.pooler", "pooler"),
    "roberta": _like_bert("RoBERTa", "classifier", "pooler"),
    "xlm-roberta": _like_bert("XLM-R", "classifier", "pooler"),
    "electra": _like_bert("ELECTRA", "classifier"),
    "distilbert": Family(
        "DistilBERT", ("transformer.layer",), "attention", "attention.out_lin", ("pre_classifier",)
    ),
    "albert": Family(
        "ALBERT",
        ("encoder.albert_layer_groups", "albert_layers"),
        "attention",
        "attention.dense",
        ("albert.pooler", "pooler"),
        note="layers that share parameters share the new ones, too: `layers` numbers sets of parameters, "
        "usually just one",
    ),
    "modernbert": Family(
        "ModernBERT",
        ("layers",),
        "attn",
        "attn.Wo",
        ("head",),
        note="local layers keep their window: outside it, full attention sees nothing and relations do not "
        "count",
    ),
    "t5": Family(
        "T5",
        ("block",),
        "layer.0.SelfAttention",
        "layer.0.SelfAttention.o",
        ("classification_head",),
        "encoder",
        "encoder, text-to-text (`generate`) and classification; syntax is in the encoder, the decoder is "
        "untouched",
    ),
}
"""Families by `config.model_type`."""

_REASONS = {
    "mpnet": "MPNet computes its attention itself, without transformers' attention interface",
    "deberta": "DeBERTa computes its attention itself, without transformers' attention interface",
    "deberta-v2": "DeBERTa-v2 computes its attention itself, without transformers' attention interface",
}


@dataclass(frozen=True, slots=True)
class Parts:
    """The modules of one model.

    Args:
        family: Its family, with the paths.
        stack: The encoder, whose `forward` takes the pieces.
        layers: Its layers; layers that share parameters (ALBERT) count once.
        final: The module that takes the final vector of the sentence; None if there is none.
    """

    family: Family
    stack: PreTrainedModel
    layers: tuple[nn.Module, ...]
    final: nn.Module | None

    @property
    def n_heads(self) -> int:
        """Attention heads."""
        return self.stack.config.num_attention_heads

    def attention(self, layer: int) -> nn.Module:
        """Self-attention of a layer."""
        return self.layers[layer].get_submodule(self.family.attention)

    def output(self, layer: int) -> nn.Linear:
        """W_O of a layer."""
        return cast("nn.Linear", self.layers[layer].get_submodule(self.family.output))


def parts_of(model: PreTrainedModel, family: Family | None = None) -> Parts:
    """Find the parts of a model.

    Args:
        model: The model.
        family: Its family; None for that of the table.

    Raises:
        ConfigError: The model is not supported, attends to earlier words only, or lacks a path of the family.
    """
    family = _family_of(model, family)
    stack = _at(model.base_model, family.stack, "stack", PreTrainedModel if family != OWN else nn.Module)
    return parts_in(stack, family, _final(model, family))


def parts_in(stack: nn.Module, family: Family, final: nn.Module | None = None) -> Parts:
    """Find the parts of an encoder."""
    layers = list(_at(stack, family.layers[0], "layers", nn.ModuleList))
    for step in family.layers[1:]:
        layers = [layer for group in layers for layer in _at(group, step, "layers", nn.ModuleList)]
    for layer in layers:
        _at(layer, family.attention, "attention", nn.Module)
        _at(layer, family.output, "output", nn.Module)
    return Parts(family, cast("PreTrainedModel", stack), tuple(layers), final)


def _at(module: nn.Module, path: str, role: str, kind: type) -> Any:
    """The module at a path."""
    try:
        found = module.get_submodule(path)
    except AttributeError:
        found = None
    if not isinstance(found, kind):
        inside = type(module).__name__
        raise ConfigError(
            f"family.{role}: expected the path of a {kind.__name__} in {inside}, got {path!r}. "
            f"It has {', '.join(name for name, _ in module.named_children())}."
        )
    return found


def _family_of(model: PreTrainedModel, family: Family | None) -> Family:
    name, kind = type(model).__name__, getattr(getattr(model, "config", None), "model_type", None)
    supported = ", ".join(one.title for one in FAMILIES.values())
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
            f"directions, but this model sees only earlier words. {remedy}"
        )
    if family is None and kind not in FAMILIES:
        raise ConfigError(
            f"model: expected a supported encoder, got {name} of the kind {kind!r}. {remedy} "
            "For another one that calls transformers' attention interface, pass family=Family(…) to infuse."
        )
    return family or FAMILIES[cast("str", kind)]


def _final(model: PreTrainedModel, family: Family) -> nn.Module | None:
    for path in family.final:
        head, _, rest = path.partition(".")
        # A head that labels pieces takes all final vectors, not only that of the sentence.
        if head in _HEADS and not type(model).__name__.endswith("ForSequenceClassification"):
            continue
        found = getattr(model, head, None)
        found = getattr(found, rest, None) if rest else found
        if found is not None:
            return found
    return None


_HEADS = {"classifier", "pre_classifier", "head", "classification_head"}
