"""A T5 that writes its labels."""

from __future__ import annotations

import json

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

import syntaxformer as sf
from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.encoders.finetuning import finetune
from syntaxformer.encoders.official_data import read_any_split
from syntaxformer.encoders.pretrained import load_pretrained
from syntaxformer.encoders.task_types import OneLabel, Score, WrittenLabel
from syntaxformer.encoders.tasks import TASKS

from .conftest import WORDS, info_of


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "t5"
    pieces = ["<pad>", "</s>", "<unk>", "true", "false", "tr", *WORDS]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = {"single": "$A </s>", "pair": "$A </s> $B </s>", "special_tokens": [("</s>", 1)]}
    tokenizer.post_processor = processors.TemplateProcessing(**ends)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
        model_max_length=64,
    )  # fmt: skip
    torch.manual_seed(5)
    config = T5Config(
        vocab_size=len(pieces), d_model=24, d_kv=12, d_ff=37, num_layers=2, num_heads=2, decoder_start_token_id=0,
        dropout_rate=0.0,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def test_words_of_labels():
    assert WrittenLabel.over(("0", "1")).words == ("false", "true")
    assert WrittenLabel.over(("neutral", "entailment")).words == ("neutral", "entailment")


@pytest.mark.parametrize("infuse", ["", "masks"])
def test_the_encoder_runs_once_for_all_labels(t5, infuse):
    tokenizer = AutoTokenizer.from_pretrained(t5)
    model = T5ForConditionalGeneration.from_pretrained(t5).eval()
    config = sf.InfusionConfig.parse(infuse or "none")
    if infuse:
        model = sf.infuse(model, config).eval()
        for gate in (
            parameter for name, parameter in model.named_parameters() if name.endswith("gate.weight")
        ):
            gate.data.fill_(0.7)
    columns = {"governors": (1, -1), "upos": ("DET", "NOUN"), "deprels": ("det", "root")}
    words = sf.Sentence.from_words(["the", "cat"], **columns)
    batch = sf.SyntaxCollator(tokenizer, config)([sf.SyntaxExample((words,))] * 2)
    calls = []
    model.get_encoder().register_forward_hook(lambda *_: calls.append(1))
    words = ("true", "tr tr false", "false")
    scorer = WrittenLabel(words, words).scorer(tokenizer)
    with torch.inference_mode():
        found = scorer(model, batch)
        assert len(calls) == 1
        for column, word in enumerate(words):
            labels = tokenizer(text_target=word, return_tensors="pt")["input_ids"].expand(2, -1)
            logits = model(**batch, labels=labels.contiguous()).logits.log_softmax(-1)
            expected = logits.gather(-1, labels[..., None])[..., 0].sum(1)
            torch.testing.assert_close(found[:, column], expected)


def test_targets_that_are_cut_are_told(t5, caplog):
    tokenizer = AutoTokenizer.from_pretrained(t5, model_max_length=5)
    words = (sf.Sentence.from_words(["the", "cat"]),)
    rows = [sf.SyntaxExample(words, text) for text in ("true false", "tr " * 9, "the " * 4)]
    labels = sf.SyntaxCollator(tokenizer, "none")(rows)["labels"]
    assert labels.shape == (3, 5)
    assert caplog.messages == ["labels: some texts are cut to model_max_length, 5"]


def test_targets_of_a_folder_with_two_tokenizers_are_refused(t5, tmp_path):
    """Marian's: the folder's tokenizer has the pieces of the source."""
    tokenizer = AutoTokenizer.from_pretrained(t5)
    row = sf.SyntaxExample((sf.Sentence.from_words(["the", "cat"]),), "true false")
    assert sf.SyntaxCollator(tokenizer, "none")([row])["labels"].tolist() == [[3, 4, 1]]
    tokenizer.name_or_path = str(tmp_path)
    (tmp_path / "target_tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="whose two sides have the same pieces, got"):
        sf.SyntaxCollator(tokenizer, "none")([row])


@pytest.mark.slow
@pytest.mark.parametrize("infuse", ["", "pos_add"])
def test_it_trains_and_predicts(config_of, t5, cola, infuse):
    folder = finetune(config_of("training.epochs=8", "training.batch_size=4", model=str(t5), infuse=infuse))
    report = json.loads((folder / "run.json").read_text())
    classifier = Classifier.from_folder(folder)
    assert classifier.info.words == ("false", "true")
    dev = read_any_split(TASKS["cola"], cola, "dev")
    predictions = classifier.predict_set(dev)
    assert classifier.score(dev, predictions) == pytest.approx(report["dev"], abs=1e-6)
    assert report["dev"]["matthews"] > 0.5
    assert set(predictions.labels) == {"0", "1"}
    assert all(sum(row) == pytest.approx(1.0) for row in predictions.probabilities)


@pytest.mark.parametrize("infuse", ["", "masks"])
@pytest.mark.parametrize("labels", [("0", "1"), None])
def test_its_encoder_takes_a_classification_head(t5, infuse, labels):
    """Which a checkpoint of T5 has not, no more than BERT's has one."""
    infusion = sf.InfusionConfig.parse(infuse or "none")
    model = load_pretrained(str(t5), Score() if labels is None else OneLabel(labels), infusion)
    inputs = {"input_ids": torch.tensor([[6, 7, 1]]), "attention_mask": torch.ones(1, 3, dtype=torch.int64)}
    if not infuse:
        assert model(**inputs).logits.shape == (1, 1 if labels is None else 2)
    names = [name for name, _ in model.named_parameters()]
    assert any("classification_head" in name for name in names)


def test_labels_that_the_tokenizer_does_not_tell_apart_are_refused(t5):
    tokenizer, known = AutoTokenizer.from_pretrained(t5), OneLabel(("cat", "хорошо"))
    assert known.for_head("auto", lambda: True, tokenizer).words == known.labels
    unknown = OneLabel(("плохо", "cat", "хорошо"))
    with pytest.raises(ConfigError, match=r"same pieces for 'плохо' and 'хорошо'\. Set"):
        unknown.for_head("auto", lambda: True, tokenizer)
    assert unknown.for_head("classifier", lambda: True, tokenizer) is unknown


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"type": "x"}, "type: expected one of label, score, .*got 'x'"),
        ({"type": "label"}, "labels: expected names, got none"),
        ({"type": "text", "labels": ("a", "b"), "words": ("a",)}, "words: expected 2, .*got 1"),
    ],
)
def test_types_that_do_not_fit(content, problem):
    with pytest.raises(ValueError, match=problem):
        info_of("classify", **content)
