import logging

import numpy as np
import pytest

from syntaxformer.annotate import AnnotatedBefore, annotate_to_file, store
from syntaxformer.base.errors import ConfigError

LINES = ["John slipped .", "", "It rains .", "John slipped .", "A new line .", "It rains ."]


@pytest.fixture
def file(annotator, tmp_path):
    path = tmp_path / "before.parquet"
    annotate_to_file(path, ["It rains .", "unused", "", "John slipped ."], annotator)
    return path


class Listening:
    """The lines that reach the annotator."""

    def __init__(self, annotator):
        self.annotator, self.seen = annotator, []
        self.name, self.version, self.provides = annotator.name, annotator.version, annotator.provides

    def stream(self, lines, *, n_processes=1):
        for line in lines:
            self.seen.append(line)
            yield from self.annotator.stream([line])

    def annotate_words(self, sentences):
        return self.annotator.annotate_words(sentences)


@pytest.mark.parametrize("at_a_time", [1, 2, 100])
def test_only_lines_that_are_in_no_file_are_annotated(file, annotator, monkeypatch, caplog, at_a_time):
    monkeypatch.setattr(store, "_LINES_AT_A_TIME", at_a_time)
    listening = Listening(annotator)
    before = AnnotatedBefore(listening, [file])
    with caplog.at_level(logging.INFO):
        assert list(before.stream(iter(LINES))) == list(annotator.stream(LINES))
    assert listening.seen == ["A new line ."]
    assert "annotation: 5 of 6 lines were annotated before" in caplog.text
    assert (before.name, before.version) == (annotator.name, annotator.version)
    assert before.annotate_words([["It", "rains"]]) == annotator.annotate_words([["It", "rains"]])


def test_two_texts_of_one_hash_are_told_apart(file, annotator, monkeypatch):
    monkeypatch.setattr(store, "_hashes", lambda lines: np.full(len([*lines]), 7, np.uint64))
    assert list(AnnotatedBefore(annotator, [file]).stream(LINES)) == list(annotator.stream(LINES))


def test_a_file_of_another_annotator_is_refused(file, annotator):
    other = Listening(annotator)
    other.version = "2"
    with pytest.raises(ConfigError, match=r"annotation\.annotated: .*before\.parquet by "):
        AnnotatedBefore(other, [file])
    other = Listening(annotator)
    other.provides = annotator.provides | {"constituency"}
    with pytest.raises(ConfigError, match=r"annotation\.annotated: .*constituency"):
        AnnotatedBefore(other, [file])
