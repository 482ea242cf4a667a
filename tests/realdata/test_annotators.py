"""The bundled pipelines on real text."""

from itertools import islice

import pytest

from syntaxformer.annotate import load_annotator
from syntaxformer.base.errors import BackendMissingError
from syntaxformer.base.files import read_lines
from syntaxformer.trees import check_governors

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
