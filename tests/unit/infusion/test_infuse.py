"""`infuse` on paper: what it refuses and in which words, what it adds in numbers, what a folder must hold."""

from __future__ import annotations

import json
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

SIZES = {
    "hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 29,
    "vocab_size": 31, "max_position_embeddings": 23,
}  # fmt: skip
SUPPORTED = f"Supported: {', '.join(family.title for family in FAMILIES.values())}."


def _bert(**more):
    return hf.BertForSequenceClassification(hf.BertConfig(**{**SIZES, **more}))


def _refused(model, names="masks", **fields):
    with pytest.raises(ConfigError) as caught:
        sf.infuse(model, sf.InfusionConfig(**fields) if fields else names)
    return str(caught.value)


def test_other_architectures_are_refused_by_name():
    splinter = hf.SplinterModel(hf.SplinterConfig(**SIZES))
    assert _refused(splinter) == (
        f"model: expected a supported encoder, got SplinterModel of the kind 'splinter'. {SUPPORTED} "
        "For another one that calls transformers' attention interface, pass family=Family(…) to infuse."
    )


@pytest.mark.parametrize("options", [{}, {"max_shard_size": "5KB"}])
def test_a_variant_is_read_by_itself(options, tmp_path):
    model = sf.infuse(_bert(), "masks")
    model.save_pretrained(tmp_path, variant="fp16", **options)
    for read in (sf.load, hf.AutoModelForSequenceClassification.from_pretrained):
        assert torch.equal(read(tmp_path).classifier.weight, model.classifier.weight)


def test_a_part_of_an_infused_model_is_not_made_alone(tmp_path):
    model = sf.infuse(_bert(), "masks")
    hf.BertModel(hf.BertConfig(**SIZES)).save_pretrained(tmp_path)
    for make in (lambda: type(model.bert).from_pretrained(tmp_path), lambda: type(model.bert)(model.config)):
        with pytest.raises(ValueError, match=r"^BertModel:"):
            make()


def test_layers_without_the_attention_interface_take_no_syntax():
    for make, kind in (
        (hf.MPNetModel, "mpnet"),
        (hf.DebertaModel, "deberta"),
        (hf.DebertaV2Model, "deberta-v2"),
    ):
        model, title = make(make.config_class(**SIZES)), FAMILIES[kind].title
        for names in ("masks", "relation_bias", "lisa", "masks,relation_bias,lisa"):
            assert _refused(model, f"{names},pos_add") == "; ".join(
                f"{name}: expected none in {make.__name__}, got one: {title} computes its attention itself, "
                "without transformers' attention interface. It takes an embedding."
                for name in names.split(",")
            )


_LLAMA = {
    "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 7, "vocab_size": 31,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [
        lambda: hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=22, n_layer=1, n_head=2, vocab_size=31)),
        lambda: hf.BertModel(hf.BertConfig(**SIZES, is_decoder=True)),
        lambda: hf.BertLMHeadModel(hf.BertConfig(**SIZES, is_decoder=True)),
        lambda: hf.GPT2Model(hf.GPT2Config(n_embd=22, n_layer=1, n_head=2, vocab_size=31)),
        lambda: hf.LlamaForSequenceClassification(hf.LlamaConfig(**_LLAMA)),
        lambda: hf.Qwen2ForTokenClassification(hf.Qwen2Config(**_LLAMA, num_key_value_heads=2)),
        lambda: hf.BloomModel(hf.BloomConfig(hidden_size=22, n_layer=1, n_head=2, vocab_size=31)),
        lambda: hf.BartForCausalLM(
            hf.BartConfig(
                d_model=22, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=7, vocab_size=31
            )
        ),
    ],
)
def test_decoders_are_refused(make):
    model = make()
    assert _refused(model) == (
        f"model: expected an encoder, got the decoder-only {type(model).__name__}: a syntax tree links words in both "
        f"directions, but this model sees only earlier words. {SUPPORTED}"
    )


def test_a_decoder_is_refused_whatever_its_family_is_said_to_be():
    family = Family("Llama", ("layers",), "self_attn", "self_attn.o_proj", ())
    with pytest.raises(ConfigError, match=r"got the decoder-only LlamaModel"):
        sf.infuse(hf.LlamaModel(hf.LlamaConfig(**_LLAMA)), "masks", family=family)


