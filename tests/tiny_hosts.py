"""Tiny random models of the families of `infuse`, whose sizes are those of a BERT in the words of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers

from syntaxformer.infusion.families import FAMILIES

KINDS = [
    kind for kind in FAMILIES if kind != "syntaxformer" and kind in hf.CONFIG_MAPPING
]  # older ones lack some
ATTENDING = [kind for kind in KINDS if not FAMILIES[kind].reason]
WRITING = [kind for kind in KINDS if FAMILIES[kind].stack]
"""Those that write text."""

_RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
_MORE: dict[str, dict[str, Any]] = {
    "eurobert": {
        "hidden_size": 24, "num_key_value_heads": 1, "pad_token_id": 1, "mask_token_id": 3, "bos_token_id": 0,
        "eos_token_id": 2,
    },
    "nomic_bert": {"hidden_size": 24},
    "ernie": {"use_task_id": True},
    "deberta": _RELATIVE,
    "deberta-v2": {**_RELATIVE, "share_att_key": True},
}  # fmt: skip


def host_of(kind: str, bert: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Classes of the config and of the model, which classifies or writes, and sizes."""
    config, family = hf.CONFIG_MAPPING[kind], FAMILIES[kind]
    if not family.stack:
        model = hf.AutoModelForSequenceClassification._model_mapping[config]
        return config, model, {**bert, **_MORE.get(kind, {})}
    model = hf.AutoModelForSeq2SeqLM._model_mapping[config]
    width, n_heads, n_layers = (
        bert[key] for key in ("hidden_size", "num_attention_heads", "num_hidden_layers")
    )
    sizes = {"vocab_size": bert["vocab_size"], "num_labels": 3}
    if family.layers == ("block",):
        of_t5 = {"d_model": width, "d_kv": 7, "d_ff": 29, "num_layers": n_layers, "num_heads": n_heads}
        return config, model, {**sizes, **of_t5, "decoder_start_token_id": 0, "dropout_rate": 0.0}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": n_layers, f"{side}_attention_heads": n_heads, f"{side}_ffn_dim": 29}
    special = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    return config, model, {
        **sizes, **special, **no_dropout, "d_model": width, "max_position_embeddings": 41,
        "scale_embedding": True, "forced_eos_token_id": None,
    }  # fmt: skip


def write_bert(folder: Path) -> None:
    """Write a checkpoint of a BERT that classifies, with a tokenizer of ten pieces."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "is", "fine", "poor", "a", "b"]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {f"{word[1:-1].lower()}_token": word for word in words[:4]}
    hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    shape = {"hidden_size": 12, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 17}
    config = hf.BertConfig(vocab_size=len(words), max_position_embeddings=40, **shape)
    hf.BertForSequenceClassification(config).save_pretrained(folder)
