"""Files that somebody else wrote, mutated: every reader returns or raises an error of ours, soon and in little memory.

Valid files are cut, doubled and spiced with what breaks readers: brackets in thousands, huge numbers, NULs, bytes that are
no UTF-8, lone surrogates, YAML's anchors, JSON's odd numbers.
"""

import json
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scratch_encoder import read_word_vectors

from syntaxformer.annotate import read_annotations, write_annotations
from syntaxformer.base.errors import SyntaxformerError
from syntaxformer.base.files import read_json, verify_manifest
from syntaxformer.encoders.tables import read_table
from syntaxformer.encoders.tasks import read_classifier_info
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.syntax import constituency_relations, dependency_relations
from syntaxformer.translation.ctranslate2_decoder import read_export
from syntaxformer.translation.model_folder import read_info
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.trees import Sentence, format_conllu, format_tree, read_conllu, read_ptb, sentence_from_tree

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
FUZZ = settings(
    max_examples=60,
    deadline=5000,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SPICE = st.sampled_from(
    [b"(", b")", b"((((((((", b"\t", b"\n\n", b"\r\n", b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xa8",
     b"9" * 400, b"-1", b"0", b"1e999", b"NaN", b"-Infinity", b"{", b"}", b"[", b"]", b"[" * 5000, b"{\"a\":" * 2000, b"\"", b"\\ud800",
     b"null", b"true", b"&a ", b"*a", b"!!python/object/apply:os.system ['false']", b"!!int ", b": ", b"- ", b"? ", b"<<: ", b"\\", b"1-2", b"1.1",
     b"SpaceAfter=No", b"TextRange=9:1", b"# text = ", b"_", b" ", "²".encode(), "１".encode(), "😀".encode()]
)  # fmt: skip


@st.composite
def mutated(draw, valid):
    """A valid file with pieces of it moved, left out or doubled, and spice in it."""
    content = draw(st.sampled_from(valid))
    for _ in range(draw(st.integers(1, 5))):
        place = draw(st.integers(0, len(content)))
        stop = min(len(content), place + draw(st.integers(0, 20)))
        piece = draw(st.one_of(SPICE, st.binary(max_size=6), st.just(content[place:stop] * 2), st.just(b"")))
        content = content[:place] + piece + content[stop:]
    return content


def survives(read, *arguments):
    """Run a reader to its end; only errors of ours may come out."""
    try:
        result = read(*arguments)
        return list(result) if hasattr(result, "__next__") else result
    except SyntaxformerError as error:
        message = str(error)
    assert 0 < len(message) < 20_000
    return None


CONLLU = [
    b"# text = Dogs don't bark\n1\tDogs\tdog\tNOUN\tNNS\t_\t4\tnsubj\t_\t_\n2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n2\tdo\tdo\tAUX\t_\t_\t4\taux\t_\t_\n"
    b"3\tn't\tnot\tPART\t_\t_\t4\tadvmod\t_\t_\n4\tbark\tbark\tVERB\t_\t_\t0\troot\t_\tTextRange=11:15\n4.1\te\t_\t_\t_\t_\t_\t_\t_\t_\n\n",
    b"1\ta\t_\t_\t_\t_\t2\tdep\t_\tSpaceAfter=No\n2\tb\t_\t_\t_\t_\t0\troot\t_\t_\n\n",
]


@FUZZ
@given(mutated(CONLLU))
def test_conllu(tmp_path, content):
    path = tmp_path / "a.conllu"
    path.write_bytes(content)
    for sentence in survives(read_conllu, path) or ():
        survives(format_conllu, sentence)
        if sentence.governors:
            survives(dependency_relations, sentence.governors)


PTB = [
    b"( (S (NP-SBJ (DT The) (NN cat)) (VP (VBD sat) (NP (-NONE- *)))\n (. .)))\n(X (-LRB- -LRB-) (NN dog))\n",
    b"(3 (2 The) (4 (2 good) (3 film)))\n",
    b"( ( A girl ) ( is dancing ) )\n",
]


@FUZZ
@given(mutated(PTB), st.booleans())
def test_brackets(tmp_path, content, labels):
    path = tmp_path / "a.mrg"
    path.write_bytes(content)
    for tree in survives(lambda: read_ptb(path, labels=labels)) or ():
        survives(format_tree, tree)
        survives(sentence_from_tree, tree)
        survives(constituency_relations, tree)


@FUZZ
@given(mutated([b"2 3\nthe 1 2 3\n. . . 4 5 6\ndog 1.5 0 -0.25\nthe 1 1 1\n"]))
def test_word_vectors(tmp_path, content):
    path = tmp_path / "glove.txt"
    path.write_bytes(content)
    survives(read_word_vectors, path, ["the", "dog", ". . .", "1", "😀"])


@FUZZ
@given(
    mutated(
        [(RECIPES / "tiny.yaml").read_bytes(), b"data: {dir: a, src: b, tgt: c}\ntraining: {max_steps: 3}\n"]
    )
)
def test_recipes(tmp_path, content):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content)
    survives(load_recipe, path)
    survives(load_recipe, "tiny", [content[:60].decode("utf-8", "replace")])