def test_an_encoder_of_the_code_of_a_decoder_is_taken():
    model = hf.EuroBertModel(hf.EuroBertConfig(**_LLAMA, mask_token_id=3))
    assert sf.infuse(model, "masks").infusion.masked_layers == [0]


def test_a_base_model_with_a_pooler_that_it_is_not_asked_for_by_itself(tmp_path):
    model = hf.NomicBertModel(hf.NomicBertConfig(**{**SIZES, "hidden_size": 24}), add_pooling_layer=True)
    sf.infuse(model, "let").save_pretrained(tmp_path)
    assert torch.equal(sf.load(tmp_path).pooler.dense.weight, model.pooler.dense.weight)


def test_what_is_no_model_is_refused():
    assert _refused(nn.Linear(2, 3)) == (
        f"model: expected a transformers PreTrainedModel, got Linear. {SUPPORTED}"
    )


def test_a_second_infusion_is_refused():
    model = sf.infuse(_bert(), sf.InfusionConfig.parse("masks"))
    assert _refused(model) == (
        "model: expected one that is not infused, got BertForSequenceClassification with an infusion. "
        "Load the plain checkpoint again."
    )


def test_layers_and_heads_that_are_not_there_are_refused_together():
    text = _refused(_bert(), "none", masks={"layers": [0, 2]}, lisa={"layers": [-1], "attn_head": 2},
                    relation_bias={"layers": []})  # fmt: skip
    assert text == (
        "masks.layers: expected layers 0 to 1 of BertForSequenceClassification, got 2.; "
        "relation_bias.layers: expected layers 0 to 1 of BertForSequenceClassification, got none.; "
        "lisa.layers: expected layers 0 to 1 of BertForSequenceClassification, got -1.; "
        "lisa.attn_head: expected 0 to 1, a head of BertForSequenceClassification, got 2."
    )


def test_a_head_is_added_to_our_own_layers_alone():
    assert _refused(_bert(), "none", lisa={"head": "added"}) == (
        "lisa.head: expected replaced in BertForSequenceClassification, got added: only our own layers add to what "
        "W_O gives. Leave it out."
    )


def test_let_wants_the_final_vector_of_the_sentence():
    refused = (
        "embedding: expected a model with a head that takes the sentence's final vector for let, got {}. "
        "Use a ForSequenceClassification model, or the kind add or concat."
    )
    tagger = hf.RobertaForTokenClassification(hf.RobertaConfig(**SIZES))
    assert _refused(tagger, "let") == refused.format("RobertaForTokenClassification")
    unpooled = hf.BertModel(hf.BertConfig(**SIZES), add_pooling_layer=False)
    assert _refused(unpooled, "let") == refused.format("BertModel")


def test_a_batch_without_its_syntax_is_refused():
    model = sf.infuse(_bert(), sf.InfusionConfig.parse("masks,pos_add"))
    pieces = torch.zeros(3, 5, dtype=torch.int64)
    relations = torch.zeros(3, 2, 5, 5, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"^syntax:"):
        model(pieces)
    with pytest.raises(ValueError, match=r"^factor_ids:"):
        model(pieces, syntax=relations)
    with pytest.raises(ValueError, match=r"^syntax: expected shape \[3, 2, 5, 5\], got \[3, 1, 5, 5\]\.$"):
        model(pieces, syntax=relations[:, :1], factor_ids=pieces[..., None])
    with pytest.raises(ValueError, match=r"^governors: expected shape \[3, 5\], got \[3, 4\]\.$"):
        model(pieces, syntax=relations, factor_ids=pieces[..., None], governors=pieces[:, 1:])
    with pytest.raises(ValueError, match=r"^syntax: expected relations as uint8, got torch\.float32\.$"):
        model(pieces, syntax=relations.float(), factor_ids=pieces[..., None])
    with pytest.raises(ValueError, match=r"^syntax: expected relations as uint8, got torch\.int64\.$"):
        model(pieces, syntax=relations.long() + 256, factor_ids=pieces[..., None])
    with pytest.raises(ValueError, match=r"^attention_mask:"):
        model(pieces, torch.ones(3, 1, 5, 5), syntax=relations, factor_ids=pieces[..., None])
    model(pieces, syntax=relations, factor_ids=pieces[..., None])


