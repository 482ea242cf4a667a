"""What a row of the table of families buys: training, generation, copies, adapters, transformers' Auto classes."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import syntaxformer as sf
from syntaxformer.infusion.families import FAMILIES
from tiny_hosts import EXHAUSTIVE

# PEFT asks so.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
ADAPTED_FIRST = ("bert", "eurobert", "mt5", "marian", "mpnet", "deberta-v2")


def test_every_new_parameter_has_a_gradient(tiny, any_model):
    """From the scores, with all that can be had at once; tags that are not in the batch aside."""
    model, batch = tiny.infused(any_model, tiny.all_of(any_model))
    tiny.scores(model(**batch.inputs, **batch.syntax)).square().sum().backward()
    for name, parameter in sf.infusion_parameters(model):
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 0, name
        assert bool(parameter.grad.isfinite().all()), name


def test_tags_at_the_final_vector(tiny, any_model):
    """`let` begins as nothing, and reaches the scores, wherever something takes the final vector."""
    model, batch = tiny.model(any_model), tiny.batch(any_model)
    if not type(model).__name__.endswith("ForSequenceClassification"):
        return
    plain = tiny.scores(model(**batch.inputs)).detach()
    sf.infuse(model, "let")
    tags = {"factor_ids": batch.syntax["factor_ids"]}
    assert_close(tiny.scores(model(**batch.inputs, **tags)), plain, atol=1e-6, rtol=1e-6)
    tiny.open(model)
    found = tiny.scores(model(**batch.inputs, **tags))
    assert float((found - plain).detach().abs().max()) > 1e-4
    found.square().sum().backward()
    assert all(float(one.grad.abs().max()) > 0 for _, one in sf.infusion_parameters(model))


@pytest.mark.parametrize("beams", [1, 3])
def test_what_is_generated(tiny, writer, beams):
    """At first what the plain model writes; then what its decoder scores best, with a cache and without."""
    model, batch = tiny.model(writer), tiny.batch(writer)
    inputs = {key: value for key, value in batch.inputs.items() if key != "labels"}
    syntax = {key: value for key, value in batch.syntax.items() if key != "governors"}
    options = {"max_new_tokens": 5, "min_new_tokens": 3, "num_beams": beams, "do_sample": False}
    plain = model.generate(**inputs, **options)
    sf.infuse(model, tiny.all_of(writer))
    assert torch.equal(model.generate(**inputs, **syntax, **options), plain)
    tiny.open(model)
    written = model.generate(**inputs, **syntax, **options)
    assert torch.equal(model.generate(**inputs, **syntax, **options, use_cache=False), written)
    other = {**syntax, "factor_ids": syntax["factor_ids"].flip(0), "syntax": syntax["syntax"].flip(0)}
    with torch.no_grad():
        steps = [
            model(**inputs, **given, decoder_input_ids=written[:, :4]).logits for given in (syntax, other)
        ]
    assert float((steps[0] - steps[1]).abs().max()) > 1e-4
    if beams == 1:
        steps[0][..., model.config.eos_token_id] = -torch.inf
        assert torch.equal(steps[0][:, :3].argmax(-1), written[:, 1:4])


def test_models_of_the_same_config_stay_plain(tiny, any_family):
    """What was made of it before, and what is made of it or of the infused model's afterwards."""
    plain, batch = tiny.model(any_family), tiny.batch(any_family)
    config = plain.config
    twin = type(plain)(config).eval()
    twin.load_state_dict(plain.state_dict())
    expected, before = tiny.scores(plain(**batch.inputs)), config.to_dict()
    make = type(plain)
    sf.infuse(plain, tiny.all_of(any_family))
    tiny.open(plain)
    assert torch.equal(tiny.scores(twin(**batch.inputs)), expected)
    assert config.to_dict() == before
    for late in (config, plain.config):
        assert bool(tiny.scores(make(late).eval()(**batch.inputs)).isfinite().all())


@pytest.mark.parametrize("order", ["infuse first", "adapt first"])
def test_adapters_train_save_load_and_merge(tiny, any_family, order, tmp_path):
    """On W_O, which masks fold into."""
    import peft

    if order == "adapt first" and any_family not in ADAPTED_FIRST and not EXHAUSTIVE:
        pytest.skip("one of each shape: make test-long takes all")
    names = "masks,relation_bias,pos_add" if tiny.attends(any_family) else "pos_add"
    name = {"t5-encoder": "t5"}.get(any_family, any_family)
    target = FAMILIES[name].output.rpartition(".")[2]
    options = {"r": 3, "lora_alpha": 6, "target_modules": [target]}
    torch.manual_seed(5)
    plain, batch = tiny.model(any_family), tiny.batch(any_family)
    if order == "infuse first":
        model = sf.infuse(plain, names)
        model = peft.get_peft_model(model, peft.LoraConfig(modules_to_save=["infusion"], **options))
    else:
        model = sf.infuse(peft.get_peft_model(plain, peft.LoraConfig(**options)), names)
    trained = {one: p.detach().clone() for one, p in model.named_parameters() if p.requires_grad}
    _train(tiny, model, batch)
    now = dict(model.named_parameters())
    assert [one for one in trained if "infusion" in one and torch.equal(now[one], trained[one])] == []
    expected = tiny.run(model, batch)
    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(sf.infuse(tiny.model(any_family), names), tmp_path).eval()
    assert_close(tiny.run(again, batch), expected, atol=1e-4, rtol=1e-4)
    merged = model.merge_and_unload()
    assert_close(tiny.run(merged, batch), expected, atol=1e-4, rtol=1e-4)
    merged.save_pretrained(tmp_path / "merged")
    loaded = sf.load(tmp_path / "merged").eval()
    assert_close(tiny.run(loaded, batch), expected, atol=1e-4, rtol=1e-4)


def _train(tiny, model, batch):
    model.train()
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        tiny.scores(model(**batch.inputs, **batch.syntax)).square().mean().backward()
        optimizer.step()
    model.eval()
