"""The task of similarity: each text is read by itself, from the table to the score, and its base model is saved."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import peft
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import syntaxformer as sf
from syntaxformer.base.errors import CheckpointError, ConfigError, DataError
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.encoders.embeddings import SyntaxEncoder
from syntaxformer.encoders.examples import TextExample, TextSet
from syntaxformer.encoders.export_onnx import export_classifier
from syntaxformer.encoders.finetuning import finetune
from syntaxformer.encoders.task_types import Predictions, Score, Similarity
from syntaxformer.encoders.tasks import read_classifier_info
from syntaxformer.serve.engines import ClassifierEngine
from syntaxformer.study.attention import encoder_attention
from syntaxformer.study.labelled import judge
from table_annotator import TableAnnotator

PAIR = ("the cat sees .", "the big dog likes the house .")
HEADER = "sentence1\tsentence2\tscore\n"


def base(checkpoint, infuse="none", annotator=None, seed=3):
    torch.manual_seed(seed)
    model = AutoModel.from_pretrained(checkpoint).eval()
    model = model if infuse == "none" else sf.infuse(model, infuse)
    for _, parameter in [] if infuse == "none" else sf.infusion_parameters(model):
        parameter.data.add_(0.3)
    collator = sf.SyntaxCollator(AutoTokenizer.from_pretrained(checkpoint), model, max_length=23, annotator=annotator)  # fmt: skip
    return model, collator


def rows(n):
    """Pairs of the same animal are alike: 4, others 1."""
    for i in range(n):
        first, second, verb = ("cat", "dog")[i % 2], ("cat", "dog")[i // 2 % 2], ("sees", "runs")[i // 4 % 2]
        yield f"the {first} {verb} .\ta {second} {'likes' if i % 3 else 'sleeps'} .\t{4 if first == second else 1}\n"


def mean_state(model, collator, text):
    """The mean of the states of a text that is alone in its batch."""
    (sentence,) = TableAnnotator().annotate([text])
    with torch.no_grad():
        return model(**collator([sf.SyntaxExample((sentence,))])).last_hidden_state[0].mean(0)


def test_the_loss_is_cosents():
    cosines, targets = [0.2, 0.5, -0.1, 0.5], [0.0, 1.0, 0.5, 0.5]
    pairs = [(i, j) for i in range(4) for j in range(4) if targets[i] < targets[j]]
    terms = [math.exp(20 * (cosines[i] - cosines[j])) for i, j in pairs]
    assert len(terms) == 5
    outputs = torch.tensor(cosines)[:, None].requires_grad_()
    loss = Similarity().loss(outputs, torch.tensor(targets))
    assert loss.item() == pytest.approx(math.log(1 + sum(terms)), abs=1e-5)
    same = Similarity().loss(outputs, torch.ones(4))
    same.backward()
    assert (same.item(), outputs.grad.abs().max().item()) == (0.0, 0.0)


def test_scores_are_on_the_scale_of_the_table():
    kind = Similarity().fit([1.0, 5.0, 2.0])
    assert [kind.target(score) for score in (1.0, 2.0, 5.0)] == [0.0, 0.25, 1.0]
    assert kind.decide(torch.tensor([[0.0], [0.25], [1.0]])) == [1.0, 2.0, 5.0]
    assert Similarity().fit([2.0, 2.0]).target(2.0) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Score(), Similarity()])
def test_a_difference_does_not_depend_on_the_scale_of_scores(kind):
    """Exchanging a cosine for a score from 0 to 5 would make any difference look like chance."""
    generator = np.random.default_rng(1)
    gold = generator.uniform(0, 5, 60)
    near, far = gold + generator.normal(0, 1, 60), gold + generator.normal(0, 3, 60)
    texts = TextSet("x", "x", [TextExample(PAIR, score) for score in gold.tolist()])
    info = SimpleNamespace(metrics=("pearson",))
    classifier = SimpleNamespace(task_type=kind, info=info, score=lambda *_: {})
    found = []
    for factor in (1.0, 0.01):
        systems = {"a": Predictions(near.tolist(), None), "b": Predictions((factor * far).tolist(), None)}
        found.append(judge(classifier, texts, systems, {})["b"]["against"]["pearson"])
    assert found[0]["p_value"] == found[1]["p_value"] < 0.05
    assert found[0]["difference"] == pytest.approx(found[1]["difference"])


@pytest.mark.parametrize("infuse", ["none", "masks,pos_add"])
def test_a_base_model_is_saved_scores_pairs_and_gives_its_states(checkpoint, tmp_path, infuse):
    model, collator = base(checkpoint, infuse, TableAnnotator())
    sf.save(model, collator, tmp_path / "own")
    assert read_classifier_info(tmp_path / "own").type == "similarity"
    first, second = (mean_state(model, collator, text) for text in PAIR)
    expected = float(first @ second / first.norm() / second.norm())
    how = {"annotator": TableAnnotator(), "device": "cpu"}
    classify = sf.pipeline(tmp_path / "own", **how)
    assert classify([PAIR])[0]["score"] == pytest.approx(expected, abs=1e-5)
    (served,) = ClassifierEngine("own", classify.classifier).work(None, [PAIR])
    assert served.score == pytest.approx(expected, abs=1e-5)
    extract = sf.pipeline(tmp_path / "own", "feature-extraction", **how)
    states = extract(list(PAIR), batch_size=1)
    assert [np.shape(of_text) for of_text in states] == [(1, 6, 24), (1, 9, 24)]
    assert_close(torch.tensor(states[0][0]).mean(0), first, atol=1e-5, rtol=0)
    assert_close(torch.tensor(extract(PAIR[0])), torch.tensor(states[0]), atol=1e-5, rtol=0)
    assert extract([]) == []
    if infuse != "none":
        assert_close(sf.load(tmp_path / "own").state_dict(), model.state_dict())


def test_what_is_no_base_model_gives_no_features(checkpoint, tmp_path):
    _, collator = base(checkpoint)
    headed = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    sf.save(headed, sf.SyntaxCollator(collator.tokenizer, headed, text=("text",)), tmp_path / "own")
    with pytest.raises(CheckpointError, match=r"^model: expected a base model .* 'label'"):
        sf.pipeline(tmp_path / "own", "feature-extraction")
    with pytest.raises(ConfigError, match=r"^model: expected an encoder without head"):
        SyntaxEncoder(headed, collator)
    tagged, reader = base(checkpoint, "let", TableAnnotator())
    with pytest.raises(ConfigError, match=r"^model: expected an encoder without head and let, got BertModel"):
        SyntaxEncoder(tagged, reader)
    with pytest.raises(ConfigError, match=r"^model: expected a head"):
        sf.save(tagged, reader, tmp_path / "new")
    infused, collator = base(checkpoint, "masks")
    with pytest.raises(ConfigError, match=r"^annotator: .* annotator='en\+phrases'"):
        SyntaxEncoder(infused, collator)
    with pytest.raises(ConfigError, match=r"^model:"):
        sf.save(infused, collator, tmp_path / "new", "en", labels=["a", "b"])


@pytest.mark.parametrize(
    ("specials", "of_words", "of_special"), [("[CLS] $A [SEP]", 3, 6), ("$A [SEP]", 2, 5), ("$A", 2, 5)]
)
def test_a_prompt_is_as_long_as_it_is_read(checkpoint, specials, of_words, of_special):
    """ "the cat" has two pieces and "[SEP]", as text, five; the piece that opens a text counts as well."""
    model, collator = base(checkpoint)
    ids = [("[CLS]", 2), ("[SEP]", 3)]
    collator.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(specials, special_tokens=ids)
    encoder = SyntaxEncoder(model, collator)
    for prompt, length in (("the cat ", of_words), ("[SEP] ", of_special)):
        assert encoder.preprocess(["a dog ."], prompt)["prompt_length"] == length


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_adapters_are_refused_before_anything_is_written(checkpoint, tmp_path):
    model, collator = base(checkpoint, "masks", TableAnnotator())
    config = peft.LoraConfig(r=2, target_modules=["query"], modules_to_save=["infusion"])
    adapted = base(checkpoint, "masks")[0]
    adapted.add_adapter(config)
    for parameter in adapted.parameters():
        parameter.data.add_(0.1 * parameter.requires_grad)
    wrapped = peft.get_peft_model(model, config)
    for other, remedy in ((adapted, r"load\(base\)\.load_adapter"), (wrapped, r"merge_and_unload\(\)")):
        with pytest.raises(ConfigError, match=rf"^model: expected one without adapters, .*{remedy}"):
            sf.save(other, collator, tmp_path / "new")
        assert not (tmp_path / "new").exists()
    sf.save(wrapped.merge_and_unload(), collator, tmp_path / "base")
    adapted.eval().save_pretrained(tmp_path / "adapter")
    loaded = sf.load(tmp_path / "base")
    loaded.load_adapter(tmp_path / "adapter")
    assert_close(mean_state(loaded.eval(), collator, PAIR[0]), mean_state(adapted, collator, PAIR[0]))


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_a_plain_model_gets_plain_batches(checkpoint):
    plain, collator = base(checkpoint)
    config = peft.LoraConfig(r=2, target_modules=["query"])
    for model in (plain, peft.get_peft_model(base(checkpoint)[0], config)):
        row = sf.SyntaxExample(tuple(TableAnnotator().annotate(PAIR)), 1)
        batch = sf.SyntaxCollator(collator.tokenizer, model)([row])
        assert batch.keys() == {"input_ids", "attention_mask", "labels"}
    with pytest.raises(ConfigError, match=r"^infuse: expected an InfusionConfig"):
        sf.SyntaxCollator(collator.tokenizer, SimpleNamespace(config={}))


@pytest.mark.slow
@pytest.mark.parametrize("infuse", ["none", "masks,relation_bias,lisa,pos_add"])
def test_from_a_table_to_scores(run, checkpoint, tmp_path, infuse, caplog):
    (tmp_path / "x.tsv").write_text(HEADER + "".join(rows(48)))
    quick = ("precision=fp32", "batch_size=8", "max_length=32", "learning_rate=0.005", "epochs=6")
    settings = [part for setting in quick for part in ("--set", f"training.{setting}")]
    folder = tmp_path / "alike"
    command = ("--task", "similarity", "--train", tmp_path / "x.tsv", "--dev", tmp_path / "x.tsv", "--infuse", infuse)  # fmt: skip
    done = run("finetune", *command, "--model", checkpoint, "-o", folder, *settings)
    assert done.code == 0, done.err
    assert "add that of pointing" not in done.err + caplog.text  # the trainer adds it
    spearman = float(done.out.split("spearman ")[1].split()[0])
    assert spearman > 0.8
    assert f"spearman {spearman:.4f}" in run("predict", folder, tmp_path / "x.tsv").out
    (tmp_path / "two.txt").write_text("the cat sees .\ta cat likes .\nthe cat sees .\ta dog likes .\n")
    header, alike, unlike = run("predict", folder, tmp_path / "two.txt").out.split()
    assert header == "prediction"
    assert float(alike) > float(unlike)
    if infuse != "none":
        shuffled = run("predict", folder, tmp_path / "x.tsv", "--shuffle", "syntax")
        assert f"the model as it is {spearman:.4f}" in " ".join(shuffled.out.split()), shuffled.err
    with pytest.raises(ConfigError, match=r"^type: expected answers that one pass over a text gives"):
        export_classifier(folder, tmp_path / "onnx")
    classifier = Classifier.from_folder(folder)
    assert classifier.is_cut(("the " * 40, "a cat"))
    assert not classifier.is_cut(("the " * 20, "a " * 20))
    with pytest.raises(ConfigError, match=r"^model: expected one that reads a pair at once"):
        encoder_attention(classifier, PAIR)
    vectors = SyntaxEncoder.load(folder)
    assert vectors.preprocess(["the cat sees .", ""])["input_ids"].shape == (2, 6)


@pytest.mark.slow
def test_what_a_table_of_pairs_must_have(config_of, tmp_path):
    (tmp_path / "one.tsv").write_text("text\tscore\n" + "the cat .\t1\n" * 20)
    (tmp_path / "pairs.tsv").write_text(HEADER + "".join(rows(20)))
    for file, setting, infuse, told in (
        ("one", "seed=1", "", r"one.tsv: columns: expected two texts in a row for similarity"),
        ("pairs", "training.class_weights=balanced", "", r"training\.class_weights: expected a network with"),
        ("pairs", "annotation.annotator=en", "let", r"^infusion\.embedding\.kind: expected add or concat"),
        ("pairs", "head=classifier", "", "^head: expected auto and an encoder alone for similarity"),
    ):
        data = {"train": str(tmp_path / f"{file}.tsv")}
        config = config_of(setting, infuse=infuse, task="similarity", data=data)
        with pytest.raises((ConfigError, DataError), match=told):
            finetune(config)
