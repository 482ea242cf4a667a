"""Trainers of transformers and adapters of PEFT, as they come."""

from __future__ import annotations

import warnings

import pytest
import torch
import transformers as hf
from torch.testing import assert_close

import syntaxformer as sf
from tiny_hosts import BERT, host_of

# PEFT asks transformers by a name that transformers calls old.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")


def _rows(subject, n_rows=4):
    """Rows with a column that no model knows."""
    batch = subject.batch()
    return [
        {**{name: one[row % 3] for name, one in batch.items()}, "text": "not for the model"}
        for row in range(n_rows)
    ]


def _arguments(make, folder, **more):
    settings = {
        "output_dir": str(folder), "max_steps": 2, "per_device_train_batch_size": 2, "per_device_eval_batch_size": 2,
        "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1, "report_to": [],
        "use_cpu": True, "disable_tqdm": True, "load_best_model_at_end": True, "learning_rate": 0.01,
        "logging_strategy": "no", "dataloader_pin_memory": False,
    }  # fmt: skip
    return make(**{**settings, **more})


def test_the_default_trainer(trained, tmp_path):
    """Unknown columns are dropped, those of syntax are not; the best model is loaded at the end."""
    model = trained.model()
    trainer = hf.Trainer(
        model,
        _arguments(hf.TrainingArguments, tmp_path),
        train_dataset=_rows(trained),
        eval_dataset=_rows(trained),
    )
    trainer.train()
    metrics = trainer.evaluate()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(losses) == 3
    assert metrics["eval_loss"] == pytest.approx(min(losses), abs=1e-5)
    assert trainer.state.best_model_checkpoint
    predicted = trainer.predict(_rows(trained))
    logits = predicted.predictions[0] if isinstance(predicted.predictions, tuple) else predicted.predictions
    assert len(logits) == 4
    assert predicted.label_ids.shape[0] == 4
    trainer.save_model(str(tmp_path / "best"))
    loaded = trained.auto.from_pretrained(tmp_path / "best").eval()
    batch = trained.unlabelled()
    assert_close(trained.scores(loaded, batch), trained.scores(model.eval(), batch), atol=1e-5, rtol=0)


def test_the_trainer_of_sequences(translator, tmp_path):
    """eval_loss beside a score of generated pieces, by which the best model is chosen."""
    model, seen = translator.model(), []

    def score(predicted):
        seen.append(predicted.predictions)
        return {"n_generated": float(len(seen))}

    arguments = _arguments(
        hf.Seq2SeqTrainingArguments, tmp_path, predict_with_generate=True, generation_max_length=6,
        generation_num_beams=2, metric_for_best_model="n_generated", greater_is_better=True,
    )  # fmt: skip
    trainer = hf.Seq2SeqTrainer(
        model,
        arguments,
        train_dataset=_rows(translator),
        eval_dataset=_rows(translator),
        compute_metrics=score,
    )
    trainer.train()
    entries = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert [entry["eval_n_generated"] for entry in entries] == [1.0, 2.0]
    assert all(entry["eval_loss"] > 0 for entry in entries)
    assert trainer.state.best_global_step == 2
    assert all(one.shape == (4, 20) for one in seen), (
        "padded to the longest length that generation_config allows"
    )


def test_lora_trains_saves_loads_and_merges(translator, tmp_path):
    from peft import LoraConfig, PeftModel, get_peft_model

    model, batch = translator.model(), translator.batch()
    before = translator.scores(model, batch)
    adapted = get_peft_model(model, LoraConfig(r=3, target_modules="all-linear", task_type="SEQ_2_SEQ_LM"))
    assert_close(translator.scores(adapted.eval(), batch), before, atol=1e-5, rtol=0)
    optimizer = torch.optim.Adam([one for one in adapted.parameters() if one.requires_grad], 0.02)
    for _ in range(3):
        optimizer.zero_grad()
        adapted.train()(**batch).loss.backward()
        used = {name: one.grad for name, one in adapted.named_parameters() if one.requires_grad}
        assert [name for name, grad in used.items() if grad is None or not grad.isfinite().all()] == []
        optimizer.step()
    after = translator.scores(adapted.eval(), batch)
    assert float((after - before).abs().max()) > 1e-2
    adapted.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(translator.model(), tmp_path).eval()
    assert_close(translator.scores(loaded, batch), after, atol=1e-5, rtol=0)
    with (
        warnings.catch_warnings()
    ):  # PEFT: tables are no longer tied, where they never were those of the source
        warnings.filterwarnings("ignore", "Input and output embeddings are no longer tied", UserWarning)
        merged = adapted.merge_and_unload().eval()
    assert_close(translator.scores(merged, batch), after, atol=1e-5, rtol=0)
    merged.save_pretrained(tmp_path / "merged")
    again = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "merged").eval()
    assert_close(translator.scores(again, batch), after, atol=1e-5, rtol=0)


