"""Which language the ending of a file names, and that endings which say what a file is for name none."""

from __future__ import annotations

import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.base.languages import TextLanguage, choose_annotator, language_of, language_of_file


@pytest.mark.parametrize(
    ("ending", "language"),
    [
        ("de", "de"), ("DE", "de"), ("de-AT", "de"), ("de_AT", "de"), ("de-Latn-DE", "de"), ("deu", "de"), ("ger", "de"),
        ("fra", "fr"), ("fre", "fr"), ("ces", "cs"), ("cze", "cs"), ("zho", "zh"), ("chi", "zh"), ("cmn", "zh"), ("arb", "ar"),
        ("hsb", "hsb"), ("yue", "yue"), ("nob", "nb"), ("iw", "he"),
        ("tok.de", "de"), ("de.tok", "de"), ("bpe.32000.de", "de"), ("de-en.en", "en"), ("src.en", "en"), ("de.UTF-8", "de"),
        ("src", None), ("tgt", None), ("trg", None), ("txt", None), ("tok", None), ("bpe", None), ("spm", None), ("raw", None),
        ("in", None), ("out", None), ("TXT", None), ("clean", None), ("lc", None), ("und", None), ("mul", None), ("zxx", None),
        ("x-mine", None), ("de-en", None), ("german", None), ("0", None), ("", None), ("..", None),
    ],
)  # fmt: skip
def test_the_language_of_an_ending(ending, language):
    assert language_of(ending) == language


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("data/train.de", "de"), ("s3://bucket/train.de.gz", "de"), ("news.2014.tok.deu.gz", "de"), ("de.txt", None),
        ("train.de.txt", "de"), ("de/train", None), ("corpus.parquet", None),
    ],
)  # fmt: skip
def test_the_language_of_a_file(path, language):
    assert language_of_file(path) == TextLanguage(language, path.rpartition("/")[2])


@pytest.mark.parametrize(
    ("named", "language", "chosen"),
    [
        (None, "de", "de"), (None, "en", "en"), ("de_lower", "de", "de_lower"), ("de+phrases", "de", "de+phrases"),
        ("en", None, "en"), ("stanza:fr", "fr", "stanza:fr"), ("spacy:en_core_web_sm", "de", "spacy:en_core_web_sm"),
        ("conllu:en.conllu", "de", "conllu:en.conllu"), ("stanza:de+batch=3", "de", "stanza:de+batch=3"),
    ],
)  # fmt: skip
def test_who_annotates(named, language, chosen):
    assert choose_annotator(named, TextLanguage(language, "train.x"), "--annotator") == chosen


@pytest.mark.parametrize(
    ("named", "language", "message"),
    [
        ("de_lower", "en", "expected an annotator for en, the language of train.x, got de_lower. Set --annotator=en, or TELL, or FORCE."),
        (None, None, "expected an annotator's name, as train.x names no language to choose one by, got none. Set --annotator=NAME, or TELL."),
        ("en", "nds", "expected an annotator for nds, the language of train.x, got en. Set --annotator=FOLDER, which `syntaxformer annotator train` makes of a treebank, "
         "or --annotator=conllu:FILE of parses, or --annotator=spaces for factors of text (case, subword), or --annotator=stanza:nds (python -m pip install "
         '"syntaxformer[stanza]"; python -c "import stanza; stanza.download(\'nds\')": some 400 to 650 MB), or --annotator=spacy:NAME '
         "(python -m spacy download NAME: 12 MB for sm to 600 MB for lg), or TELL, or FORCE."),
    ],
)  # fmt: skip
def test_what_to_set_where_nobody_can_be_chosen(named, language, message):
    with pytest.raises(ConfigError) as caught:
        choose_annotator(named, TextLanguage(language, "train.x"), "--annotator", "TELL", "FORCE")
    assert str(caught.value) == f"--annotator: {message}"
