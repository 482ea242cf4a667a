"""A model of one's own training becomes a folder for `pipeline` and the commands; annotators that are objects."""

from __future__ import annotations

import shutil
import warnings

import pytest
import spacy
import torch
import transformers as hf
from datasets import Dataset

import syntaxformer as sf
from syntaxformer.annotate.registry import GivenAnnotator, load_annotator
from syntaxformer.base.errors import CheckpointError, ConfigError, DataError
from syntaxformer.encoders.examples import TextSet
from syntaxformer.encoders.prediction import predictions_beside, read_split_for
from syntaxformer.encoders.tasks import read_classifier_info
from syntaxformer.trees.sentence import Sentence
from table_annotator import TableAnnotator

TEXTS = ["the cat sees .", "the dog not sees ."]


class Mine:
    """As little as an annotator may have."""

    name = "mine"

    def annotate(self, lines):
        return TableAnnotator().annotate(lines)


@pytest.fixture
def made(checkpoint):
    """A model, and a collator for it."""

    def make(infuse, head=hf.AutoModelForSequenceClassification, annotator=None, **config):
        model = head.from_config(hf.AutoConfig.from_pretrained(checkpoint, **config))
        collator = sf.SyntaxCollator(hf.AutoTokenizer.from_pretrained(checkpoint), infuse, max_length=23, annotator=annotator, text=("text",))  # fmt: skip
        return (model if infuse == "none" else sf.infuse(model, infuse)), collator

    return make


def logits(model, collator, annotator, text):
    sentences = tuple(sf.load_annotator(annotator).annotate([text] if isinstance(text, str) else list(text)))
    with torch.no_grad():
        return model.eval()(**collator([sf.SyntaxExample(sentences)])).logits[0]


@pytest.mark.parametrize(
    "names", [{1: "good", 0: "bad"}, {f"{n}": f"c{n}" for n in (0, 1, 10, 11, *range(2, 10))}]
)
def test_names_of_classes_are_in_the_order_of_outputs(made, tmp_path, names):
    """`id2label` may be written in any order, by hand or by a JSON file that sorts its keys as text."""
    model, collator = made("none", id2label=names, label2id={name: int(n) for n, name in names.items()})
    sf.save(model, collator, tmp_path / "own")
    assert read_classifier_info(tmp_path / "own").labels == tuple(names[n] for n in sorted(names, key=int))


def test_trainer_then_save_then_pipeline(made, tmp_path):
    """Who annotated is known from the rows, which `to_dict` made; the folder of Trainer's checkpoints stays whole."""
    names = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    model, collator = made("relation_bias,pos_add", **names)
    rows = Dataset.from_dict({"text": TEXTS, "label": [1, 0]})
    parse = TableAnnotator()
    rows = rows.map(lambda row: {"syntax": parse.annotate([row["text"]])[0].to_dict()})
    assert [Sentence.from_dict(one) for one in rows["syntax"]] == parse.annotate(TEXTS)
    folder = tmp_path / "own"
    arguments = hf.TrainingArguments(str(folder), max_steps=2, save_steps=1, report_to="none", use_cpu=True, disable_tqdm=True)  # fmt: skip
    # As `processing_class`, the collator is written beside each checkpoint, so that a crashed run can be loaded.
    collators = {"data_collator": collator, "processing_class": collator}
    hf.Trainer(model, arguments, train_dataset=rows, **collators).train()
    last = folder / "checkpoint-2"
    crashed, stored = sf.load(last), sf.SyntaxCollator.from_pretrained(last)
    batch = stored(rows.to_list())
    assert all(torch.equal(batch[name], tensor) for name, tensor in collator(rows.to_list()).items())
    assert torch.equal(crashed.eval()(**batch).logits, model.eval()(**batch).logits)
    assert sf.save(crashed, stored, tmp_path / "saved", TableAnnotator()) == tmp_path / "saved"
    with pytest.raises(ConfigError, match=r"annotator: .*rows by nobody"):
        sf.save(model, collator, folder)
    assert sf.save(model, collator, folder, TableAnnotator()) == folder
    assert last.is_dir()
    info = read_classifier_info(folder)
    assert (info.type, info.labels, info.annotator) == ("label", ("bad", "good"), "table+phrases")
    assert set(info.needs) == {"upos", "governors", "constituency"}
    with pytest.raises(ConfigError, match=r"got 'table'\..* If it is the name of an object,"):
        sf.pipeline(folder)
    (answer,) = sf.pipeline(folder, annotator=TableAnnotator())(TEXTS[:1])
    for device in (-1, torch.device("cpu")):
        classify = sf.pipeline(folder, annotator=TableAnnotator(), device=device)
        assert classify(TEXTS[:1], batch_size=1) == [answer]
    for cell in (None, float("nan"), b"the cat"):
        with pytest.raises(DataError, match=rf"^line 2: text: .*got {type(cell).__name__}\.$"):
            classify([TEXTS[0], cell])
    with pytest.raises(ValueError, match=r"^top_k:"):
        classify(TEXTS, top_k=0)
    expected = logits(model, collator, TableAnnotator(), TEXTS[0]).softmax(0)
    assert answer["label"] == ("bad", "good")[int(expected.argmax())]
    assert answer["score"] == pytest.approx(float(expected.max()), abs=1e-5)


