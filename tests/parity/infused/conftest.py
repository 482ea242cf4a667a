"""Tiny random models of every family, and batches whose sizes are distinct primes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import transformers as hf

import syntaxformer as sf
from syntaxformer.infusion.families import FAMILIES as TABLE
from tiny_hosts import EXHAUSTIVE, KINDS, WRITING, chosen, host_of

BATCH, PIECES, VOCAB = 5, 13, 61

_BERT = {
    "hidden_size": 21, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 29,
    "max_position_embeddings": 41, "vocab_size": VOCAB, "num_labels": 3,
}  # fmt: skip
_T5 = host_of("t5", _BERT)[2]
MODELS = {kind: host_of(kind, _BERT) for kind in KINDS if kind != "t5"}
_ALBERT = {**MODELS["albert"][2], "num_hidden_layers": 4, "num_hidden_groups": 2}
MODELS |= {
    "bert-base-model": (hf.BertConfig, hf.BertModel, _BERT),
    "electra-base-model": (hf.ElectraConfig, hf.ElectraModel, MODELS["electra"][2]),
    "distilbert-base-model": (hf.DistilBertConfig, hf.DistilBertModel, MODELS["distilbert"][2]),
    "albert-base-model": (hf.AlbertConfig, hf.AlbertModel, _ALBERT),
    "modernbert-base-model": (hf.ModernBertConfig, hf.ModernBertModel, MODELS["modernbert"][2]),
    "t5-encoder": (hf.T5Config, hf.T5EncoderModel, _T5),
    "t5-generation": (hf.T5Config, hf.T5ForConditionalGeneration, _T5),
    "t5-classification": (hf.T5Config, hf.T5ForSequenceClassification, _T5),
    "bart-classification": (hf.BartConfig, hf.BartForSequenceClassification, MODELS["bart"][2]),
}
PAIRED = ("bert", "albert-base-model", "modernbert", "t5-generation", "marian", "deberta-v2")
"""The models of `make test`: one of each shape, and one whose layers take no syntax."""
EVERYTHING = "masks,relation_bias,lisa,pos_add"


def _attends(name):
    """Whether a model takes syntax in its layers."""
    config = MODELS[name][0]
    return not TABLE[config.model_type].reason


def _everything(name):
    """All that a model can be infused with at once."""
    return EVERYTHING if _attends(name) else "pos_add"


def _tiny(name, **changes):
    make_config, make_model, sizes = MODELS[name]
    torch.manual_seed(0)
    model = make_model(make_config(**{**sizes, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # sinusoids are no parameters, though some are called so
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def _batch(name="bert", padded=True):
    """Plain inputs, and what an infused model takes besides."""
    generator = torch.Generator().manual_seed(3)

    def numbers(low, high, *shape):
        return torch.randint(low, high, shape, generator=generator)

    inputs = {"input_ids": numbers(4, VOCAB, BATCH, PIECES)}
    make_config, make_model, sizes = MODELS[name]
    config = make_config(**sizes)
    if TABLE[config.model_type].stack:
        inputs["input_ids"][:, PIECES // 2] = config.eos_token_id
    if hasattr(make_model, "generate"):
        inputs["labels"] = numbers(4, VOCAB, BATCH, 3)
    mask = torch.ones(BATCH, PIECES, dtype=torch.int64)
    if padded == "left":
        mask[1, :4], mask[3, :2] = 0, 0  # no window of local attention is empty
    elif padded:
        mask[1, 7:], mask[3, 11:] = 0, 0
    if padded:
        inputs["attention_mask"] = mask
        inputs["input_ids"][mask == 0] = config.pad_token_id or 0
    relations = numbers(0, 47, BATCH, 2, PIECES, PIECES).to(torch.uint8)
    own_place = torch.arange(PIECES)
    relations[:, :, own_place, own_place] = 0
    syntax = {
        "syntax": relations,
        "factor_ids": numbers(0, 20, BATCH, PIECES, 1),
        "governors": numbers(0, 7, BATCH, PIECES).masked_fill(mask == 0, -100),
    }
    if not _attends(name):
        syntax = {"factor_ids": syntax["factor_ids"]}
    return SimpleNamespace(inputs=inputs, syntax=syntax, mask=mask.bool())


def _scores(output):
    """Logits, or the states of a base model."""
    return output.logits if hasattr(output, "logits") else output.last_hidden_state


def _open(model, value=0.7):
    """Open all gates and give every other new parameter something to do."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.infusion.named_parameters():
            if name.startswith("gates"):
                parameter.fill_(value)
            else:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))


def _infused(name, shorthand=None, opens=True, **sections):
    """A model to which syntax does something, or as it begins; and its batch."""
    model = sf.infuse(_tiny(name), shorthand or sf.InfusionConfig(**sections))
    if opens:
        _open(model)
    return model, _batch(name)


def _run(model, batch, **changes):
    with torch.no_grad():
        return _scores(model(**{**batch.inputs, **batch.syntax, **changes}))


def _recorded(model, batch, attention=False, **changes):
    """What a pass records."""
    with model.infusion.record(attention=attention):
        _run(model, batch, **changes)
    return model.infusion.seen


@pytest.fixture
def tiny():
    return SimpleNamespace(
        model=_tiny, batch=_batch, scores=_scores, open=_open, infused=_infused, run=_run, recorded=_recorded,
        pieces=PIECES, size=BATCH, all_of=_everything, attends=_attends,
    )  # fmt: skip


def pytest_generate_tests(metafunc):
    """`any_…`: also what takes embeddings alone."""
    models = [name for name in MODELS if EXHAUSTIVE or name in PAIRED]
    families = [{"t5": "t5-encoder"}.get(kind, kind) for kind in chosen(KINDS)]
    names = {
        "any_model": models,
        "model_name": [name for name in models if _attends(name)],
        "any_family": families,
        "family": [name for name in families if _attends(name)],
        "writer": [{"t5": "t5-generation"}.get(kind, kind) for kind in chosen(WRITING)],
    }
    for argument, of_argument in names.items():
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, of_argument)
