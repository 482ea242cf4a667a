"""Fine-tuning from end to end with a tiny random BERT."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from dataclasses import replace

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from sklearn.metrics import matthews_corrcoef

import syntaxformer as sf
from recorder import Recorder
from syntaxformer.annotate import load_annotator
from syntaxformer.base.errors import CheckpointError, ConfigError, DataError
from syntaxformer.base.files import verify_manifest
from syntaxformer.encoders import finetuning as classification
from syntaxformer.encoders.classifier import Classifier, annotate_examples
from syntaxformer.encoders.collator import SyntaxCollator
from syntaxformer.encoders.examples import TextExample
from syntaxformer.encoders.finetune_config import load_finetune
from syntaxformer.encoders.finetuning import FinetuneTrainer, finetune
from syntaxformer.encoders.official_data import read_any_split
from syntaxformer.encoders.pretrained import load_pretrained, longest_input
from syntaxformer.encoders.task_data import read_finetune_data
from syntaxformer.encoders.task_types import OneLabel
from syntaxformer.encoders.tasks import TASKS
from syntaxformer.infusion import load
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.infused_folder import widen_head
from syntaxformer.runs.checkpoints import numbered_checkpoints
from syntaxformer.runs.trainer import exponential
from syntaxformer.trees import write_conllu

QUICK = ("training.precision=fp32", "training.max_length=32", "training.learning_rate=0.01")


class _Killed(Exception):
    pass


TINY = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}  # fmt: skip


@pytest.fixture(scope="module")
def learned(checkpoint, cola, tmp_path_factory):
    """The folder of a run that learns, and its report."""
    content = {"task": "cola", "model": str(checkpoint), "output": tmp_path_factory.mktemp("learned") / "run"}
    settings = (*QUICK, "training.epochs=6", "training.batch_size=4")
    folder = finetune(load_finetune({**content, "data": {"dir": cola}}, "", settings))
    return folder, json.loads((folder / "run.json").read_text())


def _assert_equal(weights, others):
    assert weights.keys() == others.keys()
    assert all(torch.equal(tensor, others[name]) for name, tensor in weights.items())


def _same_as_reported(folder, cola):
    """The score on dev by the folder is that of its report; the predictions."""
    dev = read_any_split(TASKS["cola"], cola, "dev")
    classifier = Classifier.from_folder(folder, trust_annotator=True)
    predictions, report = classifier.predict_set(dev), json.loads((folder / "run.json").read_text())
    assert classifier.score(dev, predictions) == pytest.approx(report["dev"], abs=1e-6)
    return classifier, dev, predictions


@pytest.mark.slow
def test_a_run_learns_and_predict_gives_the_score_of_run_json(learned, cola):
    folder, report = learned
    assert report["dev"]["matthews"] > 0.8
    classifier, dev, predictions = _same_as_reported(folder, cola)
    gold, predicted = (list(map(int, report["dev_predictions"][side].split())) for side in ("gold", "found"))
    assert gold == [example.label for example in dev.examples]
    assert matthews_corrcoef(gold, predicted) == pytest.approx(report["dev"]["matthews"], abs=1e-6)
    some = [replace(example, label=n % 2 or None) for n, example in enumerate(dev.examples)]
    assert classifier.predict_set(replace(dev, examples=some)).labels == predictions.labels
    assert len(report["seconds_per_epoch"]) == len(report["processor_seconds_per_epoch"]) == 6
    assert (report["n_train"], report["seed"], report["n_truncated"]) == (40, 1, {"train": 0, "dev": 0})
    assert len(report["data_sha256"]["train"]) == 64
    assert report["versions"]["transformers"]
    epochs = report["trials"][0]["epochs"]
    assert [epoch["epoch"] for epoch in epochs] == [1, 2, 3, 4, 5, 6]
    best = max(epochs, key=lambda epoch: epoch["matthews"])  # the first of equals
    assert (report["best_step"], report["last_step"]) == (10 * best["epoch"], 60)


def test_the_folder_is_whole_and_holds_no_pickle(learned):
    folder, _ = learned
    verify_manifest(folder)
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "config.json",
        "model.safetensors",
        "classifier.json",
        "collator.json",
        "recipe.yaml",
        "run.json",
    }
    assert "checkpoints" not in names
    for path in folder.iterdir():
        assert path.suffix in (".json", ".safetensors", ".yaml", ".txt", ".md"), path.name
        assert path.read_bytes()[:2] not in (b"\x80\x02", b"\x80\x04", b"PK"), path.name


@pytest.mark.slow
def test_a_run_with_lisa_says_how_many_governors_it_finds(config_of):
    settings = ("training.epochs=8", "infusion.lisa.weight=5", "training.infusion_learning_rate=0.02")
    folder = finetune(config_of(*settings, infuse="lisa"))
    report = json.loads((folder / "run.json").read_text())
    found = [epoch["governor_accuracy"] for epoch in report["trials"][0]["epochs"]]
    assert 0 <= found[0] < found[-1] <= 1
    assert "governor_accuracy" not in report["dev"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "least", "most"),
    [("training.infusion_learning_rate=0.1", 0.05, 1), ("training.infusion_learning_rate=1e-9", 0, 0)],
)
def test_a_run_with_masks_says_how_far_their_gates_opened(config_of, caplog, rate, least, most):
    caplog.set_level("INFO", "syntaxformer")
    folder = finetune(config_of("training.epochs=2", rate, infuse="masks"))
    gates = json.loads((folder / "run.json").read_text())["gates"]
    stored = load_file(folder / "model.safetensors")
    weights = [stored[name] for name in sorted(stored) if ".gates." in name]
    assert gates == [round(weight.tanh().abs().item(), 4) for weight in weights]
    assert least <= min(gates) <= max(gates) <= most
    shown = "  ".join(f"{gate:.3f}" for gate in gates)
    assert f"gates of the masks, each from 0.000 (closed) to 1.000 (open): {shown}" in caplog.messages
    told = "the gates stayed closed, so the masks change hardly anything. Set training.infusion_learning_rate"
    assert caplog.text.count(told) == (not most)


@pytest.mark.slow
@pytest.mark.parametrize("infuse", ["pos_add", "masks,lisa", "relation_bias"])
def test_an_infused_run_and_its_prediction(config_of, cola, infuse):
    folder = finetune(config_of("training.epochs=1", "data.fraction=0.4", infuse=infuse))
    classifier, _, _ = _same_as_reported(folder, cola)
    alone, twice = (classifier.predict(["the cat sleeps ."] * n).probabilities[0] for n in (1, 2))
    assert alone == pytest.approx(twice, abs=1e-6)
    assert sum(alone) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
def test_texts_are_parsed_in_a_second_thread_in_the_batches_of_the_model(config_of, monkeypatch):
    classifier = Classifier.from_folder(finetune(config_of("training.epochs=1", infuse="masks")))
    parser, parsed = classifier.annotator.annotator.parser, []

    def parse_lines(lines, parse=parser.parse_lines):
        parsed.append((threading.current_thread() is threading.main_thread(), len(lines)))
        return parse(lines)

    monkeypatch.setattr(parser, "parse_lines", parse_lines)
    texts = [f"{'the old ' * n}dog sees a cat ." for n in (2, 0, 5, 1, 3)]
    batched = classifier.predict(texts, 2)
    assert parsed == [(False, 2), (False, 2), (False, 1)]
    with pytest.raises(DataError, match="100,001") as raised:
        classifier.predict(["a cat .", "a " * 100_001, "a dog ."], 1)
    assert raised.value.line == 2
    monkeypatch.setattr("syntaxformer.encoders.classifier._takes_any_order", lambda _: False)
    assert classifier.predict(texts, 2) == batched


@pytest.mark.slow
@pytest.mark.parametrize("infuse", ["none", "masks"])
def test_a_run_with_a_wide_head_and_its_prediction(config_of, cola, infuse):
    settings = ("training.epochs=2", "data.fraction=0.4", "head_width=29", "training.decay=0.5")
    folder = finetune(config_of(*settings, infuse=infuse))
    weights = load_file(folder / "model.safetensors")
    assert weights["bert.pooler.dense.weight"].shape == (29, 24)
    assert weights["classifier.weight"].shape == (2, 29)
    _same_as_reported(folder, cola)
    again = load(folder)  # through our own door
    torch.testing.assert_close(again.classifier.weight.cpu(), weights["classifier.weight"])


def test_a_wide_head_needs_a_hidden_layer():
    normed = hf.ModernBertForSequenceClassification(hf.ModernBertConfig(**TINY, pad_token_id=0))
    for model in (normed, hf.BertForMaskedLM(hf.BertConfig(**TINY))):
        with pytest.raises(ConfigError, match=r"^head_width: expected .*, got \w+\. Leave it out\.$"):
            widen_head(model, 29)


def test_rates_that_decay_step_by_step():
    rate = exponential(10, 0.2, 0.9, 4)
    assert [rate(n) for n in range(10)] == pytest.approx([0, 0.5, 1, 1, 0.9, 0.9, 0.9, 0.9, 0.81, 0.81])


@pytest.mark.slow
def test_a_run_with_several_factors_stores_their_values(config_of, cola):
    """Those of an open one are the relations of the training text; the model reads them at prediction."""
    embedding = ("infusion.embedding.kind=concat", "infusion.embedding.factors=pos,deprel,case")
    folder = finetune(config_of("training.epochs=1", *embedding))
    stored = json.loads((folder / "infusion.json").read_text())["infusion"]["embedding"]
    assert list(stored["values"]) == ["pos", "deprel", "case"]
    assert "ROOT" in stored["values"]["deprel"] or "root" in stored["values"]["deprel"]
    classifier = Classifier.from_folder(folder)
    assert classifier.info.needs == ("deprels", "upos")
    assert classifier.collator.config == classifier.model.infusion.config
    texts = [TextExample(("the cat sleeps .",))]
    (example,) = annotate_examples(texts, classifier.annotator, False, cached=False)
    assert classifier.collator([example])["factor_ids"].shape[-1] == 3
    assert len(classifier.predict(["the cat sleeps ."]).labels) == 1


@pytest.fixture
def stopped(monkeypatch):
    """Run up to the training itself; what `look` makes of the trainer."""

    def run(config, look=lambda trainer: None, **options):
        seen = []

        def stop(self, checkpoint):
            seen.append(look(self))
            raise _Killed

        with monkeypatch.context() as patch:
            patch.setattr(FinetuneTrainer, "train_from", stop)
            with pytest.raises(_Killed):
                finetune(config, **options)
        return seen[0]

    return run


@pytest.mark.parametrize(("settings", "rate"), [(["training.infusion_learning_rate=0.5"], 0.5), ([], 0.01)])
def test_new_parameters_have_the_rate_of_the_rest_or_their_own(config_of, stopped, settings, rate):
    config = config_of(*settings, infuse="pos_add")
    groups = stopped(config, lambda trainer: trainer.create_optimizer().param_groups)
    assert {group["lr"] for group in groups} == {0.01, rate}
    own = [parameter for group in groups if group["lr"] == rate for parameter in group["params"]]
    assert own[-1].shape[1] == 24
    assert rate == 0.01 or len(own) == 1


def test_biases_of_relations_do_not_decay(config_of, stopped):
    """As in `param_groups` and in transformers' Trainer."""

    def decays(trainer):
        names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
        groups = trainer.create_optimizer().param_groups
        return {names[id(one)]: group["weight_decay"] > 0 for group in groups for one in group["params"]}

    found = stopped(config_of(infuse="relation_bias,pos_add"), decays)
    assert {name for name, decay in found.items() if decay and "bias" in name} == set()
    assert [found[name] for name in found if "relation_bias" in name]
    assert sum(found.values()) > 5


