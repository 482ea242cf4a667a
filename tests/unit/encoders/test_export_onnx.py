"""Fine-tuned classifiers as ONNX graphs: the same answers for any batch and length, and what is refused."""

from __future__ import annotations

import os
import shutil
import zipfile

import pytest
import torch
import transformers as hf

pytest.importorskip("onnxscript", reason="the extra `export` is not installed: onnxscript")
pytest.importorskip("onnxruntime", reason="the extra `export` is not installed: onnxruntime")


from syntaxformer.annotate import load_annotator
from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError
from syntaxformer.base.files import read_record, write_manifest
from syntaxformer.encoders import export_onnx as onnx_folder
from syntaxformer.encoders.classifier import Classifier, needed_columns
from syntaxformer.encoders.collator import SyntaxCollator
from syntaxformer.encoders.export_onnx import GRAPH, ONNX, OnnxInfo, OnnxNetwork, export_classifier
from syntaxformer.encoders.tasks import ClassifierInfo
from syntaxformer.infusion import infuse
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.serve.engines import ExplainSettings, load_engine

PIECES = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "cat", "dog", "sees", "small", ".", "##s", "two", "run",
]  # fmt: skip
SIZES = {  # a map has more weights than the exporter multiplies out by itself
    "hidden_size": 39, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 29,
    "max_position_embeddings": 53,
}  # fmt: skip
FAMILIES = {
    "bert": (hf.BertConfig, hf.BertForSequenceClassification, SIZES),
    "roberta": (hf.RobertaConfig, hf.RobertaForSequenceClassification, {**SIZES, "pad_token_id": 0}),
    "distilbert": (
        hf.DistilBertConfig, hf.DistilBertForSequenceClassification,
        {"dim": 39, "n_layers": 1, "n_heads": 3, "hidden_dim": 29, "max_position_embeddings": 53},
    ),
}  # fmt: skip
TEXTS = [
    "The cat sees a small dog .", "Two dogs run .", "a",
    "The small cat sees the dog and the two small dogs .",
]  # fmt: skip
IS_SHORT = os.environ.get("SYNTAXFORMER_EXHAUSTIVE") != "1"
LONG = pytest.mark.skipif(IS_SHORT, reason="ten seconds each: make test-long")
ALL = {"masks": {}, "relation_bias": {}, "lisa": {}, "embedding": {"kind": "add"}}


def make_folder(folder, family="bert", infusion=None, n_texts=1, **changed):
    config = InfusionConfig(**(infusion or {}))
    make_config, make_model, sizes = FAMILIES[family]
    torch.manual_seed(3)
    model = make_model(make_config(vocab_size=len(PIECES), num_labels=3, **sizes)).eval()
    model = model if config.is_plain else infuse(model, config)
    with torch.no_grad():
        for parameter in model.parameters():  # gates open, nothing is zero
            parameter.add_(0.2 * torch.randn_like(parameter))
    tokenizer = hf.BertTokenizerFast(vocab={piece: number for number, piece in enumerate(PIECES)})
    if family != "bert":
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    parser, needs = load_annotator("en+phrases"), tuple(sorted(needed_columns(config)))
    info = ClassifierInfo(
        type="text" if "words" in changed else "label",
        task="cola", labels=("bad", "good", "odd"), metrics=("accuracy",), n_texts=n_texts, needs=needs,
        annotator=parser.name if needs else None, annotator_version=parser.version if needs else None, **changed,
    )  # fmt: skip
    folder.mkdir()
    model.save_pretrained(folder)
    SyntaxCollator(tokenizer, config, max_length=47).save_pretrained(folder)
    (folder / "classifier.json").write_text(info.model_dump_json())
    write_manifest(folder)
    return folder


