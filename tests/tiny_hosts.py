"""The one table of tiny random hosts of `infuse`, of every family; and which of them `make test` takes.

Their sizes are those of a BERT in the words of each; they have no dropout.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers

from syntaxformer.infusion.families import FAMILIES

EXHAUSTIVE = os.environ.get("SYNTAXFORMER_EXHAUSTIVE") == "1"
"""As `make test-long` sets it: the full products of hosts and kinds, not pairs."""

KINDS = [
    kind for kind in FAMILIES if kind != "syntaxformer" and kind in hf.CONFIG_MAPPING
]  # older ones lack some
ATTENDING = [kind for kind in KINDS if not FAMILIES[kind].reason]
WRITING = [kind for kind in KINDS if FAMILIES[kind].stack]
"""Those that write text."""

FIVE = ("bert", "albert", "modernbert", "t5", "marian")
"""One of each shape: the usual one, shared layers, local attention, biases of positions, a decoder beside it."""

BERT = {
    "hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 29, "vocab_size": 31,
    "max_position_embeddings": 23,
}  # fmt: skip
"""Sizes of a BERT that is tiny."""
_BERT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": 3}
_RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
_MORE: dict[str, dict[str, Any]] = {
    "electra": {"embedding_size": 17},
    "albert": {"embedding_size": 17, "classifier_dropout_prob": 0.0},
    "modernbert": {
        "hidden_size": 24, "local_attention": 8, "global_attn_every_n_layers": 2, "pad_token_id": 0,
        "cls_token_id": 3, "sep_token_id": 2, "bos_token_id": 3, "eos_token_id": 2, "attention_dropout": 0.0,
        "embedding_dropout": 0.0, "mlp_dropout": 0.0,
    },
    "eurobert": {
        "hidden_size": 24, "num_key_value_heads": 1, "pad_token_id": 1, "mask_token_id": 3, "bos_token_id": 0,
        "eos_token_id": 2,
    },
    "nomic_bert": {"hidden_size": 24},
    "ernie": {"use_task_id": True},
    "deberta": _RELATIVE,
    "deberta-v2": {**_RELATIVE, "share_att_key": True},
}  # fmt: skip


def chosen(kinds: list[str]) -> list[str]:
    """The kinds that are tested: five, or all of them in a long run."""
    return [kind for kind in kinds if EXHAUSTIVE or kind in FIVE]


def host_of(kind: str, bert: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Classes of the config and of the model, which classifies or writes, and sizes."""
    config, family = hf.CONFIG_MAPPING[kind], FAMILIES[kind]
    width, n_heads, n_layers = (
        bert[key] for key in ("hidden_size", "num_attention_heads", "num_hidden_layers")
    )
    if kind == "distilbert":
        sizes = {key: bert[key] for key in ("max_position_embeddings", "vocab_size")}
        sizes |= {"dim": width, "n_layers": n_layers, "n_heads": n_heads, "hidden_dim": 29, "num_labels": 3}
        sizes |= {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}
        return config, hf.DistilBertForSequenceClassification, sizes
    if not family.stack:
        model = hf.AutoModelForSequenceClassification._model_mapping[config]
        return config, model, {**_BERT, **bert, **_MORE.get(kind, {})}
    model = hf.AutoModelForSeq2SeqLM._model_mapping[config]
    sizes = {"vocab_size": bert["vocab_size"], "num_labels": 3}
    if family.layers == ("block",):
        of_t5 = {"d_model": 22, "d_kv": 7, "d_ff": 29, "num_layers": n_layers, "num_heads": 3}
        return config, model, {**sizes, **of_t5, "decoder_start_token_id": 0, "dropout_rate": 0.0}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": n_layers, f"{side}_attention_heads": n_heads, f"{side}_ffn_dim": 29}
    special = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    return config, model, {
        **sizes, **special, **no_dropout, "d_model": width, "max_position_embeddings": 41,
        "scale_embedding": True, "forced_eos_token_id": None,
    }  # fmt: skip


def write_bert(folder: Path, n_positions: int = 40) -> None:
    """Write a checkpoint of a BERT that classifies, with a tokenizer of ten pieces."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "is", "fine", "poor", "a", "b"]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {f"{word[1:-1].lower()}_token": word for word in words[:4]}
    hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    shape = {"hidden_size": 12, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 17}
    config = hf.BertConfig(vocab_size=len(words), max_position_embeddings=n_positions, **shape)
    hf.BertForSequenceClassification(config).save_pretrained(folder)