@pytest.mark.slow
def test_auto_takes_the_rate_that_is_best_on_dev(config_of):
    rates = ("training.learning_rate=auto", "training.learning_rates=1e-9,0.01")
    folder = finetune(config_of(*rates, "training.epochs=6", "training.batch_size=4"))
    report = json.loads((folder / "run.json").read_text())
    assert [trial["learning_rate"] for trial in report["trials"]] == [1e-9, 0.01]
    assert report["learning_rate"] == 0.01
    assert report["dev"]["matthews"] == pytest.approx(report["trials"][1]["score"], abs=1e-6)


@pytest.mark.slow
def test_workers_make_the_same_run(config_of, tmp_path):
    """Texts that are cut are counted, too."""
    settings = ("training.epochs=2", "training.max_length=8")
    weights, reports = [], []
    for n_workers in (0, 2):
        wanted = (*settings, f"training.workers={n_workers}")
        config = config_of(*wanted, infuse="relation_bias,pos_add", output=tmp_path / str(n_workers))
        weights.append(load_file(finetune(config) / "model.safetensors"))
        reports.append(json.loads((config.output / "run.json").read_text())["n_truncated"])
    _assert_equal(*weights)
    assert reports[0] == reports[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("infuse", "settings"),
    [("", ()), ("relation_bias,pos_add", ()), ("masks", ("training.accumulate=2", "training.average=2"))],
)
def test_a_resumed_run_equals_an_unbroken_one(config_of, monkeypatch, tmp_path, infuse, settings):
    settings = ("training.epochs=3", *settings)
    whole = finetune(config_of(*settings, infuse=infuse, output=tmp_path / "whole"))
    config = config_of(*settings, infuse=infuse, output=tmp_path / "broken")
    evaluate, calls = FinetuneTrainer.evaluate, []

    def dies_in_the_second_epoch(self, *arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise _Killed
        return evaluate(self, *arguments, **options)

    monkeypatch.setattr(FinetuneTrainer, "evaluate", dies_in_the_second_epoch)
    with pytest.raises(_Killed):
        finetune(config)
    with pytest.raises(CheckpointError, match=r"expected a finished model, got a run that is not finished"):
        Classifier.from_folder(config.output)
    (crashed,) = config.output.glob("checkpoints/*/checkpoint-*")  # is loaded like a finished model
    collator, model = SyntaxCollator.from_pretrained(crashed), Classifier.from_folder(crashed, device="cpu")
    assert model.predict(["the cat sleeps ."]).labels[0] in ("0", "1")
    assert collator.config == model.collator.config
    if infuse:
        _assert_equal(sf.load(crashed).state_dict(), model.model.cpu().state_dict())
    broken = finetune(config, resume=True)
    assert len(calls) >= 4
    _assert_equal(*(load_file(folder / "model.safetensors") for folder in (whole, broken)))
    finished_at = (broken / "model.safetensors").stat().st_mtime_ns
    assert finetune(config, resume=True) == broken
    assert (broken / "model.safetensors").stat().st_mtime_ns == finished_at


def _flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def _truncate(path):
    path.write_bytes(path.read_bytes()[:-5])


@pytest.fixture
def killed_at_the_end(config_of, monkeypatch, tmp_path):
    """An unbroken run, and the settings of one that was killed when all but its model folder was written."""

    def die(*_):
        raise _Killed

    whole = finetune(config_of("training.epochs=3", output=tmp_path / "whole"))
    config = config_of("training.epochs=3", output=tmp_path / "broken")
    with monkeypatch.context() as patch:
        patch.setattr(classification, "_finish", die)
        with pytest.raises(_Killed):
            finetune(config)
    return whole, config


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "reason", "finished"),
    [(_flip_a_byte, "expected the content that was written", True), (_truncate, "It is truncated", False)],
)
def test_an_epoch_whose_checkpoint_was_damaged_is_trained_again(
    killed_at_the_end, caplog, damage, reason, finished
):
    """Also where it was the best one and a later one is whole; with the trial's record and without."""
    whole, config = killed_at_the_end
    (record,) = config.output.glob("checkpoints/*/trial.json")
    best = record.parent / json.loads(record.read_text())["checkpoint"]
    assert len(numbered_checkpoints(record.parent)) == 2, "expected a later checkpoint beside the best one"
    if not finished:
        record.unlink()
    damage(best / "model.safetensors")
    with caplog.at_level("INFO", "syntaxformer.finetune"):
        finetune(config, resume=True)
    lines = [line for line in caplog.messages if reason in line]
    assert lines[0].startswith(f"training learning rate {record.parent.name} again: " if finished else "skip")
    assert f"learning rate {record.parent.name}: continuing at " in caplog.text
    _assert_equal(*(load_file(folder / "model.safetensors") for folder in (whole, config.output)))
    reports = [json.loads((folder / "run.json").read_text()) for folder in (whole, config.output)]
    assert reports[0]["dev"] == reports[1]["dev"]
    assert f"checkpoint-{reports[0]['best_step']}" == f"checkpoint-{reports[1]['best_step']}" == best.name


