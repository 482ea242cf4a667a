"""The model, with every infusion kind, lisa, masks and biases: sizes by hand, loss, padding, order, gates, saving."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import syntaxformer as sf
from syntaxformer.base.errors import ConfigError
from syntaxformer.nn import (
    INFUSION_KINDS,
    BiaffineHead,
    TopicalAttention,
    governor_loss,
    plan_widths,
    syntax_attention_reference,
)
from syntaxformer.translation.export_ctranslate2 import why_not
from syntaxformer.translation.model import CACHE, SyntaxTransformer, SyntaxTransformerConfig, TranslationCache

V, D, FF, HEADS, N_ENC, N_DEC, DISTANCE, SRC = 53, 28, 31, 2, 2, 1, 3, 11
SIZES = {"pos": 20, "case": 4, "subword": 6}
LISA: dict[str, Any] = {"lisa": {"supervised": True, "weight": 0.7}}
MASKS: dict[str, Any] = {"masks": {"max_distance": DISTANCE}}
BIAS: dict[str, Any] = {"relation_bias": {"max_distance": DISTANCE}}
ALL = {**LISA, **MASKS, **BIAS}
PATHS = ("learned_concat", "prepend", "pos_encoder")
"""A kind for each way in: columns joined at the input, pieces, a second encoder."""


def _model(kind: str = "none", **settings: Any) -> SyntaxTransformer:
    torch.manual_seed(7)
    plan = plan_widths(kind, D, width=None if kind == "onehot_concat" else 13)
    shape = {"d_model": D, "d_ff": FF, "n_heads": HEADS, "encoder_layers": N_ENC, "decoder_layers": N_DEC}
    shape |= {"dropout": 0.0, "attention_dropout": 0.0}
    config = SyntaxTransformerConfig(
        vocab_size=V, infusion=plan.as_dict(), factor_sizes=SIZES, **{**shape, **settings}
    )
    return SyntaxTransformer(config).eval()


def _batch(kind: str = "none", batch: int = 3) -> dict[str, torch.Tensor]:
    """With padding at the end of the second row, and everything that any part reads."""
    torch.manual_seed(2)
    n_tags = 20 if kind == "prepend" else 0
    inputs = {
        "input_ids": torch.randint(4, V + n_tags, (batch, SRC)),
        "labels": torch.randint(4, V, (batch, 5)),
        "attention_mask": torch.ones(batch, SRC, dtype=torch.long),
        "syntax": torch.randint(0, 3 * DISTANCE + 2, (batch, 2, SRC, SRC), dtype=torch.uint8),
        "governors": torch.randint(0, 7, (batch, SRC)),
        "first_pieces": torch.rand(batch, SRC) < 0.6,
    }
    inputs["attention_mask"][1, 7:] = 0
    inputs["governors"][1, 7:] = -100
    n_factors = len(INFUSION_KINDS[kind].default_factors)
    if n_factors and kind != "prepend":
        inputs["factor_ids"] = torch.randint(0, 4, (batch, SRC, n_factors))
    return inputs


ATTENTION, FEED_FORWARD, NORM = 4 * (D * D + D), 2 * D * FF + FF + D, 2 * D
LAYER = ATTENTION + FEED_FORWARD + 2 * NORM
BASELINE = N_ENC * LAYER + N_DEC * (2 * ATTENTION + FEED_FORWARD + 3 * NORM) + 2 * NORM + V * D
HEAD = (D // HEADS) ** 2
MORE = {
    "none": 0,
    "add": 20 * D,
    "concat": V * (D - 13) + 20 * 5 + 4 * 4 + 6 * 4,
    "concat_pos": V * (D - 13) + 20 * 13,
    "sum_then_concat": V * (D - 13) + (20 + 4 + 6) * 13,
    "onehot_concat": (D + 20) * D + D,
    "learned_concat": 20 * 13 + (D + 13) * D + D,
    "prepend": 20 * D,
    "pos_encoder": 20 * D + LAYER + HEAD + NORM,
}
"""What a kind adds; a source table of the model's width is shared with target and output."""