def _assert_same(one, other, texts):
    for size in (1, 3):
        found, expected = other.predict(texts, size), one.predict(texts, size)
        assert found.labels == expected.labels
        sides = (torch.tensor(side.probabilities) for side in (found, expected))
        torch.testing.assert_close(*sides, atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "infusion", "n_texts"),
    [
        ("bert", ALL, 1),
        pytest.param("roberta", {"embedding": {"kind": "let"}, "lisa": {"keys": "model"}}, 2, marks=LONG),
        pytest.param("bert", {"preset": "authors_code", "masks": {"siblings": "all"}}, 2, marks=LONG),
        ("distilbert", {"relation_bias": {"init": "distance"}}, 1),
    ],
    ids=["bert-all", "roberta-pairs", "siblings-as-printed", "biases-by-distance"],
)
def test_the_graph_says_what_the_model_says(tmp_path, family, infusion, n_texts):
    folder = make_folder(tmp_path / "model", family, infusion, n_texts)
    output = export_classifier(folder, tmp_path / "onnx")
    trained, exported = Classifier.from_folder(folder), Classifier.from_folder(output)
    assert (trained.backend, exported.backend) == ("pytorch", "onnx")
    texts = TEXTS if n_texts == 1 else [(text, other) for text in TEXTS for other in TEXTS[1:]]
    _assert_same(trained, exported, texts)
    info = read_record(output / ONNX, OnnxInfo)
    assert info.largest_difference < 1e-4
    assert ("syntax" in info.inputs) == bool({"masks", "relation_bias"} & set(infusion))
    for file in output.iterdir():  # a graph and JSON: nothing that a program could be hidden in
        assert file.suffix in (".onnx", ".json", ".txt"), file
        assert not zipfile.is_zipfile(file)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model that reads tags, and its export: each export takes seconds."""
    home = tmp_path_factory.mktemp("onnx")
    folder = make_folder(home / "model", "distilbert", {"embedding": {"kind": "concat"}})
    return folder, export_classifier(folder, home / "onnx")


@pytest.mark.slow
def test_an_exported_model_in_the_service(exported):
    folder, output = exported
    _assert_same(Classifier.from_folder(folder), Classifier.from_folder(output), TEXTS)
    engine = load_engine("onnx", output)
    assert (engine.description.backend, engine.description.n_layers) == ("onnx", None)
    labels = Classifier.from_folder(folder).predict(TEXTS).labels
    assert [answer.label for answer in engine.classify(TEXTS)] == labels
    (explained,) = engine.work(ExplainSettings(), TEXTS[:1])
    assert set(explained.missing) == {"attention", "networks"}
    assert explained.missing["attention"] == "This model was exported to onnx, which does not give it."
    assert explained.pieces.texts[0] == "[CLS]"


@pytest.mark.slow
@pytest.mark.parametrize(
    "infusion", [None, {"masks": {}, "embedding": {"kind": "let"}}], ids=["plain", "masks"]
)
def test_an_export_in_eight_bits(tmp_path, infusion):
    import onnx

    folder = make_folder(tmp_path / "model", infusion=infusion)
    exact, rounded = (export_classifier(folder, tmp_path / kind, quantization=kind) for kind in ("float32", "int8"))  # fmt: skip
    infos = [read_record(output / ONNX, OnnxInfo) for output in (exact, rounded)]
    assert [info.quantization for info in infos] == ["float32", "int8"]
    assert infos[0].largest_difference == infos[1].largest_difference < 1e-4  # of the graph in float32
    graph = onnx.load(rounded / GRAPH).graph
    assert not [node for node in graph.node if node.op_type == "Gemm"]
    tables = [tensor for tensor in graph.initializer if len(tensor.dims) == 2 and min(tensor.dims) > 1]
    assert onnx.TensorProto.FLOAT not in {tensor.data_type for tensor in tables}
    expected, answers = (Classifier.from_folder(output).predict(TEXTS) for output in (folder, rounded))
    difference = torch.tensor(answers.probabilities) - torch.tensor(expected.probabilities)
    assert 1e-5 < difference.abs().max() < 0.05
    assert [answer.label for answer in load_engine("int8", rounded).classify(TEXTS)] == answers.labels


@pytest.mark.slow
def test_an_older_export_is_replaced_only_where_asked(exported, tmp_path):
    folder, output = exported
    with pytest.raises(ConfigError, match=r"^output:"):
        export_classifier(folder, output)
    (tmp_path / "other").write_text("")
    with pytest.raises(ConfigError, match=r"^output:"):
        export_classifier(folder, tmp_path)


def test_what_cannot_be_a_graph_is_refused_by_name(exported, tmp_path):
    def refuse(folder, told, **how):
        with pytest.raises(ConfigError, match=told):
            export_classifier(folder, tmp_path / "x", **how)

    told = r"^quantization: expected float32 or int8 .* got float16\.$"
    refuse(tmp_path / "model", told, quantization="float16")
    refuse(exported[1], "model: expected a folder that `finetune` wrote, got an export, ")
    refuse(make_folder(tmp_path / "gold", infusion={"lisa": {"inject": "gold"}}), r"^lisa\.inject:")
    written = make_folder(tmp_path / "written", words=("bad", "good", "odd"))
    refuse(written, "^type:")
    (written / "model.safetensors").rename(written / "model-00001-of-00001.safetensors")
    write_manifest(written)
    refuse(written, "model:")
    assert not (tmp_path / "x").exists()


def test_a_network_that_onnx_cannot_express(tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "model")

    def broken(*_, **__):
        raise RuntimeError("no such\n operator")

    monkeypatch.setattr(torch.export, "export", broken)
    expected = r"^model: expected a network that ONNX can express, got BertForSequenceClassification: no such operator$"
    with pytest.raises(ConfigError, match=expected):
        export_classifier(folder, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_another_result_is_never_written(exported, tmp_path, monkeypatch):
    folder, output = exported
    monkeypatch.setattr(onnx_folder, "LARGEST_DIFFERENCE", -1.0)

    def copied(path, *_):
        path.write_bytes((output / GRAPH).read_bytes())

    monkeypatch.setattr(onnx_folder, "_write_graph", copied)
    with pytest.raises(CheckpointError, match=r"^export: expected logits within -1\.0 of the model's, got "):
        export_classifier(folder, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_folders_that_were_altered(exported, tmp_path, monkeypatch):
    copy = shutil.copytree(exported[1], tmp_path / "copy")
    with pytest.raises(ConfigError, match=r"^device: expected cpu for an exported classifier, got cuda\.$"):
        OnnxNetwork.load(copy, "cuda")
    (copy / GRAPH).write_bytes(b"other")
    with pytest.raises(CheckpointError, match=r"model\.onnx: expected an ONNX graph, got: "):
        OnnxNetwork.load(copy)
    with pytest.raises(CheckpointError):
        Classifier.from_folder(copy)  # the manifest knows
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(BackendMissingError, match=r"^ONNX Runtime, .* is not installed\. Run:"):
        OnnxNetwork.load(copy)
