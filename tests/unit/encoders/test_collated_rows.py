"""Rows of `datasets` into the collator, by hand and through transformers' Trainer with its own defaults."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

import syntaxformer as sf
from syntaxformer.annotate import with_constituency
from syntaxformer.base.errors import DataError
from table_annotator import TableAnnotator

NAMES = "masks,lisa,pos_add"
TEXTS = ["the cat sees .", "the dog not sleeps .", "a big house", "child runs"]
BY = with_constituency(TableAnnotator())


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    return AutoTokenizer.from_pretrained(checkpoint)


def same(found, expected):
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_annotated_rows_and_pairs_are_examples(tokenizer):
    collate = sf.SyntaxCollator(tokenizer, NAMES)
    examples = [sf.SyntaxExample((one,), label % 2) for label, one in enumerate(BY.annotate(TEXTS))]
    rows = Dataset.from_dict({"sentence": TEXTS, "label": [0, 1, 0, 1], "idx": range(4)})
    done = sf.annotate_dataset(rows, "sentence", BY)
    same(collate(list(done)), collate(examples))
    same(collate(list(done.with_format("torch"))), collate(examples))
    same(collate([done[0], examples[1]]), collate(examples[:2]))
    words = collate.words_of_pieces(list(done))
    assert all(map(np.array_equal, words, collate.words_of_pieces(examples)))
    assert collate.annotators == {f"table+phrases {BY.version}"}
    first, second = BY.annotate(TEXTS[:2]), BY.annotate(TEXTS[2:])
    examples = [sf.SyntaxExample(pair, 1.5) for pair in zip(first, second, strict=True)]
    rows = Dataset.from_dict({"premise": TEXTS[:2], "hypothesis": TEXTS[2:], "labels": [1.5, 1.5]})
    same(collate(list(sf.annotate_dataset(rows, ("premise", "hypothesis"), BY))), collate(examples))


def test_a_text_that_was_changed_after_it_was_annotated(tokenizer):
    """Else the model would read the old text with the new label."""
    collate = sf.SyntaxCollator(tokenizer, NAMES)
    done = sf.annotate_dataset(Dataset.from_dict({"text": TEXTS}), annotator=BY)
    assert len(collate(list(done))["input_ids"]) == len(TEXTS)
    changed = done.map(lambda row: {"text": row["text"].upper()})
    with pytest.raises(DataError, match=r"the annotated text, 'the cat sees \.', got 'THE"):
        collate(list(changed))


@pytest.mark.parametrize("name", ["label", "labels", "label_ids"])
def test_raw_rows_of_a_plain_model(tokenizer, name):
    collate = sf.SyntaxCollator(tokenizer, "none")
    batch = collate([{"text": TEXTS[0], name: 1}, {"text": TEXTS[1], name: np.int64(0)}])
    assert batch.pop("labels").tolist() == [1, 0]
    same(batch, tokenizer(TEXTS[:2], padding=True, return_tensors="pt"))
    pairs = sf.SyntaxCollator(tokenizer, "none", text=("premise", "hypothesis"))
    batch = pairs([{"premise": TEXTS[0], "hypothesis": TEXTS[1]}])
    same(batch, tokenizer(TEXTS[:1], TEXTS[1:2], return_tensors="pt"))


def test_the_first_row_that_is_cut_is_told(tokenizer, caplog):
    """`finetune` counts and tells by itself; transformers' Trainer knows of no cuts."""
    collate = sf.SyntaxCollator(tokenizer, "none", max_length=16)
    for _ in range(2):
        collate([{"text": "dogs bark", "label": 0}, {"text": "dogs bark " * 9, "label": 1}])
    assert caplog.messages == [
        "max_length: texts over 16 pieces are cut and counted in n_truncated. Raise it."
    ]
    assert collate.n_truncated == 2


def test_raw_rows_with_an_annotator(tokenizer, tmp_path):
    collate = sf.SyntaxCollator(tokenizer, NAMES, text="sentence", annotator=BY)
    examples = [sf.SyntaxExample((sentence,)) for sentence in BY.annotate(TEXTS)]
    assert sf.SyntaxCollator(tokenizer, "pos_add", annotator="en").annotator.name == "en"
    rows = [{"sentence": text, "other": None} for text in TEXTS]
    same(collate(rows), collate(examples))
    same(collate([rows[0], examples[1], rows[2]]), collate(examples[:3]))
    collate.save_pretrained(tmp_path)
    same(sf.SyntaxCollator.from_pretrained(tmp_path, text="sentence", annotator=BY)(rows), collate(rows))


@pytest.mark.parametrize(
    ("infuse", "row", "got"),
    [
        (NAMES, {"text": "the cat", "label": 1}, "the text 'the cat' alone"),
        ("none", {"label": 1}, "label"),
        ("none", {}, "nothing"),
        ("none", {"text": None}, "text"),
    ],
)
def test_rows_that_nobody_annotates_or_whose_text_was_dropped(tokenizer, infuse, row, got):
    with pytest.raises(DataError, match=f"^row: expected the column 'syntax',.* got {got}[.]"):
        sf.SyntaxCollator(tokenizer, infuse)([row])


def trainer(checkpoint, tokenizer, rows, folder, infuse=NAMES, wrap=lambda model: model, **options):
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    model = wrap(model if infuse == "none" else sf.infuse(model, infuse))
    options |= {"report_to": "none", "num_train_epochs": 1, "use_cpu": True, "disable_tqdm": True}
    data = {"train_dataset": rows, "eval_dataset": rows, "data_collator": sf.SyntaxCollator(tokenizer, infuse)}  # fmt: skip
    return Trainer(model, TrainingArguments(str(folder), **options), **data)


@pytest.fixture(scope="module")
def annotated():
    rows = Dataset.from_dict({"sentence": TEXTS, "label": [0, 1, 0, 1], "idx": range(4)})
    rows = rows.cast_column("label", ClassLabel(names=["no", "yes"]))
    return sf.annotate_dataset(rows, "sentence", BY)


def adapter(model):
    import peft

    config = peft.LoraConfig(r=2, target_modules=["query"], modules_to_save=["infusion"])
    return peft.get_peft_model(model, config)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("wrap", [lambda model: model, adapter], ids=["alone", "with PEFT"])
def test_trainer_as_it_is(checkpoint, tokenizer, annotated, tmp_path, wrap):
    """`remove_unused_columns` is on: `forward` of infused models names the column, also within PEFT's model."""
    run = trainer(checkpoint, tokenizer, annotated, tmp_path, wrap=wrap)
    assert run.args.remove_unused_columns
    before = {name: weight.detach().clone() for name, weight in run.model.named_parameters()}
    run.train()
    after = dict(run.model.named_parameters())
    changed = [name for name, weight in before.items() if not weight.equal(after[name])]
    assert any("infusion" in name and "lisa" in name for name in changed)
    assert 0 < run.evaluate()["eval_loss"] < 5
    assert run.predict(annotated).predictions.shape == (4, 2)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")
def test_trainer_that_dropped_the_text(checkpoint, tokenizer, annotated, tmp_path):
    """A plain model names no such column: the error says what to set, and that helps."""
    with pytest.raises(DataError, match=r"got label\. .* set remove_unused_columns=False\.$"):
        trainer(checkpoint, tokenizer, annotated, tmp_path, "none").train()
    trainer(checkpoint, tokenizer, annotated, tmp_path, "none", remove_unused_columns=False).train()