@pytest.mark.parametrize("kind", INFUSION_KINDS)
def test_parameters_of_each_kind(kind):
    model = _model(kind)
    assert sum(parameter.numel() for parameter in model.parameters()) == BASELINE + MORE[kind]
    is_shared = model.encoder.embedding.word.weight is model.decoder.embedding.weight
    assert is_shared == (kind not in ("concat", "concat_pos", "sum_then_concat"))


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        (LISA, HEAD),
        ({"lisa": {"layers": [0, 1]}}, 2 * HEAD),
        (MASKS, 2 * D * D + D + N_ENC),  # W_K, W_V and q shared, a gate for each layer
        ({"masks": {"layers": [1], "gate": "head"}}, 2 * D * D + D + HEADS),
        ({"masks": {"preset": "paper", "per_layer": True}}, N_ENC * (2 * D * D + D)),
        ({"masks": {"topical": False}}, N_ENC),
        (BIAS, N_ENC * 2 * (3 * DISTANCE + 2) * HEADS),
        (ALL, HEAD + 2 * D * D + D + N_ENC + N_ENC * 2 * (3 * DISTANCE + 2) * HEADS),
    ],
)
def test_parameters_of_syntax(settings, more):
    assert sum(parameter.numel() for parameter in _model(**settings).parameters()) == BASELINE + more


@pytest.mark.parametrize("kind", INFUSION_KINDS)
def test_closed_gates_are_the_baseline(kind):
    """New heads, gates and biases change nothing at first; the decoder and the tables are the same."""
    plain, informed, batch = _model(kind), _model(kind, **ALL), _batch(kind)
    missing, unexpected = informed.load_state_dict(plain.state_dict(), strict=False)
    assert not unexpected
    assert all("infusion." in name for name in missing)
    expected = plain(**batch).logits
    torch.testing.assert_close(informed(**batch).logits, expected, atol=1e-6, rtol=1e-6)


