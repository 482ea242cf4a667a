"""What happens inside an infused model: the same as in the layers that it is made of."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import syntaxformer as sf
from syntaxformer.nn import syntax_attention_reference
from syntaxformer.syntax.piece_relations import with_all_siblings

LOCAL = {"num_hidden_layers": 2, "global_attn_every_n_layers": 3}
QKV = ("query", "key", "value")


def _heads(linear, states, n_heads=3):
    return linear(states).unflatten(-1, (n_heads, -1)).transpose(1, 2)


def _states_before(tiny, model, batch, layer):
    """What goes into a layer of a BERT, and what its self-attention gives after W_O and W_V."""
    seen = {}
    attention = model.bert.encoder.layer[layer].attention
    handles = [
        attention.register_forward_pre_hook(lambda module, args: seen.update(before=args[0])),
        attention.output.dense.register_forward_hook(lambda module, args, output: seen.update(after=output)),
    ]
    tiny.run(model, batch)
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"mode": "additive"},
        {"mode": "additive", "on_empty_row": "zero"},
        {"per_layer": True},
        {"gate": "head"},
        {"preset": "paper"},
        {"preset": "paper", "mode": "additive"},
        {"preset": "paper", "mode": "additive", "on_empty_row": "zero"},
        {"preset": "paper", "per_layer": True},
        *({"preset": "paper", "topical": False, "summation": way} for way in ("sum", "scaled", "mean")),
    ],
)
def test_attention_is_the_reference(tiny, masks):
    """Layer 1 of a BERT beside the literal loop over masks, then W_O, then W_V behind the gate."""
    model, batch = tiny.infused("bert", masks=masks)
    seen = _states_before(tiny, model, batch, 1)
    attention = model.bert.encoder.layer[1].attention
    module, dense = attention.self, attention.output.dense
    weight, bias, queries, gate = dense.weight, dense.bias, None, None
    if masks.get("topical", True):
        topical, gate = model.infusion.topical_of(1), model.infusion.gate_of(1)
        queries = topical.head_queries(dense.weight, topical("direction"))
        weight, bias = topical.output_layer(dense.weight, dense.bias, gate)
    query, key, value = (_heads(getattr(module, name), seen["before"]) for name in QKV)
    mixed, _ = syntax_attention_reference(
        query, key, value, batch.syntax["syntax"], queries, batch.mask, mode=masks.get("mode", "multiplicative"),
        on_empty_row=masks.get("on_empty_row", "full"), include_full="preset" not in masks, gate=gate,
        summation=masks.get("summation", "scaled"),
    )  # fmt: skip
    expected = F.linear(mixed.transpose(1, 2).flatten(2), weight, bias)
    atol = 1e-4 if queries is None else 1e-5  # of a sum over all
    assert_close(seen["after"][batch.mask], expected[batch.mask], atol=atol, rtol=1e-5)


def test_weights_of_sub_networks_are_read_on_request(tiny, family):
    model, batch = tiny.infused(family, masks={})
    weights = tiny.recorded(model, batch).weights
    assert sorted(weights) == model.infusion.masked_layers
    for of_layer in weights.values():
        assert of_layer[-1].shape == (tiny.size, tiny.pieces, 93)
        assert_close(of_layer[-1].sum(-1), torch.ones(tiny.size, tiny.pieces), atol=1e-5, rtol=0)
    tiny.run(model, batch)
    assert model.infusion.seen.weights == {}


def test_layers_that_share_parameters_run_as_often_as_there_are_layers(tiny):
    """ALBERT: two groups of parameters, four layers, so two entries for each group."""
    model, batch = tiny.model("albert-base-model"), tiny.batch()
    sf.infuse(model, sf.InfusionConfig(masks={}))
    weights = tiny.recorded(model, batch).weights
    assert {layer: len(of_layer) for layer, of_layer in weights.items()} == {0: 2, 1: 2}
    assert sorted(model.infusion.gates) == ["0", "1"]


@pytest.mark.parametrize("names", ["masks", "relation_bias", "lisa", "masks,relation_bias,lisa"])
def test_recorded_attention_times_values_is_the_output(tiny, names):
    model, batch = tiny.infused("bert", names)
    seen = {}
    attention = model.bert.encoder.layer[1].attention
    attention.self.register_forward_hook(lambda module, args, output: seen.update(mixed=output[0]))
    attention.self.value.register_forward_hook(lambda module, args, output: seen.update(value=output))
    weights = tiny.recorded(model, batch, attention=True).attention[1][-1]
    value = seen["value"].unflatten(-1, (3, -1)).transpose(1, 2)
    mixed = (weights @ value).transpose(1, 2).flatten(2)
    assert_close(mixed[batch.mask], seen["mixed"][batch.mask], atol=1e-5, rtol=1e-5)
    assert_close(weights.sum(-1)[1, :, :7], torch.ones(3, 7), atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # PEFT
def test_a_gate_for_each_head_behind_an_adapter_is_that_of_the_merged_layer(tiny):
    """Two ways through W_O and W_V: an adapter's layer runs twice, a plain one is one product."""
    import peft

    model, batch = tiny.infused("bert", masks={"gate": "head"})
    with torch.no_grad():
        for gate in model.infusion.gates.parameters():
            gate.copy_(torch.tensor([0.2, -0.9, 1.4]))
    options = {
        "r": 3, "lora_alpha": 6, "target_modules": ["attention.output.dense"], "init_lora_weights": False,
    }  # fmt: skip
    adapted = peft.get_peft_model(model, peft.LoraConfig(**options)).eval()
    apart = tiny.run(adapted, batch)
    assert_close(apart, tiny.run(adapted.merge_and_unload(), batch), atol=1e-5, rtol=1e-5)


