"""Deeds to folders that need more than `folder_deeds`: annotators, corpora, stores and ONNX graphs."""

from __future__ import annotations

import json
import pickle
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import srsly

from folder_deeds import after_signing, content, keys, put
from watched_fork import SECRET, Payload

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