def test_a_layer_by_itself_has_no_syntax():
    model = sf.infuse(_bert(), sf.InfusionConfig.parse("masks"))
    with pytest.raises(ValueError, match=r"^syntax_batch:"):
        model.bert.encoder.layer[0](torch.zeros(1, 3, 22))


def test_what_is_left_out_must_leave_something():
    model = sf.infuse(_bert(), sf.InfusionConfig.parse("masks"))
    with pytest.raises(ValueError, match=r"^leave_out:"):
        model.infusion.leave_out("aunt")
    with pytest.raises(ValueError, match=r"^leave_out:"):
        model.infusion.leave_out("dependency", "constituency")


def test_a_tree_that_the_model_does_not_read_is_not_left_out():
    """The score would be the same, and look as if the tree did not matter."""
    model = sf.infuse(_bert(), sf.InfusionConfig(masks={"trees": ["dependency"]}))
    expected = r"^leave_out: expected some of dependency, parent, child, sibling, pair, got constituency\.$"
    with pytest.raises(ValueError, match=expected):
        model.infusion.leave_out("constituency")
    tags = sf.infuse(_bert(), "pos_add")
    with pytest.raises(ValueError, match=r"^leave_out: expected no name, as the model reads no tree, got de"):
        tags.infusion.leave_out("dependency")
    tags.infusion.leave_out()


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


def test_a_plain_model_has_no_report():
    with pytest.raises(ConfigError, match=r"^model:"):
        sf.parameter_report(_bert())


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

    def altered(**changes):
        (tmp_path / "infusion.json").write_text(json.dumps({**stored, **changes}), "utf-8")
        with pytest.raises(CheckpointError) as caught:
            sf.load(tmp_path)
        return str(caught.value).removeprefix(str(tmp_path)).removeprefix("/")

    assert altered(architecture="os") == (
        "infusion.json: expected the name of a transformers model as architecture, got 'os'. "
        "The folder was altered or written by another version."
    )
    assert altered(infusion={"mask": {}}) == "infusion.json: mask: unknown key. Nearest: masks."
    assert altered(infusion={"masks": {}, "lisa": {}}) == (
        ": expected the parameters that infusion.json describes, got others: lisa.1.weight. The folder was altered."
    )
    weights = load_file(tmp_path / "model.safetensors")
    name = "bert.encoder.layer.1.attention.output.dense.bias"
    save_file({key: value for key, value in weights.items() if key != name}, tmp_path / "model.safetensors")
    assert altered() == (
        f": expected exactly the parameters of BertForSequenceClassification, got differences in {name}. The folder was altered."
    )
    save_file({**weights, name: torch.zeros(23)}, tmp_path / "model.safetensors")
    assert altered().startswith(": expected weights that fit config.json, got: ")
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    assert altered().startswith(
        ": expected weights that fit config.json, got: Error while deserializing header"
    )
    (tmp_path / "model.safetensors").unlink()
    assert altered() == ": expected model.safetensors, found none. Was it saved whole?"


def test_what_has_no_pooler_comes_back_without(tmp_path):
    model = sf.infuse(
        hf.BertModel(hf.BertConfig(**SIZES), add_pooling_layer=False), sf.InfusionConfig.parse("lisa")
    )
    model.save_pretrained(tmp_path)
    assert sf.load(tmp_path).pooler is None


def test_a_shorthand_stands_for_its_config():
    model = sf.infuse(_bert(), "masks,pos_add")
    assert model.infusion.config == sf.InfusionConfig.parse("masks,pos_add").fitted()
    with pytest.raises(ConfigError, match=r"^infuse:"):
        sf.infuse(_bert(), "mask")
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
            for found, expected in zip(pool.map(logits, batches), alone, strict=True):
                torch.testing.assert_close(found, expected)


def test_shards_are_read(tmp_path):
    model = sf.infuse(_bert().eval(), sf.InfusionConfig.parse("masks"))
    model.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    relations = torch.randint(0, 46, (3, 2, 7, 7), dtype=torch.uint8)
    pieces = torch.randint(4, 31, (3, 7))
    assert torch.equal(
        sf.load(tmp_path).eval()(pieces, syntax=relations).logits, model(pieces, syntax=relations).logits
    )


