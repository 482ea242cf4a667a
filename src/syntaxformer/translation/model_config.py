"""Config of the translation model as a Hugging Face config, stored as `config.json` in a model folder."""

from __future__ import annotations

from typing import Any, ClassVar

from transformers import PreTrainedConfig

from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.nn.infused_embedding import WidthPlan, plan_widths


class SyntaxTransformerConfig(PreTrainedConfig):
    """Shape of a `SyntaxTransformer`; see also the section `model` of a recipe.

    Args:
        vocab_size: Pieces of the target vocabulary, or of the vocabulary that both sides share.
        source_vocab_size: Pieces of a separate source vocabulary; None if both sides share one.
        source_pad_token_id: Id of the padding piece in a separate source vocabulary.
        infusion: `WidthPlan.as_dict()`; `width_plan` reads it.
        factor_sizes: Rows of each factor's table.
        tag_layers: Layers of the second encoder of infusion kind `pos_encoder`.
        lisa: `LisaConfig` as a mapping; None for no biaffine head. So are `masks` and `relation_bias`.
        target_pos: Tags that the decoder also predicts in training, `{"tags": [...], "weight": w}`.
        parse_task: Labels of the source's tree that the decoder also learns to write, as `target_pos`.
        source_table_width: Columns of the source word table, if they are fewer than the word width.
        label_smoothing: Smoothing of the loss, in training mode only.
    """

    model_type = "syntaxformer"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "cache", "tallies"]
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "decoder_layers",
    }

    vocab_size: int = 10_000
    source_vocab_size: int | None = None
    source_pad_token_id: int | None = None
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    n_heads: int = 8
    d_ff: int = 2048
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation_dropout: float = 0.0
    norm: str = "pre"
    activation: str = "relu"
    share_source_embedding: bool = True
    infusion: dict[str, Any] | None = None
    factor_sizes: dict[str, int] | None = None
    tag_layers: int = 1
    lisa: dict[str, Any] | None = None
    masks: dict[str, Any] | None = None
    relation_bias: dict[str, Any] | None = None
    target_pos: dict[str, Any] | None = None
    parse_task: dict[str, Any] | None = None
    source_table_width: int | None = None
    label_smoothing: float = 0.0
    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = True
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1

    @property
    def n_source_pieces(self) -> int:
        """Pieces of the source vocabulary, separate or shared."""
        return self.vocab_size if self.source_vocab_size is None else self.source_vocab_size

    @property
    def source_pad_id(self) -> int:
        """Id of the padding piece in the source vocabulary, separate or shared."""
        of_source = self.source_pad_token_id
        return (self.pad_token_id or 0) if of_source is None else of_source

    @property
    def width_plan(self) -> WidthPlan:
        """The widths of word and factors in the encoder's input."""
        return WidthPlan.from_dict(self.infusion) if self.infusion else plan_widths("none", self.d_model)

    @property
    def plug_in(self) -> InfusionConfig | None:
        """What syntax is put inside the encoder's attention; None for nothing."""
        lisa = self.lisa
        if lisa is not None and lisa.get("layers") in ((), []):
            lisa = None  # infusion kind `pos_encoder` has its heads in the second encoder
        sections = {"masks": self.masks, "relation_bias": self.relation_bias, "lisa": lisa}
        if all(section is None for section in sections.values()):
            return None
        return InfusionConfig.from_json(sections, "the model's config.json")

    @property
    def shares_source_table(self) -> bool:
        """Whether the source uses the same word table as the decoder's input and output."""
        is_own = self.source_vocab_size is not None or self.source_table_width is not None
        return self.share_source_embedding and not is_own and self.width_plan.word_width == self.d_model
