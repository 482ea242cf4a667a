"""What transformers' own models do, each of ours does: folders, tables, outputs, copies, types, devices, compiling."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import threading
from pathlib import Path
from unittest import mock

import pytest
import torch
import transformers as hf
from accelerate import cpu_offload
from safetensors.torch import load_file, save_file
from torch import nn
from torch.testing import assert_close

import own_process
import syntaxformer as sf
from subjects import subject_of
from syntaxformer import SyntaxTransformer
from syntaxformer.base.errors import CheckpointError
from syntaxformer.nn import plan_widths
from syntaxformer.translation.batches import rounded_up
from syntaxformer.translation.model_config import SyntaxTransformerConfig
from tiny_hosts import EXHAUSTIVE

WIDE = ("modernbert", "nomic_bert")
"""Hosts of width 24: they rotate pairs of a head's numbers."""
VOCAB = 31


def _tensors(found, into=None):
    """All tensors of an output, nested tuples and caches aside, by name."""
    into = {} if into is None else into
    items = found.items() if hasattr(found, "items") else enumerate(found)
    for name, value in items:
        if isinstance(value, torch.Tensor):
            into[name] = value
        elif isinstance(value, tuple):
            into |= {f"{name}.{key}": one for key, one in _tensors(value).items()}
    return into


def _outputs(model, batch, **asked):
    with torch.no_grad():
        return _tensors(model(**batch, **asked))


def _same(first, second, atol=0.0):
    assert list(first) == list(second)
    for name, tensor in first.items():
        assert_close(second[name], tensor, atol=atol, rtol=0, msg=lambda text, name=name: f"{name}: {text}")


# Folders and configs


def test_auto_classes_load_what_was_saved(subject, tmp_path):
    model, batch = subject.model(), subject.batch()
    model.save_pretrained(tmp_path)
    loaded = subject.auto.from_pretrained(tmp_path).eval()
    assert type(loaded).__name__ == type(model).__name__
    assert loaded.config.model_type == model.config.model_type
    _same(_outputs(model, batch), _outputs(loaded, batch), atol=1e-5)
    assert {name: one.dtype for name, one in loaded.state_dict().items()} == {
        name: one.dtype for name, one in model.state_dict().items()
    }


def test_what_auto_config_and_auto_model_give(translator, tmp_path):
    model, batch = translator.model(), translator.batch()
    model.save_pretrained(tmp_path)
    config = hf.AutoConfig.from_pretrained(tmp_path)
    assert type(config) is type(model.config)
    assert config.to_diff_dict().keys() == model.config.to_diff_dict().keys()
    _same(_outputs(model, batch), _outputs(hf.AutoModel.from_pretrained(tmp_path), batch), atol=1e-5)
    fresh = hf.AutoModelForSeq2SeqLM.from_config(config)
    assert all(parameter.isfinite().all() for parameter in fresh.parameters())
    made = hf.AutoConfig.for_model("syntaxformer", d_model=34)
    assert (type(made), made.d_model) == (type(config), 34)


def test_a_config_comes_back_through_a_mapping_and_json(subject):
    config = subject.config(unheard_of=3)
    again = type(config).from_dict(config.to_dict())
    assert again.to_dict() == config.to_dict()
    assert (
        type(config).from_dict(json.loads(config.to_json_string(use_diff=False))).to_dict()
        == config.to_dict()
    )
    assert again.unheard_of == 3
    assert config.hidden_size == (24 if subject.name.startswith(WIDE) else 22)
    assert config.num_attention_heads == (3 if subject.name.startswith("t5") else 2)
    assert config.num_hidden_layers == (3 if subject.is_translator else 2)


def test_two_models_of_one_config_object(subject):
    config, batch = subject.config(), subject.batch()
    before = config.to_dict()
    first, second = subject.build(config), subject.build(config)
    assert config.to_dict() == before
    _same(_outputs(first, batch), _outputs(second, batch), atol=1e-5)


def test_a_subclass_loads_the_folder_of_its_base(translator, tmp_path):
    model, batch = translator.model(), translator.batch()
    model.save_pretrained(tmp_path)

    class Own(SyntaxTransformer):
        def __init__(self, config):
            super().__init__(config)
            self.more = nn.Linear(22, 3)

    loaded = Own.from_pretrained(tmp_path).eval()
    assert float(loaded.more.weight.detach().abs().max()) <= (6 / 25) ** 0.5
    _same(_outputs(model, batch), _outputs(loaded, batch), atol=1e-5)


