"""`SyntaxTransformer`: an encoder with syntax and a decoder, as a Hugging Face model.

`from_pretrained`, `save_pretrained` and `generate` work as usual. The module `source` turns texts into piece
ids and factor ids.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
)

from syntaxformer.base.errors import CheckpointError
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.families import OWN, parts_in
from syntaxformer.infusion.infusion import Infusion, SyntaxBatch
from syntaxformer.infusion.inside_attention import own_layer
from syntaxformer.nn.attention import FusedLinear
from syntaxformer.nn.infused_embedding import InfusedEmbedding, JoinedMap, MappedEmbedding
from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL, cross_entropy, linear_cross_entropy
from syntaxformer.nn.kernels.on_cpu import Dropout
from syntaxformer.nn.lisa import governor_hits
from syntaxformer.nn.transformer import DecoderLayer, EncoderLayer, SinusoidalPositions
from syntaxformer.translation.model_config import SyntaxTransformerConfig


def asked(config: SyntaxTransformerConfig, name: str, value: bool | None) -> bool:
    """The value of an argument of `forward`, from the config where it is not given."""
    return bool(getattr(config, name) if value is None else value)


class Stack(nn.Module):
    """Positions, layers and a norm; transformers can turn on gradient checkpointing for it."""

    gradient_checkpointing = False
    _gradient_checkpointing_func: Callable[..., Any] = staticmethod(checkpoint)

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__()
        self.config = config

    def add_layers(self, layer: type[nn.Module], n_layers: int) -> None:
        """Add what embeddings pass through, with so many layers of a class."""
        config = self.config
        self.scale = math.sqrt(config.d_model)
        self.positions = SinusoidalPositions(config.d_model)
        self.dropout = Dropout(config.dropout)
        shape, rates = ("d_model", "n_heads", "d_ff"), ("dropout", "attention_dropout", "activation_dropout")
        arguments = {name: getattr(config, name) for name in (*shape, *rates, "norm", "activation")}
        self.layers = nn.ModuleList(layer(**arguments) for _ in range(n_layers))
        # Only pre-norm layers need a norm after the last: they leave their sum unnormalised.
        self.norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()

    @property
    def runs_again(self) -> bool:
        """Whether the backward pass will run the layers a second time."""
        return self.gradient_checkpointing and self.training and torch.is_grad_enabled()

    def run(self, layer: nn.Module, *inputs: Any) -> Any:
        """Apply a layer; with gradient checkpointing, the backward pass computes its inner states again.

        Source: Chen et al. (2016), "Training Deep Nets with Sublinear Memory Cost".
        """
        if self.runs_again:
            return self._gradient_checkpointing_func(layer, *inputs)
        return layer(*inputs)


@dataclass
class EncoderOutput(BaseModelOutput):
    """Output of an encoder.

    Args:
        governor_losses: Losses of LISA's heads, if they are supervised and governors were given.
        pointed_at: Positions that these heads point at, `[batch, src]` each, if governors were given.
    """

    governor_losses: tuple[Tensor, ...] | None = None
    pointed_at: tuple[Tensor, ...] | None = None


class _Host(Stack):
    """The common part of the encoders of pieces and of tags: layers with syntax."""

    infusion: Infusion | None

    def _add_layers(self, n_layers: int, plug_in: InfusionConfig | None) -> None:
        self.register_module("infusion", None)
        self.add_layers(EncoderLayer, n_layers)
        self.infuse(plug_in)

    def infuse(self, plug_in: InfusionConfig | None) -> None:
        """Put syntax inside the layers."""
        if plug_in is not None and not plug_in.is_plain:
            self.infusion = Infusion(plug_in, parts_in(self, OWN))

    def _run_layers(
        self,
        embedded: Float[Tensor, "batch src d_model"],
        attention_mask: Int[Tensor, "batch src"] | None,
        batch: SyntaxBatch | None,
        attends: bool = False,
        shows_states: bool = False,
    ) -> tuple[Tensor, list[Tensor], list[Tensor | None]]:
        """Return the states after the norm and, if asked for, the states and weights of each layer."""
        mask = None if attention_mask is None else attention_mask.bool()[:, None, None, :]
        states = self.dropout(self.positions(embedded * self.scale))
        hidden, attentions = [states], []
        for number, layer in enumerate(self.layers):
            states, weights = self.run(layer, states, mask, attends, batch and own_layer(batch, number))
            hidden += [states] if shows_states else []
            attentions.append(weights)
        if batch is not None:
            batch.seen.closed = True
        return self.norm(states), hidden, attentions


class TagEncoder(_Host):
    """Encodes the tags of each piece; the output is added to that of the encoder of pieces.

    Args:
        config: The model's config; the `tag_layers` layers have the model's width.
        sizes: Number of rows of each factor's table; the vectors of several factors are summed.

    Source: Kapadia et al. (2020), system 5, "LISA layer trained with POS", figure 1.
    """

    def __init__(self, config: SyntaxTransformerConfig, sizes: Mapping[str, int]) -> None:
        super().__init__(config)
        tables = {name: nn.Embedding(size, config.d_model) for name, size in sizes.items()}
        self.tables = nn.ModuleDict(tables)
        # A LISA head in each layer, as `plug_in` leaves it out for this infusion kind.
        lisa = {"supervised": False} if config.lisa is None else config.lisa
        self._add_layers(config.tag_layers, InfusionConfig(lisa={**lisa, "layers": range(config.tag_layers)}))

    def forward(
        self,
        factor_ids: Int[Tensor, "batch src factors"] | None,
        attention_mask: Int[Tensor, "batch src"] | None,
        governors: Int[Tensor, "batch src"] | None,
    ) -> Float[Tensor, "batch src d_model"]:
        """Encode tags.

        Raises:
            ValueError: The number of columns is not the number of factors.
        """
        n_given = 0 if factor_ids is None else factor_ids.shape[-1]
        if factor_ids is None or n_given != len(self.tables):
            raise ValueError(f"factor_ids: expected columns {list(self.tables)}, got {n_given} columns.")
        tags = sum(table(factor_ids[..., column]) for column, table in enumerate(self.tables.values()))
        assert self.infusion is not None, "each layer has a LISA head"
        batch = self.infusion.prepare_batch({"governors": governors}, factor_ids.shape[:2], attention_mask)
        return self._run_layers(tags, attention_mask, batch)[0]


class Encoder(_Host):
    """Infused embeddings, positions, and a stack of encoder layers."""

    main_input_name = "input_ids"

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__(config)
        plan, n_pieces = config.width_plan, config.n_source_pieces
        self.embedding = InfusedEmbedding(plan, n_pieces, config.factor_sizes or {}, config.source_pad_id)
        if (narrow := config.source_table_width) is not None:
            self.embedding.word = MappedEmbedding(n_pieces, narrow, plan.word_width, config.source_pad_id)
        self._add_layers(config.encoder_layers, config.plug_in)
        has_tags = self.embedding.kind.join == "encoder"
        self.tags = TagEncoder(config, self.embedding.sizes) if has_tags else None

    def forward(
        self,
        input_ids: Int[Tensor, "batch src"] | None = None,
        attention_mask: Int[Tensor, "batch src"] | None = None,
        factor_ids: Int[Tensor, "batch src factors"] | None = None,
        syntax: UInt8[Tensor, "batch trees src src"] | None = None,
        governors: Int[Tensor, "batch src"] | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        syntax_settings: Int[Tensor, "batch settings"] | None = None,
    ) -> EncoderOutput | tuple[Any, ...]:
        """Encode source pieces; arguments as in `SyntaxTransformer`, factors in the order of the plan.

        LISA's head is trained on `governors`. Outside training it attends to them if the model injects them.
        """
        attends = asked(self.config, "output_attentions", output_attentions)
        shows_states = asked(self.config, "output_hidden_states", output_hidden_states)
        is_dict = asked(self.config, "return_dict", return_dict)
        embedded, batch, seen = self.embedding(input_ids, factor_ids), None, []
        if self.infusion is not None:
            inputs = {"syntax": syntax, "governors": governors, "syntax_settings": syntax_settings}
            batch = self.infusion.prepare_batch(inputs, embedded.shape[:2], attention_mask, attends)
            seen.append(batch.seen)
        states, hidden, attentions = self._run_layers(embedded, attention_mask, batch, attends, shows_states)
        if self.tags is not None:
            states = states + self.tags(factor_ids, attention_mask, governors)
            seen.append(self.tags.infusion.seen)
        output = EncoderOutput(
            last_hidden_state=states,
            hidden_states=tuple(hidden) if shows_states else None,
            attentions=tuple(attentions) if attends else None,
            governor_losses=tuple(loss for s in seen for loss in s.of_all_layers("governor_losses")) or None,
            pointed_at=tuple(at for s in seen for at in s.of_all_layers("pointed_at")) or None,
        )
        return output if is_dict else output.to_tuple()


class Decoder(Stack):
    """Target embeddings, positions, and a stack of decoder layers."""

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.add_layers(DecoderLayer, config.decoder_layers)

    def forward(
        self,
        pieces: Int[Tensor, "batch tgt"],
        memory: Float[Tensor, "batch src d_model"],
        memory_mask: Int[Tensor, "batch src"] | None = None,
        cache: EncoderDecoderCache | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        table: nn.Embedding | None = None,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Return the states of the target pieces; if asked for, also the states and weights of each layer.

        `table` embeds pieces of another task.

        Raises:
            ValueError: The cache has a fixed length, or the backward pass would fill it a second time.
        """
        if cache is not None and self.runs_again:
            raise ValueError(
                "use_cache: expected false in training with gradient checkpointing, which runs each layer "
                "twice, got true. Call the model without a cache, or under torch.no_grad."
            )
        if cache is not None and cache.is_compileable:
            raise ValueError(
                "past_key_values: expected a cache that grows, got one of fixed length. The decoder would "
                "attend to its empty slots: leave cache_implementation out of generate."
            )
        first = 0 if cache is None else cache.get_seq_length()
        states = self.dropout(self.positions((table or self.embedding)(pieces) * self.scale, first))
        mask = None if memory_mask is None else memory_mask.bool()[:, None, None, :]
        hidden, to_itself, cross = [states], [], []
        for number, layer in enumerate(self.layers):
            states, *weights = self.run(layer, states, memory, mask, cache, number, output_attentions)
            hidden += [states] if output_hidden_states else []
            to_itself.append(weights[0])
            cross.append(weights[1])
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.norm(states),
            hidden_states=tuple(hidden) if output_hidden_states else None,
            attentions=tuple(to_itself) if output_attentions else None,
            cross_attentions=tuple(cross) if output_attentions else None,
        )


