"""Annotators by name: their options, phrases on request, and what is said of names that are none."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from syntaxformer.annotate import (
    Annotator,
    WithPhrases,
    annotator_identity,
    load_annotator,
    registry,
    with_constituency,
)
from syntaxformer.annotate.backends import BACKENDS, positive_int, positive_number, split_options
from syntaxformer.base.downloads import MODEL_SIZES
from syntaxformer.base.errors import BackendMissingError, ConfigError, DataError
from syntaxformer.base.languages import BUNDLED, CONTROLS, SPACES
from syntaxformer.trees import Sentence, leaves_of, parse_tree

PAGE = (Path(__file__).parents[3] / "docs/guides/annotators.md").read_text("utf-8")

ALL = [*BUNDLED, SPACES, "FOLDER", *(f"{scheme}:{backend.argument}" for scheme, backend in BACKENDS.items())]
ALL += [f"{kind}(ANNOTATOR)" for kind in CONTROLS]


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("fr", "got 'fr'. Did you mean 'stanza:fr'?"),
        ("german", "got 'german'. Did you mean 'de'?"),
        ("French", "got 'French'. Did you mean 'stanza:fr'?"),
        ("deu_DE", "got 'deu_DE'. Did you mean 'de'?"),
        ("klingon", "got 'klingon'."),
        ("spaci:x", "got 'spaci:x'. Did you mean 'spacy'?"),
        ("conllu", "got 'conllu'. Give PATH after the colon."),
        ("stanza:", "got 'stanza:'. Give LANG after the colon."),
        ("korenlp:http://a:b@c", "got 'korenlp:…'. Did you mean 'corenlp'?"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(name, end):
    with pytest.raises(ConfigError) as caught:
        load_annotator(name)
    message = str(caught.value).partition(" If it is the name of an object")[0]
    assert message == f"annotator: expected {', '.join(ALL[:-1])} or {ALL[-1]}, {end}"


def test_the_page_names_every_annotator_and_says_how_large_models_are():
    shown = [name.replace("_OR_PATH", "").removesuffix("ANNOTATOR)") for name in ALL]
    assert [name for name in shown if f"`{name}" not in PAGE] == []
    for scheme, size in MODEL_SIZES.items():
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{scheme}:")]
        assert f": {size} |" in row


def test_a_bundled_pipeline_that_is_not_there(monkeypatch):
    monkeypatch.setattr(registry, "BUNDLED", ("xx",))
    with pytest.raises(BackendMissingError, match=r"the bundled pipeline 'xx' .* Run: make annotators"):
        load_annotator("xx")


@pytest.mark.parametrize("name", ["en", "en+phrases"])
def test_identity_is_that_of_the_loaded_annotator(name):
    loaded = load_annotator(name)
    assert annotator_identity(name) == (loaded.name, loaded.version)


def test_identity_of_a_bundled_pipeline_needs_no_spacy():
    code = "import sys; from syntaxformer.annotate import annotator_identity as identity; "
    code += "print(identity('de')[0], 'spacy' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["de", "False", "False"]


TYPES = {"batch": positive_int, "timeout": positive_number, "words": str}


def test_subject_and_options_and_all_that_is_wrong_with_them():
    subject, options = split_options("x", "http://h/a+b?c=1+batch=3+words=spacy:de", TYPES)
    assert (subject, options) == ("http://h/a+b?c=1", {"batch": 3, "words": "spacy:de"})
    assert split_options("x", "en", TYPES) == ("en", {})
    with pytest.raises(ConfigError) as caught:
        split_options("x", "+batch=0+batsh=1+timeout=nan+words=a+words=b", TYPES)
    assert caught.value.problems == [
        "annotator x: batch: expected a whole number from 1, got '0'.",
        "annotator x: unknown option 'batsh'. Nearest: batch.",
        "annotator x: timeout: expected a number above 0, got 'nan'.",
        "annotator x: expected each option once, got 'words' twice.",
        "annotator x: expected something between the colon and the options, got none.",
    ]


@pytest.mark.parametrize("text", ["-1", "1.5", "²", "9" * 5000, ""])
def test_odd_numbers_are_refused(text):
    with pytest.raises(ValueError, match="expected a whole number from 1"):
        positive_int(text)


CONLLU = """\
# text = Dogs bark .
1	Dogs	dog	NOUN	_	_	2	nsubj	_	_
2	bark	bark	VERB	_	_	0	root	_	_
3	.	.	PUNCT	_	_	2	punct	_	_

"""
TREE = "(S (NP (NOUN Dogs)) (VP (VERB bark)) (PUNCT .))"


@pytest.fixture
def parsed(tmp_path):
    path = tmp_path / "dogs.conllu"
    path.write_text(CONLLU, encoding="utf-8")
    return f"conllu:{path}"


def test_phrases_on_request(parsed):
    annotator = load_annotator(parsed + "+phrases")
    assert isinstance(annotator, Annotator)
    assert annotator.name == parsed + "+phrases"
    plain = load_annotator(parsed)
    assert annotator.provides == plain.provides | {"constituency"}
    assert annotator.version != plain.version
    assert plain.annotate(["Dogs bark ."])[0].constituency is None
    assert [sentence.constituency for sentence in annotator.annotate(["", "Dogs bark ."])] == [None, TREE]
    assert annotator.annotate_words([["Dogs", "bark", "."]])[0].constituency == TREE


def test_a_word_with_a_space_is_one_leaf(tmp_path):
    path = tmp_path / "men.conllu"
    rows = "1\t10 000\t_\tNUM\t_\t_\t2\tnummod\t_\t_\n2\tmen\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
    path.write_text(f"# text = 10 000 men\n{rows}")
    (sentence,) = load_annotator(f"conllu:{path}+phrases").annotate(["10 000 men"])
    assert sentence.words == ("10 000", "men")
    assert leaves_of(parse_tree(sentence.constituency)) == ("10\u00a0000", "men")


def test_an_annotator_that_has_trees_keeps_them_and_one_without_parser_is_refused():
    parser = SimpleNamespace(provides=frozenset({"constituency"}))
    assert with_constituency(parser) is parser
    tagger = SimpleNamespace(name="tagger", version="1", provides=frozenset({"upos"}))
    with pytest.raises(ConfigError, match="'tagger' without governors, deprels"):
        with_constituency(tagger)


def test_an_object_that_gives_other_sentences_is_refused_when_it_is_tried_and_later():
    twice = SimpleNamespace(name="twice", annotate=lambda lines: [*map(Sentence.from_words, ["ab", "c"])])
    message = r"^annotator twice: expected 1 sentences with the texts of their lines, got 2 or others\."
    with pytest.raises(
        DataError, match=message + r" The line was 'A dog barks \.', .* give it `provides`\.$"
    ):
        load_annotator(twice)
    twice.provides = frozenset()
    with pytest.raises(DataError, match=message + "$"):
        load_annotator(twice).annotate(["a b"])


def test_the_wrapper_passes_processes_on(parsed):
    seen = []
    spy = SimpleNamespace(name="spy", version="1", provides=frozenset())
    spy.stream = lambda lines, *, n_processes: seen.append(n_processes) or iter(())
    assert list(WithPhrases(spy).stream(["a"], n_processes=3)) == []
    assert seen == [3]
