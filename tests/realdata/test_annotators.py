"""The bundled pipelines on real text."""

from itertools import islice

import pytest

from syntaxformer.annotate import load_annotator
from syntaxformer.base.errors import BackendMissingError
from syntaxformer.base.files import read_lines
from syntaxformer.trees import check_governors, read_conllu

pytestmark = pytest.mark.slow

UPOS = {
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
}


def bundled(language):
    try:
        return load_annotator(language)
    except BackendMissingError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("language", ["en", "de"])
def test_captions(data_root, language):
    lines = list(islice(read_lines(data_root / "multi30k" / f"test2016.{language}.gz"), 200))
    annotator = bundled(language)
    sentences = annotator.annotate([*lines, ""])
    assert annotator.version.startswith(f"{language}_")
    assert [sentence.text for sentence in sentences] == [*lines, ""]
    for sentence in sentences:
        assert set(sentence.upos) <= UPOS
        check_governors(sentence.governors, sentence.words)
    assert sum(sentence.upos[-1] == "PUNCT" for sentence in sentences[:-1]) > 180


@pytest.mark.parametrize(("language", "treebank"), [("en", "en_ewt-ud-test"), ("de", "de_gsd-ud-test")])
def test_gold_words_are_tagged_as_in_the_treebank(data_root, language, treebank):
    gold = list(islice(read_conllu(data_root / "ud" / f"{treebank}.conllu.gz"), 200))
    words = [[word.replace(" ", "\u00a0") for word in sentence] for sentence in gold]
    found = bundled(language).annotate_words(words)
    pairs = [pair for g, f in zip(gold, found, strict=True) for pair in zip(g.upos, f.upos, strict=True)]
    assert sum(a == b for a, b in pairs) / len(pairs) > 0.88


def test_lines_are_annotated_once_per_file(data_root, tmp_path):
    from syntaxformer.annotate import annotate_cached
    from syntaxformer.annotate.shards import SourceLines

    annotator = bundled("en")
    lines = SourceLines(str(data_root / "multi30k" / "test2017.en.gz"))
    first = annotate_cached(lines, annotator, tmp_path)
    assert len(first) == len(lines) == 1000
    assert first.header.columns == ("upos", "deprels", "governors", "lemmas", "feats")
    again = annotate_cached(lines, annotator, tmp_path)
    assert again.path == first.path
    assert again.columns().row_offsets[-1] == first.header.n_words