def test_a_best_checkpoint_damaged_while_the_run_goes_on_is_not_taken(config_of, monkeypatch):
    finish = classification._finish

    def damaged_finish(run, *arguments):
        for path in run.settings.output.glob("checkpoints/*/checkpoint-*/model.safetensors"):
            _flip_a_byte(path)
        finish(run, *arguments)

    monkeypatch.setattr(classification, "_finish", damaged_finish)
    with pytest.raises(CheckpointError, match=r"expected the content that was written, got another"):
        finetune(config_of("training.epochs=1"))


def test_other_data_is_not_resumed(config_of, stopped, tmp_path, cola):
    stopped(config_of())
    other = tmp_path / "other"
    other.mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (other / name).write_text((cola / name).read_text().replace("cat", "dog"))
    with pytest.raises(ConfigError, match="resume:"):
        finetune(config_of(data={"dir": other}), resume=True)


@pytest.mark.slow
def test_another_version_of_the_annotator_is_not_resumed(config_of, stopped):
    config = config_of("training.epochs=1", infuse="pos_add")
    stopped(config)
    stored = config.output / "checkpoints" / classification.DATA
    record = json.loads(stored.read_text())
    stored.write_text(json.dumps(record | {"annotation": "0" * 64}))
    with pytest.raises(ConfigError, match="resume:"):
        finetune(config, resume=True)
    del record["annotation"]  # as an older version wrote it
    stored.write_text(json.dumps(record))
    stopped(config, resume=True)