_OWN = {
    "vocab_size": VOCAB, "d_model": 22, "n_heads": 2, "d_ff": 29, "encoder_layers": 1, "decoder_layers": 1,
}  # fmt: skip


@pytest.mark.parametrize("preset", ["paper", "authors_code", "preserving"])
def test_our_model_keeps_the_preset_that_it_is_infused_with(preset, tmp_path):
    model = SyntaxTransformer(SyntaxTransformerConfig(**_OWN))
    shared = model.config
    sf.infuse(model, sf.InfusionConfig(preset=preset, masks={}))
    assert SyntaxTransformer(shared).infusion is None, "others that share the config stay as they are"
    model.save_pretrained(tmp_path)
    loaded = SyntaxTransformer.from_pretrained(tmp_path)
    assert loaded.infusion.config.preset_of_masks == preset
    assert loaded.infusion.state_dict().keys() == model.infusion.state_dict().keys()


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_our_model_is_infused_within_peft(tmp_path):
    peft = pytest.importorskip("peft")
    found = []
    for is_loaded in (False, True):
        torch.manual_seed(3)
        model = SyntaxTransformer(SyntaxTransformerConfig(**_OWN))
        if is_loaded:
            model = peft.PeftModel.from_pretrained(sf.infuse(model, "relation_bias"), tmp_path)
        else:
            model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["output"]))
            assert sf.infuse(model, "relation_bias") is model
            with torch.no_grad():
                for name, one in model.named_parameters():
                    one.add_(0.5 if "infusion" in name and one.requires_grad else 0)
            model.save_pretrained(tmp_path)
        relations = torch.arange(25, dtype=torch.uint8).view(1, 1, 5, 5).expand(1, 2, 5, 5) % 5
        pieces = torch.arange(4, 9)[None]
        found.append(model.eval()(input_ids=pieces, syntax=relations, decoder_input_ids=pieces).logits)
    _same(*({"logits": one} for one in found), atol=1e-6)


@pytest.mark.parametrize("new", ["lisa", "masks", "relation_bias"])
def test_parts_of_syntax_that_a_folder_lacks_start_as_documented(new, tmp_path):
    """LISA's U at I / √d_head, topical W_V at I, gates and biases at 0."""
    SyntaxTransformer(SyntaxTransformerConfig(**_OWN)).save_pretrained(tmp_path)
    poison = [torch.full((64, 64), torch.nan) for _ in range(50)]
    del poison  # memory that is handed out again is not zero by chance
    section = {"max_distance": 3} if new != "lisa" else {}
    loaded = SyntaxTransformer.from_pretrained(tmp_path, **{new: section})
    added = {name: one.detach() for name, one in loaded.named_parameters() if ".infusion." in name}
    assert added
    for name, parameter in added.items():
        if name.endswith("lisa.0.weight"):
            assert_close(parameter, torch.eye(11) / 11**0.5)
        elif name.endswith("topical.shared.value"):
            assert_close(parameter, torch.eye(22))
        elif name.endswith(("task_query", "topical.shared.key")):
            assert 0.005 < float(parameter.std()) < 0.04
        else:
            assert float(parameter.abs().max()) == 0


@pytest.mark.parametrize("settings", [{"masks": {}}, {"lisa": {}}, {"kind": "pos_encoder"}, {"kind": "add"}])
def test_a_folder_whose_weights_lack_its_infusion_is_refused(settings, tmp_path):
    """An older version called them otherwise: they must not start at random behind a warning."""
    settings = dict(settings)
    plan = plan_widths(settings.pop("kind", "none"), 22)
    config = SyntaxTransformerConfig(**_OWN, infusion=plan.as_dict(), factor_sizes={"pos": 20}, **settings)
    SyntaxTransformer(config).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    for new, old in {"infusion": "syntax", "tags.tables": "tag_tables", "factors": "features"}.items():
        weights = {name.replace(new, old): value for name, value in weights.items()}
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    for auto in (SyntaxTransformer, hf.AutoModel, hf.AutoModelForSeq2SeqLM):
        with pytest.raises(CheckpointError, match=r"got none for encoder\."):
            auto.from_pretrained(tmp_path)


# Tables of pieces


def _tied(model):
    """Names of parameters that are one."""
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return sorted(sorted(names) for names in groups.values() if len(names) > 1)


