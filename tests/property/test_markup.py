"""Markup: whatever the alignment, every tag and comment comes back once, where it was; by a real HTML parser."""

from __future__ import annotations

from collections import Counter
from html import escape
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntaxformer.base.errors import DataError
from syntaxformer.translation.alignment import PieceAttention, word_spans
from syntaxformer.translation.decoding import Hypothesis
from syntaxformer.translation.markup import VOID, Markup

TEXT = st.text(st.sampled_from("ab é.,<>&\"';\u00a0我\t/!-"), max_size=9)
ATTRIBUTES = st.sampled_from(
    ["", ' class="a > b"', " data-x='<i>'", ' href="?a&amp;b"', " hidden", "\tid=x "]
)


def _element(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    name = st.sampled_from(["b", "I", "a", "span", "p", "x-y", "g:h", "li"])
    return st.builds(
        lambda tag, rest, content: f"<{tag}{rest}>{content}</{tag.lower()}>", name, ATTRIBUTES, inner
    )


ATOMS = st.one_of(
    TEXT.map(lambda text: escape(text, quote=False)),
    st.sampled_from(
        ["<br>", "<img src='a>b'/>", "<!-- <b> c -->", "<!---->", "<x/>", "&eacute;", "&lt", "1 < 2"]
    ),
)
LINES = st.recursive(
    ATOMS, lambda inner: st.lists(st.one_of(inner, _element(inner)), max_size=4).map("".join), max_leaves=12
)


class Reader(HTMLParser):
    """Paths of elements and comments with their attributes, and the text."""

    def __init__(self, line: str) -> None:
        super().__init__()
        self.open, self.paths, self.text = [], Counter(), ""
        self.feed(line)
        self.close()
        assert not self.open, f"unclosed {self.open}"

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if not VOID.fullmatch(tag):
            self.open.append((tag, *attrs))

    def handle_startendtag(self, tag, attrs):
        self.paths[(*self.open, (tag, *attrs))] += 1

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_comment(self, data):
        self.paths[(*self.open, data)] += 1

    def handle_data(self, data):
        self.text += data


def _translated(markup: Markup, target: str, weights: list[float]) -> str:
    src, tgt = word_spans(markup.text), word_spans(target)
    values = np.resize(weights, (len(tgt), len(src)))
    return markup.restore(Hypothesis(target, attention=PieceAttention(values, src, tgt)))


@given(line=LINES, target=TEXT, weights=st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_every_tag_once_in_its_element(line, target, weights):
    restored = _translated(Markup(line), target, weights)
    before, after = Reader(line), Reader(restored)
    assert after.paths == before.paths
    assert after.text == target
    assert Reader(Markup(line).restore(Hypothesis(target))).paths == before.paths  # no attention


@given(line=LINES)
def test_a_copy_keeps_its_tags_at_their_words(line):
    """Word n became word n: what is read of the line is what is read of its copy, but for white space."""
    markup = Markup(line)
    words = word_spans(markup.text)
    copy = markup.restore(Hypothesis(markup.text, attention=PieceAttention(np.eye(len(words)), words, words)))
    assert Reader(copy).text == markup.text
    assert Reader(copy).paths == Reader(line).paths


@given(text=st.text(st.sampled_from("ab<>/!-?& '\"=br"), max_size=30), target=TEXT)
def test_any_text_is_refused_or_comes_back_well_formed(text, target):
    try:
        markup = Markup(text)
    except DataError:
        markup = Markup(escape(text, quote=False))
    Reader(_translated(markup, target, [1.0, 0.5]))


@pytest.mark.parametrize(
    "bad",
    ["<b>a", "a</b>", "<b><i></b></i>", "<script>1</script>", "<textarea></textarea>", "<!DOCTYPE html>", "<?x?>",
     "<!foo>", "</ b>", "<b", "<!-- a", "<![CDATA[x]]>", "<b>" * 101 + "</b>" * 101, "<br></br>", "<a " * 2000],
)  # fmt: skip
def test_what_is_not_well_formed_is_refused(bad):
    with pytest.raises(DataError, match="markup: expected"):
        Markup(bad)


@pytest.mark.parametrize(
    ("line", "target", "links", "expected"),
    [
        ("A <b>red</b> dog.", "Un chien rouge.", "0-0 1-2 2-1 3-3", "Un chien <b>rouge</b>."),
        (
            "<p>I <b>do not</b> see</p>",
            "Je ne vois pas",
            "0-0 1-1 2-1 3-2 2-3",
            "<p>Je <b>ne</b> vois pas</p>",
        ),
        ("a<br>b <!--c-->d", "D A B", "0-1 1-2 2-0", "D A <br>B<!--c-->"),
        ("un<b>believ</b>ably 1 &lt; 2", "incroyable 1 < 2", "0-0 1-1", "<b>incroyable</b> 1 &lt; 2"),
        ("Go <i>to <u>Rome</u></i>!", "Rome, va!", "0-2 2-0 3-3", "<i><u>Rome</u></i>, va!"),
    ],
)
def test_by_hand(line, target, links, expected):
    markup = Markup(line)
    src, tgt = word_spans(markup.text), word_spans(target)
    weights = np.zeros((len(tgt), len(src)))
    for link in links.split():
        source, word = map(int, link.split("-"))
        weights[word, source] = 1
    assert markup.restore(Hypothesis(target, attention=PieceAttention(weights, src, tgt))) == expected
