"""`SyntaxTransformer`: an encoder-decoder whose encoder input is infused with factors.

A Hugging Face model: `from_pretrained`, `save_pretrained` and `generate` work as everywhere. How texts become
piece ids and factor ids is the business of `data`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from syntaxformer.layers.attention import FusedLinear
from syntaxformer.layers.cross_entropy import IGNORED_LABEL, cross_entropy, linear_cross_entropy
from syntaxformer.layers.infusion import JoinedMap
from syntaxformer.models.auxiliary import Auxiliary, TranslationOutput, governor_task, tag_task
from syntaxformer.models.config import SyntaxTransformerConfig
from syntaxformer.models.decoder import Decoder, TranslationCache
from syntaxformer.models.encoder import Encoder

__all__ = ["SyntaxTransformer"]

_UNSERVED = ("output_hidden_states", "inputs_embeds", "decoder_inputs_embeds")
"""Keywords of other translators' `forward`."""


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
    _tied_weights_keys: ClassVar[dict[str, str]] = {"output.weight": "decoder.embedding.weight"}

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__(config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        target_pos = config.target_pos
        self.target_tagger = nn.Linear(config.d_model, len(target_pos["tags"])) if target_pos else None
        self.target_pos_weight = target_pos["weight"] if target_pos else 0.0
        if config.shares_source_table:
            self._tied_weights_keys = {
                "encoder.embedding.word.weight": "decoder.embedding.weight",
                "output.weight": "decoder.embedding.weight",
            }
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Glorot: U(-b, b), b = √(6 / (rows + columns)), each map and each table by itself.

        Source: Glorot & Bengio (2010). Differs: fused projections take the bound of one projection, and
        factor tables that of the word table: Glorot on 20 rows would make features 20 times larger. So do
        the columns of a map that one-hot tags choose from: they would be √((vocab + d) / 2d) times larger.
        """
        source_rows = self.config.source_vocab_size or self.config.vocab_size
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

    @staticmethod
    def _uniform(weight: Tensor, rows: int, columns: int) -> None:
        bound = math.sqrt(6 / (rows + columns))
        init.uniform_(weight, -bound, bound)

    def get_encoder(self, modality: str | None = None) -> Encoder:
        """Return the encoder, as `generate` asks for it."""
        return self.encoder

    @property
    def source_pad_id(self) -> int:
        """Padding of the source's vocabulary."""
        return self.config.source_pad_id

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the source word table."""
        return self.encoder.embedding.word

    def get_output_embeddings(self) -> nn.Linear:
        """Return the output projection."""
        return self.output

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
        tag_labels: Int[Tensor, "batch tgt"] | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **ignored: Any,
    ) -> TranslationOutput:
        """Score target pieces; in training with labels only their loss is made, and `logits` are None.

        Args:
            input_ids: Source pieces.
            attention_mask: 1 for source pieces, 0 for padding.
            factor_ids: Factor values of the source pieces.
            syntax: Relations of the source pieces in each tree.
            governors: Place of each source piece's governor, negative for none.
            first_pieces: True for the first piece of each word: those count for the accuracy of governors.
            decoder_input_ids: Target pieces shifted right; made from `labels` if absent.
            labels: Target pieces, -100 where no loss is wanted.
            tag_labels: Part of speech of each target piece, -100 for none; without them no tag is predicted.
            encoder_outputs: An earlier result of the encoder.
            past_key_values: Cache of an incremental decoding.
            use_cache: Return a cache.
            output_attentions: Return cross-attention weights, `layers × [batch, heads, tgt, src]`.
            num_items_in_batch: Divisor of the loss under accumulation: the target pieces of the update.
            ignored: Further keywords of `generate`.

        Raises:
            ValueError: Neither `decoder_input_ids` nor `labels` are given, or a keyword that asks for what
                this model has not: hidden states of all layers, a tuple, embeddings, a mask of the target.
        """
        _refuse_unserved(ignored)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask, factor_ids, syntax, governors, output_attentions
            )
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("forward: expected decoder_input_ids or labels, got neither.")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if use_cache and past_key_values is None:
            past_key_values = TranslationCache()
        states, attentions = self.decoder(
            decoder_input_ids,
            encoder_outputs.last_hidden_state,
            attention_mask,
            past_key_values,
            bool(output_attentions),
        )
        tasks = [] if labels is None else self._auxiliary(encoder_outputs, governors, first_pieces)
        if self.target_tagger is not None and tag_labels is not None:
            tasks.append(tag_task(self.target_tagger(states), tag_labels, self.target_pos_weight))
        logits = None if self.training and labels is not None else self.output(states)
        return TranslationOutput(
            loss=None if labels is None else self._loss(states, logits, labels, num_items_in_batch, tasks),
            logits=logits,
            tallies={task.name: (task.right, task.total) for task in tasks} or None,
            past_key_values=past_key_values,
            cross_attentions=attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_attentions=encoder_outputs.attentions,
        )

    def prepare_decoder_input_ids_from_labels(
        self, labels: Int[Tensor, "batch tgt"]
    ) -> Int[Tensor, "batch tgt"]:
        """Shift labels right: start piece first, padding where labels are ignored."""
        shifted = labels.roll(1, dims=1).masked_fill(
            labels.roll(1, dims=1) == IGNORED_LABEL, self.config.pad_token_id
        )
        shifted[:, 0] = self.config.decoder_start_token_id
        return shifted

    def _auxiliary(
        self, encoded: BaseModelOutput, governors: Tensor | None, first_pieces: Tensor | None
    ) -> list[Auxiliary]:
        """The auxiliary tasks that a batch has answers for."""
        lisa, logits = self.encoder.syntax.lisa, getattr(encoded, "governor_logits", None)
        if lisa is None or not lisa.supervised or governors is None or not logits:
            return []
        return [governor_task(logits, governors, first_pieces, lisa.weight)]

    def _loss(
        self,
        states: Tensor,
        logits: Tensor | None,
        labels: Tensor,
        n_items: Tensor | int | None,
        tasks: Sequence[Auxiliary],
    ) -> Float[Tensor, ""]:
        """Cross-entropy per target piece; in training smoothed and with auxiliary losses, else plain.

        An auxiliary loss is a mean of its own; where batches are accumulated, it counts by target pieces.
        """
        n_pieces = (labels != IGNORED_LABEL).sum()
        if logits is None:
            total = linear_cross_entropy(states, self.output.weight, labels, self.config.label_smoothing)
            if tasks:
                total = total + n_pieces * torch.stack([task.loss for task in tasks]).sum()
        else:
            total = cross_entropy(logits, labels)
        return total / (n_pieces if n_items is None else n_items)


def _refuse_unserved(keywords: dict[str, Any]) -> None:
    """Hold that no keyword is taken and ignored that would change the result."""
    wanted = [name for name in _UNSERVED if keywords.get(name) is not None and keywords[name] is not False]
    if keywords.get("return_dict") is False:
        wanted.append("return_dict=False")
    mask = keywords.get("decoder_attention_mask")
    # `generate` makes one for a cache of fixed length, which the decoder refuses by its own name.
    if isinstance(mask, Tensor) and mask.ndim == 2 and not bool(mask.all()):
        wanted.append("decoder_attention_mask")
    if wanted:
        raise ValueError(
            f"forward: expected no {', '.join(wanted)}, which this model does not serve. Labels of -100 tell "
            "padding of the target; encoder_last_hidden_state holds the encoder's last states."
        )


def _is_loaded(weight: Tensor) -> bool:
    """Whether it came from a file; `init` leaves such a tensor as it is, though not a part of it."""
    return getattr(weight, "_is_hf_initialized", False)
