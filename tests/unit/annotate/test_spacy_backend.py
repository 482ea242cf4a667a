import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import spacy
from spacy.tokens import Doc

from syntaxformer.annotate import load_annotator, prepare
from syntaxformer.annotate.annotator import MAX_RUN, join_parsed, segments_of
from syntaxformer.annotate.backends.spacy import DocReader, spacy_annotator
from syntaxformer.base.errors import BackendMissingError, DataError


@pytest.mark.parametrize(
    "line", ["word " * 5000, "((" * 3_000, "x" * 200_000], ids=["words", "marks", "word"]
)
def test_a_long_line_is_one_sentence(annotator, line):
    (sentence,) = annotator.annotate([line])
    assert sentence.words == tuple(line[start:end] for start, end in sentence.offsets)
    assert "".join(sentence.words) == "".join(line.split())
    assert len(sentence.upos) == len(sentence.governors) == len(sentence)
    assert all(sentence.upos)


def test_version_changes_with_the_content_of_a_package(pipeline_folder, tmp_path, monkeypatch):
    package = tmp_path / "en_packed"
    shutil.copytree(pipeline_folder, package / "en_packed-1.2.3")
    shutil.copy(pipeline_folder / "meta.json", package)
    meta = json.loads((package / "meta.json").read_text("utf-8")) | {"name": "packed"}
    (package / "meta.json").write_text(json.dumps(meta), "utf-8")
    (package / "__init__.py").write_text(
        "from spacy.util import load_model_from_init_py\n\n"
        "def load(**overrides):\n    return load_model_from_init_py(__file__, **overrides)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(spacy.util, "is_package", lambda name: name == "en_packed")
    before = load_annotator("spacy:en_packed").version
    assert before.startswith("en_tiny-1.2.3+")
    assert load_annotator("spacy:en_packed").version == before
    (package / "en_packed-1.2.3" / "note.txt").write_text("retrained")
    after = load_annotator("spacy:en_packed").version
    sys.modules.pop("en_packed")
    assert before != after
    assert after.startswith("en_tiny-1.2.3+")


def sentence_of(doc, columns, line=None, starts=(0,)):
    """What a reader makes of a document that stands at these places of a line."""
    provides, line = frozenset(columns.split()), line or doc.text
    reader = DocReader(doc.vocab.strings, provides)
    return join_parsed(line, [reader.read(doc, line, start) for start in starts], provides)


def test_governors_skip_white_space_tokens():
    # "a" is governed by a space, which another governs, and that "b"; "c" is governed by a space that is a root.
    words, deps = ["a", " ", "\t", "b", "\n", "c"], ["x", "y", "y", "ROOT", "ROOT", "z"]
    doc = Doc(spacy.blank("en").vocab, words=words, spaces=[False] * 6, heads=[1, 2, 3, 3, 4, 4], deps=deps)
    sentence = sentence_of(doc, "governors deprels")
    assert sentence.words == ("a", "b", "c")
    assert sentence.offsets == ((0, 1), (3, 4), (5, 6))
    assert sentence.governors == (1, -1, -1)
    assert sentence.deprels == ("x", "root", "root")


def test_parts_of_a_line_are_joined():
    doc = Doc(spacy.blank("en").vocab, words=["a", "b"], heads=[1, 1], deps=["x", "x"])
    sentence = sentence_of(doc, "governors deprels", "a b a b ", (0, 4))
    assert sentence.governors == (1, -1, 3, -1)
    assert sentence.offsets == ((0, 1), (2, 3), (4, 5), (6, 7))


def test_what_a_pipeline_leaves_open_has_a_name():
    values = {"upos": ("X",), "xpos": ("_",), "lemmas": ("_",), "deprels": ("dep",), "feats": ("_",)}
    sentence = sentence_of(Doc(spacy.blank("en").vocab, words=["a"]), " ".join(values))
    assert {name: getattr(sentence, name) for name in values} == values


def test_given_words_are_never_tokenised_again(annotator):
    word_lists = [["don't", "U.S.", "1\u00a01/2", "(x)"], [], ["a"]]
    sentences = annotator.annotate_words(word_lists)
    assert [list(sentence.words) for sentence in sentences] == word_lists
    assert [sentence.text for sentence in sentences] == ["don't U.S. 1\u00a01/2 (x)", "", "a"]
    assert sentences[0].offsets == ((0, 5), (6, 10), (11, 16), (17, 20))
    assert sentences[1].upos == ()


@pytest.mark.parametrize("word", ["", " ", "a b", "a\tb", "\u00a0"])
def test_words_that_are_none_are_refused(annotator, word):
    with pytest.raises(ValueError, match=r"^sentence 1: "):
        annotator.annotate_words([["fine"], ["a", word]])
    with pytest.raises(TypeError, match=r"^sentence 0: .*'John slipped'"):
        annotator.annotate_words(["John slipped"])


def test_unneeded_components_are_switched_off():
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler")
    nlp.add_pipe("attribute_ruler")
    annotator = spacy_annotator(nlp, "x", "1")
    assert nlp.pipe_names == ["attribute_ruler"]
    assert annotator.provides == {"upos"}


@pytest.mark.slow
def test_two_processes_give_what_one_gives(annotator):
    lines = ["John slipped.", "", "in front of anyone", " "] * 300
    assert annotator.annotate(lines, n_processes=2) == annotator.annotate(lines)


def test_threads_may_share_an_annotator(annotator):
    lines = ["John slipped in front.", "of anyone"] * 20
    expected = annotator.annotate(lines)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(annotator.annotate, [lines] * 8)) == [expected] * 8


