"""A real pretrained checkpoint, infused and trained for a moment."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import syntaxformer as sf

TEXTS = [
    "John slipped in front of anyone who was there.",
    "The books that she bought yesterday is on the table.",
    "Nobody knows what the unbelievably old man, who lives next door, doesn't like!",
    "Sleeps dog the.",
]


@pytest.mark.slow
def test_a_checkpoint_is_infused_trained_saved_and_loaded(minilm, tmp_path):
    torch.manual_seed(0)
    sentences, tokenizer = sf.load_annotator("en").annotate(TEXTS), AutoTokenizer.from_pretrained(minilm)
    model = AutoModelForSequenceClassification.from_pretrained(minilm, num_labels=2).eval()
    config = sf.InfusionConfig.parse("masks,relation_bias,lisa,pos_add")
    collator = sf.SyntaxCollator(tokenizer, config)
    batch = collator(
        [sf.SyntaxExample((one,), label) for one, label in zip(sentences, [1, 0, 1, 0], strict=True)]
    )
    plain_inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        plain = model(**plain_inputs).logits
    sf.infuse(model, config)
    with torch.no_grad():
        assert_close(model(**batch).logits, plain, atol=1e-6, rtol=0)
    added = [parameter for _, parameter in sf.infusion_parameters(model)]
    ours = {id(parameter) for parameter in added}
    others = [parameter for parameter in model.parameters() if id(parameter) not in ours]
    optimizer = torch.optim.AdamW([{"params": others, "lr": 5e-5}, {"params": added, "lr": 5e-3}])
    model.train()
    losses = []
    for _ in range(6):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    model.eval()
    assert all(abs(model.infusion.gate_of(layer).item()) > 1e-4 for layer in range(6))
    with torch.no_grad():
        expected = model(**batch).logits
    model.save_pretrained(tmp_path)
    collator.save_pretrained(tmp_path)
    loaded, reread = sf.load(tmp_path).eval(), sf.SyntaxCollator.from_pretrained(tmp_path)
    with torch.no_grad():
        found = loaded(**reread([sf.SyntaxExample((one,)) for one in sentences])).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    right, words = model.infusion.seen.governor_hits()[5]
    assert 0 < right <= words == sum(len(one.words) for one in sentences)
