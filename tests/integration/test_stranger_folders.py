"""More folders of strangers, of every kind that a user opens: each is refused in one line, or is harmless.

Each is opened in a fork of this process, so that what it runs, reaches for or fills up is seen from outside.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import sqlite3
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import srsly
import torch
import yaml
from safetensors.torch import save_file
from transformers import AutoModel

import syntaxformer as sf
from folder_deeds import after_signing, content, keys, piped, put, several, tensors
from pretrained_translators import make_translator
from syntaxformer.annotate import read_annotations, write_annotations
from syntaxformer.annotate.annotator import bundled_folder
from syntaxformer.base.errors import SyntaxformerError
from syntaxformer.base.files import write_manifest
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.study.experiments.store import RunStore
from syntaxformer.translation.translator import Translator
from syntaxformer.trees import Sentence
from tiny_hosts import write_bert
from watched_fork import HARMLESS, REFUSED, RUN, SECRET, Payload, outcome

for package in ("ctranslate2", "onnx", "onnxruntime"):
    pytest.importorskip(package, reason=f"{package} is not installed")
if not Path("/proc/self/clear_refs").exists():
    pytest.skip("memory is read from Linux's /proc", allow_module_level=True)

import onnx  # noqa: E402

LINE, TEXT = "The cat sat extraordinarily.", "the a is fine. " * 20
UPDATE = ("data.dev=train", "training.max_steps=1", "training.eval_every=1", "training.precision=fp32",
          "training.tensorboard=false", "training.best_by=loss")  # fmt: skip
EPOCH = ("--epochs", "1", "--set", "training.max_length=32")

# The folders that are altered, and how a user opens each.


@pytest.fixture(scope="module")
def good(cli, tmp_path_factory):
    """A valid folder of each kind, by the command that writes it."""
    home = tmp_path_factory.mktemp("good")
    (home / "train.en").write_text(f"{LINE}\n" * 3)
    (home / "train.de").write_text("Die Katze saß.\n" * 3)
    texts = "".join(f"the {word} is fine\t{n % 2}\n" for n, word in enumerate("ab" * 20))
    (home / "rows.tsv").write_text(f"text\tlabel\n{texts}")
    recipe = (Path(__file__).parents[2] / "recipes" / "finetune_translator.yaml").read_text()
    (home / "tune.yaml").write_text(recipe.replace("opus-mt-en-de", "theirs"))
    settings = {"settings": {"data.dir": str(home)}, "axes": {"seed": [1]}}
    (home / "spec.yaml").write_text(
        yaml.safe_dump({"name": "x", "verb": "train", "recipe": "tiny", **settings})
    )
    make_translator("marian", home / "start")
    write_bert(home / "encoder")
    shutil.copytree(bundled_folder("en"), home / "parser")
    data = (f"data.dir={home}", f"data.cache={home / 'cache'}", *UPDATE)
    sizes = ("subwords.vocab_size=301", "model.d_model=12", "model.d_ff=17", "model.n_heads=2")
    head = ("--infuse", "masks", "--annotator", f"spacy:{home / 'parser'}", *EPOCH, "-o", home / "classifier")
    for arguments in (
        ("train", "tiny", f"output={home / 'translator'}", "infusion.kind=none", *sizes, *data),
        ("export", home / "translator", home / "exported", "--quantization", "int8"),
        ("train", "finetune_translator", f"model.init_from={home / 'start'}", f"output={home}/marian", *data),
        ("finetune", "--task", "classify", "--train", home / "rows.tsv", "--model", home / "encoder", *head),
    ):
        cli("--quiet", *arguments).ok()
    for name in ("translator", "marian"):
        shutil.rmtree(home / name / "checkpoints")
    left_out = shutil.ignore_patterns("*.safetensors", "infusion.json", "manifest.json")
    shutil.copytree(home / "classifier", home / "onnx", ignore=left_out)
    put("onnx.json", "{}")(home / "onnx")
    graph()(home / "onnx")
    write_manifest(home / "onnx")
    (home / "infused").mkdir()
    for name in ("config.json", "infusion.json", "model.safetensors"):  # as `save_pretrained` leaves it
        shutil.copy(home / "classifier" / name, home / "infused")
    (home / "corpus").mkdir()
    tags = {"upos": ("DET", "NOUN"), "governors": (1, -1), "constituency": "(NP (DT The) (NN cat))"}
    about = {"annotator": "en", "version": "1", "content_hash": "0"}
    write_annotations(
        home / "corpus" / "x.parquet", [Sentence.from_words(("The", "cat"), **tags)] * 3, **about
    )
    (cell,) = load_spec(home / "spec.yaml").cells()
    RunStore(home / "store").add([cell])
    RunStore(home / "store").finish(cell.key, 1.0, {"command": "x", "metrics": {"bleu": 1.0}})
    return home


def translated(_):
    rows = Translator.load("theirs", device="cpu").translate([LINE], n_best=2, scored=True)
    return [(hypothesis.text, round(hypothesis.score, 5)) for row in rows for hypothesis in row]


def predicted(_, folder="theirs"):
    answers = Classifier.from_folder(folder, device="cpu").predict([TEXT])
    return [list(answers.labels), np.round(answers.probabilities, 5).tolist()]


def states(load):
    def call(_):
        model, pieces = load("theirs"), torch.arange(4)[None]
        with torch.inference_mode():
            output = model(input_ids=pieces, syntax=torch.ones(1, 2, 4, 4, dtype=torch.uint8))[0]
        return round(float(output.double().abs().sum()), 4)

    return call


def verb(*arguments):
    """A verb of the command line, in this process; what it refuses is its error."""

    def call(cli):
        done = cli("--quiet", *arguments)
        errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
        if done.code == 2 and errors:
            raise SyntaxformerError("\n".join(errors))
        assert done.code == 0, done
        return done.out

    return call


TRAIN = ("train", "../tune.yaml", "data.dir=..", "output=out", *UPDATE)
TUNE = ("finetune", "--task", "classify", "--train", "../rows.tsv", "--model", "theirs", "-o", "out", *EPOCH)
REPORT = ("experiment", "report", "../spec.yaml", "--store", "theirs", "-o", "report")
OPENED = {
    "translator": ("translator", translated),
    "translate": ("translator", verb("translate", "theirs", "../train.en")),
    "attend": ("translator", verb("attend", "theirs", LINE, "-o", "attention.png")),
    "train from ours": ("translator", verb(*TRAIN)),
    "exported": ("exported", translated),
    "translate int8": ("exported", verb("translate", "theirs", "../train.en")),
    "marian": ("marian", translated),
    "translate marian": ("marian", verb("translate", "theirs", "../train.en")),
    "train from": ("start", verb(*TRAIN)),
    "classifier": ("classifier", predicted),
    "entered": ("classifier", lambda _: predicted(os.chdir("theirs"), ".")),
    "predict": ("classifier", verb("predict", "theirs", "../train.en")),
    "score": ("classifier", verb("predict", "theirs", "../rows.tsv")),
    "finetune from": ("encoder", verb(*TUNE)),
    "onnx": ("onnx", predicted),
    "predict onnx": ("onnx", verb("predict", "theirs", "../train.en")),
    "infused": ("infused", states(sf.load)),
    "auto": ("infused", states(AutoModel.from_pretrained)),
    "corpus": ("corpus", lambda _: list(map(str, read_annotations("theirs/x.parquet")))),
    "report": ("store", verb(*REPORT)),
}
"""How it is opened → which folder, and what opens it."""


# Deeds to folders that need more than `folder_deeds`: annotators, corpora, stores and ONNX graphs.

node, value_info = onnx.helper.make_node, onnx.helper.make_tensor_value_info


def packed(name, alter):
    """Change a file of spaCy's, which is msgpack."""
    return content(f"annotator/{name}", lambda raw: srsly.msgpack_dumps(alter(srsly.msgpack_loads(raw))))


