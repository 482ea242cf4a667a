"""However an infused model is loaded, wrapped, moved or switched: its syntax stays, or one sentence refuses."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import pytest
import torch
import transformers as hf
from torch.testing import assert_close

import syntaxformer as sf
from subjects import stirred, subject_of
from syntaxformer.base.errors import CheckpointError, ConfigError
from tiny_hosts import BERT, EXHAUSTIVE

# PEFT asks transformers by a name that transformers calls old.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

BATCH, PIECES, VOCAB = 3, 7, BERT["vocab_size"]
SIZES = BERT | {"num_labels": 3}
COMBINED = ("masks", "masks,lisa,pos_add", "relation_bias,lisa", "masks,let")


def _plain(**changes):
    torch.manual_seed(1)
    return hf.BertForSequenceClassification(hf.BertConfig(**{**SIZES, **changes})).eval()


def _infused(names, **changes):
    return subject_of(f"bert-{names}").model(**changes)


def _batch(names):
    return subject_of(f"bert-{names}").unlabelled()


def _logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits


# Folders


@pytest.mark.slow
def test_without_our_package_auto_classes_name_it(tmp_path):
    _infused("masks").save_pretrained(tmp_path)
    code = (
        "import sys; sys.modules['syntaxformer'] = None\n"
        "from transformers import AutoModelForSequenceClassification as A\n"
        f"A.from_pretrained({str(tmp_path)!r})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "syntaxformer" in ran.stderr.strip().splitlines()[-1] or "`syntaxformer_infused`" in ran.stderr


def test_the_pipeline_of_transformers_refuses_raw_text_and_names_ours(tmp_path, word_tokenizer):
    _infused("masks,pos_add").save_pretrained(tmp_path)
    word_tokenizer.save_pretrained(tmp_path)
    pipe = hf.pipeline("text-classification", model=str(tmp_path), tokenizer=str(tmp_path))
    with pytest.raises(ValueError, match=r"^syntax:"):
        pipe("a b c")


def test_load_takes_what_from_pretrained_takes(tmp_path):
    model, batch = _infused("masks,pos_add"), _batch("masks,pos_add")
    model.save_pretrained(tmp_path)
    half = sf.load(tmp_path, dtype=torch.bfloat16, device_map="cpu", attn_implementation="eager").eval()
    assert {one.dtype for name, one in half.named_parameters() if not name.startswith("infusion.")} == {
        torch.bfloat16
    }
    assert {one.dtype for _, one in sf.infusion_parameters(half)} == {torch.float32}
    assert_close(_logits(half, batch).float(), _logits(model, batch), atol=0.1, rtol=0.1)


def test_a_plain_model_is_sent_to_who_loads_it(tmp_path):
    _plain().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"got a plain one: no infusion\.json\. An Auto"):
        sf.load(tmp_path)


def _marian():
    torch.manual_seed(1)
    sizes = {"d_model": 22, "vocab_size": VOCAB, "encoder_layers": 2, "decoder_layers": 1, "pad_token_id": 0,
             "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 29,
             "decoder_ffn_dim": 29, "max_position_embeddings": 23, "decoder_start_token_id": 1}  # fmt: skip
    return hf.MarianMTModel(hf.MarianConfig(**sizes)).eval()


def test_a_part_is_not_saved_without_the_syntax(tmp_path):
    bert, marian = _infused("masks"), sf.infuse(_marian(), "masks")
    for part in (bert.bert, marian.model, marian.get_encoder()):
        name = type(part).__name__
        with pytest.raises(ValueError, match=f"^save_pretrained: .*got its {name}"):
            part.save_pretrained(tmp_path / name)
        assert not (tmp_path / name).exists()
    alone = sf.infuse(hf.BertModel(bert.config), "masks")  # the encoder is the whole
    alone.save_pretrained(tmp_path / "whole")
    assert type(sf.load(tmp_path / "whole")) is type(alone)


class Doubled(hf.BertForSequenceClassification):
    """What a user may derive."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output["logits"] = 2 * output["logits"]
        return output


class WithOwnHead(hf.BertPreTrainedModel):
    """A user's own head."""

    def __init__(self, config):
        super().__init__(config)
        self.bert, self.top = hf.BertModel(config), torch.nn.Linear(config.hidden_size, 4)
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, **kwargs):
        states = self.bert(input_ids, attention_mask=attention_mask, **kwargs).last_hidden_state
        return hf.modeling_outputs.SequenceClassifierOutput(logits=self.top(states[:, 0]))


@pytest.mark.parametrize("own", [Doubled, WithOwnHead])
def test_a_class_of_ones_own_comes_back_as_itself(own, tmp_path, caplog):
    torch.manual_seed(1)
    model, batch = (
        stirred(sf.infuse(own(hf.BertConfig(**SIZES)).eval(), "masks,pos_add")),
        _batch("masks,pos_add"),
    )
    model.save_pretrained(tmp_path)
    for loaded in (sf.load(tmp_path, model_class=own), type(model).from_pretrained(tmp_path)):
        assert type(loaded) is type(model)
        assert_close(_logits(loaded.eval(), batch), _logits(model, batch), atol=1e-6, rtol=0)
    with pytest.raises(CheckpointError, match=f"its class {own.__name__}, .*syntaxformer.load"):
        sf.load(tmp_path)
    hf.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert f"expected its class {own.__name__}, which is not of transformers, got AutoModelFor" in caplog.text


