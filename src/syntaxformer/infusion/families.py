"""Where each family of encoders keeps the modules that syntax is infused into: a table, no subclasses.

Paths are those of transformers 5. A family is recognised by its `config.model_type`; for another one, pass
your own `Family` to `infuse`. Every other model is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

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
        reason: Why its layers take no syntax, so that it takes embeddings alone; empty where they do.
    """

    title: str
    layers: tuple[str, ...]
    attention: str
    output: str
    final: tuple[str, ...]
    stack: str = ""
    note: str = ""
    kinds: tuple[str, ...] = tuple(ENCODER_KINDS)
    reason: str = ""

    __pydantic_config__ = ConfigDict(extra="forbid")

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], source: str) -> Family:
        """Read what `dataclasses.asdict` returned, even if JSON has turned tuples into lists.

        Raises:
            ConfigError: A name is missing or unknown, or a value has the wrong type.
        """
        try:
            return TypeAdapter(cls).validate_python(dict(stored))
        except ValidationError as error:
            names = ", ".join(entry.name for entry in fields(cls))
            raise ConfigError(f"{source}: family: expected {names}, got {dict(stored)!r}.") from error


def _like_bert(title: str, *final: str) -> Family:
    return Family(title, ("encoder.layer",), "attention.self", "attention.output.dense", final)


_ENCODER_ALONE = "syntax is in the encoder, the decoder is untouched"


def _like_t5(title: str) -> Family:
    attention, heads = "layer.0.SelfAttention", ("classification_head",)
    note = f"encoder, text-to-text (`generate`) and classification; {_ENCODER_ALONE}"
    return Family(title, ("block",), attention, f"{attention}.o", heads, "encoder", note)


def _like_bart(title: str, *final: str) -> Family:
    note = f"text-to-text (`generate`){' and classification' * bool(final)}; {_ENCODER_ALONE}"
    return Family(title, ("layers",), "self_attn", "self_attn.out_proj", final, "encoder", note)


def _without_interface(family: Family) -> Family:
    reason = f"{family.title} computes its attention itself, without transformers' attention interface"
    return replace(family, reason=reason)


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
    "xlm-roberta-xl": _like_bert("XLM-R-XL", "classifier", "pooler"),
    "camembert": _like_bert("CamemBERT", "classifier", "pooler"),
    "data2vec-text": _like_bert("Data2Vec", "classifier", "pooler"),
    "ernie": _like_bert("ERNIE", "ernie.pooler", "pooler"),
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
    "eurobert": Family(
        "EuroBERT",
        ("layers",),
        "self_attn",
        "self_attn.o_proj",
        ("dense",),
        note="`let` joins the tags to the vector of the first piece where `classifier_pooling` is late",
    ),
    "nomic_bert": Family(
        "Nomic BERT", ("layers",), "self_attn", "self_attn.o_proj", ("nomic_bert.pooler", "pooler")
    ),
    "t5": _like_t5("T5"),
    "mt5": _like_t5("mT5"),
    "umt5": _like_t5("umT5"),
    "marian": _like_bart("Marian (OPUS-MT)"),
    "m2m_100": _like_bart("M2M100 (NLLB)"),
    "mbart": _like_bart("mBART", "classification_head"),
    "bart": _like_bart("BART", "classification_head"),
    "pegasus": _like_bart("Pegasus"),
    "mpnet": _without_interface(
        Family("MPNet", ("encoder.layer",), "attention.attn", "attention.attn.o", ("classifier", "pooler"))
    ),
    "deberta": _without_interface(_like_bert("DeBERTa", "pooler")),
    "deberta-v2": _without_interface(_like_bert("DeBERTa-v2", "pooler")),
}
"""Families by `config.model_type`."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The modules of one model."""

    family: Family
    stack: PreTrainedModel  # the encoder, whose `forward` takes the pieces
    layers: tuple[nn.Module, ...]  # those that share parameters (ALBERT) count once
    final: nn.Module | None  # takes the final vector of the sentence; None if nothing does

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
    """Find the parts of a model of this family, or of that of the table.

    Raises:
        ConfigError: The model is not supported, attends to earlier words only, or lacks a path of the family.
    """
    family = _family_of(model, family)
    stack = _at(model.base_model, family.stack, "stack", PreTrainedModel if family != OWN else nn.Module)
    return parts_in(stack, family, final_of(model, family))


