"""`InfusionConfig`: which syntax a pretrained encoder or the encoder of our translator is infused with.

It only holds choices: `infusion` builds the new modules from them, and `syntax` the batches. It is written as
JSON beside the weights of a pretrained encoder, and into the recipe of a translator.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from syntaxformer.base.config import MAX_SEED, config_error, nearest, validate
from syntaxformer.base.errors import ConfigError
from syntaxformer.nn.infused_embedding import (
    ENCODER_KINDS,
    INFUSION_KINDS,
    InfusionKind,
    WidthPlan,
    plan_widths,
)
from syntaxformer.nn.relation_biases import BiasStart
from syntaxformer.nn.syntax import MaskMode, OnEmptyRow, Summation
from syntaxformer.syntax.columns import WordColumns
from syntaxformer.syntax.factors import FACTORS, TERM, FactorVocabulary, build_vocabularies, check_factors
from syntaxformer.syntax.inputs import TagPlace, TreeOptions
from syntaxformer.syntax.relations import LARGEST_DISTANCE
from syntaxformer.trees.sentence import PER_WORD, Sentence

Preset = Literal["preserving", "paper", "authors_code"]
"""How full attention comes in: behind a gate that starts closed, not at all, or as one more sub-network."""

_OF_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"summation": "sum"},
    "authors_code": {"mode": "additive", "on_empty_row": "full", "topical": False, "summation": "scaled"},
}
"""Keys of `masks` that a preset sets. `paper` sums as the paper prints it, and leaves the other keys free.
`authors_code` sets what the code published with the paper would compute with its masks on: it adds -10,000 to
masked logits, so a row without keys attends to all, and has no topical attention."""

MAX_WIDTH = 2**20
"""Wider than any encoder, for checking widths before the encoder is known."""

_OF_KINDS = {"place": "prepend", "tag_layers": "pos_encoder"}
"""Keys of an embedding that only one kind of translator uses, with that kind."""

_STORED = "stored"
"""Context in which the settings of a trained model are validated."""

IN_ATTENTION = ("masks", "relation_bias", "lisa")
"""Sections of `InfusionConfig` that change attention; each is off where it is null."""

INFUSIONS = ("embedding", *IN_ATTENTION)
"""All sections of `InfusionConfig` that infuse something."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class MaskConfig(TreeOptions):
    """Syntax attention (Bai et al. 2021): one sub-network for each relation."""

    preset: Preset | None = Field(
        default=None, description="as infusion.preset, which it replaces; null: that one (preserving)"
    )
    mode: MaskMode = Field(
        default="multiplicative",
        description="masked keys get logit 0 (Bai et al. 2021, eq. 1), or are removed",
    )
    on_empty_row: OnEmptyRow = Field(
        default="full", description="additive only: a row without any key attends to all keys, or is zero"
    )
    topical: bool = Field(default=True, description="topical attention; false: a simple summation")
    summation: Summation = Field(
        default="scaled",
        description="without topical attention: Σ (as printed; the default with preset paper), Σ/√m (the "
        "authors' code), or the mean",
    )
    per_layer: bool = Field(default=False, description="each layer has topical parameters of its own")
    layers: tuple[int, ...] | None = Field(default=None, description="layers, from 0; null: all")
    gate: Literal["layer", "head"] = Field(
        default="layer", description="preset preserving: one gate for each layer, or for each attention head"
    )


class RelationBiasConfig(TreeOptions):
    """A learned bias for each head and relation, added to the logits of plain attention (ours)."""

    layers: tuple[int, ...] | None = Field(default=None, description="layers, from 0; null: all")
    init: BiasStart = Field(
        default="zero",
        description="biases at the start: zero, or -d²/2σ² with d edges in the tree (distance; Peng et al. "
        "2021) or from the word's governor (governor; after Bugliarello & Okazaki 2020)",
    )
    sigma: float = Field(default=1.0, gt=0, description="σ of init, in edges (Bugliarello & Okazaki 2020: 1)")

    @model_validator(mode="before")
    @classmethod
    def _far(cls, content: Any) -> Any:
        """With an `init`, all distances count by default: farther words would start like the word itself."""
        starts = isinstance(content, Mapping) and content.get("init", "zero") != "zero"
        return {"max_distance": LARGEST_DISTANCE, **content} if starts else content

    @model_validator(mode="after")
    def _can_start(self) -> RelationBiasConfig:
        if self.init != "zero" and self.max_distance < LARGEST_DISTANCE:
            raise ValueError(
                f"max_distance: expected {LARGEST_DISTANCE} with init: {self.init}, as farther words would "
                f"start like the word itself, got {self.max_distance}. Leave it out; masks take the same."
            )
        if self.init != "zero" and (self.siblings == "all" or self.relations):
            beside = ", ".join(self.relations) or "siblings: all"
            raise ValueError(f"init: expected zero with {beside}, got {self.init}.")
        if self.init == "governor" and self.used_trees != ("dependency",):
            raise ValueError(
                f"init: expected zero or distance for trees {', '.join(self.used_trees)}, got governor. Set "
                "trees: [dependency]."
            )
        return self


