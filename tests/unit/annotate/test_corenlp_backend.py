"""The CoreNLP client against a loopback server that speaks CoreNLP's JSON (`corenlp_stub`)."""

import gc
import json
import logging
import socket
import threading

import pytest
from tests.unit.annotate.corenlp_stub import serving

from syntaxformer.annotate import Annotator, WordsAsGiven, load_annotator
from syntaxformer.annotate.annotator import BatchedAnnotator
from syntaxformer.annotate.backends import corenlp
from syntaxformer.base.errors import BackendMissingError, ConfigError, DataError, SyntaxformerError
from syntaxformer.trees import Sentence, leaves_of, parse_tree

LINES = [
    "It rains. It (always) rains.",
    "",
    "100%25 + 5 % 20%20 &x=1;",
    "😀 smiles 👨‍👩‍👧 . 𝔘𝔫𝔦 end",
    "a\u2028b\rc\x85d \ud83d e",
    " \u3000 ",
    "x" * 900,
]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(corenlp, "PAUSE_S", 0.0)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", corenlp.ADDRESS_VARIABLE):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def server():
    with serving() as stub:
        yield stub


def load(server, options=""):
    return load_annotator(f"corenlp:{server.url}{options}")


def test_lines_come_back_as_sentences_with_character_offsets(server):
    annotator = load(server)
    assert isinstance(annotator, Annotator)
    assert annotator.provides == {"upos", "xpos", "lemmas", "governors", "deprels", "constituency"}
    sentences = annotator.annotate(LINES)
    assert [sentence.text for sentence in sentences] == LINES
    for sentence in sentences:
        assert sentence.words == tuple(sentence.text[start:end] for start, end in sentence.offsets)
        if sentence.words:
            assert leaves_of(parse_tree(sentence.constituency)) == sentence.words
            assert "".join(sentence.words) == "".join(sentence.text.split())
    first, empty, percent, smile, *_ = sentences
    assert first.words == ("It", "rains", ".", "It", "(", "always", ")", "rains", ".")
    assert first.governors == (-1, 0, 1, -1, 3, 4, 5, 6, 7)
    assert first.deprels[3] == "root"
    assert first.upos[:3] == ("NOUN", "NOUN", "PUNCT")
    assert first.lemmas[0] == "it"
    assert first.constituency.startswith("(S (S (NN It) (NN rains) (NN .)) (S (NN It) (NN -LRB-) (NN always)")
    assert (empty.words, empty.governors) == ((), ())
    assert percent.words[:3] == ("100", "%", "25")
    assert smile.words[:2] == ("😀", "smiles")
    assert smile.offsets[-1] == (21, 24)


def test_results_do_not_depend_on_threads(server):
    lines = LINES * 3
    plain = load(server).annotate(lines)
    assert load(server, "+threads=3").annotate(lines) == plain
    assert list(load(server).stream(lines, n_processes=2)) == plain
    lines = ["a b .", "c d"] * 3
    word_lists = [line.split() for line in lines]
    assert load(server, "+threads=3").annotate_words(word_lists) == load(server).annotate_words(word_lists)
    waiting = WordsAsGiven(load(server, "+threads=2"))
    assert [sentence.words for sentence in waiting.stream(lines, n_processes=4)] == [
        tuple(words) for words in word_lists
    ]
    assert waiting.annotator.threads == 2


def test_given_words_are_asked_for_side_by_side():
    """Two requests wait for each other; one after the other, the first would wait for nothing."""
    both = threading.Barrier(2, timeout=30)

    class Together:
        def parse_words(self, sentences):
            both.wait()
            return [Sentence.from_words(words) for words in sentences]

    annotator = BatchedAnnotator(Together(), "both", "1", frozenset(), batch_lines=1, threads=2)
    sentences = annotator.annotate_words([["a"], [], ["b"]])
    assert [sentence.words for sentence in sentences] == [("a",), (), ("b",)]