def _open(model: SyntaxTransformer) -> SyntaxTransformer:
    """Move every part away from where it does nothing."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "infusion." in name:
                parameter.add_(torch.randn_like(parameter) * 0.5)
    return model


@pytest.mark.parametrize(
    ("kind", "preset"), [("none", "paper"), *((kind, "preserving") for kind in ("concat", *PATHS))]
)
def test_padding_and_order_have_no_influence(kind, preset):
    model = _open(_model(kind, **{**ALL, "masks": {"max_distance": DISTANCE, "preset": preset}}))
    batch = _batch(kind)
    found = model(**batch).logits
    assert not torch.allclose(found, _model(kind)(**batch).logits, atol=1e-3)
    turned = model(**{name: tensor.flip(0) for name, tensor in batch.items()}).logits
    torch.testing.assert_close(turned.flip(0), found, atol=1e-5, rtol=1e-5)
    for name, tensor in batch.items():  # what stands at padded places
        if name in ("input_ids", "factor_ids"):
            tensor[1, 7:] = 5 if name == "input_ids" else 2
    batch["syntax"][1, :, 7:] = 4
    batch["syntax"][1, :, :, 7:] = 2
    torch.testing.assert_close(model(**batch).logits, found, atol=1e-5, rtol=1e-5)
    alone = {name: tensor[1:2] for name, tensor in batch.items() if name != "attention_mask"}
    for name in ("input_ids", "factor_ids", "governors", "first_pieces"):
        if name in alone:
            alone[name] = alone[name][:, :7]
    alone["syntax"] = alone["syntax"][:, :, :7, :7]
    torch.testing.assert_close(model(**alone).logits[0], found[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["sum_then_concat", "onehot_concat", *PATHS])
def test_save_and_load(kind, tmp_path: Path):
    model, batch = _open(_model(kind, **ALL)), _batch(kind)
    model.save_pretrained(tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".json", ".safetensors"]
    again, report = SyntaxTransformer.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] | report["unexpected_keys"]
    stored, read = model.state_dict(), again.state_dict()
    assert all(torch.equal(stored[name], read[name]) for name in stored)
    assert again.output.weight is again.decoder.embedding.weight
    tied = again.encoder.embedding.word.weight is again.decoder.embedding.weight
    assert tied == (kind != "sum_then_concat")
    # Up to rounding: tensors of a file lie at other addresses, and unaligned ones are summed in another order.
    torch.testing.assert_close(again.eval()(**batch).logits, model(**batch).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "lisa", "expected"),
    [
        ("none", None, False),
        ("none", {"layers": []}, False),
        ("none", {}, True),
        ("pos_encoder", {"layers": []}, True),
        ("pos_encoder", None, True),
    ],
)
def test_what_has_biaffine_heads(kind, lisa, expected):
    model = _model(kind, lisa=lisa)
    assert any(isinstance(one, BiaffineHead) for one in model.modules()) == expected
    assert bool(why_not(model.config)) == expected


@pytest.mark.parametrize("kind", PATHS)
def test_beam_scores_are_log_probabilities(kind):
    """`generate` hands relations and factors to the encoder once and repeats them for its beams."""
    model, batch = _open(_model(kind, **ALL)), _batch(kind)
    inputs = {k: v for k, v in batch.items() if k not in ("labels", "governors", "first_pieces")}
    found = model.generate(
        **inputs, num_beams=2, max_new_tokens=3, return_dict_in_generate=True, output_scores=True,
        **{CACHE: TranslationCache()}, forced_eos_token_id=None,
    )  # fmt: skip
    for row, sequence in enumerate(found.sequences):
        pieces = sequence[1:]
        end = (pieces == 2).nonzero()
        pieces = pieces[: int(end[0]) + 1] if len(end) else pieces
        of_row = {name: tensor[row : row + 1] for name, tensor in inputs.items()}
        loss = model(**of_row, labels=pieces[None]).loss
        torch.testing.assert_close(found.sequences_scores[row], -loss, atol=1e-4, rtol=1e-4)


def test_the_loss_of_governors_teaches_in_training_only():
    model, batch = _model(**LISA), _batch()
    plain = {name: tensor for name, tensor in batch.items() if name not in ("governors", "first_pieces")}
    quiet, loud = model(**plain), model(**batch)
    assert quiet.tallies is None
    torch.testing.assert_close(loud.loss, quiet.loss)
    with model.infusion.record(attention=True):
        model.encoder(batch["input_ids"], batch["attention_mask"], governors=batch["governors"])
    logits = model.infusion.seen.logits[N_ENC - 1][0][:, 0]
    logits = logits.masked_fill(batch["attention_mask"][:, None] == 0, -torch.inf)
    expected = governor_loss(logits, batch["governors"])
    model.train()
    torch.testing.assert_close(model(**batch).loss, quiet.loss + 0.7 * expected)
    of_update = model(**batch, num_items_in_batch=30).loss
    torch.testing.assert_close(of_update, (quiet.loss + 0.7 * expected) * 15 / 30)
    right, total = loud.tallies["governor_accuracy"]
    counted = batch["first_pieces"] & (batch["governors"] >= 0)
    assert total == counted.sum()
    assert right == ((logits.argmax(-1) == batch["governors"]) & counted).sum()


def test_the_tag_encoders_heads_are_supervised_too():
    model, batch = _model("pos_encoder", tag_layers=2, **LISA).train(), _batch("pos_encoder")
    model(**batch).loss.backward()
    heads = model.encoder.tags.infusion.lisa.values()
    assert [bool(head.weight.grad.any()) for head in heads] == [True, True]
    output = model.encoder(batch["input_ids"], None, batch["factor_ids"], governors=batch["governors"])
    assert len(output.governor_losses) == len(output.pointed_at) == 3


def test_injection_happens_outside_training_and_only_if_wanted():
    batch = _batch()
    turned = {**batch, "governors": (batch["governors"] + 1) % 7}
    for inject, training, differs in ((None, False, False), ("gold", False, True), ("gold", True, False)):
        model = _model(lisa={"inject": inject, "supervised": False}).train(training)
        same = torch.allclose(*(model(**b).encoder_last_hidden_state for b in (batch, turned)))
        assert same != differs


def test_a_stored_model_may_leave_out_what_it_never_had():
    """New runs refuse it, since it has no effect."""
    config = SyntaxTransformerConfig(masks={"trees": ["constituency"], "without": ["dependency"]})
    assert config.plug_in.masks.without == ("dependency",)


@pytest.mark.parametrize("masks", [{}, {"masks": {"max_distance": DISTANCE, "without": ["sibling", "pair"]}}])
def test_left_out_relations_have_no_bias(masks):
    without = {"max_distance": DISTANCE, "without": ["sibling", "pair"]}
    model, batch = _open(_model(relation_bias=without, **masks)), _batch()
    with torch.no_grad():
        before = model(**batch).logits
        for first, last, is_used in ((2 * DISTANCE + 1, 3 * DISTANCE + 2, False), (0, 1, True), (1, 2, True)):
            for bias in model.infusion.relation_bias.values():
                bias.weight[:, first:last] += 3.0
            assert torch.equal(model(**batch).logits, before) != is_used


def test_relations_of_other_trees_are_refused():
    model, batch = _model(**MASKS), _batch()
    of_one_tree = batch["syntax"][:, :1]
    with pytest.raises(ValueError, match=r"^syntax: expected shape \[3, 2, 11, 11\], got \[3, 1, 11,"):
        model(**{**batch, "syntax": of_one_tree})
    with pytest.raises(ValueError, match=r"^syntax: expected a tensor of shape \[3, 2, 11, 11\], which the"):
        model(**{**batch, "syntax": None})


def test_a_pos_encoder_needs_its_tags():
    batch = _batch("none")
    with pytest.raises(ValueError, match=r"^factor_ids: expected columns \['pos'\], got 0 columns\.$"):
        _model("pos_encoder")(**batch)


@pytest.mark.parametrize("kind", PATHS)
def test_every_parameter_learns(kind):
    model, batch = _open(_model(kind, **ALL)).train(), _batch(kind)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(**batch).loss
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("settings", [LISA, MASKS, ALL], ids=["lisa", "masks", "all"])
def test_encoder_attentions_are_what_falls_on_each_value(settings):
    """Rows sum to 1 with closed gates; asking for them changes nothing else."""
    model, batch = _model(**settings), _batch()
    asked = model(**batch, output_attentions=True)
    torch.testing.assert_close(asked.logits, model(**batch).logits)
    assert len(asked.encoder_attentions) == N_ENC
    torch.testing.assert_close(asked.encoder_attentions[-1].sum(-1), torch.ones(3, HEADS, SRC))
    assert float(asked.encoder_attentions[0][1, ..., 7:].detach().abs().max()) == 0


def test_encoder_attention_of_open_gates_weighs_the_values(monkeypatch):
    """Syntax attention as one matrix a head: W V is what the layer gives on to its output."""
    model, batch = _open(_model(**MASKS)), _batch()
    attention, seen = model.encoder.layers[0].self_attention, {}
    attention.query_key_value.register_forward_hook(lambda _, __, found: seen.update(qkv=found))
    plain = TopicalAttention.project

    def project(topical, heads, *rest):
        seen.setdefault("heads", heads)
        return plain(topical, heads, *rest)

    monkeypatch.setattr(TopicalAttention, "project", project)
    weights = model(**batch, output_attentions=True).encoder_attentions[0]
    value = seen["qkv"].view(3, SRC, 3, HEADS, D // HEADS)[:, :, 2].transpose(1, 2)
    torch.testing.assert_close(
        (weights @ value).transpose(1, 2).flatten(2), seen["heads"], atol=1e-5, rtol=1e-5
    )


def test_a_config_of_the_first_version_loads(tmp_path: Path):
    """Folders written before these kinds have none of the new keys."""
    model, batch = _model("sum_then_concat"), _batch("sum_then_concat")
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    new = {"tag_layers", "lisa", "masks", "relation_bias"}
    new |= {"source_vocab_size", "source_pad_token_id", "target_pos"}
    config = {key: value for key, value in config.items() if key not in new}
    assert set(config["infusion"]) == {"kind", "d_model", "word_width", "factors"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    again = SyntaxTransformer.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(again(**batch).logits, model(**batch).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", PATHS)
def test_activation_checkpointing_changes_no_gradient(kind):
    settings = {**ALL, "dropout": 0.2, "attention_dropout": 0.3}
    kept, made_anew = _model(kind, **settings).train(), _model(kind, **settings).train()
    made_anew.activation_checkpointing_enable({"use_reentrant": False})
    calls = _count_calls(made_anew.encoder.layers[0].feed_forward)
    for model in (kept, made_anew):
        torch.manual_seed(3)
        model(**_batch(kind)).loss.backward()
    assert len(calls) == 2, "once forward, once more backward"
    wanted = {name: one.grad for name, one in kept.named_parameters()}
    for name, one in made_anew.named_parameters():
        torch.testing.assert_close(one.grad, wanted[name], rtol=1e-5, atol=1e-7, msg=name)


@pytest.mark.parametrize(("kind", "lisa"), [("none", {}), ("pos_encoder", {"layers": []})])
def test_reentrant_checkpointing_cannot_supervise(kind, lisa):
    """It runs layers without gradients: the loss would be there and teach nothing."""
    model, batch = _model(kind, lisa=lisa).train(), _batch(kind)
    model.activation_checkpointing_enable({"use_reentrant": True})
    message = "^gradient checkpointing: expected use_reentrant=False with a supervised lisa head, got True"
    with pytest.raises(ValueError, match=message):
        model(**batch)
    model.eval()(**batch)
    model.train()
    batch.pop("governors")
    model(**batch).loss.backward()
    unsupervised = _model(kind, lisa={**lisa, "supervised": False}).train()
    unsupervised.activation_checkpointing_enable({"use_reentrant": True})
    unsupervised(**_batch(kind)).loss.backward()


def _count_calls(module: torch.nn.Module) -> list[int]:
    calls: list[int] = []
    module.register_forward_hook(lambda *_: calls.append(1))
    return calls


def _states_of(layer: torch.nn.Module, states: torch.Tensor) -> list[torch.Tensor]:
    """Query, key and value by hand, `[batch, heads, pieces, d_head]` each."""
    parts = layer.self_attention.query_key_value(layer.around_self_attention.norm(states)).chunk(3, -1)
    return [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts]


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
def test_the_papers_form_is_the_literal_loop(mode):
    model = _open(_model(masks={"max_distance": DISTANCE, "mode": mode, "preset": "paper"}))
    batch, seen = _batch(), {}
    layer, topical = model.encoder.layers[1], model.infusion.topical_of(1)
    layer.register_forward_pre_hook(lambda _, args: seen.update(before=args[0]))
    dense = layer.self_attention.output
    found = model(**batch, output_hidden_states=True)
    mixed, _ = syntax_attention_reference(
        *_states_of(layer, seen["before"]), batch["syntax"], topical.head_queries(dense.weight, topical("direction")),
        batch["attention_mask"].bool(), mode=mode, max_distance=DISTANCE,
    )  # fmt: skip
    states = seen["before"] + topical.map(dense(mixed.transpose(1, 2).flatten(2)))
    states = states + layer.feed_forward(layer.around_feed_forward.norm(states))
    valid = batch["attention_mask"].bool()
    torch.testing.assert_close(found.encoder_hidden_states[2][valid], states[valid], atol=1e-5, rtol=1e-4)


def test_logits_of_head_and_biases_by_hand():
    """U in the head that is biaffine, b[tree, relation] in both; what is recorded besides sums to 1."""
    model, batch, seen = _open(_model(**ALL)), _batch(), {}
    layer = model.encoder.layers[1]
    layer.register_forward_pre_hook(lambda _, args: seen.update(before=args[0]))
    with model.infusion.record(attention=True):
        model(**batch)
    query, key, _ = _states_of(layer, seen["before"])
    scaled = query @ key.transpose(-1, -2) / (D // HEADS) ** 0.5
    pointing = query[:, :1] @ model.infusion.lisa["1"].weight @ key[:, :1].transpose(-1, -2)
    tables = model.infusion.relation_bias["1"].weight
    bias = sum(tables[tree][batch["syntax"][:, tree].long()] for tree in (0, 1)).permute(0, 3, 1, 2)
    expected = torch.cat([pointing, scaled[:, 1:]], 1) + bias
    torch.testing.assert_close(model.infusion.seen.logits[1][0], expected, atol=1e-5, rtol=1e-4)
    valid = batch["attention_mask"][:, None] == 1
    pointed_at = pointing[:, 0].masked_fill(~valid, -torch.inf).argmax(-1)
    assert torch.equal(model.infusion.seen.pointed_at[1][0], pointed_at)
    torch.testing.assert_close(model.infusion.seen.weights[1][0].sum(-1), torch.ones(3, SRC))


@pytest.mark.parametrize("inject", [None, "gold"])
def test_an_added_head_is_a_sum_beside_the_others_that_starts_at_zero(tmp_path, inject):
    batch, seen = _batch(), {}
    plain, model = _model(), _model(lisa={"head": "added", "weight": 0.7, "inject": inject})
    names = model.load_state_dict(plain.state_dict(), strict=False).missing_keys
    assert names == [f"encoder.infusion.lisa.1.{name}" for name in ("weight", "output.weight")]
    assert torch.equal(model(**batch).logits, plain(**batch).logits)
    assert f"{'LISA':26}{2 * D * D:>+13,}" in sf.parameter_report(model, plain)
    head, layer = model.infusion.lisa["1"], model.encoder.layers[1]
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    layer.register_forward_pre_hook(lambda _, args: seen.update(before=args[0]))
    found = model(**batch, output_hidden_states=True).encoder_hidden_states[2]
    states, valid = _states_of(layer, seen["before"]), batch["attention_mask"].bool()
    query, key, value = (one.transpose(1, 2).flatten(2) for one in states)
    logits = (query @ head.weight @ key.transpose(-1, -2)).masked_fill(~valid[:, None], -torch.inf)
    of_head = logits.softmax(-1) @ value
    if inject:  # a piece with a governor has its value alone
        given = value.gather(1, batch["governors"].clamp(min=0)[..., None].expand_as(value))
        of_head = torch.where(batch["governors"][..., None] >= 0, given, of_head)
    query, key, value = states
    scaled = (query @ key.transpose(-1, -2) / (D // HEADS) ** 0.5).masked_fill(
        ~valid[:, None, None], -torch.inf
    )
    usual = layer.self_attention.output((scaled.softmax(-1) @ value).transpose(1, 2).flatten(2))
    after = seen["before"] + usual + of_head @ head.output.weight.T
    after = after + layer.feed_forward(layer.around_feed_forward.norm(after))
    torch.testing.assert_close(found[valid], after[valid], atol=1e-4, rtol=1e-4)
    assert torch.equal(model.infusion.seen.pointed_at[1][0], logits.argmax(-1))
    model.save_pretrained(tmp_path)
    again = SyntaxTransformer.from_pretrained(tmp_path).eval()
    assert again.config.lisa["head"] == "added"
    assert torch.equal(again(**batch).logits, model(**batch).logits)


def test_a_translator_is_infused_like_any_encoder(tmp_path: Path):
    """With closed gates it computes what it did; its folder holds the rest."""
    model, batch = _model("sum_then_concat"), _batch("sum_then_concat")
    plain = model(**batch).logits
    assert sf.infuse(model, sf.InfusionConfig(**MASKS, **LISA)) is model
    torch.testing.assert_close(model(**batch).logits, plain, atol=1e-6, rtol=1e-6)
    names = {name for name, _ in sf.infusion_parameters(model)}
    assert names < set(model.state_dict())
    assert {"encoder.infusion.gates.0.weight", "encoder.infusion.lisa.1.weight"} < names
    assert f"{'LISA':26}{HEAD:>+13,}" in sf.parameter_report(model)
    _open(model).save_pretrained(tmp_path)
    again = SyntaxTransformer.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(again(**batch).logits, model(**batch).logits, atol=1e-5, rtol=1e-5)
    with pytest.raises(ConfigError, match=r"^model: expected one that is not infused, got SyntaxTransformer"):
        sf.infuse(model, "masks")
    message = r"^embedding: expected none in SyntaxTransformer, got add\. Its factors come from the source"
    with pytest.raises(ConfigError, match=message):
        sf.infuse(_model(), "pos_add")


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_loss_is_cross_entropy_per_piece(norm: str):
    model, batch = _model(norm=norm), _batch()
    batch["labels"][1, 3:] = -100
    output = model(**batch)
    picked = output.logits.log_softmax(-1).gather(-1, batch["labels"].clamp(min=0)[..., None])[..., 0]
    torch.testing.assert_close(output.loss, -picked[batch["labels"] >= 0].mean())
    torch.testing.assert_close(model(**batch, num_items_in_batch=2).loss, output.loss * 13 / 2)


def test_smoothing_in_training_only():
    model, batch = _model(label_smoothing=0.1, dropout=0.0, attention_dropout=0.0), _batch()
    plain = model(**batch)
    smoothed = model.train()(**batch).loss
    logs = plain.logits.log_softmax(-1)
    torch.testing.assert_close(smoothed, 0.9 * plain.loss - 0.1 * logs.mean())


@pytest.mark.parametrize("name", ["past_key_values", "cache"])
def test_a_cache_is_taken_under_its_old_name_and_its_new_one(name: str):
    model, batch = _model(), _batch()
    cache = TranslationCache()

    def read(*pieces: int, **cached: Any) -> Any:
        return model(batch["input_ids"], decoder_input_ids=torch.tensor([pieces] * 3), **cached)

    assert read(2, **{name: cache})[CACHE] is cache
    torch.testing.assert_close(read(5, **{name: cache}).logits[:, 0], read(2, 5).logits[:, 1])


def test_a_cache_of_fixed_length_is_refused():
    """Its empty slots would be attended to."""
    with pytest.raises(ValueError, match=r"^past_key_values: expected a cache that grows, got one of fixed"):
        _model().generate(input_ids=_batch()["input_ids"], cache_implementation="static", max_new_tokens=6)


@pytest.mark.parametrize("times", [2, 3])
def test_glorot_bounds(times: int):
    """Fused projections of attention take the bound of one; a network of twice the width has its own shape's."""
    model = _model("sum_then_concat", d_ff=times * D)
    layer = model.decoder.layers[0]
    for weight, rows, columns in (
        (layer.feed_forward.inner.weight, times * D, D),
        (layer.self_attention.query_key_value.weight, D, D),
        (model.encoder.layers[0].self_attention.query_key_value.weight, D, D),
        (layer.cross_attention.key_value.weight, D, D),
        (layer.cross_attention.query.weight, D, D),
        (model.encoder.embedding.factors["pos"].weight, V, 13),
    ):
        bound = math.sqrt(6 / (rows + columns))
        assert 0.96 * bound < float(weight.detach().abs().max()) <= bound
    assert float(model.encoder.embedding.word.weight[0].detach().abs().max()) == 0


