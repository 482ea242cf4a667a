"""`InfusionConfig`: what syntax a pretrained encoder is infused with. Shared by the plug-in and its collator.

Holds choices only: `parameters` builds what is new from them, `syntax` the batches. Written as JSON beside a
model's weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from syntaxformer.base.config import MAX_SEED, config_error, nearest
from syntaxformer.base.errors import ConfigError
from syntaxformer.syntax.piece_relations import DEFAULT_TREES, TreeKind

__all__ = [
    "SHORTHAND",
    "InfusionConfig",
    "LisaConfig",
    "MaskConfig",
    "Omitted",
    "RelationBiasConfig",
    "TreeOptions",
    "layer_problems",
    "tree_problems",
    "with_trees_of_masks",
]

Omitted = Literal[TreeKind, "parent", "child", "sibling", "pair"]
"""What the ablations leave out: a tree, or a kind of relation in both trees."""

Preset = Literal["preserving", "paper"]
"""With full attention among the sub-networks and a gate that starts closed, or sub-networks only."""

POS_TAGS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X", "SPACE"),
)
"""As `syntax.factors` has them; stored with a model, so that its embeddings keep their meaning."""

_SOURCE = "infusion"
"""Stands before messages about configs that come from no file."""

_RESERVED_TAGS = 2
"""`<none>` and `<unk>` of a factor vocabulary."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TreeOptions(_Section):
    """Which relations of which trees a batch carries."""

    trees: tuple[TreeKind, ...] = Field(
        default=DEFAULT_TREES, min_length=1, description="kinds of tree, in the order of the relation tensor"
    )
    max_distance: int = Field(default=15, ge=1, le=84, description="D, in tree edges (paper 002: 15)")
    nodes: Literal["headed", "leaves"] = Field(
        default="headed", description="headed: words own the phrases that they head; leaves: siblings only"
    )
    specials: Literal["root", "none"] = Field(
        default="root",
        description="root: the first special piece (in a translator the end) is the parent of every root",
    )
    without: tuple[Omitted, ...] = Field(
        default=(), description="trees and kinds of relation left out (paper 002, table 5)"
    )
    random: bool = Field(
        default=False, description="shuffle the relations of each sentence: same density, no syntax"
    )

    @model_validator(mode="after")
    def _something_is_left(self) -> TreeOptions:
        if len(set(self.trees)) != len(self.trees):
            raise ValueError(f"trees: expected each kind once, got {', '.join(self.trees)}.")
        if not self.used_trees:
            raise ValueError("without: expected one tree to be left, got none. Leave out at most one.")
        if not any(self.active_networks(self.without)):
            raise ValueError("without: expected a relation to be left, got none.")
        return self

    @property
    def used_trees(self) -> tuple[str, ...]:
        """Trees of the relation tensor: those wanted, less those left out."""
        return tuple(tree for tree in self.trees if tree not in self.without)

    def active_networks(self, left_out: Collection[str]) -> list[bool]:
        """Which sub-networks (or biases) of the used trees take part, in the order of relation ids.

        Args:
            left_out: Trees and kinds of relation.
        """
        kinds = ("parent", "child", "sibling")
        of_tree = [kind not in left_out for kind in kinds for _ in range(self.max_distance)]
        of_tree.append("pair" not in left_out)
        return [used and tree not in left_out for tree in self.used_trees for used in of_tree]


class MaskConfig(TreeOptions):
    """Syntax attention (paper 002): one sub-network for each relation."""

    preset: Preset | None = Field(
        default=None, description="how it begins, as infusion.preset of an encoder; null: as that, preserving"
    )
    mode: Literal["multiplicative", "additive"] = Field(
        default="multiplicative", description="masked keys keep logit 0 (paper 002, eq. 1), or are removed"
    )
    on_empty_row: Literal["full", "zero"] = Field(
        default="full", description="additive only: a row without any key attends to all keys, or is zero"
    )
    topical: bool = Field(default=True, description="topical attention; false: a simple summation")
    summation: Literal["sum", "scaled", "mean"] = Field(
        default="scaled", description="without topical attention: Σ, Σ/√m (the authors' code), or the mean"
    )
    per_layer: bool = Field(default=False, description="topical parameters of each layer's own, not shared")
    layers: tuple[int, ...] | None = Field(default=None, description="layers, from 0; null: all")
    gate: Literal["layer", "head"] = Field(
        default="layer", description="preset preserving: one gate a layer, or one for each of its heads"
    )