def test_given_words_are_never_cut_again(server):
    annotator = load(server, "+language=german")
    server.requests.clear()
    word_lists = [["can't", "3/4.", "dog\u00a0house"], [], ["😀", "."], ["a\u2003b\u200b", "."]]
    sentences = annotator.annotate_words(word_lists)
    assert [list(sentence.words) for sentence in sentences] == word_lists
    assert leaves_of(parse_tree(sentences[3].constituency))[0] == "a\u2003b\u200b"
    assert all(len(sentence.roots) == 1 for sentence in sentences if sentence.words)
    assert [text for _, _, text, _ in server.requests] == ["can't 3/4. dog_house", "😀 .", "a_b_ ."]
    query = server.requests[0][1]
    properties = json.loads(query["properties"])
    assert properties["tokenize.whitespace"] == properties["ssplit.eolonly"] == "true"
    assert properties["annotators"] == "tokenize,ssplit,pos,depparse,parse"
    assert query["pipelineLanguage"] == "german"

    server.change = lambda sentence: sentence["tokens"][0].update(characterOffsetEnd=1)
    with pytest.raises(DataError, match="expected the 2 words of 'two words', got 2 others"):
        annotator.annotate_words([["two", "words"]])


def test_words_that_share_their_characters(server):
    annotator = load(server)

    def double(sentence):
        first, second = sentence["tokens"]
        second.update(first, word="dem")
        first["word"] = "zu"

    server.change = double
    (sentence,) = annotator.annotate(["zum Haus"])
    assert sentence.words == ("zu", "dem")
    assert sentence.offsets == ((0, 3), (0, 3))


def test_what_the_server_lacks_is_not_provided(server):
    annotator = load(server, "+annotators=tokenize,ssplit,pos")
    assert annotator.provides == {"upos", "xpos"}
    (sentence,) = annotator.annotate(["a b"])
    assert sentence.governors is sentence.lemmas is sentence.constituency is None


def test_tags_of_other_languages(server):
    assert load(server, "+language=chinese").provides == {"xpos", "governors", "deprels", "constituency"}

    def universal(sentence):
        for token in sentence["tokens"]:
            token["pos"] = "NOUN"

    server.change = universal
    annotator = load(server, "+language=german")
    assert annotator.annotate(["Haus"])[0].upos == ("NOUN",)


def test_sentences_that_the_server_skipped_and_arcs_that_it_left_out(server, caplog):
    annotator = load(server)

    def skip(sentence):
        del sentence["parse"]
        del sentence["basicDependencies"][2]

    server.change = skip
    (sentence,) = annotator.annotate(["a b ."])
    assert sentence.constituency == "(S (NN a) (NN b) (. .))"
    assert sentence.governors == (-1, 0, 0)
    annotator.annotate(["c d e"] * 9)
    assert caplog.messages == [
        f"corenlp parsed no tree of {n} sentence(s), which get flat trees; the last began '{words}'"
        for n, words in ((1, "a b ."), (10, "c d e"))
    ]


def test_a_busy_server_is_asked_again(server):
    annotator = load(server)
    server.answers = [
        lambda handler: handler.reply(503, b"busy"),
        lambda handler: handler.connection.shutdown(socket.SHUT_RDWR),
    ]
    assert annotator.annotate(["a"])[0].words == ("a",)
    server.answers = [lambda handler: handler.reply(503, b"busy")] * 3
    with pytest.raises(SyntaxformerError, match=r"got HTTP 503: busy\. The text: 'a'\.$"):
        annotator.annotate(["a"])
    server.refuses = "poison"
    with pytest.raises(SyntaxformerError, match=r"HTTP 500: .* The text: 'some poison here'\."):
        annotator.annotate(["good"] * 7 + ["some poison here"])