@pytest.mark.parametrize("task", ["classify", "ner"])
def test_classes_in_another_order_are_not_resumed(task, config_of, stopped, monkeypatch, tmp_path):
    """Older versions sorted numbers as text, and stored no order; the numbers of rows alone show theirs."""
    rows = [("the cat sees .", "10"), ("the dog likes .", "9")] * 12
    lines = ("\n".join(f"{word}\t{label}" for word in text.split()) + "\n" for text, label in rows)
    if task == "classify":
        lines = ("text\tlabel\n", *(f"{text}\t{label}\n" for text, label in rows))
    table = tmp_path / "x.tsv"
    table.write_text(("\n" if task == "ner" else "").join(lines))
    config = config_of(task=task, data={"train": str(table), "dev": str(table)})
    stored, with_labels = config.output / "checkpoints" / "data.json", OneLabel.with_labels

    def reversed_labels(self, counts, path):
        kind = with_labels(self, counts, path)
        return replace(kind, labels=kind.labels[::-1])

    with monkeypatch.context() as older:
        older.setattr(OneLabel, "with_labels", reversed_labels)
        stopped(config)
    without = {name: value for name, value in json.loads(stored.read_text()).items() if name != "labels"}
    assert len(without) == 3
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"^labels: expected the order of the interrupted run"):
            finetune(config, resume=True)
        stored.write_text(json.dumps(without))
    stopped(config, overwrite=True)
    stopped(config, resume=True)