class RelationBiasConfig(TreeOptions):
    """A learned bias for each head and relation, added to the logits of plain attention (ours)."""

    layers: tuple[int, ...] | None = Field(default=None, description="layers, from 0; null: all")


class LisaConfig(_Section):
    """A biaffine attention head that points at governors (Strubell et al., 2018)."""

    layers: tuple[int, ...] | None = Field(
        default=None, description="layers, from 0; null: the last (paper 004); paper 002 has one in each"
    )
    attn_head: int = Field(default=0, ge=0, description="the head that it replaces")
    keys: Literal["head", "model"] = Field(
        default="head",
        description="K of that head (U d_head²), or of all heads (U d_head·d_model, paper 002)",
    )
    supervised: bool = Field(default=True, description="add the loss of pointing at governors")
    weight: float = Field(
        default=0.1, ge=0, description="of that loss beside the task's; 1 drowns a small task (LOG.md)"
    )
    inject: Literal["gold"] | None = Field(
        default=None, description="gold: outside training the head looks at the batch's governors"
    )


class InfusionConfig(_Section):
    """What a pretrained encoder is infused with. Nothing by default."""

    preset: Preset = Field(
        default="preserving",
        description="preserving: full attention and a gate that starts closed; paper: sub-networks only",
    )
    masks: MaskConfig | None = Field(default=None, description="syntax attention (paper 002)")
    relation_bias: RelationBiasConfig | None = Field(default=None, description="bias by relation (ours)")
    lisa: LisaConfig | None = Field(default=None, description="biaffine head")
    pos: Literal["add", "concat", "let"] | None = Field(
        default=None, description="part-of-speech embedding: at the input, or joined to the final vector"
    )
    pos_width: int = Field(default=20, ge=1, description="columns of it, for concat and let")
    pos_tags: tuple[str, ...] = Field(default=POS_TAGS, min_length=1, description="tags that have one")
    seed: int = Field(default=0, ge=0, le=MAX_SEED, description="of random masks and of new parameters")

    @model_validator(mode="before")
    @classmethod
    def _one_relation_tensor(cls, content: Any) -> Any:
        return with_trees_of_masks(content)

    @model_validator(mode="after")
    def _same_trees(self) -> InfusionConfig:
        if problems := tree_problems(self.masks, self.relation_bias):
            raise ValueError("\n".join(problems))
        return self

    def __init__(self, **content: Any) -> None:
        try:
            super().__init__(**content)
        except ValidationError as error:
            raise config_error(type(self), error, _SOURCE) from error

    @property
    def tree_options(self) -> TreeOptions | None:
        """What the relation tensor holds; None where none is needed."""
        return self.masks or self.relation_bias

    @property
    def preset_of_masks(self) -> Preset:
        """What `masks` says of it, or the preset of all."""
        return (self.masks and self.masks.preset) or self.preset

    @property
    def n_tags(self) -> int:
        """Rows of a part-of-speech table, `<none>` and `<unk>` included."""
        return len(self.pos_tags) + _RESERVED_TAGS

    @property
    def is_plain(self) -> bool:
        """Whether nothing is infused."""
        return self.tree_options is None and self.lisa is None and self.pos is None

    @classmethod
    def parse(cls, names: str, **more: Any) -> InfusionConfig:
        """Read the command line's shorthand: `masks,lisa,pos_add`; "none" or "" for a plain model.

        Args:
            names: Of `SHORTHAND`, with commas.
            more: Further fields, as in the class.

        Raises:
            ConfigError: An unknown name, one that stands twice, or two kinds of `pos`.
        """
        wanted = [name.strip() for name in names.split(",") if name.strip() not in ("", "none")]
        unknown = [name for name in wanted if name not in SHORTHAND]
        if unknown:
            raise ConfigError(
                [
                    f"infuse: expected some of {', '.join(SHORTHAND)} or none, got {name!r}. "
                    + nearest(name, list(SHORTHAND))
                    for name in unknown
                ]
            )
        content: dict[str, Any] = {}
        for name in wanted:
            key, value = SHORTHAND[name]
            if key in content:
                raise ConfigError(f"infuse: expected {key} once, got it twice in {names!r}.")
            content[key] = value
        return cls.from_json({**content, **more}, "infuse")

    @classmethod
    def of(cls, config: InfusionConfig | str) -> InfusionConfig:
        """The config itself, or what its shorthand means.

        Raises:
            ConfigError: Neither, or a shorthand that `parse` refuses.
        """
        if isinstance(config, str):
            return cls.parse(config)
        if not isinstance(config, cls):
            raise ConfigError(f"infuse: expected an InfusionConfig, got {type(config).__name__}.")
        return config

    @classmethod
    def from_json(cls, content: Any, source: str) -> InfusionConfig:
        """Read what `model_dump(mode="json")` gave.

        Raises:
            ConfigError: No mapping, an unknown key or a value that cannot be, with the nearest key.
        """
        if not isinstance(content, Mapping):
            raise ConfigError(f"{source}: expected keys and values, got {type(content).__name__}.")
        try:
            return cls(**content)
        except ConfigError as error:
            problems = (problem.removeprefix(_SOURCE) for problem in error.problems)
            raise ConfigError([source + problem for problem in problems]) from error


