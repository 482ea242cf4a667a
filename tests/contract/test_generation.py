"""`generate` of transformers over our translator: every way of decoding, everything that it can be asked to return."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

SHORT = {"max_new_tokens": 6, "min_new_tokens": 3}
WAYS = {
    "greedy": {"num_beams": 1, "do_sample": False},
    "beams": {"num_beams": 3, "do_sample": False},
    "sampling": {"num_beams": 1, "do_sample": True, "top_k": 5},
    "sampled beams": {"num_beams": 2, "do_sample": True},
}


def _generate(translator, model, way="greedy", **asked):
    torch.manual_seed(6)
    return model.generate(**translator.source(), **SHORT, **WAYS[way], **asked)


@pytest.mark.parametrize("way", WAYS)
def test_with_and_without_a_cache(translator, way):
    model = translator.model()
    found = _generate(translator, model, way, use_cache=True)
    assert torch.equal(found, _generate(translator, model, way, use_cache=False))
    assert found.shape[0] == 3
    model.generation_config.use_cache = model.config.use_cache = False
    assert torch.equal(found, _generate(translator, model, way))


def test_greedy_pieces_are_the_best_ones(translator):
    """Step by step by hand, from the whole prefix each time."""
    model, source = translator.model(), translator.source()
    found = model.generate(**source, max_new_tokens=4, min_new_tokens=4, num_beams=1, do_sample=False)
    pieces = torch.full((3, 1), model.config.decoder_start_token_id)
    for _ in range(4):
        with torch.no_grad():
            logits = model(**source, decoder_input_ids=pieces).logits[:, -1]
        logits[:, model.config.eos_token_id] = -torch.inf
        pieces = torch.cat([pieces, logits.argmax(-1, keepdim=True)], 1)
    assert torch.equal(found, pieces)


@pytest.mark.parametrize("way", ["beams", "sampling"])
def test_several_sequences_for_each_row(translator, way):
    found = _generate(translator, translator.model(), way, num_return_sequences=2)
    assert found.shape[0] == 6
    if way == "beams":
        assert torch.equal(found[::2], _generate(translator, translator.model(), way)[:, : found.shape[1]])


@pytest.mark.parametrize("way", ["greedy", "beams"])
def test_all_that_can_be_returned(translator, way):
    model, n_beams = translator.model(), WAYS[way]["num_beams"]
    found = _generate(
        translator, model, way, return_dict_in_generate=True, output_attentions=True, output_hidden_states=True,
        output_scores=True, output_logits=True,
    )  # fmt: skip
    n_steps = len(found.scores)
    assert 3 <= n_steps <= 6
    assert len(found.logits) == len(found.decoder_attentions) == len(found.decoder_hidden_states) == n_steps
    assert [one.shape for one in found.encoder_hidden_states] == [(3, 7, 22)] * 3
    assert [one.shape for one in found.encoder_attentions] == [(3, 2, 7, 7)] * 2
    for step in range(n_steps):
        rows = 3 * n_beams
        assert found.scores[step].shape == found.logits[step].shape == (rows, 31)
        assert [one.shape for one in found.decoder_attentions[step]] == [(rows, 2, 1, step + 1)] * 3
        assert [one.shape for one in found.cross_attentions[step]] == [(rows, 2, 1, 7)] * 3
        assert [one.shape for one in found.decoder_hidden_states[step]] == [(rows, 1, 22)] * 4
    assert torch.equal(found.sequences, _generate(translator, model, way))


def test_attentions_of_cached_steps_are_those_of_the_whole_prefix(translator):
    model, source = translator.model(), translator.source()
    found = _generate(translator, model, return_dict_in_generate=True, output_attentions=True)
    n_steps = len(found.decoder_attentions)
    whole = model(**source, decoder_input_ids=found.sequences[:, :n_steps], output_attentions=True)
    for layer in range(3):
        for step in range(n_steps):
            one = found.decoder_attentions[step][layer][:, :, 0]
            assert_close(
                one, whole.decoder_attentions[layer][:, :, step, : step + 1].detach(), atol=1e-5, rtol=0
            )


def test_labels_among_the_inputs_do_not_steer(translator):
    """As Seq2SeqTrainer passes them."""
    model, batch = translator.model(), translator.batch()
    torch.manual_seed(6)
    found = model.generate(**batch, **SHORT, **WAYS["greedy"])
    assert torch.equal(found, _generate(translator, model))