def test_a_class_that_takes_all_by_position_learns_governors():
    model, batch = sf.infuse(Doubled(hf.BertConfig(**SIZES)), "lisa").train(), _batch("lisa")
    model(batch.pop("input_ids"), **batch, labels=torch.zeros(BATCH, dtype=torch.int64)).loss.backward()
    assert all(one.grad.abs().max() > 0 for _, one in sf.infusion_parameters(model))


class InfusesItself(hf.BertForSequenceClassification):
    """A class whose folder need not say with what."""

    def __init__(self, config):
        super().__init__(config)
        sf.infuse(self, "masks")


def test_a_class_that_infuses_itself_comes_back(tmp_path):
    model, batch = stirred(InfusesItself(hf.BertConfig(**SIZES)).eval()), _batch("masks")
    model.save_pretrained(tmp_path)
    loaded = sf.load(tmp_path, model_class=InfusesItself).eval()
    assert type(loaded) is type(model)
    assert_close(_logits(copy.deepcopy(loaded), batch), _logits(model, batch), atol=1e-6, rtol=0)


def test_a_forward_that_drops_the_syntax_is_refused():
    class Narrow(hf.BertForSequenceClassification):
        def forward(self, input_ids=None, attention_mask=None, labels=None):
            return super().forward(input_ids, attention_mask=attention_mask, labels=labels)

    with pytest.raises(ConfigError, match=r"^model:"):
        sf.infuse(Narrow(hf.BertConfig(**SIZES)), "masks")


def test_a_config_of_a_folder_is_that_of_its_host(tmp_path):
    """What is read from it and what is written into it, and what `load` is given."""
    names = {0: "neg", 1: "neu", 2: "pos"}
    _infused("masks", id2label=names).save_pretrained(tmp_path)
    config = hf.AutoConfig.from_pretrained(tmp_path)
    assert (config.num_labels, config.id2label, config.hidden_size) == (3, names, 22)
    config.hidden_dropout_prob, config.num_labels = 0.33, 5
    loaded = hf.AutoModelForSequenceClassification.from_pretrained(
        tmp_path, config=config, ignore_mismatched_sizes=True
    )
    assert (loaded.config.hidden_dropout_prob, loaded.config.num_labels) == (0.33, 5)
    assert loaded.classifier.out_features == 5
    given = sf.load(tmp_path, output_hidden_states=True, hidden_dropout_prob=0.2)
    assert (given.config.output_hidden_states, given.config.hidden_dropout_prob) == (True, 0.2)
    config = hf.AutoConfig.from_pretrained(tmp_path)
    config.id2label = {0: "a", 1: "b", 2: "c"}
    config.save_pretrained(tmp_path)  # as one renames labels
    renamed = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert renamed.infusion.attends
    assert renamed.config.id2label[2] == "c"
    marian = sf.infuse(_marian(), "masks")
    marian.save_pretrained(tmp_path / "marian")
    assert hf.AutoConfig.from_pretrained(tmp_path / "marian").is_encoder_decoder
    assert type(sf.load(tmp_path, subfolder="marian")) is type(marian)


# One model beside others


def test_a_subclass_that_infuses_itself_starts_as_documented(tmp_path):
    plain = _plain()
    plain.save_pretrained(tmp_path)

    class Own(hf.BertForSequenceClassification):
        def __init__(self, config):
            super().__init__(config)
            sf.infuse(self, "masks,lisa,pos_add")

    loaded = Own.from_pretrained(tmp_path).eval()
    expected = dict(sf.infusion_parameters(sf.infuse(_plain(), "masks,lisa,pos_add")))
    for name, parameter in sf.infusion_parameters(loaded):
        assert torch.equal(parameter, expected[name]), name
    batch = _batch("masks,lisa,pos_add")
    plain_batch = {key: batch[key] for key in ("input_ids", "attention_mask")}
    assert_close(_logits(loaded, batch), _logits(plain, plain_batch), atol=1e-5, rtol=0)


def test_an_encoder_beside_a_decoder_shows_the_states_that_the_config_asks_for():
    model = sf.infuse(_marian(), "pos_add")
    model.config.output_hidden_states = True
    output = model(**_batch("pos_add"), decoder_input_ids=torch.ones(BATCH, 2, dtype=torch.int64))
    assert len(output.encoder_hidden_states) == 3


def test_another_attention_is_refused_after_infuse():
    model = _infused("masks")
    with pytest.raises(ValueError, match=r"^attn_implementation:"):
        model.set_attn_implementation("sdpa")
    model.bert.config._attn_implementation = "sdpa"
    with pytest.raises(ValueError, match=r"^attn_implementation:"):
        _logits(model, _batch("masks"))


