"""Annotators of wrong trees and tags: what is drawn, by counting or by hand, and what stays."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy.stats import chisquare

from syntaxformer.annotate import WordsAsGiven, annotate_cached, controls, load_annotator, shards
from syntaxformer.annotate.annotator import bundled_folder
from syntaxformer.annotate.backends import is_file
from syntaxformer.annotate.controls import LINES_PER_POOL, Control, random_bracketing, random_governors
from syntaxformer.annotate.registry import stored_name, trusted_annotator
from syntaxformer.annotate.shards import Job, annotate_sharded, in_processes
from syntaxformer.base.errors import ConfigError, TreeError
from syntaxformer.base.languages import TextLanguage, choose_annotator
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.trees import Sentence, check_governors, leaves_of, parse_tree, tags_of

KINDS = ("random_tree", "chain", "other_sentence", "permuted")
LINES = ["old dogs bark loudly", "", "a man saw the dog", "yes", "the old man slept"]
GOVERNORS = {4: ((1, 2, -1, 2), (2, 2, 3, -1)), 5: ((1, 2, -1, 4, 2),), 1: ((-1,),), 0: ((),)}


class Parser:
    """Gives lines of the same length different trees in turn, and each word its own tag."""

    name, version, provides = "parser", "1", frozenset({"upos", "governors", "deprels", "constituency"})

    def annotate(self, lines):
        return [self._sentence(line) for line in lines]

    def _sentence(self, line):
        words = line.split()
        trees = GOVERNORS[len(words)]
        phrases = ["(NP (A {})) (VP (B {}) (C {}) (D {}))", "(X (A {}) (B {})) (C {}) (D {})"]
        brackets = {4: phrases[line > "t"], 5: "(A {}) (B {}) (C {}) (D {}) (E {})", 1: "(A {})", 0: ""}[
            len(words)
        ]
        columns = {
            "upos": tuple("ABCDE"[: len(words)]),
            "governors": trees[line > "t" and len(trees) - 1],
            "deprels": tuple(word[:2] for word in words),
            "constituency": f"(S {brackets.format(*words)})" if words else None,
        }
        return Sentence.from_words(words, **columns)


def control(kind, seed=0):
    return Control(load_annotator(Parser()), kind, seed)


def is_forest(governors):
    try:
        check_governors(list(governors))
    except TreeError:
        return False
    return True


@pytest.mark.parametrize(("n_words", "n_roots", "n_trees"), [(2, 1, 2), (3, 1, 9), (4, 1, 64), (4, 2, 48)])
def test_random_trees_are_uniform_over_all_with_so_many_roots(n_words, n_roots, n_trees):
    """All vectors of governors are enumerated; n^(n - 1) of them are trees with one root (Cayley)."""
    rng = np.random.default_rng(7)
    every = [governors for governors in product(range(-1, n_words), repeat=n_words) if is_forest(governors)]
    every = [governors for governors in every if governors.count(-1) == n_roots]
    assert len(every) == n_trees
    counts = Counter(tuple(random_governors(n_words, n_roots, rng)) for _ in range(6400))
    assert counts.keys() == set(every)
    assert chisquare([counts[governors] for governors in every]).pvalue > 0.001


@pytest.mark.parametrize(("n_words", "catalan"), [(2, 1), (3, 2), (4, 5), (5, 14)])
def test_random_bracketings_are_uniform(n_words, catalan):
    rng = np.random.default_rng(5)
    counts = Counter("w".join(random_bracketing(n_words, rng)) for _ in range(4200))
    assert len(counts) == catalan
    assert catalan == 1 or chisquare(list(counts.values())).pvalue > 0.001


@pytest.mark.parametrize("kind", KINDS)
def test_each_line_keeps_its_words_and_depends_on_its_text_and_the_seed_alone(kind):
    plain, sentences = load_annotator(Parser()).annotate(LINES), control(kind).annotate(LINES)
    for before, after in zip(plain, sentences, strict=True):
        assert (after.text, after.words, after.offsets) == (before.text, before.words, before.offsets)
        assert sorted(after.upos) == sorted(before.upos)
        assert len(before) > 1 or after == before
        assert not before.words or leaves_of(parse_tree(after.constituency)) == before.words
        assert is_forest(after.governors)
        assert kind == "permuted" or tags_of(parse_tree(after.constituency or "(A a)")) == (
            before.upos or ("A",)
        )
    assert control(kind).annotate(LINES) == sentences
    assert control(kind).annotate_words([line.split() for line in LINES]) == sentences
    if kind != "other_sentence":
        assert control(kind).annotate(LINES[::-1]) == sentences[::-1]
    if kind != "chain":
        assert any(control(kind, seed).annotate(LINES) != sentences for seed in (1, 2, 3))


def test_a_chain_hangs_each_word_on_the_word_before_it_and_branches_to_the_right():
    first, *_ = control("chain").annotate(LINES)
    assert first.governors == (-1, 0, 1, 2)
    assert first.deprels == ("ol", "do", "ba", "lo")
    assert first.constituency == "( (NP (A old)) ( (B dogs) ( (C bark) (D loudly))))"


def test_another_sentence_of_as_many_words_lends_its_tree(caplog):
    """Only the first and the last line have four words; that of five words has no other."""
    sentences = control("other_sentence").annotate([*LINES, LINES[0]])
    assert [sentence.governors for sentence in sentences if len(sentence) == 4] == [
        (2, 2, 3, -1),
        (1, 2, -1, 2),
        (2, 2, 3, -1),
    ]
    assert sentences[0].deprels == ("th", "ol", "ma", "sl")
    assert sentences[0].constituency == "(S (X (NP (A old)) (B dogs)) (C bark) (D loudly))"
    assert sentences[4].constituency == "(S (A the) (VP (B old) (C man) (D slept)))"
    assert sentences[2] == control("random_tree").annotate(LINES)[2]
    assert caplog.text.count("no other sentence has as many words: 1") == 1


def test_permuted_moves_tags_and_nodes_together():
    """Word i gets all that another word j has, so that the governor of i has what that of j had."""
    before, after = load_annotator(Parser()).annotate(LINES)[0], control("permuted", 2).annotate(LINES)[0]
    rows = [before.upos.index(tag) for tag in after.upos]
    assert sorted(rows) == [0, 1, 2, 3] != rows
    assert after.deprels == tuple(before.deprels[row] for row in rows)
    above = [-1 if governor < 0 else rows[governor] for governor in after.governors]
    assert above == [before.governors[row] for row in rows]
    assert Counter(after.constituency) == Counter(before.constituency)


def test_names_nest_and_phrases_go_inside():
    annotator = load_annotator("random_tree(permuted(en)+phrases,seed=3)+phrases")
    assert annotator.name == "random_tree(permuted(en+phrases),seed=3)"
    assert annotator.version.endswith("+phrases1+permuted1+random_tree1")
    assert is_file("random_tree(conllu:x(1).conllu)+phrases")
    assert not is_file("random_tree(en)")
    with pytest.raises(ConfigError, match=r"chain\(ANNOTATOR\)"):
        load_annotator("random_tre(en)")
    with pytest.raises(ConfigError, match="an annotator that parses"):
        load_annotator("random_tree(spaces)")


def test_a_bundled_one_inside_must_be_of_the_language_of_the_text():
    assert choose_annotator("chain(en)", TextLanguage("en", "x"), "key") == "chain(en)"
    with pytest.raises(ConfigError, match=r"key=chain\(de\+phrases,seed=1\)"):
        choose_annotator("chain(en+phrases,seed=1)", TextLanguage("de", "x"), "key")


def test_a_model_names_its_control(tmp_path):
    name = stored_name(f"chain(spacy:{bundled_folder('en')})+phrases")
    assert name == "chain(spacy:annotator)+phrases"
    assert trusted_annotator("chain(en+phrases)", None, tmp_path) == "chain(en+phrases)"


def test_no_shard_cuts_a_pool():
    assert shards.LINES_PER_SHARD == LINES_PER_POOL


@pytest.mark.parametrize(("lines_per_shard", "most_characters"), [(8, 10**6), (4, 30)])
@pytest.mark.parametrize("kind", KINDS)
def test_controls_are_cached_sharded_and_given_words_alike(
    kind, lines_per_shard, most_characters, tmp_path, monkeypatch
):
    """Also where a shard, and with it a pool, ends early, since its lines are long."""
    monkeypatch.setattr(controls, "LINES_PER_POOL", 4)
    monkeypatch.setattr(shards, "LINES_PER_SHARD", lines_per_shard)
    for module in (controls, shards):
        monkeypatch.setattr(module, "MAX_CHARACTERS", most_characters)
    source, annotator = tmp_path / "in.txt", load_annotator(f"{kind}(en)")
    lines = [*LINES, "he ran", "she slept", "they sang well"] * 2
    source.write_text("".join(f"{line}\n" for line in lines))
    cached = annotate_cached(lines, annotator, tmp_path)
    job = Job(str(source), tmp_path / "out.parquet", annotator.name, annotator.version)
    (sharded,) = annotate_sharded([job], in_processes(annotator.name, 1))
    assert job.target.read_bytes() == cached.path.read_bytes()
    assert list(sharded) == list(WordsAsGiven(annotator).stream(lines))


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({"control": "linear_chain"}, "chain"),
        ({"control": "random_tree"}, "random_tree"),
        ({"random": True}, "permuted"),
    ],
)
def test_a_folder_with_a_control_of_older_versions_is_refused(content, name):
    """And one without, in which each section said so, is read."""
    assert InfusionConfig.from_json({"masks": {"control": None, "random": False}}, "x") == InfusionConfig(
        masks={}
    )
    with pytest.raises(ConfigError, match=rf"control: expected none.*'{name}\(en\)'"):
        InfusionConfig.from_json({"masks": content}, "infusion.json")