def pieces(alter):
    """Change the names of an export's pieces."""
    return content("shared_vocabulary.json", lambda raw: json.dumps(list(map(alter, json.loads(raw)))))


def elsewhere(name, link=Path.symlink_to, to=None):
    """What lies in the folder lies outside, and a link leads there."""

    def alter(folder):
        shutil.move(folder / name, folder.parent / "outside")
        link(folder / name, to or folder.parent / "outside")

    return alter


def without_numbers(raw, n=100_000):
    """Weights with as many more tensors of size 0."""
    size = int.from_bytes(raw[:8], "little")
    header, end = json.loads(raw[8 : 8 + size]), len(raw) - 8 - size
    header |= {f"{n}": {"dtype": "F32", "shape": [0], "data_offsets": [end, end]} for n in range(n)}
    head = json.dumps(header, separators=(",", ":")).encode()
    return len(head).to_bytes(8, "little") + head + raw[8 + size :]


def unsigned(folder):
    """An annotator under another name, which is altered behind the signature."""
    (folder / "annotator").rename(folder / "tagger")
    keys("classifier.json", annotator="spacy:tagger+phrases")(folder)
    return after_signing(content("tagger/meta.json", lambda raw: raw + b" "))(folder)


def objects(folder):
    """Word vectors that are pickled objects."""
    put("annotator/vocab/key2row", srsly.msgpack_dumps({1: 0}))(folder)
    with (folder / "annotator/vocab/vectors").open("wb") as file:
        np.save(file, np.array([Payload()], object), allow_pickle=True)