INFO = {
    "format_version": 1, "task": "translation", "src": "en", "tgt": "de", "annotator": "en", "annotator_version": "1", "tokenized": False,
    "lowercase": False, "factors": [],
    "decoding": {}, "data_sha256": {"train": "0"},
}  # fmt: skip
MANIFEST = {"files": {"a.json": {"bytes": 2, "sha256": "0"}}}
CLASSIFIER = {
    "format_version": 1, "task": "cola", "labels": ["0", "1"], "metrics": ["matthews"], "n_texts": 1, "annotator": "en", "annotator_version": "1"
}  # fmt: skip


@FUZZ
@given(mutated([json.dumps(one).encode() for one in (INFO, CLASSIFIER, MANIFEST)]))
def test_json_of_model_folders(tmp_path, content):
    for name in ("syntaxformer.json", "classifier.json", "manifest.json", "infusion.json", "export.json"):
        (tmp_path / name).write_bytes(content)
    for read in (read_info, read_classifier_info, read_export, verify_manifest):
        survives(read, tmp_path)
    survives(read_json, tmp_path / "manifest.json")


@FUZZ
@given(
    mutated(
        [
            b"sentence\tlabel\ta b\t1\nc d\t0\n",
            b'{"sentence": "a b", "label": 1}\n{"sentence": "c", "label": "0"}\n',
            b'a,b\n"c ""d""",1\n',
        ]
    )
)
def test_tables(tmp_path, content):
    for suffix in (".tsv", ".csv", ".jsonl"):
        path = tmp_path / f"table{suffix}"
        path.write_bytes(content)
        survives(lambda path: list(read_table(path).rows), path)


def _annotations(path):
    sentences = [
        Sentence.from_words(["a", "b"], upos=("X", "X"), governors=(1, -1), deprels=("dep", "root"))
    ] * 3
    write_annotations(path, sentences, annotator="x", version="1", content_hash="0")
    return path.read_bytes()


@FUZZ
@given(st.data())
def test_annotated_corpora(tmp_path, data):
    path = tmp_path / "a.parquet"
    content = bytearray(_annotations(path))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))]))
    survives(lambda: list(read_annotations(path)))


@FUZZ
@given(
    st.text(max_size=40)
    | st.lists(st.sampled_from(["masks", "lisa", "pos_add", "let", "", "none", "x"])).map(",".join)
)
def test_infusions_by_name(text):
    survives(InfusionConfig.parse, text)


@pytest.fixture
def _limits():
    """What a reader may take for a file that is meant to blow it up: seconds, and memory beside the file."""
    tracemalloc.start()
    start = time.perf_counter()
    yield
    seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 60
    assert peak < 300e6


BOMBS = {
    "brackets": (b"(" * 200_000 + b"a" + b")" * 200_000, "a.mrg"),
    "open": (b"(A " * 100_000, "a.mrg"),
    "head": (b"1\ta\t_\t_\t_\t_\t" + b"9" * 100_000 + b"\tdep\t_\t_\n\n", "a.conllu"),
    "id": (b"9" * 100_000 + b"\ta\t_\t_\t_\t_\t0\tdep\t_\t_\n\n", "a.conllu"),
    "range": (b"1-" + b"9" * 5000 + b"\ta\t_\t_\t_\t_\t_\t_\t_\t_\n1\ta\t_\t_\t_\t_\t0\tdep\t_\t_\n\n", "a.conllu"),
    "place": (b"1\ta\t_\t_\t_\t_\t0\tdep\t_\tTextRange=" + b"9" * 5000 + b":" + b"9" * 5000 + b"\n\n", "a.conllu"),
    "line": (b"x" * 5_000_000, "glove.txt"),
    "number": (b"dog 1 " + b"9" * 500_000 + b"\n", "glove.txt"),
    "laughs": (
        b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(b"%c: &%c [%b]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(9)),
        "r.yaml",
    ),
    "deep yaml": (b"[" * 1000, "r.yaml"),
    "deep json": (b"[" * 200_000, "syntaxformer.json"),
    "long number": (b'{"format_version": ' + b"9" * 100_000 + b"}", "syntaxformer.json"),
}  # fmt: skip
READERS = {
    ".mrg": lambda path: [sentence_from_tree(tree) for tree in read_ptb(path)],
    ".conllu": read_conllu,
    ".txt": lambda path: read_word_vectors(path, ["dog"]),
    ".yaml": load_recipe,
    ".json": lambda path: read_info(path.parent),
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.usefixtures("_limits")
def test_bombs(tmp_path, bomb):
    content, name = BOMBS[bomb]
    path = tmp_path / name
    path.write_bytes(content)
    survives(READERS[path.suffix], path)