class TranslationCache(EncoderDecoderCache):
    """Keys and values of a beam search.

    Beams change places only within one sentence, and all beams of a sentence attend to the same encoder
    states. So the cross-attention half never needs the reordering that the base class does at each step.
    `others` are the caches of other models, which follow the same search.
    """

    def __init__(self, n_others: int = 0) -> None:
        super().__init__(DynamicCache(), DynamicCache())
        self.others = [TranslationCache() for _ in range(n_others)]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the self-attention half."""
        for cache in (self, *self.others):
            cache.self_attention_cache.reorder_cache(beam_idx)


Tallies = dict[str, tuple[Tensor, Tensor]]
"""Name of each auxiliary task's accuracy → (number of right answers, number of answers), on the device."""


@dataclass
class TranslationOutput(Seq2SeqLMOutput):
    """Output of a translator; its tallies are None without auxiliary tasks."""

    tallies: Tallies | None = None


CACHE = "cache" if "cache" in {field.name for field in fields(Seq2SeqLMOutput)} else "past_key_values"
"""The name that the installed transformers gives a decoder's cache: `cache` from 5.24 on."""


def shift_right(labels: Int[Tensor, "batch tgt"], config: Any) -> Int[Tensor, "batch tgt"]:
    """What a decoder reads: its start piece and the labels but the last; padding where they are ignored."""
    shifted = labels.roll(1, dims=1)
    shifted = shifted.masked_fill(shifted == IGNORED_LABEL, config.pad_token_id)
    shifted[:, 0] = config.decoder_start_token_id
    return shifted