def parts_in(stack: nn.Module, family: Family, final: nn.Module | None = None) -> Parts:
    """Find the parts of an encoder."""
    layers = list(_at(stack, family.layers[0], "layers", nn.ModuleList))
    for step in family.layers[1:]:
        layers = [layer for group in layers for layer in _at(group, step, "layers", nn.ModuleList)]
    for layer in layers:
        _at(layer, family.attention, "attention", nn.Module)
        _at(layer, family.output, "output", nn.Module)
    return Parts(family, cast("PreTrainedModel", stack), tuple(dict.fromkeys(layers)), final)


def embedded(stack: Any, pieces: Any, inputs: dict[str, Any]) -> Tensor:
    """Embeddings of the pieces as the encoder makes them itself, at the positions that it would count."""
    states = stack.get_input_embeddings()(pieces)
    if (scale := getattr(stack, "embed_scale", 1.0)) != 1.0:  # Marian and Pegasus scale outside their table
        states = states * scale
    # Some number positions by which pieces are padding, and see embeddings only.
    numbers = "create_position_ids_from_inputs_embeds"
    if hasattr(table := getattr(stack, "embeddings", None), numbers) and inputs.get("position_ids") is None:
        is_piece = pieces.ne(table.padding_idx).long()
        inputs["position_ids"] = is_piece.cumsum(1) * is_piece + table.padding_idx
    if hasattr(table := getattr(stack, "embed_positions", None), numbers):
        # M2M100 takes no numbers: what it will add too much is taken off before.
        states = states + (table(pieces) - table(None, states))
    return states


def _at(module: nn.Module, path: str, role: str, kind: type) -> Any:
    """The module at a path."""
    try:
        inner = module.get_submodule(path)
    except AttributeError:
        inner = None
    if not isinstance(inner, kind):
        inside = type(module).__name__
        raise ConfigError(
            f"family.{role}: expected the path of a {kind.__name__} in {inside}, got {path!r}. "
            f"It has {', '.join(name for name, _ in module.named_children())}."
        )
    return inner


def _family_of(model: PreTrainedModel, family: Family | None) -> Family:
    name, kind = type(model).__name__, getattr(getattr(model, "config", None), "model_type", "")
    remedy = f"Supported: {', '.join(known.title for known in FAMILIES.values())}."
    if not isinstance(model, PreTrainedModel):
        raise ConfigError(f"model: expected a transformers PreTrainedModel, got {name}. {remedy}")
    if not model.config.is_encoder_decoder and _looks_back(model):
        raise ConfigError(
            f"model: expected an encoder, got the decoder-only {name}: a syntax tree links words in both "
            f"directions, but this model sees only earlier words. {remedy}"
        )
    if family is None and kind not in FAMILIES:
        raise ConfigError(
            f"model: expected a supported encoder, got {name} of the kind {kind!r}. {remedy} "
            "For another one that calls transformers' attention interface, pass family=Family(…) to infuse."
        )
    return family or FAMILIES[kind]


def _looks_back(model: PreTrainedModel) -> bool:
    """Whether pieces see only those before them, whatever the head."""
    name = type(model).__name__
    if getattr(model.config, "is_decoder", False) or "CausalLM" in name or "LMHead" in name:
        return True
    says = {getattr(module, "is_causal", None) for module in model.modules()}
    return True in says or (says == {None} and model.config.model_type in _WRITERS)


def final_of(model: PreTrainedModel, family: Family) -> nn.Module | None:
    """The module that takes the final vector of the sentence; None where nothing does."""
    labels_sentences = type(model).__name__.endswith("ForSequenceClassification")
    for path in family.final:
        head, _, rest = path.partition(".")
        # A head that labels pieces takes all final vectors, not only that of the sentence.
        if labels_sentences or head not in _HEADS:
            final = getattr(model, head, None)
            final = getattr(final, rest, None) if rest else final
            if final is not None:
                return final
    return None


_WRITERS = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - {*MODEL_FOR_MASKED_LM_MAPPING_NAMES, "xlnet"}
"""Kinds that only write on; asked where attention does not say which way it looks. XLNet looks both ways."""

_HEADS = {"classifier", "pre_classifier", "head", "classification_head", "dense"}
