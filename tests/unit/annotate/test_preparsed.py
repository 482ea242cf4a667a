import pytest

from syntaxformer.annotate import (
    AnnotatedInOrder,
    Annotator,
    WordsAsGiven,
    annotate_cached,
    annotator_for,
    load_annotator,
)
from syntaxformer.base.errors import ConfigError, DataError, TreeError
from syntaxformer.trees import Sentence, write_conllu

CAT = Sentence.from_words(["the", "cat"], upos=("DET", "NOUN"), governors=(1, -1), deprels=("det", "root"))
ZUM = Sentence(
    "zum", ("zu", "dem"), ((0, 3), (0, 3)), upos=("ADP", "DET"), governors=(-1, 0), deprels=("root", "det")
)


@pytest.fixture
def parsed_file(tmp_path):
    """A function that returns the annotator of a file with these sentences."""

    def write(sentences):
        write_conllu(tmp_path / "a.conllu", sentences)
        return load_annotator(f"conllu:{tmp_path}/a.conllu")

    return write


@pytest.fixture
def conllu(parsed_file):
    return parsed_file([CAT, ZUM, CAT])


@pytest.fixture
def ptb(tmp_path):
    path = tmp_path / "a.mrg"
    path.write_text(
        "( (S (NP-SBJ (DT the) (NN cat)) (VP (VBD sat) (NP (-NONE- *)))\n (`` ``) (. .)))\n(X (NN dog))\n"
    )
    return load_annotator(f"ptb:{path}")


def test_lines_get_sentences_in_order_with_their_own_offsets(conllu):
    assert isinstance(conllu, Annotator)
    assert conllu.provides == {"upos", "governors", "deprels"}
    first, second, third = conllu.annotate(["the cat", " zum", "the  cat"])
    assert first == CAT
    assert second.offsets == ((1, 4), (1, 4))
    assert third.offsets == ((0, 3), (5, 8))
    assert third.governors == CAT.governors


def test_words_in_another_unicode_form_than_the_line(parsed_file):
    annotator = parsed_file([Sentence.from_words(["Ka\u0308se", "10\u00a0000", "."])])
    (sentence,) = annotator.annotate(["Käse 10 000 ."])
    assert sentence.offsets == ((0, 4), (5, 11), (12, 13))


def test_a_blank_line_takes_no_sentence(conllu):
    sentences = conllu.annotate(["the cat", "", "zum", "the cat", " "])
    assert [len(sentence) for sentence in sentences] == [2, 0, 2, 2, 0]
    assert sentences[1].upos == ()


def test_trees_give_tags_and_constituency(ptb):
    assert ptb.provides == {"xpos", "constituency"}
    first, second = ptb.annotate(['the cat sat".', "dog"])
    assert first.words == ("the", "cat", "sat", "``", ".")
    assert first.offsets[-2:] == ((11, 12), (12, 13))
    assert "-NONE-" not in first.constituency
    assert second.xpos == ("NN",)


def test_words_given_with_a_no_break_space_stay_whole(parsed_file):
    words = ["10\u00a0000", "Euro"]
    (sentence,) = WordsAsGiven(parsed_file([Sentence.from_words(words)])).annotate(["10\u00a0000 Euro"])
    assert list(sentence.words) == words


@pytest.mark.parametrize(
    ("lines", "position"),
    [
        (["the cat", "zum", "the dog"], "line 3 of the text, 'the dog': word 2"),
        (["the cat", "zum", "the cat", "more"], "line 4 of the text, 'more', got the end"),
        (["the cat", "zum"], "one after its 2 lines: 'the cat'"),
    ],
)
def test_what_does_not_fit_is_refused(conllu, lines, position):
    with pytest.raises(DataError, match=f"a\\.conllu: .*{position}"):
        conllu.annotate(lines)


def test_missing_and_malformed_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.conllu: expected a readable file"):
        load_annotator(f"conllu:{tmp_path / 'none.conllu'}")
    path = tmp_path / "bad.mrg"
    path.write_text("(A b)\n(S (-NONE- *))\n")
    with pytest.raises(TreeError, match=r"bad\.mrg: tree 2: tree: expected at least one word"):
        load_annotator(f"ptb:{path}").annotate(["b", "c"])


UNTAGGED = Sentence.from_words(["a", "b"], governors=(1, -1), deprels=("dep", "root"))


@pytest.mark.parametrize("sentences", [[CAT, UNTAGGED, CAT], [UNTAGGED, CAT, CAT]])
def test_a_sentence_without_the_tags_of_the_others_is_named(parsed_file, sentences):
    annotator = parsed_file(sentences)
    assert "upos" in annotator.provides
    number = sentences.index(UNTAGGED) + 2
    with pytest.raises(DataError, match=rf"a\.conllu: .* line {number} of the text, 'a b': expected upos"):
        annotator.annotate(["", *(sentence.text for sentence in sentences)])


def test_a_file_without_tags_has_none(parsed_file):
    annotator = parsed_file([UNTAGGED, UNTAGGED])
    assert annotator.provides == {"governors", "deprels"}
    assert annotator.annotate(["a b", "", "a b"])[2] == UNTAGGED


