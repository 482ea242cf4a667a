"""Relations of the user's own, from their registration to the tensors of both products."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import syntaxformer as sf
from syntaxformer.base.errors import CheckpointError, ConfigError, DataError
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.syntax import TreeOptions, WordColumns, WordTrees, word_relations
from syntaxformer.syntax import own_relations as registry
from syntaxformer.syntax.inputs import LineSyntax, SyntaxInputs, segment_syntax
from syntaxformer.syntax.own_relations import LABELS, labelled_edges
from syntaxformer.syntax.piece_relations import TREES, cut_trees, sentence_trees
from syntaxformer.syntax.ragged import Ragged

HE_SLEPT = sf.Sentence.from_words(["he", "slept", "well"], governors=(1, -1, 1))
ALAS = sf.Sentence.from_words(["alas"], governors=(-1,))
NEAR = [[0, 1, 2], [1, 0, 1], [2, 1, 0]]

MODULE = """
import syntaxformer as sf

def near(sentence):
    governors, n = sentence.governors, len(sentence)
    linked = [[i in (governors[j],) or j in (governors[i],) for j in range(n)] for i in range(n)]
    return [[0 if i == j else 1 if linked[i][j] else 2 for j in range(n)] for i in range(n)]

sf.register_relations("near", near, n_relations=3)
"""


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "_RECORDS", dict(registry._RECORDS))
    monkeypatch.setenv(registry.VARIABLE, "")
    before = dict(TREES)
    yield
    TREES.clear()
    TREES.update(before)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a file, where Python would also find it as a module."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str = MODULE) -> Path:
        (tmp_path / f"{name}.py").write_text(text)
        return tmp_path / f"{name}.py"

    return write


def near(sentence):
    return np.array(NEAR)[: len(sentence), : len(sentence)]


def test_a_function_of_a_script_is_known_by_its_text(monkeypatch):
    """Else pairs on disk that were made with an older text would be trained on."""

    def other(sentence):
        return np.zeros((len(sentence),) * 2, int)

    for function in (near, other):
        monkeypatch.setattr(function, "__module__", "__main__")
    assert len({registry._version(near), registry._version(other), ""}) == 3
    assert registry._version(near) == registry._version(near)


def test_a_file_registers_and_a_config_stores_name_number_and_version(module):
    registry.register_file(module("words_of_a"))
    config = InfusionConfig(masks={"trees": ["dependency", "near"], "max_distance": 2}, relation_bias={})
    stored = config.model_dump(mode="json")
    version = hashlib.sha256(MODULE.encode()).hexdigest()[:12]
    assert stored["masks"]["relations"] == {"near": {"n_relations": 3, "version": version}}
    assert stored["relation_bias"]["relations"] == stored["masks"]["relations"]
    assert InfusionConfig.from_json(stored, "x") == config
    assert "relations" not in InfusionConfig(masks={}).model_dump(mode="json")["masks"]
    # 3 · 2 ids and "pair" of the tree; two ids of the function, room for four more, and "pair".
    assert config.masks.active_networks(()) == [True] * 9 + [False] * 4 + [True]
    assert config.masks.active_networks(["near", "pair"]) == [True] * 6 + [False] * 8
    assert config.masks.active_networks(["parent", "child", "sibling"])[7:9] == [True, True]


def test_nothing_that_a_folder_or_a_config_names_is_imported(module, tmp_path):
    module("words_of_b", f"open({str(tmp_path / 'ran')!r}, 'w')  # register_relations")
    old = {"function": "words_of_b:near", "n_relations": 3}
    for content in ({"trees": ["near"], "relations": {"near": old}}, {"trees": ["words_of_b:near"]}):
        with pytest.raises(ConfigError, match=r"masks: trees: .*--relations FILE"):
            InfusionConfig(masks=content)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ConfigError, match="trees: "):  # a list in place of a mapping
        InfusionConfig(masks={"trees": ["near"], "relations": ["near"]})


def test_they_may_have_the_name_of_a_column_of_trees():
    ids = [[0, 1], [2, 0]]
    sf.register_relations("phrases", lambda _: ids, 3)
    sentence = sf.Sentence.from_words(("A", "dog"), constituency="(NP (DT A) (NN dog))")
    trees = sentence_trees(sentence, ["constituency", "phrases"])
    relations = word_relations([trees], 2, trees=("constituency", "phrases"))
    assert relations.shape[:2] == (1, 2)
    assert relations[0, 1, :2, :2].tolist() == ids


def test_the_path_in_an_older_folder_is_ignored(recwarn):
    sf.register_relations("near", near, 3)
    record = registry._RECORDS["near"].model_dump() | {"function": "elsewhere:near"}
    stored = InfusionConfig(masks={"trees": ["near"]}).model_dump(mode="json")
    stored["masks"]["relations"] = {"near": record}
    assert "elsewhere" not in repr(InfusionConfig.from_json(stored, "x"))
    assert not recwarn.list


@pytest.mark.parametrize(
    ("text", "message"), [("1 / 0", "division by zero"), ("x = (", "never closed"), (None, "No such file")]
)
def test_a_file_that_fails_is_named(text, message, tmp_path):
    path = tmp_path / "mine.py"
    _ = text and path.write_text(text)
    with pytest.raises(ConfigError, match=f"^relations: {path}: .*{message}"):
        registry.register_file(path)


def test_a_process_that_starts_later_has_them(module):
    registry.register_file(module("words_of_e"))
    code = "from syntaxformer.syntax.piece_relations import TREES; import syntaxformer.syntax; print('near' in TREES)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "True\n"
    )


@pytest.mark.parametrize(
    ("trees", "message"),
    [
        (["neer"], "expected dependency, constituency, labelled_edges, .*near or relations of your own .*, got 'neer'"),
        (["nowhere.at_all:near"], "got 'nowhere.at_all:near'"),
        (["near", "near"], "expected each kind once"),
    ],
)  # fmt: skip
def test_names_that_are_unknown_are_refused_with_the_remedy(trees, message):
    sf.register_relations("near", near, 3)
    with pytest.raises(ConfigError, match=message):
        InfusionConfig(relation_bias={"trees": trees})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"max_distance": 1}, "max_distance: expected 2 or more with many, 7 relations .*got 1"),
        ({"siblings": "all"}, "siblings: .*many, 7 relations .*got all"),
        ({"init": "distance"}, "init: expected zero with many, got distance"),
        ({"without": ["near"]}, "without: expected some of dependency, .*, many, got 'near'"),
        ({"without": ["many"]}, "without: expected one tree to be left"),
    ],
)
def test_what_does_not_go_with_them_is_refused(more, message):
    sf.register_relations("many", near, 7)
    with pytest.raises(ConfigError, match=message):
        InfusionConfig(relation_bias={"trees": ["many"], **more})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Near", near, 3), "name: expected a name of small letters"),
        (("dependency", near, 3), "name: expected a name of small letters"),
        (("taken", near, 3), "another function's, got 'taken'"),
        (("near", near, 1), "n_relations: expected 2 to 253, with 0 for none, got 1"),
        (("near", near, 3, ("parses",)), "needs: expected some of upos, .*, got parses"),
        (("near", near, 3, ()), "needs: .* got none"),
    ],
)
def test_registrations_are_checked(arguments, message):
    sf.register_relations("taken", WordTrees.of_sentence, 3)
    with pytest.raises(ValueError, match=message):
        sf.register_relations(*arguments)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda sentence: np.eye(2, dtype=int), r"whole numbers from 0 to 2, \[3, 3\], for 'he slept well', got 0 to 1, int64 \[2, 2\]"),
        (lambda sentence: np.eye(3), r"got 0.0 to 1.0, float64 \[3, 3\]"),
        (lambda sentence: 3 * np.eye(3, dtype=int), "got 0 to 3, int64"),
        (lambda sentence: sentence.upos[0], "'NoneType' object is not subscriptable. What the function reads besides words belongs into `needs`"),
    ],
)  # fmt: skip
def test_what_the_function_gives_is_checked(function, message):
    sf.register_relations("own", function, 3)
    with pytest.raises(DataError, match=message):
        sentence_trees(HE_SLEPT, ("own",))


def test_relations_of_words_and_pairs_and_of_texts_that_are_cut():
    """In a pair, each segment has its own; between them is "pair". The special piece has none."""
    sf.register_relations("near", near, 3)
    he_slept, alas = (sentence_trees(sentence, ("near",)) for sentence in (HE_SLEPT, ALAS))
    relations = word_relations([WordTrees.of_pair(he_slept, alas), alas], 2, trees=("dependency", "near")[1:])
    assert relations.shape == (2, 1, 6, 6)
    expected = np.zeros((6, 6), int)
    expected[:3, :3] = NEAR
    expected[:3, 3] = expected[3, :3] = 7
    assert (relations[0, 0] == expected).all()
    assert not relations[1].any()
    assert (cut_trees(he_slept, 2, 2).own["near"][:2, :2] == [[0, 1], [1, 0]]).all()
    assert not sentence_trees(sf.Sentence("", (), ()), ("near",)).own["near"].size


def test_both_products_read_the_same_relations():
    """The lines of a translator keep them flat, with others beside, selected, joined and turned into a batch."""
    sf.register_relations("near", near, 3)
    sf.register_relations("order", order, 4, needs=("upos",))
    options = TreeOptions(trees=("near", "dependency", "order"), max_distance=2)
    inputs = SyntaxInputs(trees=options)
    assert set(inputs.needs) == {"governors", "upos"}
    sentences = [replace(sentence, upos=("X",) * len(sentence)) for sentence in (ALAS, HE_SLEPT)]  # fmt: skip
    owners = Ragged.of([[0, -1], [0, 1, 1, 2, -1]])
    lines = LineSyntax.of(inputs, WordColumns.from_sentences(sentences), owners.values)
    assert lines.own.values.shape == (1 + 9, 2)
    trees = [sentence_trees(sentence, options.used_trees) for sentence in sentences]
    expected = segment_syntax(inputs, trees, owners, np.array([1, 4]))["syntax"]
    assert expected[1, 0, :4, :4].tolist() == [[0, 1, 1, 2], [1, 0, 0, 1], [1, 0, 0, 1], [2, 1, 1, 0]]
    assert expected[1, 2, :4, :4].tolist() == [[0, 1, 1, 2], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert (lines.batch([0, 1], owners.splits)["syntax"] == expected).all()
    twice = lines.select(np.array([1, 0, 1]), np.array([*range(2, 7), 0, 1, *range(2, 7)]))
    relations = twice.batch([1, 2, 0], np.array([0, 5, 7, 12]))["syntax"]
    assert (relations == np.stack([expected[0], expected[1], expected[1]])).all()


def order(sentence):
    n = len(sentence)
    return np.triu(np.arange(n) - np.arange(n)[:, None]) * (sentence.upos == ("X",) * n)


def test_a_folder_is_refused_where_they_are_another_number_or_none(module, tmp_path):
    """A changed file is warned of."""
    sf.register_relations("near", near, 3)
    stored = InfusionConfig(masks={"trees": ["near"]}).model_dump(mode="json")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "infusion.json").write_text(json.dumps({"infusion": stored}))
    registry._RECORDS.pop("near")
    with pytest.raises(CheckpointError, match=r"infusion\.json: masks: trees: .*got 'near'"):
        sf.load(folder)
    registry.register_file(module("words_of_d", MODULE.replace("n_relations=3", "n_relations=4")))
    with pytest.raises(CheckpointError, match=r"relations.near: .*n_relations 3, .*got 4"):
        sf.load(folder)
    stored["masks"]["relations"]["near"]["n_relations"] = 4
    with pytest.warns(
        UserWarning, match=r"relations.near: the model was trained with version .*; relations may differ"
    ):
        InfusionConfig.from_json(stored, "x")


def test_labelled_edges_tell_edges_apart_by_their_labels():
    sentence = sf.Sentence.from_words(
        ["he", "slept", "very", "well"],
        governors=(1, -1, 3, 1),
        deprels=("nsubj", "root", "advmod", "advmod:x"),
    )
    relations = labelled_edges(sentence)
    numbers = {label: number for number, label in enumerate(LABELS, start=1)}
    subject, adverb, n = numbers["nsubj"], numbers["advmod"], len(LABELS)
    assert n == 36
    assert relations.tolist() == [
        [0, subject, 0, 0],
        [subject + n, 0, 0, adverb + n],
        [0, 0, 0, adverb],
        [0, adverb, adverb + n, 0],
    ]
    strange = sf.Sentence.from_words(["a", "b"], governors=(-1, 0), deprels=("root", "SB"))
    assert labelled_edges(strange)[1, 0] == numbers["dep"]


def test_labelled_edges_are_always_known_and_need_room():
    section = {"trees": ["dependency", "labelled_edges"], "max_distance": 24}
    options = InfusionConfig(relation_bias=section).tree_options
    assert options.relations["labelled_edges"].n_relations == 73
    sentence = sf.Sentence.from_words(["he", "slept"], governors=(1, -1), deprels=("nsubj", "root"))
    own = word_relations([sentence_trees(sentence, options.trees)], 24, trees=options.trees)[0, 1]
    assert own[:2, :2].tolist() == labelled_edges(sentence).tolist()
    with pytest.raises(ConfigError, match="expected 24 or more with labelled_edges"):
        InfusionConfig(relation_bias={**section, "max_distance": 15})