def test_queries_share_keys_and_values_in_groups(tiny):
    """Two queries for each of two keys, in the order of the host."""
    model = tiny.model("eurobert", num_attention_heads=4, num_key_value_heads=2)
    batch = tiny.batch("eurobert")
    with torch.no_grad():
        plain = tiny.scores(model(**batch.inputs))
    sf.infuse(model, "masks,relation_bias")
    assert_close(tiny.run(model, batch), plain, atol=1e-5, rtol=1e-5)


def test_what_is_left_out_has_no_weight(tiny):
    model, batch = tiny.infused("bert", masks={"without": ["sibling", "pair"]}, opens=False)
    alpha = tiny.recorded(model, batch).weights[0][-1]
    of_trees = alpha[..., :-1].unflatten(-1, (2, 46)).amax((0, 1, 2))
    assert bool((of_trees[:30] > 0).all())
    assert bool((of_trees[30:] == 0).all())


def test_a_trained_model_is_evaluated_without_a_tree(tiny):
    model, batch = tiny.infused("bert", masks={}, relation_bias={})
    whole = tiny.run(model, batch)
    model.infusion.leave_out("constituency")
    without = tiny.run(model, batch)
    other_tree = batch.syntax["syntax"].clone()
    other_tree[:, 1] = torch.where(other_tree[:, 1] > 0, 3, 0)
    assert_close(without, tiny.run(model, batch, syntax=other_tree))
    model.infusion.leave_out()
    assert torch.equal(tiny.run(model, batch), whole)
    assert float((without - whole).abs().max()) > 1e-5


def test_one_tree_only(tiny):
    model, batch = tiny.infused("bert", masks={"without": ["constituency"]}, opens=False)
    seen = tiny.recorded(model, batch, syntax=batch.syntax["syntax"][:, :1])
    assert seen.weights[0][-1].shape[-1] == 47


def test_chosen_layers_only(tiny):
    sections = {"masks": {"layers": [1]}, "lisa": {"layers": [0]}, "relation_bias": {"layers": [0]}}
    model, batch = tiny.infused("bert", opens=False, **sections)
    assert sorted(name for name, _ in sf.infusion_parameters(model)) == [
        "infusion.gates.1.weight",
        "infusion.lisa.0.weight",
        "infusion.relation_bias.0.weight",
        "infusion.topical.shared.key",
        "infusion.topical.shared.task_query",
        "infusion.topical.shared.value",
    ]
    seen = tiny.recorded(model, batch)
    assert list(seen.weights) == [1]
    assert list(seen.pointed_at) == [0]


def test_local_attention_keeps_its_window_in_the_full_part(tiny):
    """ModernBERT: with all gates closed a key outside the window has no influence on a local layer."""
    model, batch = tiny.model("modernbert-base-model", **LOCAL), tiny.batch()
    sf.infuse(model, sf.InfusionConfig(masks={"layers": [1]}))
    attention = tiny.recorded(model, batch, attention=True).attention[1][-1]
    places = torch.arange(tiny.pieces)
    outside = (places[:, None] - places).abs() > 4
    assert model.config.layer_types[1] == "sliding_attention"
    assert float(attention[..., outside].abs().max()) == 0
    assert float(attention[0, ..., ~outside].min()) > 0


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
@pytest.mark.parametrize("preset", ["preserving", "paper"])
def test_a_relation_beyond_the_window_of_local_attention_is_none(tiny, mode, preset):
    """ModernBERT: other relations outside change nothing, and a row that has only such ones is an empty row."""
    model, batch = tiny.model("modernbert-base-model", **LOCAL), tiny.batch()
    sf.infuse(model, sf.InfusionConfig(preset=preset, masks={"layers": [1], "mode": mode}))
    tiny.open(model)
    places = torch.arange(tiny.pieces)
    outside = (places[:, None] - places).abs() > 4

    def attention(relations):
        seen = tiny.recorded(model, batch, attention=True, syntax=relations)
        return seen.attention[1][-1].transpose(1, 2)[batch.mask]

    within = batch.syntax["syntax"].masked_fill(outside, 0)
    assert_close(attention(batch.syntax["syntax"]), attention(within), atol=1e-6, rtol=1e-5)
    of_empty = attention(torch.where(outside, batch.syntax["syntax"], 0))
    assert_close(of_empty.sum(-1), torch.ones_like(of_empty[..., 0]), atol=1e-5, rtol=0)
    inside = (~outside).expand(tiny.size, -1, -1)[batch.mask][:, None].expand_as(of_empty)
    assert (mode == "additive") == (float(of_empty[~inside].abs().max()) == 0)