def cyclic(trees):
    """Edits that lead back to themselves."""
    return {
        "trees": [
            edit | {key: n for key in ("prefix_tree", "suffix_tree") if key in edit}
            for n, edit in enumerate(trees["trees"])
        ]
    }


def more_moves(moves):
    table = json.loads(moves["moves"])
    table["2"] |= {f"evil{n}": 10**6 for n in range(5000)}
    return {**moves, "moves": json.dumps(table)}


def corpus(alter):
    def write(folder):
        path, key = folder / "x.parquet", b"syntaxformer"
        table, header = alter(pq.read_table(path)), json.loads(pq.read_metadata(path).metadata[key])
        with pq.ParquetWriter(
            path, table.schema, compression="zstd", dictionary_pagesize_limit=2**30
        ) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({key: json.dumps({**header, "n_lines": len(table)})})

    return write


def first_row(**columns):
    def alter(table):
        first, *others = table.to_pylist()
        return pa.Table.from_pylist([{**first, **columns}, *others], table.schema)

    return corpus(alter)


def repeated(table, n=400):
    """A text of 8 MB, stored once, in each of many rows."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array(["The cat" + " " * 2**23]))
    return pa.concat_tables([table[:1]] * n).set_column(0, pa.field("text", text.type, nullable=False), text)


def one_number(table, n=2**25):
    """A line with as many governors, stored as one number and how often it stands there."""
    values = pa.ListArray.from_arrays(pa.array([0, n], pa.int32()), pa.array(np.zeros(n, np.int16)))
    return table[:1].set_column(table.schema.get_field_index("governors"), table.field("governors"), [values])


def pickled(table):
    """Arrow's type that old versions unpickled (CVE-2023-47248), and pandas' index beside it."""
    payload, column = pickle.dumps(Payload()), table.schema.get_field_index("constituency")
    about = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": payload}
    table = table.set_column(column, table.schema.field(column).with_metadata(about), table["constituency"])
    return table.replace_schema_metadata({b"pandas": payload})


def stored(script):
    def write(folder):
        with sqlite3.connect(folder / "store.sqlite") as connection:
            connection.executescript(script)

    return write


def graph(*nodes, weight=None, width=2):
    """An ONNX graph that scores a text by its mean piece, which `nodes` compute from `y`."""
    table = onnx.helper.make_tensor("w", 1, [1, width], [0.25 * n for n in range(1, width + 1)])
    nodes = (node("Cast", ["input_ids"], ["y"], to=1), *(nodes or [node("Identity", ["y"], ["x"])]),
             node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=1), node("MatMul", ["mean", "w"], ["logits"]))  # fmt: skip
    ends = ([value_info("input_ids", 7, ["rows", "pieces"])], [value_info("logits", 1, ["rows", width])])
    sets = [onnx.helper.make_opsetid(name, version) for name, version in (("", 17), ("evil", 1))]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "g", *ends, [weight or table]), opset_imports=sets, ir_version=8
    )
    return lambda folder: onnx.save(model, folder / "model.onnx")


def constant(name, kind, shape, *values):
    return node("Constant", [], [name], value=onnx.helper.make_tensor(name, kind, shape, values))


def doubled(n=40):
    """Nodes that put a table behind itself, again and again."""
    steps = [node("Concat", [f"d{n}", f"d{n}"], [f"d{n + 1}"], axis=0) for n in range(n)]
    mean = node("ReduceMean", [f"d{n}"], ["m"], keepdims=0)
    return (constant("d0", 1, [64], *[1.0] * 64), *steps, mean, node("Add", ["y", "m"], ["x"]))


def graph_with_secret(folder):
    """Its weights are in a file of the user's."""
    (folder.parent / SECRET).write_bytes(np.array([0.25, 0.5], np.float32).tobytes())
    table = onnx.TensorProto(name="w", data_type=1, dims=[1, 2], data_location=1)
    table.external_data.add(key="location", value="../secret")
    graph(weight=table)(folder)