class LisaConfig(_Section):
    """A biaffine attention head that points at governors (Strubell et al., 2018)."""

    layers: tuple[int, ...] | None = Field(
        default=None, description="layers, from 0; null: the last (Kapadia et al. 2020); Bai et al. 2021: all"
    )
    head: Literal["replaced", "added"] = Field(
        default="replaced",
        description="in the place of a head, or beside all heads (our own translator only)",
    )
    attn_head: int = Field(default=0, ge=0, description="the attention head that it replaces")
    keys: Literal["head", "model"] = Field(
        default="head",
        description="keys of that head (U: d_head²), or of all heads (U: d_head·d_model, Bai et al. 2021)",
    )
    supervised: bool = Field(default=True, description="add the loss of pointing at governors")
    weight: float = Field(
        default=0.1, ge=0, description="weight of that loss beside the task's; 1 harms small tasks (LOG.md)"
    )
    inject: Literal["gold"] | None = Field(
        default=None, description="gold: outside training the head attends to the governors in the batch"
    )


class EmbeddingConfig(_Section):
    """Embeddings of factors, joined to those of the pieces."""

    kind: str = Field(
        default="none",
        description=f"of a translator: {', '.join(INFUSION_KINDS)}; of a pretrained encoder: "
        f"{', '.join(ENCODER_KINDS)} (let: joined to the final vector of the sentence)",
    )
    factors: tuple[str, ...] | None = Field(
        default=None,
        description=f"{', '.join(name for name in FACTORS if name != TERM)} or your own (translator); null: "
        "the kind's own",
    )
    width: int | None = Field(
        default=None,
        ge=1,
        le=2**16,
        description="columns for all factors together (Sundararaman et al. 2019: 8 to 64); null: 20, for "
        "learned_concat 24",
    )
    widths: dict[str, Annotated[int, Field(le=2**16)]] | None = Field(
        default=None, description="columns of each factor, for kinds that concatenate them"
    )
    word_width: int | None = Field(
        default=None,
        ge=1,
        le=2**16,
        description="translator: columns of the word embedding; null: those left over",
    )
    min_count: int = Field(
        default=2, ge=1, description="values of open factors that are seen less often count as unknown"
    )
    place: TagPlace | None = Field(
        default=None,
        description="prepend only: tags interleaved with words, or a prefix of the line; null: interleaved",
    )
    tag_layers: int | None = Field(
        default=None, ge=1, le=1024, description="pos_encoder only: layers of the second encoder; null: 1"
    )
    values: dict[str, tuple[str, ...]] | None = Field(
        default=None,
        description="pretrained encoder: values of each factor, in the order of their rows; null: the fixed "
        "values, or for open factors those of the training data",
    )

    @property
    def tag_place(self) -> TagPlace | None:
        """Where tags stand among the pieces; None for kinds that do not make them pieces."""
        return (self.place or "interleaved") if self.kind == "prepend" else None

    def plan(self, d_model: int, kinds: Mapping[str, InfusionKind] = INFUSION_KINDS) -> WidthPlan:
        """Settle the widths of all tables; arguments and errors are those of `plan_widths`."""
        chosen = (self.kind, d_model, self.factors, self.width, self.widths, self.word_width)
        return plan_widths(*chosen, kinds=kinds)

    def misplaced(self, owners: Mapping[str, str] = _OF_KINDS) -> list[str]:
        """Describe, one line each, settings that would be ignored because they belong to another kind."""
        return [
            f"infusion.{key}: expected nothing for kind {self.kind!r}, got {value!r}. "
            f"It belongs to kind {owner}."
            for key, owner in owners.items()
            if (value := getattr(self, key)) is not None and self.kind != owner
        ]