@dataclass(frozen=True)
class Auxiliary:
    """One auxiliary task on one batch; its loss is a weighted mean over the judged pieces."""

    name: str
    loss: Float[Tensor, ""]
    right: Int[Tensor, ""]
    total: Int[Tensor, ""]


def label_task(
    name: str, logits: Float[Tensor, "batch tgt labels"], labels: Int[Tensor, "batch tgt"], weight: float
) -> Auxiliary:
    """The decoder predicts labels, such as the tag of its next piece; those of -100 do not count.

    Source: Kapadia et al. (2020), "Augmented Transformer for Machine Translation", section 2.
    """
    flat, labels = logits.float().flatten(0, 1), labels.flatten()
    losses = nn.functional.cross_entropy(flat, labels, ignore_index=IGNORED_LABEL, reduction="sum")
    counted = labels != IGNORED_LABEL
    right, total = ((flat.detach().argmax(-1) == labels) & counted).sum(), counted.sum()
    return Auxiliary(f"{name}_accuracy", weight * losses / total.clamp(min=1), right, total)


class SyntaxTransformer(PreTrainedModel, GenerationMixin):
    """Encoder-decoder for translation with syntax-infused source embeddings.

    Source: Vaswani et al. (2017); Sundararaman et al. (2019), "Syntax-infused Transformer".
    """

    config_class = SyntaxTransformerConfig
    config: SyntaxTransformerConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    accepts_loss_kwargs = True
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _keep_in_fp32_modules_strict: ClassVar[set[str]] = {"infusion"}
    _tied_weights_keys: ClassVar[dict[str, str]] = {"output.weight": "decoder.embedding.weight"}

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__(config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.target_tagger = self.parse_labels = None
        if config.target_pos:
            self.target_tagger = nn.Linear(config.d_model, len(config.target_pos["tags"]))
            self.target_pos_weight = config.target_pos["weight"]
        if config.parse_task:  # a last table, which draws nothing here: other weights start as without it
            empty = torch.empty(len(config.parse_task["labels"]), config.d_model)
            self.parse_labels = nn.Embedding(*empty.shape, _weight=empty)
        if config.shares_source_table:
            self._tied_weights_keys = {
                "encoder.embedding.word.weight": "decoder.embedding.weight",
                "output.weight": "decoder.embedding.weight",
            }
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Draw each map and each table from U(-b, b) with b = √(6 / (rows + columns)).

        Source: Glorot & Bengio (2010). Differs: fused projections take the bound of one projection. Factor
        tables take that of the word table: with their own, of 20 rows, features would be 20 times larger.
        So do the columns of a map that read one-hot tags: they would be √((vocab + d) / 2d) times larger.
        """
        source_rows = self.config.n_source_pieces
        if isinstance(module, nn.Linear):
            n_parts = module.n_parts if isinstance(module, FusedLinear) else 1
            self._uniform(module.weight, module.out_features // n_parts, module.in_features)
            if isinstance(module, JoinedMap) and module.n_one_hot and not _is_loaded(module.weight):
                tags = module.weight[:, -module.n_one_hot :]
                self._uniform(tags, source_rows, self.encoder.embedding.plan.word_width)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            rows = self.config.vocab_size if module is self.decoder.embedding else source_rows
            self._uniform(module.weight, rows, module.embedding_dim)
            if module.padding_idx is not None and not _is_loaded(module.weight):
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif hasattr(module, "reset_parameters") and not any(
            map(_is_loaded, module.parameters(recurse=False))
        ):
            module.reset_parameters()

    @staticmethod
    def _uniform(weight: Tensor, rows: int, columns: int) -> None:
        bound = math.sqrt(6 / (rows + columns))
        init.uniform_(weight, -bound, bound)

    @property
    def infusion(self) -> Infusion | None:
        """What syntax adds to the encoder; None for an encoder without syntax."""
        return self.encoder.infusion

    def get_input_embeddings(self) -> nn.Embedding:
        """The source word table."""
        return self.encoder.embedding.word

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the source word table, and the target's as well if they share one."""
        self.encoder.embedding.word = value
        if self.config.shares_source_table and self.config.tie_word_embeddings:
            self.decoder.embedding = value
            self.tie_weights()

    def get_output_embeddings(self) -> nn.Module:
        """The output projection."""
        return self.output

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output projection; `tie_weights` ties it again if the config says so."""
        self.output = new_embeddings

    def _resize_token_embeddings(
        self, new_num_tokens: int | None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Module:
        """Resize all tables of the vocabulary, unless each side has its own or tags follow the words."""
        if self.config.source_vocab_size is not None or self.encoder.embedding.kind.join == "pieces":
            raise ValueError(
                "resize_token_embeddings: expected one vocabulary for both sides, without tags, got "
                "source_vocab_size or infusion kind 'prepend'. Build a model for the new vocabularies."
            )
        resized: Any = super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        table, size = self.decoder.embedding, len(resized.weight)
        self.decoder.embedding = self._get_resized_embeddings(table, size, None, mean_resizing)
        return resized

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Load as the base class does; infusion that only a config given here asks for starts untrained.

        Raises:
            CheckpointError: The folder's weights lack parts of the infusion that its `config.json` describes.
        """
        wants_report = kwargs.pop("output_loading_info", False)
        folder = pretrained_model_name_or_path
        loaded: Any = super().from_pretrained(folder, *args, output_loading_info=True, **kwargs)
        model, report = loaded
        missing = [name for name in report["missing_keys"] if OF_INFUSION.match(name)]
        if missing:
            of_folder = ("cache_dir", "local_files_only", "revision", "subfolder", "token")
            options = {name: kwargs[name] for name in of_folder if name in kwargs}
            with torch.device("meta"), init.no_init_weights():
                described = cls(SyntaxTransformerConfig.from_pretrained(folder, **options)).state_dict()
            missing = sorted(described.keys() & missing)
        if missing:
            raise CheckpointError(
                f"{folder}: expected the weights of the infusion that config.json describes, got none for "
                f"{', '.join(missing[:3])}: the folder was written by another version, or altered. "
                "Train the model again."
            )
        return (model, report) if wants_report else model

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Save as the base class does; tied tables are recorded as tied, even if PEFT set the opposite."""
        tables = (self.encoder.embedding.word, self.decoder.embedding, self.output)
        if len({id(table.weight) for table in tables}) < len(tables):
            self.config.tie_word_embeddings = True
        super().save_pretrained(*args, **kwargs)

    def forward(
        self,
        input_ids: Int[Tensor, "batch src"] | None = None,
        attention_mask: Int[Tensor, "batch src"] | None = None,
        factor_ids: Int[Tensor, "batch src factors"] | None = None,
        syntax: UInt8[Tensor, "batch trees src src"] | None = None,
        governors: Int[Tensor, "batch src"] | None = None,
        first_pieces: Bool[Tensor, "batch src"] | None = None,
        decoder_input_ids: Int[Tensor, "batch tgt"] | None = None,
        labels: Int[Tensor, "batch tgt"] | None = None,
        target_tags: Int[Tensor, "batch tagged"] | None = None,
        parse: Int[Tensor, "batch written"] | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        cache: EncoderDecoderCache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        syntax_settings: Int[Tensor, "batch settings"] | None = None,
        **others: Any,
    ) -> TranslationOutput | tuple[Any, ...]:
        """Score target pieces; in training with labels, only the loss is computed and `logits` is None.

        Args:
            input_ids: Source pieces.
            attention_mask: 1 for source pieces, 0 for padding.
            factor_ids: Factor values of the source pieces.
            syntax: Relations of the source pieces in each tree.
            governors: Position of each source piece's governor; negative for none.
            first_pieces: True for the first piece of each word; only these count for the governor accuracy.
            decoder_input_ids: Target pieces shifted right; made from `labels` if absent.
            labels: Target pieces, -100 where no loss is wanted.
            target_tags: Part of speech of each target piece, -100 for none; without them no tag is predicted.
            parse: Labels of the linearised parse of the source, -100 for padding; needs `labels`.
            encoder_outputs: An earlier result of the encoder.
            past_key_values: Cache of an incremental decoding.
            cache: The same under the name that transformers 5.24 gives it.
            use_cache: Return a cache; None follows the config if there are no labels.
            output_attentions: Return attention weights, `layers × [batch, heads, query, key]`; None follows
                the config, here and below.
            output_hidden_states: Return the input and the states after each layer, before the final norm.
            return_dict: Return a `TranslationOutput` and not a tuple; a tuple always contains the logits.
            num_items_in_batch: Divisor of the loss under accumulation: the target pieces of the update.
            syntax_settings: For which infusion a `SyntaxCollator` made the batch; another one is refused.
            others: Keywords of other translation models; none is supported.

        Raises:
            ValueError: Neither `decoder_input_ids` nor `labels` is given, or a keyword is not supported, such
                as embeddings or a target mask.
        """
        _refuse_unserved(others)
        attends = asked(self.config, "output_attentions", output_attentions)
        shows_states = asked(self.config, "output_hidden_states", output_hidden_states)
        is_dict = asked(self.config, "return_dict", return_dict)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                *(input_ids, attention_mask, factor_ids, syntax, governors, attends, shows_states, True),
                syntax_settings=syntax_settings,
            )
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("forward: expected decoder_input_ids or labels, got neither.")
            decoder_input_ids = shift_right(labels, self.config)
        wants_cache = labels is None and not self.decoder.runs_again and self.config.use_cache
        cache = past_key_values if cache is None else cache
        if cache is None and (wants_cache if use_cache is None else use_cache):
            cache = TranslationCache()
        memory = encoder_outputs.last_hidden_state
        decoded = self.decoder(decoder_input_ids, memory, attention_mask, cache, attends, shows_states)
        states = decoded.last_hidden_state
        tasks = [] if labels is None else self._auxiliary(encoder_outputs, governors, first_pieces)
        if self.target_tagger is not None and labels is not None and target_tags is not None:
            tagged = self.target_tagger(states)
            tasks.append(label_task("target_pos", tagged, target_tags, self.target_pos_weight))
        if labels is not None and parse is not None:
            tasks += self._parse_task(memory, attention_mask, parse)
        needs_logits = not self.training or labels is None or not is_dict or not _is_plain(self.output)
        logits = self.output(states) if needs_logits else None
        output = TranslationOutput(
            loss=None if labels is None else self._loss(states, logits, labels, num_items_in_batch, tasks),
            logits=logits,
            tallies={task.name: (task.right, task.total) for task in tasks} or None,
            **{CACHE: cache},
            decoder_hidden_states=decoded.hidden_states,
            decoder_attentions=decoded.attentions,
            cross_attentions=decoded.cross_attentions,
            encoder_last_hidden_state=memory,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )
        return output if is_dict else output.to_tuple()

    def prepare_decoder_input_ids_from_labels(self, labels: Int[Tensor, "b tgt"]) -> Int[Tensor, "b tgt"]:
        """Shift labels right, see `shift_right`; transformers' collators call it."""
        return shift_right(labels, self.config)

    def _auxiliary(
        self, encoded: BaseModelOutput, governors: Tensor | None, first_pieces: Tensor | None
    ) -> list[Auxiliary]:
        """LISA's heads find governors: mean loss of all, accuracy of the last on `first_pieces`."""
        losses = getattr(encoded, "governor_losses", None)
        if governors is None or self.config.lisa is None or not losses:
            return []
        lisa = (self.encoder.tags or self.encoder).infusion.config.lisa
        right, total = governor_hits(encoded.pointed_at[-1], governors, first_pieces)
        loss = lisa.weight * torch.stack(losses).mean()
        return [Auxiliary("governor_accuracy", loss, right, total)]

    def _parse_task(self, memory: Tensor, mask: Tensor | None, parse: Tensor) -> list[Auxiliary]:
        """The decoder writes the source's linearised parse: row 0 of its labels is the tag of this task.

        Source: Currey & Heafield (2019), "Incorporating Source Syntax into Transformer-Based Neural Machine
        Translation". Differs: labels have a table of their own, and both tasks share each encoder pass.
        """
        table, weight = self.parse_labels, (self.config.parse_task or {}).get("weight", 0.0)
        if table is None or not weight or not parse.numel():
            return []
        before = nn.functional.pad(parse[:, :-1], (1, 0)).clamp(min=0)
        states = self.decoder(before, memory, mask, table=table).last_hidden_state
        return [label_task("parse", states @ table.weight.T, parse, weight)]

    def _loss(
        self,
        states: Tensor,
        logits: Tensor | None,
        labels: Tensor,
        n_items: Tensor | int | None,
        tasks: Sequence[Auxiliary],
    ) -> Float[Tensor, ""]:
        """Cross-entropy per target piece; training adds label smoothing and the auxiliary losses.

        Each auxiliary loss is a mean; accumulated batches weight theirs by their target pieces.
        """
        n_pieces = (labels != IGNORED_LABEL).sum()
        smoothing = self.config.label_smoothing if self.training else 0.0
        if logits is None:
            total = linear_cross_entropy(states, self.output.weight, labels, smoothing)
        else:
            total = cross_entropy(logits, labels, smoothing)
        if self.training and tasks:
            total = total + n_pieces * torch.stack([task.loss for task in tasks]).sum()
        return total / (n_pieces if n_items is None else n_items)


OF_INFUSION = re.compile(r"encoder\.(infusion|tags|embedding\.(factors|map))\.")
"""Names of parameters that a translator without syntax does not have."""


def _refuse_unserved(keywords: dict[str, Any]) -> None:
    """Refuse keywords that the model would ignore."""
    refused = [name for name, value in keywords.items() if value is not None and value is not False]
    mask = keywords.get("decoder_attention_mask")
    # `generate` makes one for a cache of fixed length; the decoder refuses that cache itself.
    if isinstance(mask, Tensor) and (mask.ndim != 2 or bool(mask.all())):
        refused.remove("decoder_attention_mask")
    if refused:
        raise ValueError(
            f"forward: expected arguments that this model supports, got {', '.join(refused)}. Give pieces, "
            "not embeddings, and mark padding of the target with labels of -100."
        )


def _is_plain(head: nn.Module) -> bool:
    """Whether the head is only a weight matrix in memory: no adapter, no bias, not offloaded."""
    return type(head) is nn.Linear and head.bias is None and head.weight.device.type != "meta"


def _is_loaded(weight: Tensor) -> bool:
    """Whether the weight came from a file: `init` protects such a tensor, but not a slice of it."""
    return getattr(weight, "_is_hf_initialized", False)


AutoConfig.register(SyntaxTransformerConfig.model_type, SyntaxTransformerConfig, exist_ok=True)
for _auto in (AutoModel, AutoModelForSeq2SeqLM):
    _auto.register(SyntaxTransformerConfig, SyntaxTransformer, exist_ok=True)