def test_no_checkpoint_at_the_path(config_of, tmp_path):
    """Nor one that would be loaded in part."""
    part = {"adapter_config.json": r"adapters in adapter_config\.json", "infusion.json": "infused"}
    part |= {None: "", "": "", "syntaxformer.json": "a translator"}
    for name, told in part.items():
        folder = tmp_path / f"{name}"
        if name is not None:
            folder.mkdir(exist_ok=True)
        if name:
            (folder / name).write_text("{}")
        with pytest.raises(ConfigError, match=f"model: .*{told}"):
            finetune(config_of(model=str(folder)))


def test_a_head_of_any_name_is_new_but_no_layer_of_its_name(tmp_path):
    """EuroBERT calls a layer of its head "dense", as BERT calls one of each layer."""
    specials = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "mask_token_id": 3}
    for kind, more in ((hf.BertForMaskedLM, {}), (hf.EuroBertForMaskedLM, specials)):
        kind(kind.config_class(**TINY, **more)).save_pretrained(tmp_path)
        assert load_pretrained(str(tmp_path), OneLabel(("a", "b")), InfusionConfig()).num_labels == 2
    hf.BertModel(hf.BertConfig(**TINY)).save_pretrained(tmp_path)
    weights, lost = load_file(tmp_path / "model.safetensors"), "encoder.layer.0.output.dense.bias"
    del weights[lost]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match=f"of a bert model at .*, missing: bert.{lost} "):
        load_pretrained(str(tmp_path), OneLabel(("a", "b")), InfusionConfig())