def test_lora_on_the_output_counts_in_the_loss(translator):
    """The fused loss of training reads the weight of a plain head only."""
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(
        translator.model(tie_word_embeddings=False),
        LoraConfig(r=3, target_modules=["output"], lora_dropout=0.0),
    )
    batch = translator.batch()
    head = adapted.get_base_model().output
    with torch.no_grad():
        head.lora_B["default"].weight.normal_(generator=torch.Generator().manual_seed(8))
    adapted.train()(**batch).loss.backward()
    assert float(head.lora_B["default"].weight.grad.abs().max()) > 0


_OWN = {
    "vocab_size": 31, "d_model": 22, "n_heads": 2, "d_ff": 29, "encoder_layers": 2, "decoder_layers": 2,
    "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
_SEVERAL = {"num_labels": 3, "problem_type": "multi_label_classification"}
_CLASSES, _TAGS, _SCORES, _LABELS = (
    ("labels", 3, ()), ("labels", 3, (9,)), ("labels", 0.0, ()), ("labels", 0.0, (3,)),
)  # fmt: skip
HEADS = {
    "classes": ("bert", hf.BertForSequenceClassification, {}, _CLASSES),
    "scores": ("bert", hf.BertForSequenceClassification, {"num_labels": 1}, _SCORES),
    "several-labels": ("bert", hf.BertForSequenceClassification, _SEVERAL, _LABELS),
    "tags": ("bert", hf.BertForTokenClassification, {}, _TAGS),
    "choices": ("bert", hf.BertForMultipleChoice, {}, _CLASSES),
    "answers": ("bert", hf.BertForQuestionAnswering, {"num_labels": 2}, ("start_positions", 9, ()), ("end_positions", 9, ())),
    "masked": ("bert", hf.BertForMaskedLM, {}, _TAGS),
    "masked-modernbert": ("modernbert", hf.ModernBertForMaskedLM, {}, _TAGS),
    "tags-modernbert": ("modernbert", hf.ModernBertForTokenClassification, {}, _TAGS),
    "scores-modernbert": ("modernbert", hf.ModernBertForSequenceClassification, {"num_labels": 1}, _SCORES),
    "several-modernbert": ("modernbert", hf.ModernBertForSequenceClassification, _SEVERAL, _LABELS),
    "t5": ("t5", hf.T5ForConditionalGeneration, {}, _TAGS),
    "bart": ("bart", hf.BartForConditionalGeneration, {}, _TAGS),
    "translator": (None, sf.SyntaxTransformer, {}, _TAGS),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_an_update_is_the_same_however_it_is_divided(name, tmp_path):
    """1 × 16 and 8 × 2 rows; a loss is a mean over labels, of which the rows of a mask or of tags differ in number."""
    kind, make, changes, *targets = HEADS[name]
    sizes = (host_of(kind, BERT)[2] if kind else _OWN) | changes
    drawn = torch.Generator().manual_seed(1)
    shape = (2, 9) if name == "choices" else (9,)
    rows = []
    for number in range(16):
        row = {key: torch.randint(1, 9, shape, generator=drawn) for key in ("input_ids", "governors")}
        for key, high, size in targets:
            some = (
                torch.rand(size, generator=drawn).round()
                if high == 0
                else torch.randint(high, size, generator=drawn)
            )
            row[key] = some % 2 if name == "choices" else some
        if row.get("labels", torch.empty(0)).shape == (9,):
            row["labels"][: number % 5] = -100
            row["governors"][: number % 5] = -100
        rows.append(row)
    found = []
    for n_parts in (1, 8):
        torch.manual_seed(2)
        model = sf.infuse(make(make.config_class(**sizes)), "lisa")

        class Kept(hf.TrainerCallback):
            def on_pre_optimizer_step(self, *_, model, **__):
                found.append(
                    {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
                )

        arguments = hf.TrainingArguments(
            str(tmp_path), max_steps=1, per_device_train_batch_size=16 // n_parts, use_cpu=True, report_to=[],
            gradient_accumulation_steps=n_parts, save_strategy="no", max_grad_norm=0, disable_tqdm=True,
            dataloader_pin_memory=False,
        )  # fmt: skip
        hf.Trainer(model, arguments, train_dataset=rows, callbacks=[Kept()]).train()
    whole, divided = (torch.cat([one.flatten() for one in gradients.values()]) for gradients in found)
    ours = torch.cat([one.flatten() for key, one in found[0].items() if "lisa" in key])
    assert whole.norm() > 1e-3
    assert ours.norm() > 1e-6
    assert float((whole - divided).norm() / whole.norm()) < 1e-6