OTHERS = Family(
    "RoBERTa, normed before", ("encoder.layer",), "attention.self", "attention.output.dense", ("classifier",)
)


def _other():
    return hf.RobertaPreLayerNormForSequenceClassification(hf.RobertaPreLayerNormConfig(**SIZES)).eval()


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
    monkeypatch.setattr(type(model), "push_to_hub", lambda self, name, **given: calls.append((name, given)))
    model.save_pretrained(tmp_path, False, push_to_hub=True, token="t")
    assert (calls, list(tmp_path.iterdir())) == ([], [])
    model.save_pretrained(tmp_path, push_to_hub=True, repo_id="me/it", token="t")
    assert calls == [("me/it", {"token": "t"})]


@pytest.mark.parametrize(
    ("role", "path", "kind", "inside", "has"),
    [
        (
            "stack",
            "encoders",
            "PreTrainedModel",
            "RobertaPreLayerNormModel",
            "embeddings, encoder, LayerNorm",
        ),
        ("layers", ("encoder",), "ModuleList", "RobertaPreLayerNormModel", "embeddings, encoder, LayerNorm"),
        ("attention", "attn", "Module", "RobertaPreLayerNormLayer", "attention, intermediate, output"),
        (
            "output",
            "attention.output.proj",
            "Module",
            "RobertaPreLayerNormLayer",
            "attention, intermediate, output",
        ),
    ],
)
def test_paths_that_a_family_has_not(role, path, kind, inside, has):
    with pytest.raises(ConfigError) as caught:
        sf.infuse(_other(), "masks", family=replace(OTHERS, **{role: path}))
    path = path[0] if role == "layers" else path
    assert str(caught.value) == (
        f"family.{role}: expected the path of a {kind} in {inside}, got {path!r}. It has {has}."
    )


@pytest.mark.parametrize("change", [{"layer": []}, {"final": "classifier"}, {"title": 3}])
def test_a_family_that_was_altered_is_refused(tmp_path, change):
    sf.infuse(_other(), "masks", family=OTHERS).save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "infusion.json").read_text("utf-8"))
    stored["family"] |= change
    (tmp_path / "infusion.json").write_text(json.dumps(stored), "utf-8")
    names = "title, layers, attention, output, final, stack, note, kinds, reason"
    with pytest.raises(CheckpointError, match=rf"infusion\.json: family: expected {names}, got \{{'title': "):
        sf.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"embedding": {"kind": "let", "word_width": 5}},
            "infusion.word_width: expected nothing for kind 'let'",
        ),
        ({"embedding": {}}, "infusion.embedding.kind: expected one of add, concat, let, got 'none'"),
    ],
)
def test_settings_without_use_are_refused_by_name(content, message):
    with pytest.raises(ConfigError, match=message):
        _ = sf.InfusionConfig(**content).factors


def test_what_the_model_was_trained_without_stays_out():
    model = sf.infuse(_bert(), sf.InfusionConfig(masks={"without": ["pair"], "max_distance": 5}))
    trained = model.infusion.active
    assert (len(trained), sum(trained)) == (32, 30)
    model.infusion.leave_out("constituency")
    assert model.infusion.active == trained[:16] + (False,) * 16
    model.infusion.leave_out()
    assert model.infusion.active == trained
    kinds = ("parent", "child", "sibling")
    with pytest.raises(ValueError, match=r"^leave_out:"):
        model.infusion.leave_out(*kinds)


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
    told = 'its parameters are not trained, while others are. With PEFT, set modules_to_save=["infusion"]'
    assert caplog.text.count(told) == (modules is None)
    sf.infuse(_bert(), "none").train()(torch.randint(4, 31, (1, 5)))  # which has nothing to train
    assert caplog.text.count(told) == (modules is None)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_governors_are_injected_within_peft():
    model = _within_peft("lisa", modules_to_save=["infusion"]).eval()
    batch = {"governors": torch.tensor([[1, 2, 3, 4, 4]]), "first_pieces": torch.ones(1, 5, dtype=torch.bool)}
    pieces, found = torch.randint(4, 31, (1, 5)), []
    for is_on in (False, True, False):
        model.infusion.inject_governors(is_on)
        found.append(model(pieces, **batch).logits)
    assert torch.equal(found[0], found[2])
    assert not torch.allclose(found[0], found[1])


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
