"""Whatever a line holds, it is one sentence, and whatever a sentence holds, it comes back from disk."""

import pytest
import spacy
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.property.test_conllu_round_trip import sentences

from syntaxformer.annotate import read_annotations, write_annotations
from syntaxformer.annotate.annotator import MAX_RUN, segments_of
from syntaxformer.annotate.backends.spacy import spacy_annotator
from syntaxformer.trees import check_governors

LINES = st.text(
    st.characters() | st.sampled_from(" \t\0\r\u00a0\u200b\u200d\ufeff\u2028\x85👩🏽\u0301().,'"), max_size=60
)


@pytest.fixture(scope="module")
def annotator():
    """A pipeline whose tagger and parser are not trained: any tags and trees, on real tokens."""
    nlp = spacy.blank("en")
    nlp.add_pipe("morphologizer").add_label("POS=NOUN")
    nlp.add_pipe("parser").add_label("dep")
    nlp.initialize()
    return spacy_annotator(nlp, "untrained", "0")


@given(lines=st.lists(LINES, max_size=6))
@example(["5 " * 50, "x" * 2000, "a \ud800 b", "שלום עולם \u202eabc", "👩‍👩‍👧‍👦 🏳️‍🌈!"])
@settings(max_examples=60, deadline=None)
def test_one_line_in_one_sentence_out(annotator, lines):
    sentences = annotator.annotate(lines)
    assert [sentence.text for sentence in sentences] == lines
    for sentence in sentences:
        assert all(sentence.words)
        assert "".join(sentence.words) == "".join(sentence.text.split())
        assert sentence.words == tuple(sentence.text[start:end] for start, end in sentence.offsets)
        check_governors(sentence.governors, sentence.words)
        assert len(sentence.upos) == len(sentence)


@given(line=LINES.flatmap(lambda text: st.integers(0, 200).map(lambda n: (text or "x") * n)))
@settings(deadline=None)
def test_segments_are_the_line(line):
    segments = list(segments_of(line))
    assert "".join(text for _, text in segments) == line
    assert all(line.startswith(text, start) for start, text in segments)
    assert all(len(run) <= MAX_RUN for _, text in segments for run in text.split())


@pytest.mark.slow
@given(corpus=st.lists(sentences(), max_size=6))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_stored_comes_back(tmp_path, corpus):
    path = tmp_path / "a.parquet"
    write_annotations(path, corpus, annotator="x", version="1", content_hash="")
    annotated = read_annotations(path)
    assert list(annotated) == corpus
    columns = annotated.columns()
    starts = [start for sentence in corpus for start, _ in sentence.offsets]
    assert columns.starts.tolist() == starts
    if "upos" in columns.values:
        tags = [columns.tags["upos"][code] for code in columns.values["upos"]]
        assert tags == [tag for sentence in corpus for tag in sentence.upos or ()]