class InfusionConfig(_Section):
    """What an encoder is infused with; nothing by default."""

    preset: Preset = Field(
        default="preserving",
        description="preserving: full attention and a gate that starts closed; paper: sub-networks only; "
        "authors_code: what the code of Bai et al. (2021) computes, additive and summed with full attention",
    )
    embedding: EmbeddingConfig | None = Field(default=None, description="embeddings of factors; null: none")
    masks: MaskConfig | None = Field(default=None, description="syntax attention (Bai et al. 2021)")
    relation_bias: RelationBiasConfig | None = Field(default=None, description="bias by relation (ours)")
    lisa: LisaConfig | None = Field(
        default=None,
        description="a biaffine head that points at governors (Bai et al. 2021, Kapadia et al. 2020)",
    )
    seed: int = Field(default=0, ge=0, le=MAX_SEED, description="seed of new parameters")

    shorthands: ClassVar[tuple[str, ...]] = tuple(EmbeddingConfig.model_fields)
    """Keys of `embedding` that a recipe may give as keys of `infusion`."""

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, content: Any) -> Any:
        """Copy from `masks` what `relation_bias` leaves out about trees: a batch has one relation tensor."""
        if not isinstance(content, Mapping):
            return content
        masks, bias = (_as_mapping(content.get(name)) for name in ("masks", "relation_bias"))
        if masks is not None:
            preset = str(masks.get("preset") or content.get("preset"))
            if preset != "paper" or masks.get("topical") is False:  # else nothing is summed
                masks = {**_OF_PRESETS.get(preset, {}), **masks}
            content = {**content, "masks": masks}
        if masks is None or bias is None:
            return content
        taken = {key: masks[key] for key in TreeOptions.model_fields if key in masks}
        return {**content, "relation_bias": {**taken, **bias}}

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> InfusionConfig:
        problems = [] if info.context == _STORED else self._without_effect()
        if self.masks is not None and self.relation_bias is not None:
            problems += [
                f"relation_bias.{key}: expected that of masks, {getattr(self.masks, key)!r}, "
                f"got {getattr(self.relation_bias, key)!r}. Leave it out, or set that of masks."
                for key in TreeOptions.model_fields
                if getattr(self.masks, key) != getattr(self.relation_bias, key)
            ]
        if self.masks is not None and self.preset_of_masks == "authors_code":
            problems += [
                f"masks.{key}: expected {expected!r}, as preset authors_code sets it, got "
                f"{getattr(self.masks, key)!r}. Leave it out, or take preset paper."
                for key, expected in _OF_PRESETS["authors_code"].items()
                if getattr(self.masks, key) != expected
            ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _without_effect(self) -> list[str]:
        """Describe, one line each, settings that nothing would read."""
        masks, bias = self.masks or MaskConfig(), self.relation_bias or RelationBiasConfig()
        phrases = "the constituency tree"
        readers = [
            (masks, "on_empty_row", "mode additive", masks.mode == "additive"),
            (masks, "summation", "topical false", not masks.topical),
            (masks, "per_layer", "topical true", masks.topical),
            (masks, "gate", "preset preserving", self.preset_of_masks == "preserving"),
            (masks, "nodes", phrases, "constituency" in masks.trees),
            (bias, "nodes", phrases, "constituency" in bias.trees),
            (bias, "sigma", "init distance or governor", bias.init != "zero"),
        ]
        problems = [
            f"{'masks' if section is masks else 'relation_bias'}.{key}: expected nothing without {reader}, "
            f"got {value}. Leave it out."
            for section, key, reader, is_read in readers
            if not is_read and (value := getattr(section, key)) != type(section).model_fields[key].default
        ]
        return problems + [
            f"{key}.without: expected some of {', '.join(section.omissible)}, got {name}. Leave it out."
            for key, section in (("masks", masks), ("relation_bias", bias))
            for name in section.without
            if name not in section.omissible
        ]

    def __init__(self, **content: Any) -> None:
        try:
            super().__init__(**content)
        except ValidationError as error:
            raise config_error(type(self), error, "infusion") from error

    # As a section of another model, it is validated with that model, not by its own __init__.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @property
    def tree_options(self) -> TreeOptions | None:
        """What the relation tensor holds; None if no tensor is needed."""
        return self.masks or self.relation_bias

    @property
    def preset_of_masks(self) -> Preset:
        """The preset of `masks`, or else that of the whole infusion."""
        return (self.masks and self.masks.preset) or self.preset

    @property
    def sections_of_translator(self) -> dict[str, Any]:
        """What the config of our translator holds, as JSON; there the masks name the preset of the whole."""
        sections = {name: getattr(self, name) for name in IN_ATTENTION}
        if self.masks is not None and self.preset != "preserving":
            sections["masks"] = self.masks.model_copy(update={"preset": self.preset_of_masks})
        return {name: section and section.model_dump(mode="json") for name, section in sections.items()}

    @property
    def parts(self) -> dict[str, _Section]:
        """What is infused: name of the section → the section."""
        sections = {name: getattr(self, name) for name in INFUSIONS}
        return {name: each for name, each in sections.items() if each and getattr(each, "kind", "") != "none"}

    @property
    def warning(self) -> str | None:
        """What to know before a pretrained checkpoint is trained with a preset that destroys it."""
        if self.masks is None or self.preset_of_masks == "preserving":
            return None
        return (
            f"infusion.preset {self.preset_of_masks}: this is another network than the one that was "
            "pretrained, whose attention is lost from the first step on. Expect less than from the plain "
            "checkpoint after few epochs; preserving keeps it. Encoders from scratch lose nothing."
        )

    @property
    def is_plain(self) -> bool:
        """Whether nothing is infused."""
        return self.tree_options is None and self.lisa is None and self.embedding is None

    @property
    def factors(self) -> tuple[str, ...]:
        """Factors of a pretrained encoder, in the order of the columns of `factor_ids`.

        Raises:
            ConfigError: A pretrained encoder cannot have the kind, a width or a factor.
        """
        if self.embedding is None:
            return ()
        if problems := self.embedding.misplaced({**_OF_KINDS, "word_width": "concat of a translator"}):
            raise ConfigError(problems)
        try:
            names = tuple(self.embedding.plan(MAX_WIDTH, ENCODER_KINDS).factor_widths)
        except ValueError as error:
            raise ConfigError(str(error).replace("infusion kind:", "infusion.embedding.kind:")) from error
        check_factors(names, PER_WORD, [name for name in self._values if name not in FACTORS])
        if TERM in names and TERM not in self._values:
            raise ConfigError(
                f"infusion.factors: expected {TERM} only in a translator with data.terms, got it."
            )
        return names

    @property
    def batch_settings(self) -> dict[str, Any]:
        """What gives the numbers of a batch their meaning: a model refuses batches of other settings."""
        options = self.tree_options
        names = ("max_distance", "siblings", "specials", "relations")
        of_trees = {name: getattr(options, name, None) for name in names}
        trees = () if options is None else options.used_trees
        return {
            "trees": trees,
            **of_trees,
            "nodes": options.nodes if options and "constituency" in trees else None,
            "lisa": self.lisa is not None,
            "factors": self.factors,
            "values": tuple(vocabulary.values for vocabulary in self.vocabularies.values()),
        }

    @property
    def batch_numbers(self) -> list[int]:
        """`batch_settings` as batches carry them: whole numbers, or checksums."""
        settings = self.batch_settings.values()
        return [x if isinstance(x, int) else zlib.crc32(repr(x).encode()) for x in settings]

    @property
    def _values(self) -> dict[str, tuple[str, ...]]:
        return (self.embedding and self.embedding.values) or {}

    @property
    def vocabularies(self) -> dict[str, FactorVocabulary]:
        """Vocabularies of `factors`, in the same order.

        Raises:
            ConfigError: As for `factors`, or the values of an open factor are not known.
        """
        stored = self._values
        of_factors = {name: stored[name] if name in stored else FACTORS[name].values for name in self.factors}
        if unknown := [name for name, values in of_factors.items() if values is None]:
            raise ConfigError(
                f"embedding.values: expected the values of {', '.join(unknown)}, which come from data, got "
                "none. Call InfusionConfig.fitted with the training sentences, as `finetune` does."
            )
        return {name: FactorVocabulary(name, values) for name, values in of_factors.items() if values}

    def fitted(self, sentences: Sequence[Sentence] | None = None) -> InfusionConfig:
        """A copy with the values of all factors; those of open factors come from the training sentences.

        Raises:
            ConfigError: As for `factors`, or an open factor has no value that is frequent enough.
        """
        if self.embedding is None:
            return self
        names = [name for name in self.factors if name not in self._values]
        if sentences is None:
            names = [name for name in names if FACTORS[name].values]
        needs = {need for name in names if FACTORS[name].values is None for need in FACTORS[name].needs}
        columns = [WordColumns.from_sentences(sentences or (), only=needs)] if needs else []
        vocabularies = build_vocabularies(columns, names, self.embedding.min_count)
        values = self._values | {name: vocabulary.values for name, vocabulary in vocabularies.items()}
        return self.model_copy(update={"embedding": self.embedding.model_copy(update={"values": values})})

    @classmethod
    def parse(cls, names: str) -> InfusionConfig:
        """Read the command line's shorthand: `masks,lisa,pos_add`; "none" or "" for a plain model.

        Args:
            names: Keys of `SHORTHAND`, separated by commas.

        Raises:
            ConfigError: A name is unknown or given twice, or there are two kinds of embedding.
        """
        keys = [name.strip() for name in names.split(",") if name.strip() not in ("", "none")]
        if unknown := [name for name in keys if name not in SHORTHAND]:
            expected = f"infuse: expected some of {', '.join(SHORTHAND)} or none"
            raise ConfigError(
                [f"{expected}, got {key!r}. {nearest(key, list(SHORTHAND))}" for key in unknown]
            )
        content: dict[str, Any] = {}
        for name in keys:
            key, value = SHORTHAND[name]
            if key in content:
                raise ConfigError(f"infuse: expected {key} once, got it twice in {names!r}.")
            content[key] = value
        return validate(cls, content, "infuse")

    @classmethod
    def of(cls, config: Any) -> InfusionConfig:
        """The config itself, what its shorthand means, or that of an infused model.

        Raises:
            ConfigError: It is none of these, or `parse` refuses the shorthand.
        """
        config = getattr(getattr(config, "infusion", None), "config", config)
        if isinstance(config, str):
            return cls.parse(config)
        if not isinstance(config, cls):
            raise ConfigError(f"infuse: expected an InfusionConfig, got {type(config).__name__}.")
        return config

    @classmethod
    def from_json(cls, content: Any, source: str) -> InfusionConfig:
        """Read what `model_dump(mode="json")` returned; a trained model may hold settings without effect.

        Raises:
            ConfigError: The content is no mapping, a key is unknown or a value is not allowed.
        """
        if not isinstance(content, Mapping):
            raise ConfigError(f"{source}: expected keys and values, got {type(content).__name__}.")
        try:
            return cls.model_validate(dict(content), context=_STORED)
        except ValidationError as error:
            raise config_error(cls, error, source) from error


SHORTHAND: dict[str, tuple[str, Any]] = {
    "masks": ("masks", {}),
    "relation_bias": ("relation_bias", {}),
    "lisa": ("lisa", {}),
    "pos_add": ("embedding", {"kind": "add", "factors": ["pos"]}),
    "pos_concat": ("embedding", {"kind": "concat", "factors": ["pos"]}),
    "pos_let": ("embedding", {"kind": "let", "factors": ["pos"]}),
    "let": ("embedding", {"kind": "let", "factors": ["pos"]}),
}
"""For each name that `--infuse` takes, a key of `InfusionConfig` and its value."""


def layer_problems(config: InfusionConfig, n_layers: int, n_heads: int, name: str) -> list[str]:
    """Describe, one line each, the layers and heads that the encoder does not have."""
    problems = []
    for section in IN_ATTENTION:
        layers = getattr(getattr(config, section), "layers", None)
        wrong = [layer for layer in layers or () if not 0 <= layer < n_layers]
        if wrong or layers == ():
            got = ", ".join(map(str, wrong)) or "none"
            problems.append(f"{section}.layers: expected layers 0 to {n_layers - 1} of {name}, got {got}.")
    if (lisa := config.lisa) and lisa.attn_head >= n_heads:
        problems.append(
            f"lisa.attn_head: expected 0 to {n_heads - 1}, a head of {name}, got {lisa.attn_head}."
        )
    if lisa and lisa.head == "added" and (lisa.attn_head or lisa.keys != "head"):
        problems.append("lisa.head: expected replaced with attn_head or keys, got added. Leave these out.")
    return problems


def _as_mapping(section: Any) -> dict[str, Any] | None:
    """The keys that were set in a section, which is a mapping or an object; None if it is off."""
    if isinstance(section, BaseModel):
        return section.model_dump(exclude_unset=True)
    return dict(section) if isinstance(section, Mapping) else None
