import pytest

from syntaxformer.annotate import (
    Annotator,
    WithPhrases,
    load_annotator,
    with_constituency,
)
from syntaxformer.base.errors import ConfigError
from syntaxformer.trees import leaves_of, parse_tree

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
    assert [sentence.constituency for sentence in annotator.annotate_words([["Dogs", "bark", "."]])] == [TREE]


def test_a_word_with_a_space_is_one_leaf(tmp_path):
    path = tmp_path / "men.conllu"
    path.write_text(
        "# text = 10 000 men\n1\t10 000\t_\tNUM\t_\t_\t2\tnummod\t_\t_\n2\tmen\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n",
        encoding="utf-8",
    )
    (sentence,) = load_annotator(f"conllu:{path}+phrases").annotate(["10 000 men"])
    assert sentence.words == ("10 000", "men")
    assert leaves_of(parse_tree(sentence.constituency)) == ("10\u00a0000", "men")


def test_an_annotator_that_has_trees_keeps_them(tmp_path):
    path = tmp_path / "dogs.mrg"
    path.write_text("(S (NP (NNS Dogs)) (VP (VBP bark)))\n", encoding="utf-8")
    annotator = load_annotator(f"ptb:{path}")
    assert with_constituency(annotator) is annotator


def test_an_annotator_without_parser_is_refused():
    class Tagger:
        name = "tagger"
        version = "1"
        provides = frozenset({"upos"})

    with pytest.raises(ConfigError, match="'tagger' without governors, deprels"):
        with_constituency(Tagger())


def test_the_wrapper_passes_processes_on(parsed):
    seen = []

    class Spy:
        name, version, provides = "spy", "1", frozenset()

        def stream(self, lines, *, n_processes=1):
            seen.append(n_processes)
            return iter(())

    assert list(WithPhrases(Spy()).stream(["a"], n_processes=3)) == []
    assert seen == [3]
