"""`pipeline` on classifiers that are faked: forms of texts that are refused, and answers without content."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from syntaxformer.pipelines import ClassificationPipeline


@pytest.mark.parametrize(
    "text", [{}, {"text_pair": "a"}, {"question": "a"}, {"text": "a", "context": "b"}, {"txt": "a"}]
)
def test_keys_that_name_no_text_or_pair_are_refused(text):
    got = ", ".join(map(repr, text)) or "none"
    expected = f"^texts: expected the keys text and text_pair, or question and context, got {got}.$"
    with pytest.raises(TypeError, match=expected):
        ClassificationPipeline(SimpleNamespace())(text)


def test_a_text_without_words_has_no_tags():
    classifier = SimpleNamespace(
        task_type=SimpleNamespace(parts="words"),
        predict=lambda *_: SimpleNamespace(n_truncated=0),
        answers=lambda _: [{"tags": []}],
    )
    assert ClassificationPipeline(classifier)("\u200b") == []