BODY = onnx.helper.make_graph(
    [node("Identity", ["go"], ["goes"]), node("Identity", ["v"], ["u"])], "body",
    [value_info("n", 7, []), value_info("go", 9, []), value_info("v", 1, None)], [value_info("goes", 9, []), value_info("u", 1, None)],
)  # fmt: skip
ENDLESS = (
    constant("m", 7, [], 2**62),
    constant("yes", 9, [], True),
    node("Loop", ["m", "yes", "y"], ["x"], body=BODY),
)
VAST = (constant("s", 7, [1], 2**30), node("ConstantOfShape", ["s"], ["big"]), node("ReduceMean", ["big"], ["m"], keepdims=0),
        node("Add", ["y", "m"], ["x"]))  # fmt: skip
PICKLES = ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "theirs.npy")
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
TAG, ESCAPE = "!!python/object/apply:os.system ['touch ran']", "\x1b]0;evil\x07\x1b[2J"
DEEP = '{"a":' * 900 + "{}" + "}" * 900
JINJA = "{{ cycler.__init__.__globals__.os.popen('touch ran').read() }}"
REMOTE = '{"peft_type": "LORA", "r": 1000000000, "base_model_name_or_path": "evil/base"}'
SEQUENCE = {"Sequence": {"id": "A", "type_id": 0}}
MANY = {
    "type": "TemplateProcessing",
    "single": [SEQUENCE] * 10**5,
    "pair": [SEQUENCE, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {},
}
NO_END = "DROP TABLE runs; CREATE VIEW runs AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n AS key, '' AS name, '' AS verb, '' AS recipe, '{}' AS labels, '{}' AS settings, '' AS test, '' AS state, 0 AS attempts, 0 AS seconds, '' AS error, '' AS result FROM r;"


# What is done to a folder. It is signed anew after it, as whoever alters a folder would do.
# fmt: off
STRANGERS = [
    # Settings of a search that is not the recipe's.
    ("translator", "no piece may begin", HARMLESS, keys("generation_config.json", begin_suppress_tokens=[*range(3, 250)], bad_words_ids=[[n] for n in range(4, 250)])),
    ("translator", "no time", HARMLESS, keys("generation_config.json", max_time=1e-9)),
    ("attend", "a record for an answer", HARMLESS, keys("generation_config.json", return_dict_in_generate=True)),
    ("translate", "guessed from the prompt", HARMLESS, keys("generation_config.json", prompt_lookup_num_tokens=10)),
    ("translate", "another end", HARMLESS, keys("generation_config.json", eos_token_id=77, forced_eos_token_id=77)),
    ("translator", "a wide, long search", HARMLESS, keys("generation_config.json", num_beams=10**6, max_length=10**6, num_return_sequences=10**6)),
    # Configs.
    ("classifier", "answers as tuples", "return_dict|torchscript", keys("config.json", return_dict=False)),
    ("infused", "a deep config", "config", put("config.json", '{"model_type": "syntaxformer_infused", "host_model_type": "bert", "a": ' + DEEP + "}")),
    ("translate", "a number of 5,000 digits", "config.json", content("config.json", lambda raw: raw.replace(b'"d_ff": 17', b'"d_ff": ' + b"9" * 5000))),
    ("translator", "a key twice", "tgt|twice", content("syntaxformer.json", lambda raw: raw.replace(b'"tgt": "de"', b'"tgt": "fr", "tgt": "de"'))),
    ("classifier", "look-alike keys, foreign classes", HARMLESS, keys("config.json", **{"\u0430uto_map": {"AutoConfig": "evil.C"}, "architectures": ["evil.Model", "Trainer"]})),
    ("translate", "a key with escapes", "auto_map", keys("config.json", **{f"{ESCAPE}auto_map": "evil"})),
    ("translator", "a language that is a path", "tgt", keys("syntaxformer.json", tgt="../../../../etc/passwd")),
    ("translate marian", "a million positions", "max_position_embeddings", keys("config.json", max_position_embeddings=2**20)),
    ("auto", "an adapter of elsewhere", "adapter_config", put("adapter_config.json", REMOTE)),
    ("infused", "own relations", "evil:f", keys("infusion.json", "infusion", "masks", trees=["evil:f"])),
    ("classifier", "own relations of a batch", "evil:f", several(put("evil.py", RUN), keys("collator.json", "infusion", "masks", trees=["dependency", "theirs.evil:f"]))),
    ("auto", "paths out of a model", "family", keys("infusion.json", family={"title": "x", "layers": ["__class__.__init__.__globals__"], "attention": "__class__", "output": "__dict__", "final": ["__reduce__"]})),
    ("infused", "modules of sentence-transformers", HARMLESS, put("modules.json", '[{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}]')),
    # What a classifier says of itself.
    ("predict", "two labels of one name", "labels", keys("classifier.json", labels=["0", "0"])),
    ("predict", "more labels than outputs", "labels", keys("classifier.json", labels=["0", "1", "2"])),
    ("classifier", "nothing is read", HARMLESS, keys("classifier.json", needs=[])),
    ("predict", "words to write", "type", keys("classifier.json", type="text", words=["a", "b"])),
    ("score", "a metric of theirs", "metrics", keys("classifier.json", metrics=["evil"])),
    ("predict", "cosines of a classifier", "type|weights|n_texts", keys("classifier.json", type="similarity", labels=None, n_texts=2, metrics=["spearman"])),
    ("predict", "cosines of one text", "n_texts", keys("classifier.json", type="similarity", labels=None, metrics=["spearman"])),
    ("predict", "answers in the text", "type", keys("classifier.json", type="answer", labels=None, metrics=["exact_match"])),
    ("classifier", "an annotator of the batches", "annotator", keys("collator.json", annotator="corenlp:http://127.0.0.1:9")),
    # Tokenizers.
    ("classifier", "a tokenizer that is a model", "tokenizer", keys("tokenizer_config.json", tokenizer_class="AutoModelForSequenceClassification")),
    ("classifier", "templates of a chat", HARMLESS, several(put("chat_template.jinja", JINJA), keys("tokenizer_config.json", chat_template=JINJA))),
    ("translate", "pieces by chance", "dropout", keys("tokenizer.json", "model", dropout=0.9)),
    ("translator", "lines of one piece", HARMLESS, keys("tokenizer.json", truncation={"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0})),
    ("translate", "a line 100,000 times", "tokenizer", keys("tokenizer.json", post_processor=MANY)),
    ("marian", "a map of characters cut off", "tokenizer", keys("target_tokenizer.json", normalizer={"type": "Precompiled", "precompiled_charsmap": "/////w=="})),
    # Weights, and pickles of any name.
    ("translator", "complex weights", "safetensors|weights", tensors(lambda tensor: tensor.to(torch.complex64))),
    ("classifier", "weights of eight bits", "safetensors|weights", tensors(lambda tensor: tensor.to(torch.float8_e5m2))),
    ("translator", "weights that say yes or no", "safetensors|weights", tensors(lambda tensor: tensor > 0)),
    ("infused", "a head of 10^12 columns", "head_width|size|shape", keys("config.json", head_width=10**12)),
    ("infused", "a head of a text", "config.json", keys("config.json", head_width="evil")),
    ("classifier", "a head of nothing", "config.json", keys("config.json", head_width=0)),
    ("infused", "layers of nothing", "num_hidden_layers", several(content("model.safetensors", without_numbers), keys("config.json", num_hidden_layers=10**5))),
    ("translator", "a second shard", "model-2|index", several(lambda folder: save_file({"evil": torch.ones(2)}, folder / "model-2.safetensors"), put("model.safetensors.index.json", '{"weight_map": {"evil": "model-2.safetensors"}}'))),
    ("infused", "weights from a pipe", "model.safetensors", piped("model.safetensors")),
    ("classifier", "pickles", HARMLESS, lambda folder: [torch.save(Payload(), folder / name) for name in PICKLES] and None),
    # Files and manifests.
    ("translate", "a name with a line break", "evil", after_signing(put(f"evil{ESCAPE}\nvocab.json", "{}"))),
    ("classifier", "pipes that nobody reads", HARMLESS, piped("README.md", "held_out.csv", "trained_on.txt")),
    ("translator", "a hard link", HARMLESS, elsewhere("tokenizer.json", Path.hardlink_to)),
    ("translator", "a device", "tokenizer.json", elsewhere("tokenizer.json", to="/dev/zero")),
    ("classifier", "names of other case", HARMLESS, several(put("Config.json", "{}"), put("MODEL.safetensors", "x"), put("Tokenizer.json", DEEP))),
    ("score", "2 GB of hashes", "trained_on", lambda folder: os.truncate(folder / "trained_on.txt", 2**31)),
    ("classifier", "an annotator elsewhere", "annotator", elsewhere("annotator")),
    ("classifier", "an annotator that nobody signed", "tagger", unsigned),
    # Annotators.
    ("entered", "a package in the folder", "evil", several(put("evil/__init__.py", "open('../ran', 'w')"), put("evil/meta.json", "{}"), put("evil-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n"), keys("classifier.json", annotator="spacy:evil"))),
    ("classifier", "a module by name", "evil", keys("classifier.json", annotator="spacy:evil")),
    ("predict", "models that are not here", "Stanza", keys("classifier.json", annotator="stanza:en+phrases")),
    ("predict", "words without end", "annotator", packed("tokenizer", lambda rules: {**rules, "token_match": r"^(?:(?:[a-z]|\w|.|[^0-9])+)+[0-9]$"})),
    ("classifier", "moves beyond the parser's", "annotator", packed("parser/moves", more_moves)),
    ("classifier", "edits without end", "annotator", packed("trainable_lemmatizer/trees", cyclic)),
    ("classifier", "vectors that are objects", "annotator", objects),
    # Exports.
    ("classifier", "lists in lists", "annotator", put("annotator/vocab/lookups.bin", b"\x91" * 10**6)),
    ("exported", "half a network", "CTranslate2", content("model.bin", lambda raw: raw[: len(raw) // 2])),
    ("exported", "a vast table", "CTranslate2", content("model.bin", lambda raw: re.sub(rb"(?s)(embeddings/weight\0\x02).{8}", lambda match: match[1] + b"\0\0\0\x7f\0\0\0\x10", raw))),
    ("translate int8", "names twice", "vocabulary", pieces(lambda name: name if name.startswith("<") else "a")),
    ("exported", "names that are factors", "vocabulary", pieces(lambda name: f"{name}\uffe8x")),
    ("translate int8", "fewer positions than none", "max_positions", keys("export.json", max_positions=-5)),
    ("onnx", "weights of the user's", "model.onnx", graph_with_secret),
    ("predict onnx", "an operator of theirs", "model.onnx", graph(node("Evil", ["y"], ["x"], domain="evil"))),
    ("onnx", "a constant of 4 GB", "model.onnx", graph(*VAST)),
    ("predict onnx", "a loop without end", "model.onnx", graph(*ENDLESS)),
    ("onnx", "a table that doubles", "model.onnx", graph(*doubled())),
    ("predict onnx", "outputs of other width", "onnx|labels", graph(width=5)),
    # What training reads, and what it wrote.
    ("corpus", "8 MB 400 times", "x.parquet", corpus(repeated)),
    ("corpus", "a number 2^25 times", "x.parquet", corpus(one_number)),
    ("corpus", "a pickled type", HARMLESS, corpus(pickled)),
    ("corpus", "a governor far away", "governor", first_row(governors=[30_000, -1])),
    ("corpus", "words outside the text", "offset", first_row(starts=[-9, 900], ends=[-3, 5])),
    ("report", "rows without end", "store", stored(NO_END)),
    ("report", "a trigger", "store", stored("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END")),
    ("report", "a run elsewhere", "name", stored("UPDATE runs SET name = '../../../etc'")),
    ("report", "a deep result", "store", stored(f"UPDATE runs SET result = '{'[' * 10**5}'")),
    ("report", "a result of no form", "store", stored("""UPDATE runs SET result = '{"metrics": [1e999, {}]}', labels = '[]', seconds = 'x'""")),
    ("translate", "a recipe that is code", HARMLESS, put("recipe.yaml", f"model: {TAG}\n")),
    ("train from ours", "a recipe that is code", "recipe.yaml", put("recipe.yaml", f"model: {TAG}\ninfusion: {TAG}\n")),
    ("train from ours", "a recipe of aliases", "recipe.yaml|model.init_from", put("recipe.yaml", f"{LAUGHS}model: {{dropout: *i}}\ninfusion: {{kind: *i}}\n")),
    ("train from", "code", "auto_map|custom code", several(put("evil.py", RUN), keys("config.json", model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModelForSeq2SeqLM": "evil.M"}))),
    ("train from ours", "a recipe without sections", "recipe.yaml", put("recipe.yaml", "x: 1\n")),
    ("finetune from", "layers of nothing", "num_hidden_layers", several(content("model.safetensors", without_numbers), keys("config.json", num_hidden_layers=10**5))),
    ("finetune from", "weights that are no numbers", "NaN", tensors(lambda tensor: tensor * float("nan"))),
    ("train from", "a million positions", "max_position_embeddings", keys("config.json", max_position_embeddings=2**20)),
    ("finetune from", "a kernel", "attn_implementation", keys("config.json", attn_implementation="evil/kernel")),
    ("finetune from", "other weights", "transformers_weights|quantization_config", keys("config.json", transformers_weights="../secret", quantization_config={"quant_method": "awq"})),
]
"""How it is opened, what is wrong, what the refusal names (or that it is harmless), and what does it."""
# fmt: on


@pytest.fixture(scope="module")
def tried(good, cli):
    """Do something to a copy of a good folder, beside which a module `evil` lies, and open it."""

    def call(opened, deed):
        name, open_folder = OPENED[opened]
        here = good / f"{len([*good.iterdir()])}"
        folder = shutil.copytree(good / name, here / "theirs")
        (here / "evil.py").write_text(RUN)
        is_signed = deed(folder)
        if (folder / "manifest.json").is_file() and not is_signed:
            write_manifest(folder)
        return outcome(lambda: open_folder(cli), here)

    opens = cache(call)
    opens("classifier", untouched)  # what the first one loads is the time of no test
    return opens


def untouched(folder):
    """Do nothing to a folder."""


SLOW = re.compile(
    "layers of nothing|nothing is read|a record for an answer|look-alike keys, foreign|100,000 times|2.25 times"
)


@pytest.mark.parametrize(
    ("opened", "expected", "deed"),
    [
        pytest.param(
            *(opened, expected, deed),
            id=f"{opened}: {name}",
            marks=[pytest.mark.slow] * bool(SLOW.search(name)),
        )
        for opened, name, expected, deed in STRANGERS
    ],
)
def test_a_strangers_folder_is_refused_or_harmless(opened, expected, deed, tried):
    kind, text, faults = tried(opened, deed)
    assert (kind, faults) == (HARMLESS if expected == HARMLESS else REFUSED, []), text[:400]
    if kind == HARMLESS:
        assert (kind, text, faults) == tried(opened, untouched)
    else:
        assert re.search(expected, text), text