def test_tags_alone_leave_the_choice_of_attention():
    model, batch = _infused("pos_add"), _batch("pos_add")
    expected = _logits(model, batch)
    model.set_attn_implementation("eager")
    assert_close(_logits(model, batch), expected, atol=1e-6, rtol=0)


def test_relations_of_another_definition_are_refused(tmp_path):
    _infused("masks").save_pretrained(tmp_path)
    path = tmp_path / "infusion.json"
    stored = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**stored, "relations": 2}), "utf-8")
    with pytest.raises(CheckpointError, match="expected relations of definition 1, which this"):
        sf.load(tmp_path)
    with pytest.raises(CheckpointError, match=r"expected relations of definition 1"):
        hf.AutoModelForSequenceClassification.from_pretrained(tmp_path)


def test_a_model_made_of_an_infused_class_is_refused():
    model = _infused("masks")
    with pytest.raises(ValueError, match=r"^infusion:"):
        type(model)(model.config)(torch.randint(4, VOCAB, (BATCH, PIECES)))


# Types


@pytest.mark.parametrize("names", COMBINED)
def test_new_parameters_of_a_bfloat16_model_are_float32_and_learn(names):
    model, batch = stirred(sf.infuse(_plain().to(torch.bfloat16), names)).train(), _batch(names)
    assert {one.dtype for _, one in sf.infusion_parameters(model)} == {torch.float32}
    before = {name: one.detach().clone() for name, one in sf.infusion_parameters(model)}
    optimizer = torch.optim.Adam([one for _, one in sf.infusion_parameters(model)], lr=1e-3)
    for _ in range(3):
        loss = model(**batch, labels=torch.tensor([0, 1, 2])).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.isfinite()
    for name, one in sf.infusion_parameters(model):
        moved = (one - before[name]).abs()
        assert moved.max() > 1e-4, name


# PEFT


def _train(model, batch, n_steps=3):
    model.train()
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=1e-2)
    for _ in range(n_steps):
        loss = model(**batch, labels=torch.tensor([0, 1, 2])).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def test_a_copy_of_an_adapted_model_is_one_of_its_own():
    import peft

    batch, config = _batch("masks,pos_add"), peft.LoraConfig(r=3, target_modules="all-linear")
    model = sf.infuse(peft.get_peft_model(_plain(), config), "masks,pos_add")
    expected = _logits(model, batch)
    other = copy.deepcopy(model)
    _train(other, batch)
    assert torch.equal(_logits(model, batch), expected)
    assert not torch.equal(_logits(other, batch), expected)


# Trainers and others who call it


@pytest.mark.slow
def test_sentence_transformers_calls_it_with_its_syntax(tmp_path, word_tokenizer):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    names = "masks,pos_add"
    model, batch = _infused(names), _batch(names)
    model.save_pretrained(tmp_path)
    word_tokenizer.save_pretrained(tmp_path)
    words = Transformer(str(tmp_path))
    encoder = SentenceTransformer(modules=[words, Pooling(SIZES["hidden_size"])], device="cpu").eval()
    with torch.no_grad():
        states = model.bert(**batch).last_hidden_state
        found = encoder({key: value.clone() for key, value in batch.items()})["sentence_embedding"]
    counted = batch["attention_mask"][..., None]
    assert_close(found, (states * counted).sum(1) / counted.sum(1), atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match=r"^syntax: expected a tensor of shape .*, got none\."):
        encoder.encode(["a b c"])


def _ran(code):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.manual_seed(1)
    shape = {
        "vocab_size": 31, "d_model": 22, "n_heads": 2, "d_ff": 29, "encoder_layers": 1, "decoder_layers": 1,
    }  # fmt: skip
    translator = tmp_path_factory.mktemp("translator")
    sf.SyntaxTransformer(sf.translation.model.SyntaxTransformerConfig(**shape)).save_pretrained(translator)
    infused = tmp_path_factory.mktemp("infused")
    sizes = {"hidden_size": 22, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 29}
    sf.infuse(hf.BertModel(hf.BertConfig(vocab_size=31, **sizes)), "pos_add").save_pretrained(infused)
    return {"translator": translator, "infused": infused}


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", *["transformers.models.auto.configuration_auto, "] * EXHAUSTIVE])
def test_both_kinds_are_known_after_import(before, folders):
    seen = _ran(
        f"import sys, {before}syntaxformer\n"
        "print('torch' in sys.modules or 'transformers' in sys.modules)\n"
        "from transformers import AutoTokenizer\n"
        "print('syntaxformer.translation.model' in sys.modules)\n"
        "from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM\n"
        f"print(type(AutoConfig.from_pretrained({str(folders['translator'])!r})).__name__)\n"
        f"print(type(AutoModelForSeq2SeqLM.from_pretrained({str(folders['translator'])!r})).__name__)\n"
        f"print(hasattr(AutoModel.from_pretrained({str(folders['infused'])!r}), 'infusion'))\n"
    )
    assert seen == [str(bool(before)), "False", "SyntaxTransformerConfig", "SyntaxTransformer", "True"]