def _first_attention(tiny, model, batch):
    """Logits and values of the heads in layer 0 of a BERT, and what its attention gives after W_O."""
    seen = _states_before(tiny, model, batch, 0)
    attention = model.bert.encoder.layer[0].attention
    module = attention.self
    query, key, value = (_heads(getattr(module, name), seen["before"]) for name in QKV)
    logits = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    return logits.masked_fill(~batch.mask[:, None, None], -torch.inf), value, seen["after"], attention.output


def test_the_authors_code(tiny):
    """A loop over all masks and a full one: masked logits get -10,000, and the sum is divided by √m."""
    model, batch = tiny.infused("bert", preset="authors_code", masks={}, opens=False)
    assert sf.infusion_parameters(model) == []
    logits, value, found, output = _first_attention(tiny, model, batch)
    total, n_masks = torch.zeros_like(value), 0
    for tree in batch.syntax["syntax"].unbind(1):
        for relation in range(1, 47):
            masked = logits.double() + 10_000.0 * ((tree == relation)[:, None].double() - 1)
            total, n_masks = total + masked.softmax(-1).nan_to_num().to(value.dtype) @ value, n_masks + 1
    total, n_masks = total + logits.softmax(-1) @ value, n_masks + 1
    assert n_masks == 93
    expected = output.dense((total / n_masks**0.5).transpose(1, 2).flatten(2))
    assert_close(found[batch.mask], expected[batch.mask], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
def test_siblings_as_printed(tiny, mode):
    """A loop over the printed definitions: the mask of siblings holds ancestors and descendants too."""
    model, batch = tiny.model("bert"), tiny.batch()
    masks = {"topical": False, "siblings": "all", "max_distance": 15, "mode": mode}
    masks |= {"on_empty_row": "zero"} if mode == "additive" else {}
    sf.infuse(model, sf.InfusionConfig(preset="paper", masks=masks))
    ids = batch.syntax["syntax"]
    batch.syntax["syntax"] = torch.from_numpy(with_all_siblings(ids.numpy(), 15))
    logits, value, found, output = _first_attention(tiny, model, batch)
    total = torch.zeros_like(value)
    for tree in ids.unbind(1):
        distance = torch.where((tree > 0) & (tree <= 45), (tree.int() - 1) % 15 + 1, 0)
        of_siblings = [distance == d for d in range(1, 16)]
        others = [tree == relation for relation in (*range(1, 31), 46)]
        for mask in (*others, *of_siblings):
            if mode == "multiplicative":
                weights = torch.where(mask[:, None] | logits.isinf(), logits, 0.0).softmax(-1)
            else:
                weights = logits.masked_fill(~mask[:, None], -torch.inf).softmax(-1).nan_to_num()
            total = total + weights @ value
    expected = output.dense(total.transpose(1, 2).flatten(2))
    assert_close(found[batch.mask], expected[batch.mask], atol=1e-4, rtol=1e-4)


def test_a_bias_by_distance_multiplies_the_weights(tiny):
    """softmax(s - d²/2σ²) are the weights of the plain layer times a Gaussian, normalised."""
    model, batch = tiny.model("bert"), tiny.batch()
    options = {"init": "distance", "sigma": 2.0, "trees": ["dependency"]}
    sf.infuse(model, sf.InfusionConfig(relation_bias=options))
    ids = batch.syntax["syntax"][:, :1].int()  # of D = 15
    kind, distance = (ids - 1) // 15, (ids - 1) % 15 + 1
    batch.syntax["syntax"] = torch.where(ids > 0, 84 * kind + distance, 0).to(torch.uint8)
    logits, value, found, output = _first_attention(tiny, model, batch)
    distance = torch.where((ids > 0) & (ids <= 45), distance, 0)
    weights = logits.softmax(-1) * torch.exp(-(distance.float() ** 2) / 8)
    mixed = (weights / weights.sum(-1, keepdim=True)) @ value
    expected = output.dense(mixed.transpose(1, 2).flatten(2))
    assert_close(found[batch.mask], expected[batch.mask], atol=1e-5, rtol=1e-5)
