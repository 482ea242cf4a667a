"""A kind of embedding infusion of the user's own, in a pretrained encoder and in a translator of ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import transformers as hf

import syntaxformer as sf
from syntaxformer.base.errors import CheckpointError
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.nn import ENCODER_KINDS, INFUSION_KINDS, plan_widths
from syntaxformer.translation.export_ctranslate2 import why_not
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "relations.md"
SIZES = {"pos": 20, "case": 4}
PIECES, FACTORS = torch.tensor([[5, 6, 7]]), torch.tensor([[[3, 1], [0, 0], [19, 2]]])


@pytest.fixture
def gated():
    """The module of the documentation, registered until the test ends."""
    before = [(kinds, dict(kinds)) for kinds in (INFUSION_KINDS, ENCODER_KINDS)]
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names: dict = {}
    exec(next(code for code in snippets if "Gated" in code), names)
    yield names["Gated"]
    for kinds, content in before:
        kinds.clear()
        kinds.update(content)


def encoder(**settings):
    sizes = {"hidden_size": 12, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 17}
    torch.manual_seed(1)
    host = hf.BertForSequenceClassification(hf.BertConfig(vocab_size=11, **sizes)).eval()
    plain = host(PIECES).logits
    config = InfusionConfig(embedding={"kind": "gated", "factors": ["pos", "case"], **settings})
    return sf.infuse(host, config).eval(), plain


def translator(kind: str = "gated"):
    plan = plan_widths(kind, 14, ["pos", "case"])
    shape = {"d_model": 14, "d_ff": 17, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    config = SyntaxTransformerConfig(vocab_size=11, infusion=plan.as_dict(), factor_sizes=SIZES, **shape)
    return SyntaxTransformer(config).eval()


def test_an_encoder_starts_unchanged_learns_and_comes_back(gated, tmp_path):
    model, plain = encoder()
    assert torch.equal(model(PIECES, factor_ids=FACTORS).logits, plain)
    module = model.infusion.embedding.module
    assert isinstance(module, gated)
    assert [table.num_embeddings for table in module.tables] == [20, 4]
    model(PIECES, factor_ids=FACTORS).logits.sum().backward()
    assert module.gate.grad.abs().sum() > 0
    torch.nn.init.ones_(module.gate)
    words = torch.randn(1, 3, 12)
    by_hand = words + module.tables[0](FACTORS[..., 0]) + module.tables[1](FACTORS[..., 1])
    torch.testing.assert_close(model.infusion.embedding(words, FACTORS), by_hand)
    logits = model(PIECES, factor_ids=FACTORS).logits
    assert not torch.allclose(logits, plain, atol=1e-4)
    model.save_pretrained(tmp_path)
    loaded = sf.load(tmp_path).eval()(PIECES, factor_ids=FACTORS).logits
    torch.testing.assert_close(loaded, logits, rtol=0, atol=1e-6)
    del ENCODER_KINDS["gated"]
    with pytest.raises(CheckpointError, match=r"embedding.kind: .*got gated.*register_embedding"):
        sf.load(tmp_path)


def test_a_translator_keeps_the_first_values_of_the_module(gated, tmp_path):
    model = translator()
    embedding = model.encoder.embedding
    assert not embedding.module.gate.any()
    assert torch.equal(embedding(PIECES, FACTORS), embedding.word(PIECES))
    torch.nn.init.ones_(embedding.module.gate)
    states = embedding(PIECES, FACTORS)
    assert not torch.equal(states, embedding.word(PIECES))
    model.save_pretrained(tmp_path)
    loaded = SyntaxTransformer.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded.encoder.embedding(PIECES, FACTORS), states)
    with pytest.raises(ValueError, match="factor_ids"):
        embedding(PIECES, FACTORS[..., :1])
    assert "an embedding of your own" in why_not(model.config)[0]
    assert "an embedding of your own" in why_not(encoder()[0].config, encoder()[0].infusion)[0]
    del INFUSION_KINDS["gated"]
    with pytest.raises(ValueError, match=r"infusion kind: .*got 'gated'.*register_embedding"):
        SyntaxTransformer.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["add", "pos_encoder", "let", "Gated", "", "a b"])
def test_names_that_are_taken_or_odd(name):
    with pytest.raises(ValueError, match=r"name: expected .*sum_then_concat"):
        sf.register_embedding(name, torch.nn.Module)


def test_what_a_folder_could_not_keep(gated):
    with pytest.raises(ValueError, match="factors: expected at least one"):
        sf.register_embedding("empty", gated, ())

    class Lossy(gated):
        def __init__(self, d_model, sizes):
            super().__init__(d_model, sizes)
            self.register_buffer("scale", torch.ones(1), persistent=False)

    sf.register_embedding("lossy", Lossy, ["pos", "case"])
    with pytest.raises(ValueError, match="buffers that are stored, got scale"):
        translator("lossy")