def _refuses_resize(subject):
    return subject.name in ("translator-prepend", "translator-source_vocabulary")


@pytest.mark.parametrize("change", [5, -3])
def test_resize_keeps_the_rows_and_what_is_tied(subject, change, tmp_path):
    if _refuses_resize(subject):
        with pytest.raises(ValueError, match=r"^resize_token_embeddings:"):
            subject.model().resize_token_embeddings(VOCAB + change)
        return
    model, batch = subject.model(), subject.unlabelled()
    batch = {name: one.clamp(max=VOCAB - 4) if "input_ids" in name else one for name, one in batch.items()}
    tied, before = _tied(model), subject.scores(model, batch)
    table = model.get_input_embeddings().weight.detach().clone()
    resized = model.resize_token_embeddings(VOCAB + change)
    assert resized is model.get_input_embeddings()
    assert len(resized.weight) == model.config.vocab_size == VOCAB + change
    kept = VOCAB + min(change, 0)
    assert_close(resized.weight[:kept].detach(), table[:kept], atol=0, rtol=0)
    assert _tied(model) == tied
    after = subject.scores(model, batch)
    if subject.is_seq2seq:
        assert after.shape[-1] == VOCAB + change
        assert_close(after[..., :kept], before[..., :kept], atol=1e-5, rtol=0)
    else:
        assert_close(after, before, atol=1e-5, rtol=0)
    new = {**batch, "input_ids": batch["input_ids"].clone()}
    new["input_ids"][0, 1] = VOCAB + change - 1
    if subject.is_seq2seq:
        new["decoder_input_ids"] = batch["decoder_input_ids"].clone()
        new["decoder_input_ids"][0, 1] = VOCAB + change - 1
    assert subject.scores(model, new).isfinite().all()
    model.save_pretrained(tmp_path)
    again = subject.auto.from_pretrained(tmp_path).eval()
    assert_close(subject.scores(again, new), subject.scores(model, new), atol=1e-5, rtol=0)


def test_a_new_input_table_is_followed(subject):
    """As if its values had been written into the old one, also after tables were tied anew."""
    model, twin, batch = subject.model(), subject.model(), subject.unlabelled()
    before, old = subject.scores(model, batch), model.get_input_embeddings()
    if type(old) is nn.Embedding:
        new = nn.Embedding(*old.weight.shape, padding_idx=old.padding_idx)
    else:
        new = copy.deepcopy(old)
    with torch.no_grad():
        new.weight.normal_(generator=torch.Generator().manual_seed(4))
        twin.get_input_embeddings().weight.copy_(new.weight)
    tied = _tied(model)
    model.set_input_embeddings(new)
    assert model.get_input_embeddings() is new
    model.tie_weights()
    assert len(_tied(model)) == len(tied)
    assert_close(subject.scores(model, batch), subject.scores(twin, batch), atol=1e-5, rtol=0)
    assert not torch.allclose(subject.scores(model, batch), before, atol=1e-3)