def test_a_collator_that_made_no_batch_does_not_know_of_pairs(made, tmp_path):
    model, known = made("none")
    collator = sf.SyntaxCollator(known.tokenizer, "none")
    pair = sf.SyntaxExample(tuple(TableAnnotator().annotate(TEXTS[:2])))
    with pytest.warns(UserWarning, match=r"taken to read one text. If it reads pairs, give the collator"):
        sf.save(model, collator, tmp_path / "new")
    collator([pair])
    collator([sf.SyntaxExample(pair.segments[:1])])
    for fresh in (collator, sf.SyntaxCollator(collator.tokenizer, "none", text=("a", "b"))):
        sf.save(model, fresh, tmp_path / "own")
        assert sf.pipeline(tmp_path / "own")({"text": TEXTS[0], "text_pair": TEXTS[1]})
        again = sf.SyntaxCollator.from_pretrained(tmp_path / "own")
        assert again.n_texts == 2


@pytest.mark.parametrize("pair", [False, True])
def test_plain_models_of_scores_and_pairs_need_no_annotator(made, tmp_path, pair):
    model, collator = made("none", num_labels=1)
    text = tuple(TEXTS) if pair else TEXTS[0]
    collator([sf.SyntaxExample(tuple(TableAnnotator().annotate(TEXTS[: 1 + pair])))])
    sf.save(model, collator, tmp_path / "own", annotator="no such")
    info = read_classifier_info(tmp_path / "own")
    assert (info.task, info.n_texts, info.annotator) == ("regress", 1 + pair, None)
    found = sf.pipeline(tmp_path / "own")([text])[0]["score"]
    assert found == pytest.approx(float(logits(model, collator, TableAnnotator(), text)), abs=1e-5)


@pytest.mark.parametrize("infuse", ["none", "relation_bias"])
def test_a_model_of_tags_is_saved_with_who_finds_its_words(made, tmp_path, infuse):
    model, collator = made(infuse, hf.AutoModelForTokenClassification, num_labels=3)
    sf.save(model, collator, tmp_path / "own", TableAnnotator(), labels=["O", "B-X", "I-X"])
    info = read_classifier_info(tmp_path / "own")
    assert (info.task, info.type, info.labels) == ("ner", "tags", ("O", "B-X", "I-X"))
    found = sf.pipeline(tmp_path / "own", annotator=TableAnnotator())(TEXTS[0])
    expected = logits(model, collator, TableAnnotator(), TEXTS[0])[1:-1].softmax(-1).max(-1)  # whole words
    assert [answer["word"] for answer in found] == TEXTS[0].split()
    assert [answer["entity"] for answer in found] == [info.labels[place] for place in expected.indices]
    assert [answer["score"] for answer in found] == pytest.approx(expected.values.tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("problem", "kind"), [("regression", "scores"), ("multi_label_classification", "labels"), (None, "label")]
)
def test_the_kind_of_answer_is_that_of_the_models_config(made, tmp_path, problem, kind):
    model, collator = made("none", num_labels=3, problem_type=problem)
    sf.save(model, collator, tmp_path / "own", labels=["x", "y", "z"])
    info = read_classifier_info(tmp_path / "own")
    assert (info.type, info.labels) == (kind, ("x", "y", "z"))


def test_models_with_other_kinds_of_answer_are_not_compared(made, tmp_path):
    """Their labels are the same, or both have none."""
    infos = {}
    for problem, labels in (("multi_label_classification", ["x", "y"]), (None, ["x", "y"])):
        model, collator = made("none", num_labels=2, problem_type=problem)
        folder = sf.save(model, collator, tmp_path / labels[0] / str(problem), labels=labels)
        infos[folder] = read_classifier_info(folder)
    (several, one), texts = infos, TextSet("texts", "texts", [])
    for folder, other in (several, one), (one, several):
        with pytest.raises(ConfigError, match="--baseline:"):
            predictions_beside(folder, infos[other], texts, (None, None, False))
    asked = infos[one].model_copy(update={"type": "answer", "labels": None, "n_texts": 2})
    with pytest.raises(ConfigError, match="task:"):
        read_split_for(asked, "stsb", str(tmp_path), "dev")