def test_text_without_spaces_is_cut_behind_its_marks():
    """Else a Chinese paragraph would be cut every 400 characters, in the middle of words."""
    sentences = ["字" * 150 + "。", "字" * 390 + "，", "字" * 30 + "！", "字" * 500]
    parts = [text for _, text in segments_of("".join(sentences))]
    assert parts == [*sentences[:3], "字" * MAX_RUN, "字" * 100]
    assert len(list(segments_of("word " * 5000))) == 1


def test_a_pipeline_that_is_not_there_is_named_with_the_command_or_folder(tmp_path):
    with pytest.raises(BackendMissingError, match=r"pipeline 'xx_none_sm' .* Run: "):
        load_annotator("spacy:xx_none_sm")
    for folder in (tmp_path, "no/such/folder"):
        message = rf"^{folder}: annotator: expected a folder with a spaCy pipeline, got: \[E"
        with pytest.raises(DataError, match=message):
            load_annotator(f"spacy:{folder}")


def test_without_a_parser_that_nobody_needs_the_tags_are_the_same():
    lines = ["The old man the boat.", "", "Two dogs run. A cat sleeps!"]
    whole = load_annotator("en").annotate(lines)
    tagger = load_annotator("en").limited_to({"upos"})
    assert tagger.provides == {"upos"}
    tagged = tagger.annotate(lines)
    assert [sentence.upos for sentence in tagged] == [sentence.upos for sentence in whole]
    assert [sentence.words for sentence in tagged] == [sentence.words for sentence in whole]
    assert all(sentence.governors is None for sentence in tagged)
    assert tagger.parser.nlp.pipe_names == ["tok2vec", "morphologizer"]
    assert load_annotator("en").limited_to({"upos", "deprels"}).provides >= {"upos", "governors", "deprels"}


def test_an_annotator_of_the_users_own_is_not_limited():
    mine = load_annotator("en")
    assert prepare(mine, only={"upos"}) is mine
    assert mine.annotate(["He slipped."])[0].governors is not None
    assert prepare("en", only={"upos"}).provides == {"upos"}


@pytest.mark.parametrize(
    ("language", "line", "lemmas", "feats"),
    [
        (
            "en",
            "The dogs were barking.",
            ["the", "dog", "be", "bark", "."],
            ["Definite=Def|PronType=Art", "Number=Plur", "Mood=Ind|Number=Plur|Person=3|Tense=Past|VerbForm=Fin",
             "Tense=Pres|VerbForm=Part", "_"],
        ),
        (
            "de",
            "Die Frau sieht den Hund.",
            ["der", "Frau", "sehen", "der", "Hund", "."],
            ["Case=Nom|Definite=Def|Gender=Fem|Number=Sing|PronType=Art", "Case=Nom|Gender=Fem|Number=Sing",
             "Mood=Ind|Number=Sing|Person=3|Tense=Pres|VerbForm=Fin",
             "Case=Acc|Definite=Def|Gender=Masc|Number=Sing|PronType=Art", "Case=Acc|Gender=Masc|Number=Sing", "_"],
        ),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_raw_text_has_lemmas_and_features_as_factors(language, line, lemmas, feats):
    from syntaxformer.syntax import WordColumns, build_vocabularies, piece_factors

    annotator = load_annotator(language).limited_to({"lemmas", "feats"})
    assert "parser" not in annotator.parser.nlp.pipe_names
    columns = WordColumns.from_sentences(annotator.annotate([line]))
    vocabularies = build_vocabularies([columns], ["lemma", "feats"])
    words = list(range(len(lemmas)))  # a piece for each word
    factors = piece_factors(columns, words, [0, len(words)], vocabularies)
    assert vocabularies["lemma"].decode(factors[:, 0]) == lemmas
    assert vocabularies["feats"].decode(factors[:, 1]) == feats