def test_a_family_that_cannot_be_infused_still_trains_plain(config_of, tmp_path, checkpoint):
    folder = tmp_path / "mpnet"
    shape = hf.MPNetConfig(**{**TINY, "vocab_size": 83}, max_position_embeddings=64)
    hf.MPNetModel(shape).save_pretrained(folder)
    for path in checkpoint.glob("tokenizer*"):
        (folder / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ConfigError, match=r"(?i)mpnet"):
        finetune(config_of(model=str(folder), infuse="masks"))
    done = finetune(config_of("training.epochs=1", model=str(folder), output=tmp_path / "plain"))
    assert not (done / "infusion.json").exists()
    assert len(Classifier.from_folder(done).predict(["the cat sleeps ."])) == 1


def test_positions_are_those_of_the_network(config_of, checkpoint, tmp_path):
    """Many tokenizers state no length."""
    with pytest.raises(ConfigError, match=r"training\.max_length:"):
        finetune(config_of("training.max_length=65"))
    folder = shutil.copytree(checkpoint, tmp_path / "boundless")
    stated = json.loads((folder / "tokenizer_config.json").read_text())
    del stated["model_max_length"]
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
    with pytest.raises(ConfigError, match=r"training\.max_length:"):
        finetune(config_of("training.max_length=65", model=str(folder)))


@pytest.mark.parametrize(
    ("kind", "pad", "longest"),
    [(hf.BertModel, 0, 33), (hf.RobertaModel, 1, 31), (hf.MPNetModel, 1, 31), (hf.ModernBertModel, 0, sys.maxsize)],
)  # fmt: skip
def test_positions_of_families(kind, pad, longest):
    shape = kind.config_class(**TINY, pad_token_id=pad, max_position_embeddings=33)
    assert longest_input(kind(shape)) == longest


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_checkpoints_in_half_precision_are_trained_in_fp32(checkpoint, tmp_path, dtype):
    hf.BertModel.from_pretrained(checkpoint).to(dtype).save_pretrained(tmp_path)
    model = load_pretrained(str(tmp_path), OneLabel(("no", "yes")), InfusionConfig.parse("masks"))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


ALL_IS_LOST = "training.learning_rate=1e38", "training.warmup_frac=0", "training.max_grad_norm=1e38"


@pytest.mark.parametrize(
    ("settings", "infuse", "error", "problem"),
    [
        (ALL_IS_LOST, "", CheckpointError, r"^model:"),
        (["annotation.annotator=spaces"], "masks", ConfigError, r"^annotation\.annotator: .*constituency, governors.*got spaces\."),
        (["head=text"], "", ConfigError, "head:"),
    ],
)  # fmt: skip
def test_runs_that_cannot_be(config_of, settings, infuse, error, problem):
    with pytest.raises(error, match=problem):
        finetune(config_of(*settings, infuse=infuse))


@pytest.mark.slow
def test_train_and_dev_have_their_own_parses(config_of, cola, tmp_path):
    english = load_annotator("en")
    for split in ("train", "dev"):
        texts = [example.texts[0] for example in read_any_split(TASKS["cola"], cola, split).examples]
        write_conllu(tmp_path / f"{split}.conllu", english.annotate(texts))
    name = f"conllu:{tmp_path}/{{split}}.conllu"
    settings = ("training.epochs=1", f"annotation.annotator={name}")
    folder = finetune(config_of(*settings, infuse="pos_add"))
    assert json.loads((folder / "run.json").read_text())["n_dev"] == 13
    trained, _, _ = _same_as_reported(folder, cola)
    with pytest.raises(ConfigError, match="which holds the parses of its splits only"):
        trained.predict(["the cat sleeps ."])
    with pytest.warns(UserWarning, match="trees may differ"):
        classifier = Classifier.from_folder(folder, annotator="en")
    assert len(classifier.predict(["the cat sleeps ."]).labels) == 1
    (tmp_path / "dev.conllu").unlink()
    with pytest.raises(DataError, match="expected the parsed file of the split 'dev', found none"):
        finetune(config_of(*settings, infuse="pos_add"), overwrite=True)