def test_saving_refuses_what_could_not_be_loaded_rightly(made, tmp_path):
    model, collator = made("relation_bias")
    assert sf.SyntaxCollator(collator.tokenizer, model).config == collator.config
    plain, for_plain = made("none")

    def refuse(told, model, collator, folder="a", annotator="en", **how):
        with pytest.raises((ConfigError, CheckpointError), match=told):
            sf.save(model, collator, tmp_path / folder, annotator, **how)

    refuse("collator:", model, for_plain)
    refuse("got another: nothing and relation_bias", plain, collator)
    near = sf.SyntaxCollator(collator.tokenizer, sf.InfusionConfig(relation_bias={"max_distance": 5}))
    refuse(r"another: relation_bias and relation_bias \(max_distance 5\)", model, near)
    kinds = [sf.InfusionConfig(embedding={"kind": "add", "factors": names}) for names in (("pos", "case"), ("case", "pos"))]  # fmt: skip
    tagged, of_other = sf.infuse(made("none")[0], kinds[0]), sf.SyntaxCollator(collator.tokenizer, kinds[1])
    refuse(r"factors pos case, .* factors case pos, ", tagged, of_other)
    refuse("model:", *made("none", hf.AutoModelForQuestionAnswering))
    refuse("with 3 labels for 2 outputs", plain, for_plain, labels=["a", "b", "c"])
    assert not (tmp_path / "a").exists()
    for folder, file in ("run", "recipe.yaml"), ("mixed", "adapter_config.json"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).touch()
    refuse(r"folder: expected a new one or Trainer's, got .*run, a run", plain, for_plain, "run")
    refuse("expected every file that is read, got none for", plain, for_plain, "mixed")


def test_annotators_that_are_objects(made, tmp_path):
    """With `annotate` and `name` alone: what it provides is tried, and it is never found in a cache."""
    taken = sf.load_annotator(Mine())
    assert taken.provides == {"upos", "governors", "deprels"}
    assert taken.version != sf.load_annotator(Mine()).version
    assert taken.annotate(TEXTS) == TableAnnotator().annotate(TEXTS)
    assert taken.annotate_words([["the", "cat"]])[0].words == ("the", "cat")
    rows = sf.annotate_dataset(Dataset.from_dict({"text": TEXTS}), annotator=Mine())
    assert rows[0]["syntax"]["annotator"].startswith("mine unversioned-")
    model, collator = made("pos_add", annotator=Mine())
    assert collator([{"text": TEXTS[0]}])["factor_ids"].shape == (1, 6, 1)
    sf.save(model, collator, tmp_path / "own")
    with pytest.warns(UserWarning, match="the model was trained with mine unversioned-"):
        sf.pipeline(tmp_path / "own", annotator=Mine())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sf.pipeline(tmp_path / "own", annotator=collator.annotator)(TEXTS)
    with pytest.raises(TypeError, match="expected a name, or an object with `name` and `annotate`, got int"):
        sf.load_annotator(3)
    short = Mine()
    short.annotate = lambda lines: TableAnnotator().annotate(lines)[:1]
    with pytest.raises(DataError, match="annotator mine:"):
        GivenAnnotator(short).annotate(TEXTS)
    short.annotate = lambda lines: TableAnnotator().annotate([line.replace("-", " ") for line in lines])
    with pytest.raises(DataError, match="or others"):
        GivenAnnotator(short).annotate(["a-b"])
    short.annotate = load_annotator("en").annotate
    assert GivenAnnotator(short).annotate_words([["a", "cat"]])[0].words == ("a", "cat")
    with pytest.raises(DataError, match='exactly the words "don\\\'t", got "do n\\\'t"\\.'):
        GivenAnnotator(short).annotate_words([["don't"]])


def test_an_annotator_of_ones_own_is_kept(made, tmp_path):
    """The folder names it relative to itself, so that no path has to be trusted, here or elsewhere."""
    spacy.blank("de").to_disk(tmp_path / "ours")
    model, collator = made("none", hf.AutoModelForTokenClassification, num_labels=3)
    for _ in range(2):  # also into a folder that has one
        sf.save(model, collator, tmp_path / "own", f"spacy:{tmp_path / 'ours'}", labels=["O", "B-X", "I-X"])
    assert read_classifier_info(tmp_path / "own").annotator == "spacy:annotator"
    shutil.rmtree(tmp_path / "ours")
    (tmp_path / "own").rename(tmp_path / "moved")
    found = sf.pipeline(tmp_path / "moved")("the cat sees.")
    assert [answer["word"] for answer in found] == ["the", "cat", "sees", "."]