def test_the_lemma_of_an_underscore_is_one(parsed_file):
    cat = Sentence.from_words(["a", "cat"], lemmas=("a", "cat"), xpos=("DT", "NN"))
    annotator = parsed_file([Sentence.from_words(["_"]), cat])
    assert annotator.provides == {"lemmas", "xpos"}
    first, second = annotator.annotate(["_", "a cat"])
    assert (first.lemmas, first.xpos) == (("_",), ("_",))
    assert second == cat


@pytest.fixture
def splits(tmp_path):
    write_conllu(tmp_path / "train.conllu", [CAT, CAT])
    write_conllu(tmp_path / "dev.conllu", [ZUM])
    return f"conllu:{tmp_path}/{{split}}.conllu"


def test_one_name_for_the_files_of_all_splits(splits, tmp_path):
    annotator = load_annotator(splits)
    assert isinstance(annotator, Annotator)
    assert annotator.name == splits
    assert annotator.provides == {"upos", "governors", "deprels"}
    assert annotator_for(annotator, "train").annotate(["the cat", "the cat"]) == [CAT, CAT]
    assert annotator_for(annotator, "dev").annotate(["zum"]) == [ZUM]
    version = annotator.version
    write_conllu(tmp_path / "dev.conllu", [ZUM, ZUM])
    assert load_annotator(splits).version != version


def test_splits_reach_through_wrappers(splits):
    phrases = annotator_for(WordsAsGiven(load_annotator(splits + "+phrases")), "dev")
    assert phrases.annotate(["zum"])[0].constituency is not None
    plain = load_annotator("en")
    assert annotator_for(plain, "dev") is plain


def test_a_split_without_a_file_and_a_file_of_other_length(splits, tmp_path):
    annotator = load_annotator(splits)
    with pytest.raises(DataError, match=r"test\.conllu: .*the split 'test'"):
        annotator_for(annotator, "test")
    with pytest.raises(DataError, match=r"dev\.conllu: .*line 2 of the text, 'zum', got the end"):
        annotator_for(annotator, "dev").annotate(["zum", "zum"])
    with pytest.raises(DataError, match=r"\{split\}\.mrg: "):
        load_annotator(f"ptb:{tmp_path}/{{split}}.mrg")
    for annotate in (annotator.annotate, annotator.annotate_words):  # without a split
        with pytest.raises(ConfigError, match=r"^annotator: "):
            annotate([["zum"]] if annotate == annotator.annotate_words else ["zum"])


def test_given_words_of_a_long_file(parsed_file):
    """It is read from its start at each call, so it gets all lines in one."""
    lines = [f"cat {number}" for number in range(1001)]
    annotator = WordsAsGiven(parsed_file([Sentence.from_words(line.split()) for line in lines]))
    sentences = annotator.annotate([line.replace(" ", "  ") for line in lines])
    assert [sentence.text for sentence in sentences] == lines


def test_equal_lines_keep_their_own_parses(parsed_file, tmp_path):
    """As in a treebank; dev BLEU asks for them in several calls."""
    sentences = [Sentence.from_words(["it", "flies"], upos=("PRON", tag)) for tag in ("NOUN", "VERB", "X")]
    annotator, lines = parsed_file(sentences), ["it flies"] * 3
    known = AnnotatedInOrder(annotate_cached(lines, annotator, tmp_path / "cache"))
    assert (known.name, known.version) == (annotator.name, annotator.version)
    tags = [sentence.upos[1] for chunk in (lines[:1], lines[1:]) for sentence in known.annotate(chunk)]
    assert tags == ["NOUN", "VERB", "X"]
    with pytest.raises(DataError, match=r"^annotation: expected its lines in their order, got 'it flies'\.$"):
        known.annotate(["it flies"])


def test_a_share_of_a_text_takes_the_sentences_of_the_same_numbers(conllu, tmp_path):
    """Also inside a control, and with a file for each split; a file of the share alone is read in order."""
    dog = Sentence.from_words(["a", "dog"], upos=("DET", "NOUN"), governors=(1, -1), deprels=("det", "root"))
    write_conllu(tmp_path / "train.conllu", [CAT, ZUM, dog])
    splits, lines = f"conllu:{tmp_path}/{{split}}.conllu", ["the cat", "a dog"]
    for name in (splits, f"conllu:{tmp_path}/train.conllu", f"random_tree({splits})"):
        annotator = load_annotator(name)
        share = annotator_for(annotator, "train", [0, 2])
        assert [sentence.words for sentence in share.annotate(lines)] == [CAT.words, dog.words]
        assert share.version != annotator_for(annotator, "train").version  # another text for the cache
    with pytest.raises(DataError, match="expected 'a' at character 0"):
        annotator_for(annotator, "train", [1, 2]).annotate(["zum", "the cat"])
    assert len(annotator_for(conllu, "train", [4, 5, 9]).annotate(["the cat", "zum", "the cat"])) == 3