def test_a_new_output_table_is_followed(translator):
    model, batch = translator.model(), translator.batch()
    head = nn.Linear(22, VOCAB)
    seen = []
    handle = head.register_forward_hook(lambda _, given, found: seen.append((given[0], found)))
    model.set_output_embeddings(head)
    assert model.get_output_embeddings() is head
    found = model(**batch)
    assert_close(found.logits, seen[0][1])
    # In training as well, though its bias has no part in the fused loss of a plain head.
    model.config.label_smoothing = 0.0
    has_more = any(name in translator.name for name in ("lisa", "target_pos"))
    if not has_more:
        assert_close(model.train()(**batch).loss, found.loss, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        head.bias[:] = 0
        head.bias[5] = 50
    loss = model.train()(**{**batch, "labels": torch.full_like(batch["labels"], 5)}).loss
    assert has_more or float(loss.detach()) < 1e-3
    handle.remove()


def test_tables_that_are_not_tied(translator, tmp_path):
    tied, loose, batch = translator.model(), translator.model(tie_word_embeddings=False), translator.batch()
    assert _tied(loose) == []
    more = sum(one.numel() for one in loose.parameters()) - sum(one.numel() for one in tied.parameters())
    assert more == VOCAB * 22 * sum(len(names) - 1 for names in _tied(tied))
    loose.save_pretrained(tmp_path)
    loaded = hf.AutoModel.from_pretrained(tmp_path).eval()
    assert _tied(loaded) == []
    _same(_outputs(loose, batch), _outputs(loaded, batch), atol=1e-5)
    new = nn.Embedding(*loose.get_input_embeddings().weight.shape)
    if type(loose.get_input_embeddings()) is nn.Embedding:
        target = loose.decoder.embedding.weight.detach().clone()
        loose.set_input_embeddings(new)
        assert_close(loose.decoder.embedding.weight.detach(), target, atol=0, rtol=0)


# Outputs


def test_hidden_states_where_they_are_wanted(subject):
    model, batch = subject.model(), subject.unlabelled()
    assert not [name for name in _outputs(model, batch) if "hidden_states" in str(name)]
    found = model(**batch, output_hidden_states=True)
    width = 24 if subject.name.startswith(WIDE) else 22
    shown = {"hidden_states": (3, 7)}
    if subject.is_seq2seq:
        shown = {"encoder_hidden_states": (3, 7), "decoder_hidden_states": (3, 5)}
    for name, (rows, pieces) in shown.items():
        n_layers = 3 if subject.is_translator and name.startswith("decoder") else 2
        assert [one.shape for one in found[name]] == [(rows, pieces, width)] * (n_layers + 1)
        assert not torch.equal(found[name][0], found[name][-1])
    by_config = subject.model()
    by_config.config.output_hidden_states = True
    if subject.is_seq2seq and not subject.is_translator:
        by_config.encoder.config.output_hidden_states = by_config.decoder.config.output_hidden_states = True
    _same(_tensors(found), _tensors(by_config(**batch)))


def test_attentions_where_they_are_wanted(subject):
    model, batch = subject.model(), subject.unlabelled()
    if not (subject.is_translator or subject.attends):
        model.set_attn_implementation("eager")
    assert not [name for name in _outputs(model, batch) if "attentions" in str(name)]
    found, plain = model(**batch, output_attentions=True), _outputs(model, batch)
    _same(plain, {name: one for name, one in _tensors(found).items() if name in plain}, atol=1e-5)
    shown = {"attentions": (7, 7)}
    if subject.is_seq2seq:
        shown = {"encoder_attentions": (7, 7), "decoder_attentions": (5, 5), "cross_attentions": (5, 7)}
    if subject.attends and subject.is_seq2seq:  # the decoder is the host's, without a switch to eager
        shown = {"encoder_attentions": (7, 7)}
    for name, (queries, keys) in shown.items():
        n_layers = 3 if subject.is_translator and name != "encoder_attentions" else 2
        n_heads = model.config.num_attention_heads
        assert [one.shape for one in found[name]] == [(3, n_heads, queries, keys)] * n_layers
        if "masks" not in subject.name:
            for weights in found[name]:
                assert_close(weights.sum(-1), torch.ones(3, n_heads, queries))
        if keys == 7:
            assert all(float(weights[1, ..., 5:].detach().abs().max()) == 0 for weights in found[name])
    if "decoder_attentions" in shown:
        assert all(float(one.detach().triu(1).abs().max()) == 0 for one in found.decoder_attentions)
    by_config = subject.model()
    if subject.attends:
        refused = (
            r"^The `output_attentions` attribute is not supported when using the `attn_implementation` set to"
        )
        with pytest.raises(ValueError, match=refused):
            by_config.get_encoder().config.output_attentions = True
        return
    by_config.set_attn_implementation("eager")
    by_config.config.output_attentions = True
    if subject.is_seq2seq and not subject.is_translator:
        by_config.encoder.config.output_attentions = by_config.decoder.config.output_attentions = True
    _same(_tensors(found), _tensors(by_config(**batch)), atol=1e-6)


def test_tuples_hold_what_mappings_hold(subject):
    batch, asked = subject.batch(), {"output_hidden_states": True}
    model = subject.model()
    for training in (False, True):
        model.train(training)
        with torch.no_grad():
            as_dict, as_tuple = model(**batch, **asked), model(**batch, **asked, return_dict=False)
        assert isinstance(as_tuple, tuple)
        if not training:
            _same(_tensors(as_dict.to_tuple()), _tensors(as_tuple))
        assert as_tuple[1].shape[-1] == (VOCAB if subject.is_seq2seq else 3), "logits are second"
        assert_close(as_tuple[0], as_dict["loss"], atol=1e-5, rtol=1e-5)
        if "modernbert" not in subject.name:  # its head needs a mapping of its base, also where it is plain
            model.config.return_dict = False
            assert isinstance(model(**batch), tuple)
            model.config.return_dict = True
    if subject.is_translator:
        encoded = model.get_encoder()(**subject.source(), return_dict=False)
        assert isinstance(encoded, tuple)
        model.config.return_dict = False
        assert isinstance(model.get_encoder()(**subject.source()), tuple)


def test_loss_with_labels_and_none_without(subject):
    model, batch = subject.model(), subject.batch()
    assert model(**batch).loss.shape == ()
    assert model(**subject.unlabelled()).get("loss") is None
    loss = model.train()(**batch).loss
    loss.backward()
    assert loss.isfinite()
    without = [name for name, one in model.named_parameters() if one.grad is None]
    assert all(one.grad.isfinite().all() for one in model.parameters() if one.grad is not None)
    assert without == []


def test_a_cache_where_the_config_wants_one(translator):
    model, batch = translator.model(), translator.unlabelled()
    assert model(**batch).past_key_values is not None
    assert model(**translator.batch()).past_key_values is None
    assert model(**batch, use_cache=False).past_key_values is None
    model.config.use_cache = False
    assert model(**batch).past_key_values is None
    assert model(**batch, use_cache=True).past_key_values is not None


@pytest.mark.parametrize("name", ["inputs_embeds", "decoder_inputs_embeds", "token_type_ids"])
def test_what_a_translator_does_not_take_is_refused(translator, name):
    model, batch = translator.model(), translator.unlabelled()
    sentence = rf"^forward: expected arguments that this model supports, got {name}\."
    with pytest.raises(ValueError, match=sentence):
        model(**batch, **{name: torch.ones(3, 7, 22)})
    if name == "inputs_embeds":
        with pytest.raises(TypeError, match="inputs_embeds"):
            model.get_encoder()(**translator.source(), inputs_embeds=torch.ones(3, 7, 22))


def test_embeddings_in_place_of_pieces(encoder):
    model, batch = encoder.model(), encoder.unlabelled()
    expected = encoder.scores(model, batch)
    pieces = batch.pop("input_ids")
    batch["inputs_embeds"] = model.get_input_embeddings()(pieces).detach()
    assert_close(encoder.scores(model, batch), expected, atol=1e-6, rtol=0)


def test_trainer_finds_one_name_of_labels(subject):
    from transformers.utils import find_labels

    assert find_labels(type(subject.model())) == ["labels"]


# Training steps


def _step(model, batch):
    model.zero_grad()
    loss = model.train()(**batch).loss
    loss.backward()
    return {"loss": loss.detach()} | {name: one.grad.clone() for name, one in model.named_parameters()}


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_changes_nothing(subject, reentrant):
    model, batch = subject.model(), subject.batch()
    plain = _step(model, batch)
    if "albert" in subject.name:
        with pytest.raises(ValueError, match=r"^AlbertForSequenceClassification does not"):
            model.activation_checkpointing_enable()
        return
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    if reentrant and subject.has_lisa:
        with pytest.raises(ValueError, match=r"^gradient checkpointing:"):
            _step(model, batch)
        return
    _same(plain, _step(model, batch), atol=1e-5)


def test_layers_that_share_topical_attention_are_checkpointed_one_by_one():
    """A value that they shared would have been freed by the first of them."""
    subject = subject_of("bert-masks")
    model, batch = subject.model(), subject.batch()
    plain = _step(model, batch)
    model.activation_checkpointing_enable({"use_reentrant": True})
    _same(plain, _step(model, batch), atol=1e-5)


def test_a_cache_beside_gradient_checkpointing_is_refused(translator):
    model, batch = translator.model().train(), translator.unlabelled()
    model.activation_checkpointing_enable({"use_reentrant": False})
    assert model(**batch).past_key_values is None
    with pytest.raises(ValueError, match=r"^use_cache:"):
        model(**batch, use_cache=True)
    with torch.no_grad():
        assert model(**batch, use_cache=True).past_key_values is not None


# Copies, types, devices


@pytest.mark.parametrize(
    "how", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_copies_are_equal_and_apart(subject, how):
    model, batch = subject.model(), subject.batch()
    expected = _outputs(model, batch)
    twin = how(model)
    assert _tied(twin) == _tied(model)
    _same(expected, _outputs(twin, batch), atol=1e-5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    _same(expected, _outputs(twin, batch), atol=1e-5)


def test_bfloat16(subject, tmp_path):
    """A folder of halves comes back as halves, bit by bit; new parts of infused encoders stay exact."""
    model, batch = subject.model(), subject.batch()
    expected = subject.scores(model, batch)
    half = model.to(torch.bfloat16)
    assert_close(subject.scores(half, batch).float(), expected, atol=0.6, rtol=0.1)
    half.save_pretrained(tmp_path)
    loaded = subject.auto.from_pretrained(tmp_path).eval()
    types = {name: one.dtype for name, one in loaded.named_parameters()}
    ours = [name for name in types if "infusion." in name]
    # transformers keeps one map of T5 exact
    exact = [name for name in types if subject.name.startswith("t5") and ".wo." in name]
    assert {kind for name, kind in types.items() if name not in (*ours, *exact)} == {torch.bfloat16}
    assert {types[name] for name in ours} <= {torch.float32}
    assert_close(subject.scores(loaded, batch).float(), expected, atol=0.6, rtol=0.1)
    if not ours:
        _same(_outputs(half, batch), _outputs(loaded, batch))
    as_asked = subject.auto.from_pretrained(tmp_path, dtype=torch.float32)
    assert {one.dtype for one in as_asked.parameters()} == {torch.float32}


def test_offloaded_weights_compute_the_same(subject):
    model, batch = subject.model(), subject.batch()
    expected = _outputs(model, batch)
    cpu_offload(model, execution_device=torch.device("cpu"))
    assert {one.device.type for one in model.parameters()} == {"meta"}
    _same(expected, _outputs(model, batch), atol=1e-5)


COMPILED = """
import json, sys
sys.path[:0] = sys.argv[1].split(":")
import subjects, test_model, torch
found = {}
for one in sys.argv[2:]:
    what, name, backend = one.split("=")
    torch._dynamo.reset()
    found[one] = getattr(test_model, what)(subjects.subject_of(name), backend)
print(json.dumps(found))
"""
"""For processes in which shapes are not checked at run time: no compiler looks into these checks."""


def _in_process(*tasks):
    here = Path(__file__).parent
    ran = own_process.run(COMPILED, f"{here}:{here.parent}", *tasks)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.slow
def test_compiled_models_are_one_graph_and_compute_the_same(compiled):
    """Losses and gradients after an eager call and, in long runs, outputs; the names of parameters stay."""
    gaps = _in_process(*(f"compiled_gap={name}={backend}" for name, backend in compiled))
    assert len(gaps) == len(compiled)
    assert max(gaps.values()) < 1e-5, gaps


def compiled_gap(subject, backend):
    model, batch = subject.model(), subject.batch()
    expected, step, names = _outputs(model, batch), _step(model, batch), list(model.state_dict())
    model.compile(backend=backend, fullgraph=True)
    found = _step(model, batch)
    assert list(model.state_dict()) == names
    if EXHAUSTIVE:
        step |= expected
        found |= _outputs(model.eval(), batch)
    assert list(found) == list(step)
    return max(float((found[name] - one).abs().max()) for name, one in step.items())


@pytest.mark.slow
def test_what_a_compiled_pass_leaves_is_there():
    tasks = ("threads_apart=bert-masks,let=eager", "seen_loss=bert-lisa=eager")
    refusals = [f"refuses_batches_of_others=bert-{names}=eager" for names in ("masks", "pos_add")]
    assert list(_in_process(*refusals).values()) == [True, True]
    tasks += ("n_losses=translator-sum_then_concat=eager", "n_losses=bert-masks,lisa,pos_add=eager")
    found = _in_process(*tasks[: None if EXHAUSTIVE else 3])
    assert found[tasks[0]] < 1e-5, "each thread sees what its own pass recorded"
    assert found[tasks[1]] < 1e-5, "a loss that the caller must add"
    assert [found.get(one, 3) for one in tasks[2:]] == [3, 3], "dropout drops anew"


def refuses_batches_of_others(subject, backend):
    """An assertion in the graph, which no device is waited for."""
    model, batch = subject.model(num_hidden_layers=1), subject.batch()
    model.compile(backend=backend, fullgraph=True)
    model(**batch)
    try:
        model(**{**batch, "syntax_settings": batch["syntax_settings"] + 1})
    except RuntimeError as error:
        return "expected a batch for this model's infusion" in str(error)
    return False


def threads_apart(subject, backend):
    model, batch = subject.model(num_hidden_layers=1), subject.batch()
    other = {**batch, "syntax": batch["syntax"].flip(0), "factor_ids": batch["factor_ids"].flip(0)}
    expected = [_recorded(model, one) for one in (batch, other)]
    model.compile(backend=backend, fullgraph=True)
    found = [_recorded(model, batch)]
    thread = threading.Thread(target=lambda: found.append(_recorded(model, other)))
    thread.start()
    thread.join()
    assert model.infusion.seen is found[0]
    assert not torch.equal(found[0].weights[0][0], found[1].weights[0][0])
    return max(
        float((one - like).abs().max())
        for ours, theirs in zip(found, expected, strict=True)
        for kind in ("weights", "attention", "logits")
        for one, like in zip(ours.of_all_layers(kind), theirs.of_all_layers(kind), strict=True)
    )


def _recorded(model, batch):
    with model.infusion.record(attention=True):
        _outputs(model, batch)
    return model.infusion.seen


def seen_loss(subject, backend):
    model, batch = subject.model(num_hidden_layers=1).train(), subject.batch()
    del batch["labels"]
    model(**batch)
    expected, model._has_warned_of_loss = model.infusion.seen.governor_loss(), False
    model.compile(backend=backend, fullgraph=True)
    with mock.patch.object(logging.getLogger("syntaxformer.infusion.plug_in"), "warning") as warning:
        model(**batch)
    assert warning.call_args.args[0].startswith("lisa: expected a model that computes its loss")
    found = model.infusion.seen.governor_loss()
    assert found.requires_grad
    return float((found - expected).abs())


def n_losses(subject, backend):
    rates = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
    model = subject.model(**({"dropout": 0.3} if subject.is_translator else rates))
    model.compile(backend=backend, fullgraph=True)
    return len({float(_step(model, subject.batch())["loss"]) for _ in range(3)})


# What one row gets does not depend on others


def test_rows_do_not_depend_on_each_other(subject):
    model, batch = subject.model(), subject.unlabelled()
    expected = subject.scores(model, batch)
    for row in range(3):
        alone = {name: one[row : row + 1] for name, one in batch.items()}
        assert_close(subject.scores(model, alone), expected[row : row + 1], atol=1e-5, rtol=0)
    turned = {name: one.flip(0) for name, one in batch.items()}
    assert_close(subject.scores(model, turned), expected.flip(0), atol=1e-5, rtol=0)


def test_padding_has_no_influence(subject):
    model, batch = subject.model(), subject.unlabelled()
    expected = subject.scores(model, batch)
    pad = int(batch["input_ids"][1, -1])
    wider = dict(batch)
    for name, axis in subject.pieces:
        last = [0, 0] * (batch[name].ndim - 1 - axis)
        amount = [0, 4] * (batch[name].ndim - axis if name == "syntax" else 1)
        value = {"input_ids": pad, "governors": -100, "first_pieces": 0}.get(name, 0)
        sizes = amount if name == "syntax" else [*last, *amount]
        wider[name] = nn.functional.pad(batch[name], sizes, value=value)
    if "first_pieces" in wider:
        wider["first_pieces"] = wider["governors"] >= 0
    found = subject.scores(model, wider)
    assert_close(found, expected, atol=1e-5, rtol=0)
    wider["input_ids"] = wider["input_ids"].clone()
    if "roberta" not in subject.name:  # numbers its positions by padding's id
        wider["input_ids"][:, 7:] = 9
        assert_close(subject.scores(model, wider), expected, atol=1e-5, rtol=0)


def test_a_rounded_batch_has_the_gradients_of_the_batch(translator):
    """More padding and rows without a loss change neither the sum of the losses, the gradients nor the answers."""
    results = []
    for is_rounded in (False, True):
        model, batch = translator.model(dropout=0.0, attention_dropout=0.0).train(), translator.batch()
        n_items = (batch["labels"] != -100).sum()
        if is_rounded:
            batch = rounded_up(batch, model.config.pad_token_id)
            assert all(size % 8 == 0 for size in (*batch["labels"].shape, *batch["input_ids"].shape))
        output = model(**batch, num_items_in_batch=n_items)
        output.loss.backward()
        gradients = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
        results.append((output.loss.detach(), output.tallies, gradients))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
