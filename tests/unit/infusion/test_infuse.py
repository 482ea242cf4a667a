"""`infuse` on paper: what it refuses and in which words, what it adds in numbers, what a folder must hold."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import nn

import syntaxformer as sf
from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.infusion.families import FAMILIES, Family
from syntaxformer.infusion.infusion import ForwardRecord
from tiny_hosts import BERT


def _bert(**more):
    return hf.BertForSequenceClassification(hf.BertConfig(**{**BERT, **more}))


def _refused(model, names="masks", **fields):
    with pytest.raises(ConfigError) as caught:
        sf.infuse(model, sf.InfusionConfig(**fields) if fields else names)
    return str(caught.value)


_LLAMA = {
    "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 7, "vocab_size": 31,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_GPT2 = {"n_embd": 22, "n_layer": 1, "n_head": 2, "vocab_size": 31}
_BLOOM = {"hidden_size": 22, "n_layer": 1, "n_head": 2, "vocab_size": 31}
_BART = {"d_model": 22, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 7}


@pytest.mark.parametrize(
    ("make", "sizes", "names", "message"),
    [
        (hf.SplinterModel, BERT, "masks", "model: .*SplinterModel of the kind 'splinter'.*family=Family"),
        (hf.GPT2LMHeadModel, _GPT2, "masks", "model: .*decoder-only GPT2LMHeadModel"),
        (hf.GPT2Model, _GPT2, "masks", "model: .*decoder-only GPT2Model"),
        (hf.BertModel, BERT | {"is_decoder": True}, "masks", "model: .*decoder-only BertModel"),
        (hf.BertLMHeadModel, BERT | {"is_decoder": True}, "masks", "model: .*decoder-only BertLMHeadModel"),
        (hf.LlamaForSequenceClassification, _LLAMA, "masks", "model: .*decoder-only Llama"),
        (hf.Qwen2ForTokenClassification, _LLAMA | {"num_key_value_heads": 2}, "masks", "model: .*decoder-only Qwen2"),
        (hf.BloomModel, _BLOOM, "masks", "model: .*decoder-only BloomModel"),
        (hf.BartForCausalLM, _BART, "masks", "model: .*decoder-only BartForCausalLM"),
        (hf.RobertaForTokenClassification, BERT, "let", "embedding: .*got RobertaForTokenClassification"),
    ],
)  # fmt: skip
def test_models_that_cannot_be_infused_are_refused_by_name(make, sizes, names, message):
    assert re.match(message, _refused(make(make.config_class(**sizes)), names))


def test_what_is_no_model_or_infused_already_is_refused():
    assert _refused(nn.Linear(2, 3)).startswith("model: expected a transformers PreTrainedModel, got Linear.")
    assert _refused(sf.infuse(_bert(), "masks")).startswith(
        "model: expected one that is not infused, got Bert"
    )
    assert _refused(_bert(), "none", lisa={"head": "added"}).startswith(
        "lisa.head: expected replaced in Bert"
    )
    unpooled = hf.BertModel(hf.BertConfig(**BERT), add_pooling_layer=False)
    assert re.match("embedding: .*got BertModel", _refused(unpooled, "let"))


@pytest.mark.parametrize(
    "options", [{"variant": "fp16"}, {"variant": "fp16", "max_shard_size": "5KB"}, {"max_shard_size": "4KB"}]
)
def test_variants_and_shards_are_read_by_themselves(options, tmp_path):
    model = sf.infuse(_bert(), "masks")
    model.save_pretrained(tmp_path, **options)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == ("max_shard_size" in options)
    for read in (sf.load, hf.AutoModelForSequenceClassification.from_pretrained):
        loaded = dict(read(tmp_path).named_parameters())
        assert all(torch.equal(loaded[name], parameter) for name, parameter in model.named_parameters())


def test_a_part_of_an_infused_model_is_not_made_alone(tmp_path):
    model = sf.infuse(_bert(), "masks")
    hf.BertModel(hf.BertConfig(**BERT)).save_pretrained(tmp_path)
    for make in (lambda: type(model.bert).from_pretrained(tmp_path), lambda: type(model.bert)(model.config)):
        with pytest.raises(ValueError, match=r"^BertModel:"):
            make()


@pytest.mark.parametrize("make", [hf.MPNetModel, hf.DebertaModel, hf.DebertaV2Model])
def test_layers_without_the_attention_interface_take_no_syntax(make):
    model = make(make.config_class(**BERT))
    for names in ("masks", "relation_bias", "lisa", "masks,relation_bias,lisa"):
        messages = [f"{name}: expected none in {make.__name__}, got one: .*" for name in names.split(",")]
        assert re.fullmatch("; ".join(messages), _refused(model, f"{names},pos_add"))


def test_a_decoder_is_refused_whatever_its_family_is_said_to_be():
    family = Family("Llama", ("layers",), "self_attn", "self_attn.o_proj", ())
    with pytest.raises(ConfigError, match=r"got the decoder-only LlamaModel"):
        sf.infuse(hf.LlamaModel(hf.LlamaConfig(**_LLAMA)), "masks", family=family)


def test_an_encoder_of_the_code_of_a_decoder_is_taken():
    model = hf.EuroBertModel(hf.EuroBertConfig(**_LLAMA, mask_token_id=3))
    assert sf.infuse(model, "masks").infusion.masked_layers == [0]


def test_a_pooler_that_the_class_has_or_lacks_by_itself_comes_back_or_not(tmp_path):
    model = hf.NomicBertModel(hf.NomicBertConfig(**{**BERT, "hidden_size": 24}), add_pooling_layer=True)
    sf.infuse(model, "let").save_pretrained(tmp_path / "with")
    assert torch.equal(sf.load(tmp_path / "with").pooler.dense.weight, model.pooler.dense.weight)
    model = hf.BertModel(hf.BertConfig(**BERT), add_pooling_layer=False)
    sf.infuse(model, "lisa").save_pretrained(tmp_path / "without")
    assert sf.load(tmp_path / "without").pooler is None


def test_layers_and_heads_that_are_not_there_are_refused_together():
    text = _refused(_bert(), "none", masks={"layers": [0, 2]}, lisa={"layers": [-1], "attn_head": 2},
                    relation_bias={"layers": []})  # fmt: skip
    values = {"masks.layers": "2", "relation_bias.layers": "none", "lisa.layers": "-1", "lisa.attn_head": "2"}
    assert re.fullmatch(
        "; ".join(f"{key}: expected .*0 to 1.*, got {got}\\." for key, got in values.items()), text
    )


def test_a_batch_without_its_syntax_is_refused():
    model = sf.infuse(_bert(), sf.InfusionConfig.parse("masks,pos_add"))
    pieces = torch.zeros(3, 5, dtype=torch.int64)
    relations = torch.zeros(3, 2, 5, 5, dtype=torch.uint8)
    whole = {"syntax": relations, "factor_ids": pieces[..., None]}
    for changes, message in (
        ({"syntax": None}, "syntax:"),
        ({"factor_ids": None}, "factor_ids:"),
        ({"syntax": relations[:, :1]}, r"syntax: .*\[3, 2, 5, 5\], got \[3, 1, 5, 5\]"),
        ({"governors": pieces[:, 1:]}, r"governors: .*\[3, 5\], got \[3, 4\]"),
        ({"syntax": relations.float()}, r"syntax: .*got torch\.float32"),
        ({"syntax": relations.long() + 256}, r"syntax: .*got torch\.int64"),
        ({"attention_mask": torch.ones(3, 1, 5, 5)}, "attention_mask:"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            model(pieces, **(whole | changes))
    model(pieces, **whole)


def test_a_layer_by_itself_has_no_syntax():
    model = sf.infuse(_bert(), sf.InfusionConfig.parse("masks"))
    with pytest.raises(ValueError, match=r"^syntax_batch:"):
        model.bert.encoder.layer[0](torch.zeros(1, 3, 22))


def test_what_cannot_be_left_out():
    """Without a tree that the model does not read, the score would be as if the tree did not matter."""
    config = sf.InfusionConfig(masks={"trees": ["dependency"], "without": ["pair"]})
    model, tags = sf.infuse(_bert(), config), sf.infuse(_bert(), "pos_add")
    own = sf.infuse(_bert(), sf.InfusionConfig(masks={"trees": ["labelled_edges"], "max_distance": 24}))
    known = "expected some of dependency, parent, child, sibling, pair"
    for infused, names, message in (
        (model, ["aunt"], f"{known}, got aunt"),
        (model, ["constituency"], f"{known}, got constituency"),
        (model, ["dependency"], "expected a relation to be left, got dependency"),
        (model, ["parent", "child", "sibling"], "expected a relation to be left"),
        (own, ["parent"], "expected some of labelled_edges, pair, got parent"),
        (tags, ["dependency"], "expected no name, as the model reads no tree, got de"),
    ):
        with pytest.raises(ValueError, match=f"^leave_out: {message}"):
            infused.infusion.leave_out(*names)
    tags.infusion.leave_out()


def test_a_record_within_another_leaves_that_on():
    infusion = sf.infuse(_bert(), "masks").infusion
    with infusion.record(attention=True):
        with infusion.record():
            assert (infusion.records_weights, infusion.records_attention) == (True, False)
        assert (infusion.records_weights, infusion.records_attention) == (True, True)
    assert (infusion.records_weights, infusion.records_attention) == (False, False)


def test_parameters_of_bert_base():
    """d = 768: topical 2 d² + d; LISA d_head x d for each of 12 layers; biases 12 x 2 x 47 x 12; POS 20 x d."""
    with torch.device("meta"):
        model = hf.BertModel(hf.BertConfig())
        sf.infuse(model, sf.InfusionConfig(masks={}, relation_bias={}, embedding={"kind": "add"},
                                           lisa={"layers": list(range(12)), "keys": "model"}))  # fmt: skip
    counts = {}
    for name, parameter in sf.infusion_parameters(model):
        group = name.split(".")[1]
        counts[group] = counts.get(group, 0) + parameter.numel()
    assert counts == {
        "topical": 2 * 768 * 768 + 768,
        "gates": 12,
        "relation_bias": 12 * 2 * 47 * 12,
        "lisa": 12 * 64 * 768,
        "embedding": 20 * 768,
    }
    report = sf.parameter_report(model)
    assert "+1,180,416   (Bai et al. (2021), BERT-base: 1.0 million)" in report
    assert "+589,824   (Bai et al. (2021), BERT-base, all layers: 0.6 million)" in report
    assert "109,482,240" in report


def test_new_parameters_do_not_disturb_the_random_state():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model = _bert()
    torch.manual_seed(5)
    sf.infuse(model, sf.InfusionConfig.parse("masks"))
    assert torch.equal(torch.rand(3), expected)
    again = sf.infuse(_bert(), sf.InfusionConfig.parse("masks"))
    other = sf.infuse(_bert(), sf.InfusionConfig(masks={}, seed=1))
    key = model.infusion.topical["shared"].key
    assert torch.equal(key, again.infusion.topical["shared"].key)
    assert not torch.equal(key, other.infusion.topical["shared"].key)


def test_an_empty_config_changes_nothing():
    model = _bert().eval()
    pieces = torch.randint(4, 31, (3, 7))
    plain = model(pieces).logits
    sf.infuse(model, sf.InfusionConfig.parse("none"))
    assert torch.equal(model(pieces).logits, plain)
    assert sf.infusion_parameters(model) == []
    assert model.config._attn_implementation != "syntax"


def test_folders_that_are_not_whole(tmp_path):
    with pytest.raises(CheckpointError, match=r"infusion\.json:"):
        sf.load(tmp_path)
    sf.infuse(_bert(), sf.InfusionConfig.parse("masks")).save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "infusion.json").read_text("utf-8"))

    def refused(message, **changes):
        (tmp_path / "infusion.json").write_text(json.dumps({**stored, **changes}), "utf-8")
        with pytest.raises(CheckpointError, match=f"^{tmp_path}{message}"):
            sf.load(tmp_path)

    refused("/infusion.json: .*architecture, got 'os'", architecture="os")
    refused("/infusion.json: mask: ", infusion={"mask": {}})
    refused(r": .*infusion\.json.*: lisa\.1\.weight\.", infusion={"masks": {}, "lisa": {}})
    weights = load_file(tmp_path / "model.safetensors")
    name = "bert.encoder.layer.1.attention.output.dense.bias"
    save_file({key: value for key, value in weights.items() if key != name}, tmp_path / "model.safetensors")
    refused(f": .*BertForSequenceClassification, got differences in {name}")
    save_file({**weights, name: torch.zeros(23)}, tmp_path / "model.safetensors")
    refused(r": expected weights that fit config\.json, got: ")
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    refused(r": expected weights that fit config\.json, got: Error while deserializing header")
    (tmp_path / "model.safetensors").unlink()
    refused(": expected model.safetensors, found none")


def test_a_shorthand_stands_for_its_config():
    model = sf.infuse(_bert(), "masks,pos_add")
    assert model.infusion.config == sf.InfusionConfig.parse("masks,pos_add").fitted()
    with pytest.raises(ConfigError, match=r"^infuse: expected an InfusionConfig, got dict\.$"):
        sf.infuse(_bert(), {"masks": {}})


@pytest.mark.slow
@pytest.mark.parametrize("names", ["pos_add", "let", "masks,pos_concat"])
def test_threads_see_their_own_batch(names):
    """Batches of different lengths, each in a thread of its own, as often as lets them meet."""
    torch.manual_seed(1)
    model = sf.infuse(_bert().eval(), sf.InfusionConfig.parse(names)).eval()
    for parameter in model.infusion.parameters():
        nn.init.normal_(parameter, std=0.3)
    batches = []
    for n_pieces in range(5, 11):
        batch = {
            "input_ids": torch.randint(4, 31, (3, n_pieces)),
            "factor_ids": torch.randint(1, 17, (3, n_pieces, 1)),
        }
        if "masks" in names:
            batch["syntax"] = torch.randint(0, 46, (3, 2, n_pieces, n_pieces), dtype=torch.uint8)
        batches.append(batch)

    def logits(batch):
        with torch.no_grad():
            return model(**batch).logits

    alone = [logits(batch) for batch in batches]
    with ThreadPoolExecutor(len(batches)) as pool:
        for _ in range(30):
            for logits_of_batch, expected in zip(pool.map(logits, batches), alone, strict=True):
                torch.testing.assert_close(logits_of_batch, expected)


OTHERS = Family(
    "RoBERTa, normed before", ("encoder.layer",), "attention.self", "attention.output.dense", ("classifier",)
)


def _other():
    return hf.RobertaPreLayerNormForSequenceClassification(hf.RobertaPreLayerNormConfig(**BERT)).eval()


def test_a_family_of_ones_own_is_stored_and_read(tmp_path):
    model, names = _other(), "masks,lisa,let"
    pieces, tags = torch.randint(4, 31, (3, 7)), torch.randint(0, 20, (3, 7, 1))
    batch = {"syntax": torch.randint(0, 46, (3, 2, 7, 7), dtype=torch.uint8), "factor_ids": tags}
    with pytest.raises(ConfigError, match=r"of the kind 'roberta-prelayernorm'.* pass"):
        sf.infuse(model, names)
    plain = model(pieces).logits
    sf.infuse(model, names, family=OTHERS)
    torch.testing.assert_close(model(pieces, **batch).logits, plain)
    for parameter in model.infusion.parameters():
        nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(tmp_path)
    for loaded in (sf.load(tmp_path), hf.AutoModelForSequenceClassification.from_pretrained(tmp_path)):
        assert loaded.infusion.family == OTHERS
        assert torch.equal(loaded.eval()(pieces, **batch).logits, model(pieces, **batch).logits)
    sf.infuse(_bert(), "masks").save_pretrained(tmp_path)
    assert "family" not in json.loads((tmp_path / "infusion.json").read_text("utf-8")), "that of the table"


def test_a_family_of_the_table_that_was_given_by_hand_is_stored(tmp_path):
    """The kind of the model alone would not find it again."""

    class LikeBertConfig(hf.BertConfig):
        model_type = "like-bert"

    class LikeBert(hf.BertForSequenceClassification):
        config_class = LikeBertConfig

    small = {"vocab_size": 31, "hidden_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = sf.infuse(LikeBert(LikeBertConfig(**small)), "masks", family=FAMILIES["bert"])
    model.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "infusion.json").read_text("utf-8"))
    assert stored["family"]["title"] == FAMILIES["bert"].title


def test_uploads_are_by_the_main_process_with_the_given_token(tmp_path, monkeypatch):
    calls = []
    model = sf.infuse(_bert(), "masks")
    monkeypatch.setattr(
        type(model), "push_to_hub", lambda self, name, **options: calls.append((name, options))
    )
    model.save_pretrained(tmp_path, False, push_to_hub=True, token="t")
    assert (calls, list(tmp_path.iterdir())) == ([], [])
    model.save_pretrained(tmp_path, push_to_hub=True, repo_id="me/it", token="t", revision="b")
    assert calls == [("me/it", {"token": "t", "revision": "b"})]


@pytest.mark.parametrize(
    ("role", "path", "kind", "message"),
    [
        ("stack", "encoders", "PreTrainedModel", "Model, got 'encoders'.*embeddings, encoder"),
        ("layers", ("encoder",), "ModuleList", "Model, got 'encoder'.*embeddings, encoder"),
        ("attention", "attn", "Module", "Layer, got 'attn'.*attention, intermediate"),
        ("output", "attention.output.proj", "Module", "Layer, got 'attention.output.proj'"),
    ],
)
def test_paths_that_a_family_has_not(role, path, kind, message):
    message = rf"^family\.{role}: expected the path of a {kind} in RobertaPreLayerNorm{message}"
    with pytest.raises(ConfigError, match=message):
        sf.infuse(_other(), "masks", family=replace(OTHERS, **{role: path}))


@pytest.mark.parametrize("change", [{"layer": []}, {"final": "classifier"}, {"title": 3}])
def test_a_family_that_was_altered_is_refused(tmp_path, change):
    sf.infuse(_other(), "masks", family=OTHERS).save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "infusion.json").read_text("utf-8"))
    stored["family"] |= change
    (tmp_path / "infusion.json").write_text(json.dumps(stored), "utf-8")
    names = "title, layers, attention, output, final, stack, note, kinds, reason"
    with pytest.raises(CheckpointError, match=rf"infusion\.json: family: expected {names}, got \{{'title': "):
        sf.load(tmp_path)


def test_what_the_model_was_trained_without_stays_out():
    model = sf.infuse(_bert(), sf.InfusionConfig(masks={"without": ["pair"], "max_distance": 5}))
    trained = model.infusion.active
    assert (len(trained), sum(trained)) == (32, 30)
    model.infusion.leave_out("constituency")
    assert model.infusion.active == trained[:16] + (False,) * 16
    model.infusion.leave_out()
    assert model.infusion.active == trained


@pytest.mark.parametrize("name", ["relation_bias", "masks"])
def test_relations_of_a_larger_distance_are_refused(name):
    """A bias of them would be that of another relation in the next tree."""
    model = sf.infuse(_bert(), sf.InfusionConfig(**{name: {"max_distance": 5}}))
    relations = torch.full((1, 2, 3, 3), 17, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"^relations:"):
        model(torch.zeros(1, 3, dtype=torch.int64), syntax=relations)
    model(torch.zeros(1, 3, dtype=torch.int64), syntax=relations - 1)


def test_a_folder_takes_a_head_of_another_size(tmp_path):
    """As transformers has it, and only if it is asked for."""
    sf.infuse(_bert(), "masks").save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="got: classifier"):
        hf.AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=5)
    options = {"num_labels": 5, "ignore_mismatched_sizes": True}
    model = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path, **options)
    assert model.classifier.weight.shape == (5, 22)
    assert torch.equal(
        model.infusion.topical["shared"].value, sf.load(tmp_path).infusion.topical["shared"].value
    )


def _within_peft(names, **options):
    import peft

    return peft.get_peft_model(
        sf.infuse(_bert(), names), peft.LoraConfig(r=2, target_modules=["query"], **options)
    )


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("modules", [None, ["infusion"]])
def test_an_infusion_that_an_adapter_leaves_untrained_says_so_once(modules, caplog):
    model = _within_peft("relation_bias", modules_to_save=modules)
    batch = {"syntax": torch.zeros(1, 2, 5, 5, dtype=torch.uint8)}
    for is_training in (False, True, True):
        model.train(is_training)(torch.randint(4, 31, (1, 5)), **batch)
    message = 'its parameters are not trained, while others are. With PEFT, set modules_to_save=["infusion"]'
    assert caplog.text.count(message) == (modules is None)
    sf.infuse(_bert(), "none").train()(torch.randint(4, 31, (1, 5)))  # which has nothing to train
    assert caplog.text.count(message) == (modules is None)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_governors_are_injected_within_peft():
    model = _within_peft("lisa", modules_to_save=["infusion"]).eval()
    batch = {"governors": torch.tensor([[1, 2, 3, 4, 4]]), "first_pieces": torch.ones(1, 5, dtype=torch.bool)}
    pieces, outputs = torch.randint(4, 31, (1, 5)), []
    for is_on in (False, True, False):
        model.infusion.inject_governors(is_on)
        outputs.append(model(pieces, **batch).logits)
    assert torch.equal(outputs[0], outputs[2])
    assert not torch.allclose(outputs[0], outputs[1])


def test_the_loss_of_pointing_at_governors_is_the_mean_over_layers():
    seen = ForwardRecord(governor_losses={0: [torch.tensor(1.0)], 2: [torch.tensor(3.0), torch.tensor(5.0)]})
    assert seen.governor_loss().item() == 3.0
    assert ForwardRecord().governor_loss() is None


def test_gold_governors_that_are_not_there_are_missed():
    model = sf.infuse(_bert(), sf.InfusionConfig(lisa={"inject": "gold"})).eval()
    pieces = torch.randint(4, 31, (1, 5))
    with pytest.raises(ValueError, match=r"^governors:"):
        model(pieces)
    model.infusion.inject_governors(False)
    model(pieces)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("names", ["lisa", "masks"])
def test_tuned_prefixes_are_refused(names):
    import peft

    options = peft.PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3)
    model = peft.get_peft_model(sf.infuse(_bert(), names), options).eval()
    batch = {"syntax": torch.zeros(1, 2, 5, 5, dtype=torch.uint8)} if names == "masks" else {}
    with pytest.raises(ValueError, match=r"^key:"):
        model(input_ids=torch.randint(4, 31, (1, 5)), **batch)