SHORTHAND: dict[str, tuple[str, Any]] = {
    "masks": ("masks", {}),
    "relation_bias": ("relation_bias", {}),
    "lisa": ("lisa", {}),
    "pos_add": ("pos", "add"),
    "pos_concat": ("pos", "concat"),
    "pos_let": ("pos", "let"),
    "let": ("pos", "let"),
}
"""What `--infuse` takes → key of `InfusionConfig` and its value."""


def with_trees_of_masks(content: Any) -> Any:
    """What `relation_bias` does not say about trees is taken from `masks`: a batch has one tensor.

    Args:
        content: Sections by name, before they are checked; anything else comes back as it is.
    """
    if not isinstance(content, Mapping):
        return content
    masks, bias = (_as_mapping(content.get(name)) for name in ("masks", "relation_bias"))
    if masks is None or bias is None:
        return content
    taken = {key: masks[key] for key in TreeOptions.model_fields if key in masks}
    return {**content, "relation_bias": {**taken, **bias}}


def tree_problems(masks: TreeOptions | None, relation_bias: TreeOptions | None) -> list[str]:
    """One line for each key in which both sections are on and differ: a batch has one tensor.

    Args:
        masks: Section `masks`; None where it is off.
        relation_bias: Section `relation_bias`; None where it is off.
    """
    if masks is None or relation_bias is None:
        return []
    return [
        f"relation_bias.{key}: expected that of masks, {getattr(masks, key)!r}, "
        f"got {getattr(relation_bias, key)!r}. Leave it out."
        for key in TreeOptions.model_fields
        if getattr(masks, key) != getattr(relation_bias, key)
    ]


def layer_problems(config: InfusionConfig, n_layers: int, n_heads: int, name: str) -> list[str]:
    """Layers and heads that an encoder has not, one line each.

    Args:
        config: What is infused.
        n_layers: Of the encoder.
        n_heads: Of each layer.
        name: Of the encoder, for people.
    """
    problems = []
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
    return problems


def _as_mapping(section: Any) -> dict[str, Any] | None:
    """A section given as a mapping or as an object, only the keys that were said; None where it is off."""
    if isinstance(section, BaseModel):
        return section.model_dump(exclude_unset=True)
    return dict(section) if isinstance(section, Mapping) else None
