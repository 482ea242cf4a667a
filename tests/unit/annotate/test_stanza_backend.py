"""The Stanza backend on real Stanza models trained here; multiword tokens through a stub of its pipeline."""

import builtins
import json
import shutil
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from syntaxformer.annotate import load_annotator
from syntaxformer.annotate.backends.stanza import StanzaParser
from syntaxformer.base.errors import BackendMissingError, ConfigError, SyntaxformerError
from syntaxformer.trees import leaves_of, parse_tree

pytest.importorskip("stanza", reason="stanza is not installed")
pytestmark = [
    pytest.mark.slow,  # models are trained
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:torch.*"),
    # Stanza's training leaves files open.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

LINES = [
    "John slipped. John slipped.",
    "",
    "The dog bark!",
    " \t ",
    "The dog \ud83d bark! 😀 (dog)",
    "dog " * 60,
    "ab" * 700,
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    from tests.unit.annotate.tiny_stanza import train

    folder = tmp_path_factory.mktemp("stanza")
    train(folder)
    return folder


@pytest.fixture(scope="module")
def annotator(models):
    return load_annotator(f"stanza:en+dir={models}+device=cpu+batch=3+max_words=25")


def test_a_line_is_a_sentence_whatever_it_holds(annotator):
    assert annotator.provides == {"upos", "xpos", "feats", "lemmas", "governors", "deprels", "constituency"}
    assert annotator.version.startswith("stanza-1.")
    sentences = annotator.annotate(LINES)
    assert [sentence.text for sentence in sentences] == LINES
    for sentence in sentences:
        surfaces = [sentence.text[start:end] for start, end in sentence.offsets]
        assert list(sentence.words) == surfaces
        assert "".join("".join(surfaces).split()) == "".join(sentence.text.split())
        assert sentence.governors is not None
        assert len(sentence.roots) >= bool(sentence.words)
        if sentence.words:
            assert len(leaves_of(parse_tree(sentence.constituency))) == len(sentence)
        else:
            assert sentence.constituency is None
    assert sentences[0].words == ("John", "slipped", ".") * 2
    assert len(sentences[0].roots) == 2
    assert sentences[0].deprels.count("root") == 2
    assert sentences[1].upos == ()


def test_long_sentences_are_parsed_in_parts(annotator):
    long, short = annotator.annotate_words([["dog"] * 60, ["dog"] * 20])
    assert len(long.roots) == 3
    assert len(short.roots) == 1
    assert max(abs(word - governor) for word, governor in enumerate(long.governors) if governor >= 0) < 25


def test_given_words_stay_as_they_are(annotator):
    word_lists = [["can't", "John."], [], ["The", "dog\u00a0house", "("]]
    first, empty, third = annotator.annotate_words(word_lists)
    assert first.words == ("can't", "John.")
    assert first.text == "can't John."
    assert empty.words == ()
    assert third.words == ("The", "dog\u00a0house", "(")
    assert leaves_of(parse_tree(third.constituency)) == third.words


def test_results_do_not_depend_on_the_batch(annotator):
    assert annotator.annotate(LINES) == [annotator.annotate([line])[0] for line in LINES]


def test_a_missing_package_is_named(monkeypatch):
    original = builtins.__import__

    def refuse(name, *rest):
        if name == "stanza":
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(BackendMissingError, match="pip install stanza"):
        load_annotator("stanza:en")


@pytest.mark.parametrize("argument", ["en+dir={0}/none", "en+dir={0}+package=gum"])
def test_missing_models_are_named_with_the_command(models, argument):
    name = argument.format(models)
    with pytest.raises(BackendMissingError) as caught:
        load_annotator(f"stanza:{name}")
    package = ", package='gum'" if "gum" in name else ""
    folder = name.partition("dir=")[2].partition("+")[0]
    assert (
        caught.value.install
        == f"python -c \"import stanza; stanza.download('en'{package}, model_dir='{folder}')\"  # some 400 to 650 MB"
    )
    assert str(caught.value).startswith("the Stanza models of 'en'")


def test_a_language_with_fewer_processors_and_an_alias(models, tmp_path):
    """Most languages have no constituency parser; some have a second name."""
    folder = tmp_path / "copy"
    shutil.copytree(models, folder)
    listed = json.loads((folder / "resources.json").read_text())
    for models_of in (listed["en"], listed["en"]["packages"]["default"]):
        del models_of["constituency"]
    listed |= {"eng": {"alias": "en"}, "url": "https://host/models"}
    (folder / "resources.json").write_text(json.dumps(listed))
    for language in ("en", "eng"):
        annotator = load_annotator(f"stanza:{language}+dir={folder}+device=cpu")
        assert annotator.provides == {"upos", "xpos", "feats", "lemmas", "governors", "deprels"}
        assert annotator.annotate(["The dog"])[0].constituency is None
    with pytest.raises(ConfigError, match=r"expected a language of Stanza .* got 'url'"):
        load_annotator(f"stanza:url+dir={folder}+device=cpu")


def test_an_unknown_language_is_refused(models):
    with pytest.raises(ConfigError, match=r"^annotator stanza: .* got 'e'\. Nearest: en\.$"):
        load_annotator(f"stanza:e+dir={models}")


@dataclass
class Word:
    text: str
    start_char: int | None = None
    end_char: int | None = None
    upos: str | None = "X"
    xpos: str | None = None
    feats: str | None = None
    lemma: str | None = None
    head: int = 0
    deprel: str | None = "dep"


@dataclass
class Sentence:
    tokens: list = field(default_factory=list)
    words: list = field(default_factory=list)
    constituency: object = None


class StubPipeline:
    """Stands for `stanza.Pipeline` with a multiword expander: "zum" is one token and two words."""

    processors = ("tokenize", "mwt", "pos", "depparse")

    def bulk_process(self, texts, processors):
        assert processors == "tokenize,mwt"
        token = SimpleNamespace(start_char=1, end_char=4, words=[Word("zu"), Word("dem")])
        house = SimpleNamespace(start_char=5, end_char=9, words=[Word("<UNK>", 5, 9)])
        return [SimpleNamespace(sentences=[SimpleNamespace(tokens=[token, house])]) for _ in texts]

    def process(self, document, processors):
        sentences = []
        for entries in document:
            words = [Word(entry["text"], head=entry["id"][0] - 1) for entry in entries]
            sentences.append(Sentence(words=words))
        return SimpleNamespace(sentences=sentences)


def test_words_of_a_multiword_token_share_its_characters():
    parser = StanzaParser(StubPipeline(), list)
    (sentence,) = parser.parse_lines([" zum Haus"])
    assert sentence.words == ("zu", "dem", "Haus")
    assert sentence.offsets == ((1, 4), (1, 4), (5, 9))
    assert sentence.governors == (-1, 0, 1)
    assert sentence.deprels == ("root", "dep", "dep")
    assert sentence.xpos == sentence.feats == ("_", "_", "_")
    assert sentence.lemmas is None


def test_a_failure_inside_stanza_is_one_line():
    class Failing(StubPipeline):
        def process(self, document, processors):
            raise RuntimeError("out of\nmemory")

    with pytest.raises(SyntaxformerError, match=r"^stanza: .*RuntimeError: out of memory\. .*\+batch"):
        StanzaParser(Failing(), list).parse_words([("a",)])