@pytest.mark.parametrize("n_pieces", [1009, 4001])
def test_one_hot_tags_begin_on_the_scale_of_words(n_pieces: int, tmp_path: Path):
    """Word part W e: σ_W √d σ_e, where σ_W ≈ 1/√d; tag part: a column of W."""
    torch.manual_seed(5)
    plan = plan_widths("onehot_concat", 256)
    model = SyntaxTransformer(
        SyntaxTransformerConfig(
            vocab_size=n_pieces, d_model=256, d_ff=31, n_heads=2, encoder_layers=1, decoder_layers=1,
            infusion=plan.as_dict(), factor_sizes={"pos": 20},
        )
    )  # fmt: skip
    embedding = model.encoder.embedding
    weight = embedding.map.weight.detach()
    words, tags = embedding.word.weight[1:].detach() @ weight[:, :256].T, weight[:, 256:]
    assert float(tags.std() / words.std()) == pytest.approx(1, abs=0.1)
    assert float(weight[:, :256].abs().max()) > 0.9 * math.sqrt(6 / (256 + 276))
    model.save_pretrained(tmp_path)
    again = SyntaxTransformer.from_pretrained(tmp_path).encoder.embedding.map.weight
    torch.testing.assert_close(again, weight)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("token_type_ids", torch.ones(3, 11, dtype=torch.long)),
        ("decoder_inputs_embeds", torch.ones(3, 5, D)),
        ("decoder_attention_mask", torch.tensor([[1, 1, 1, 0, 0]] * 3)),
        ("inputs_embeds", torch.ones(3, 11, D)),
    ],
)
def test_keywords_that_would_change_the_result_are_refused(keyword: str, value: object):
    model, batch = _model(), _batch()
    with pytest.raises(ValueError, match=keyword):
        model(**batch, **{keyword: value})
    assert model(**batch, **{keyword: None}).loss is not None