def test_no_server_and_one_that_does_not_answer(server):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(BackendMissingError, match=rf"127\.0\.0\.1:{port} .*-port {port} "):
        load_annotator(f"corenlp:http://127.0.0.1:{port}")
    server.answers = [lambda handler: handler.server and server.release.wait(5)] * 2
    with pytest.raises(SyntaxformerError, match=r"in 0\.1 s, got none in 2 attempt\(s\)"):
        load(server, "+timeout=0.1+retries=1")


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[]", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"sentences": 3}', b""]
)
def test_what_is_no_corenlp_is_told(server, answer, request):
    # Where another test's object is finalised at the bottom of a recursion, even its warning fails.
    gc.collect()
    gc.disable()
    request.addfinalizer(gc.enable)
    server.answers = [lambda handler: handler.reply(200, answer)]
    with pytest.raises(SyntaxformerError, match=r"^corenlp: expected JSON .*from http"):
        load(server)


CHANGES = {
    "KeyError: 'tokens'": lambda sentence: sentence.pop("tokens"),
    "KeyError: 'characterOffsetEnd'": lambda sentence: sentence["tokens"][0].pop("characterOffsetEnd"),
    "0 to 99": lambda sentence: sentence["tokens"][0].update(characterOffsetEnd=99),
    "ValueError: invalid": lambda sentence: sentence["tokens"][0].update(characterOffsetEnd="x"),
    "from 9 to 1": lambda sentence: sentence["basicDependencies"][0].update(governor=9),
    "analysis of 'a b'": lambda sentence: sentence["basicDependencies"][0].update(governor=2),
    "TreeError: line 1": lambda sentence: sentence.update(parse="(ROOT (S"),
    "over 2 words, got one over 1": lambda sentence: sentence.update(parse="(ROOT (S (NN a)))"),
    "TypeError": lambda sentence: sentence.update(tokens=[3]),
}


@pytest.mark.parametrize("problem", CHANGES)
def test_answers_that_do_not_fit_are_refused(server, problem):
    annotator = load(server)
    server.change = CHANGES[problem]
    with pytest.raises(DataError, match=problem):
        annotator.annotate(["a b"])


def test_secrets_stand_in_no_name_message_or_log(server, caplog, monkeypatch):
    secret = server.url.replace("http://", "http://ann:p%40ss@") + "/hidden/way"
    caplog.set_level(logging.DEBUG)
    annotator = load_annotator(f"corenlp:{secret}+language=english")
    assert annotator.name == f"corenlp:{server.url}+language=english"
    path, _, _, authorization = server.requests[-1]
    assert path == "/hidden/way/"
    assert authorization == "Basic YW5uOnBAc3M="  # ann:p@ss
    server.answers = [lambda handler: handler.reply(401, b"who?")]
    with pytest.raises(SyntaxformerError) as refused:
        annotator.annotate(["a"])
    server.answers = [lambda handler: handler.reply(302, b"", Location="http://elsewhere.invalid/")]
    with pytest.raises(SyntaxformerError, match="HTTP 302") as moved:
        annotator.annotate(["a"])
    with pytest.raises(ConfigError) as unknown:
        load_annotator(f"corenl:{secret}")
    errors = [str(error.value) for error in (refused, moved, unknown)]
    said = " ".join([annotator.name, annotator.version, *errors, caplog.text])
    assert not [word for word in ("ann:", "p%40ss", "p@ss", "hidden", "YW5u") if word in said]
    assert "Give user and password in the address, or the whole address in $SYNTAXFORMER_CORENLP." in str(
        refused.value
    )
    # The stored name works again where the environment has the rest.
    monkeypatch.setenv(corenlp.ADDRESS_VARIABLE, secret)
    again = load_annotator(annotator.name)
    assert (again.name, again.version) == (annotator.name, annotator.version)
    assert server.requests[-1][0] == "/hidden/way/"
    assert server.requests[-1][3] == authorization


def test_the_version_follows_the_server(server):
    before = load(server).version
    assert load(server).version == before
    assert load(server, "+language=english").version != before

    server.change = lambda sentence: sentence["tokens"][0].update(pos="UH")
    assert load(server).version != before


@pytest.mark.parametrize(
    "url", ["localhost:9000", "ftp://h", "http://", "http://h:port", "http://[::1", "http://h:99999"]
)
def test_addresses_that_are_none(url):
    with pytest.raises(ConfigError, match=r"^annotator corenlp: expected an address"):
        load_annotator(f"corenlp:{url}")