@pytest.mark.slow
def test_a_control_is_the_same_in_training_and_in_prediction(config_of, cola):
    """Its trees come from the annotator that the folder names, and the texts alone."""
    settings = ("training.epochs=1", "annotation.annotator=random_tree(en)")
    folder = finetune(config_of(*settings, infuse="relation_bias"))
    classifier, _, _ = _same_as_reported(folder, cola)
    assert classifier.annotator.name == "random_tree(en+phrases)"


def test_a_control_changes_the_trees_of_the_data():
    example = TextExample(("a b  c d",), trees=("(3 (3 (3 (2 a) (2 b)) (2 c)) (2 d))",))
    (made,) = annotate_examples([example], load_annotator("chain(en)"), True, cached=False)
    (sentence,) = made.segments
    assert sentence.text == "a b  c d"
    assert sentence.governors == (-1, 0, 1, 2)
    assert sentence.constituency == "( (2 a) ( (2 b) ( (2 c) (2 d))))"


def _small_trainer(config_of, output, infuse, *settings):
    """Sixteen examples, no dropout, and SGD, which shows the gradient itself."""
    config = config_of(*settings, infuse=infuse, output=output)
    inputs = classification._prepare(config, read_finetune_data(config))
    model = classification._build(config, inputs)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    few = replace(inputs, train=inputs.train[:16], lengths=[9] * 16)
    trainer = FinetuneTrainer(model, config, 1.0, few, output / "checkpoints" / "1")
    trainer.dev_scores = lambda: {"score": 0.0}
    trainer.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return trainer


@pytest.mark.parametrize("infuse", ["", pytest.param("relation_bias", marks=pytest.mark.slow)])
def test_an_update_of_two_batches_is_that_of_one_large_batch(config_of, tmp_path, infuse):
    """Every batch is full, so the mean of the means is the mean."""

    def trained(batch_size, accumulate):
        settings = (f"training.batch_size={batch_size}", f"training.accumulate={accumulate}")
        trainer = _small_trainer(
            config_of, tmp_path / f"of{accumulate}", infuse, *settings, "training.epochs=1"
        )
        gradients = []

        def keep(*_):
            gradients.append([p.grad.clone() for p in trainer.model.parameters() if p.grad is not None])

        trainer.optimizer.register_step_pre_hook(keep)
        trainer.train()
        return trainer.n_updates, trainer.state.global_step, gradients

    (*one, of_one), (*two, of_two) = trained(16, 1), trained(8, 2)
    assert one == two == [1, 1]
    for first, second in zip(of_one[0], of_two[0], strict=True):
        assert torch.allclose(first, second, atol=1e-6)


@pytest.mark.parametrize("infuse", ["", pytest.param("masks,lisa", marks=pytest.mark.slow)])
def test_recorded_steps_fine_tune_as_others_do(config_of, tmp_path, infuse, monkeypatch):
    """The last update of an epoch has one batch, not two, and so another divisor."""
    weights = []
    for is_recorded in (False, True):
        settings = ("training.batch_size=4", "training.accumulate=3", "training.epochs=4")
        graphs = f"training.cuda_graphs={is_recorded}".lower()
        trainer = _small_trainer(config_of, tmp_path / str(is_recorded), infuse, *settings, graphs)
        if is_recorded:
            recorder = Recorder.of_trainer(trainer, monkeypatch)
        trainer.train()
        weights.append({name: tensor.clone() for name, tensor in trainer.model.state_dict().items()})
    torch.testing.assert_close(*weights)
    assert {"run", "recorded", "replayed"} == {*recorder.calls}


@pytest.mark.slow
def test_the_mean_of_checkpoints_is_taken_if_it_is_no_worse(config_of, messages):
    config = config_of("training.epochs=3", "training.average=2", "training.keep_checkpoints=true")
    folder = finetune(config)
    (record,) = folder.glob("checkpoints/*/trial.json")
    trial = json.loads(record.read_text())
    files = [load_file(record.parent / name / "model.safetensors") for name in trial["averaged"]]
    weights = load_file(folder / "model.safetensors")
    for name, tensor in weights.items():
        assert torch.equal(tensor, (sum(file[name].double() for file in files) / len(files)).float())
    assert "on dev, the mean of checkpoint-" in messages.text
    assert trial["score"] >= max(epoch["score"] for epoch in trial["epochs"])
