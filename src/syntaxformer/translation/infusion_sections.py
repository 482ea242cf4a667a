"""The sections of a recipe that say what syntax a translator's encoder is given, and what they may not say.

The sections `lisa` and `relation_bias` are those of the plug-in (`infusion_config`), `masks` is its own with
a preset added; how factors enter is a section of its own.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from syntaxformer.infusion.config import LisaConfig, RelationBiasConfig, TreeOptions, tree_problems
from syntaxformer.nn.infused_embedding import INFUSION_KINDS
from syntaxformer.translation.encoder_syntax import EncoderMasks
from syntaxformer.translation.source import TagPlace

__all__ = ["EmbeddingInfusionConfig", "infusion_problems", "syntax_problems"]


class EmbeddingInfusionConfig(BaseModel):
    """How factors enter the encoder; see `layers.infusion_plan`."""

    model_config = ConfigDict(extra="forbid")

    kind: str = Field(default="none", description=", ".join(INFUSION_KINDS))
    factors: list[str] | None = Field(
        default=None,
        description="pos, case, subword, predicate, deprel, depth or your own; null: the kind's own",
    )
    width: int | None = Field(
        default=None,
        ge=1,
        description="columns for all factors together (paper 000: 8 to 64); null: 20, for learned_concat 24",
    )
    widths: dict[str, int] | None = Field(
        default=None, description="columns of each factor, for kinds that concatenate them"
    )
    word_width: int | None = Field(
        default=None, ge=1, description="columns of the word embedding; null: what is left"
    )
    min_count: int = Field(
        default=2, ge=1, description="values of open factors seen less often are read as unknown"
    )
    place: TagPlace | None = Field(
        default=None,
        description="prepend only: tags interleaved with words, or a prefix of the line; null: interleaved",
    )
    tag_layers: int | None = Field(
        default=None, ge=1, description="pos_encoder only: layers of the second encoder; null: 1"
    )

    @property
    def tag_place(self) -> TagPlace | None:
        """Where tags stand that are pieces; None where they are none."""
        return (self.place or "interleaved") if self.kind == "prepend" else None


def infusion_problems(section: EmbeddingInfusionConfig) -> list[str]:
    """Settings that the section's kind would pass over in silence, and factors that it cannot take."""
    problems = [
        f"infusion.{key}: expected nothing for kind {section.kind!r}, got {value!r}. "
        f"It belongs to kind {owner}."
        for key, owner in (("place", "prepend"), ("tag_layers", "pos_encoder"))
        if (value := getattr(section, key)) is not None and section.kind != owner
    ]
    if section.kind == "prepend" and "subword" in (section.factors or ()):
        problems.append(
            "infusion.factors: expected factors of words for kind 'prepend', got subword, a factor of pieces."
        )
    return problems


def syntax_problems(
    lisa: LisaConfig | None,
    masks: EncoderMasks | None,
    relation_bias: RelationBiasConfig | None,
    n_layers: int,
    n_heads: int,
    kind: str = "none",
) -> list[str]:
    """What does not fit the encoder, or cannot be had in a translator.

    Args:
        lisa: Section of the recipe; likewise the next two.
        masks: Syntax attention.
        relation_bias: Biases by relation.
        n_layers: Of the encoder.
        n_heads: Of each layer.
        kind: Of infusion; `pos_encoder` has LISA heads of its own, so that none of the encoder's need be.
    """
    problems = []
    for name, section in (("lisa", lisa), ("masks", masks), ("relation_bias", relation_bias)):
        wrong = [layer for layer in (section and section.layers) or () if not 0 <= layer < n_layers]
        if wrong:
            problems.append(f"{name}.layers: expected 0 to {n_layers - 1}, got {', '.join(map(str, wrong))}.")
        if section is not None and section.layers == () and not (name == "lisa" and kind == "pos_encoder"):
            problems.append(
                f"{name}.layers: expected at least one layer, got none. Name some, or leave the section out."
            )
        if isinstance(section, TreeOptions) and section.random:
            problems.append(f"{name}.random: expected false in a translator, got true.")
        if isinstance(section, TreeOptions) and set(section.without) >= {"parent", "child", "sibling"}:
            # The fourth, pair, is between two texts of one input: a translator has one.
            problems.append(f"{name}.without: expected a relation to be left, got none.")
    if lisa is not None and lisa.attn_head >= n_heads:
        problems.append(f"lisa.attn_head: expected 0 to {n_heads - 1}, got {lisa.attn_head}.")
    if lisa is not None and lisa.keys != "head":
        problems.append(f"lisa.keys: expected head in a translator, got {lisa.keys}.")
    return problems + tree_problems(masks, relation_bias)
