"""Inline markup: tags are taken out of a line before translation, and put back where their words went.

A line is well formed if each tag that opens is closed, but for void ones, and tags nest. Then so is its
translation, which has every tag and comment once, each in the element where it was.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from html import escape
from html.parser import HTMLParser
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Any

from syntaxformer.base.errors import DataError
from syntaxformer.base.progress import is_waiting_for
from syntaxformer.translation.alignment import word_spans

if TYPE_CHECKING:
    from syntaxformer.translation.decoding import Hypothesis
    from syntaxformer.translation.translator import Translator

_log = logging.getLogger("syntaxformer.translate")

VOID = re.compile("area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr")
"""Elements that are never closed."""

OPAQUE = re.compile("iframe|no(embed|frames|script)|plaintext|script|style|textarea|title|xmp")
"""Elements whose content is no text of the line; a line that has them is refused."""

APART = re.compile("blockquote|br|d[dlt]|div|h[1-6r]|li|[ou]l|p|pre|table|t[dhr]")
"""Elements that end a word, as a browser shows them."""

MAX_DEPTH = 100
"""Most elements around a word."""

_SPACES, _NAME = re.compile("[ \t\n\r\f]+"), re.compile("<([a-zA-Z][^\t\n\r\f />\0]*)")


@dataclass
class Element:
    """A tag with its end tag, or a void tag or a comment alone; `opening` is as it was written.

    Args:
        path: Numbers of the elements around it and its own; 0 holds the whole line.
        start: Where it begins in the text without tags; `stop` is where it ends.
    """

    opening: str
    closing: str
    path: tuple[int, ...]
    start: int
    stop: int


class Markup(HTMLParser):
    """A line of markup: its `text` without tags, with white space as a browser shows it, and its elements.

    Raises:
        DataError: The line is not well formed, or has a declaration or an element of `OPAQUE`.
    """

    def __init__(self, line: str) -> None:
        super().__init__()
        self.text, self.elements = "", [Element("", "", (0,), 0, 0)]
        self._owners: list[tuple[int, ...]] = []  # the innermost element of each character
        self._open = [("no further end tag", self.elements[0])]
        line = " ".join(line.splitlines())
        # On tags without an end the parser would take time with the square of their number.
        if unfinished := re.search("<[a-zA-Z/!?].{,20}", line[line.rfind(">") + 1 :]):
            self._refuse("> after a tag", repr(unfinished[0]))
        self.feed(line)
        self.close()
        if len(self._open) > 1:
            self._refuse(self._open[-1][0], "the end of the line")
        self.elements[0].stop = len(self.text)

    def _refuse(self, expected: str, problem: str) -> None:
        raise DataError(f"markup: expected {expected}, got {problem}. Close tags in turn; write &lt; for <.")

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """See `HTMLParser`, here and below."""
        opening = self.get_starttag_text() or ""
        name = _NAME.match(opening)
        self._add(tag, opening, f"</{name[1]}>" if name and not VOID.fullmatch(tag) else "")

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        """A tag that closes itself."""
        self._add(tag, self.get_starttag_text() or "", "")

    def handle_comment(self, data: str) -> None:
        """A comment; what a browser merely takes for one is refused."""
        comment, source = f"<!--{data}-->", self.rawdata[self.getpos()[1] :]
        if not source.startswith(comment) or re.search("^-?>|--|-$", data):
            self._refuse("a comment <!-- … -->", repr(source[:20]))
        self._add("", comment, "")

    def unknown_decl(self, data: str) -> None:
        """A declaration."""
        self._refuse("text, tags and comments", repr(data[:20]))

    handle_decl: Any = unknown_decl
    handle_pi = unknown_decl

    def handle_endtag(self, tag: str) -> None:
        """An end tag, which must be that of the last element."""
        if f"</{tag}>" != self._open[-1][0]:
            self._refuse(self._open[-1][0], f"</{tag}>")
        self.handle_data(" " if APART.fullmatch(tag) else "")
        self._open.pop()[1].stop = len(self.text)

    def handle_data(self, data: str) -> None:
        """Text, in which entities are already characters."""
        data = _SPACES.sub(" ", data)
        data = data[data.startswith(" ") and self.text[-1:] in ("", " ") :]
        self.text += data
        self._owners += [self._open[-1][1].path] * len(data)

    def _add(self, tag: str, opening: str, closing: str) -> None:
        if OPAQUE.fullmatch(tag) or len(self._open) > MAX_DEPTH:
            self._refuse(f"inline elements, at most {MAX_DEPTH} in one another", f"<{tag}>")
        self.handle_data(" " if APART.fullmatch(tag) else "")
        path, start = (*self._open[-1][1].path, len(self.elements)), len(self.text)
        self.elements.append(Element(opening, closing, path, start, start))
        if closing:
            self._open.append((f"</{tag}>", self.elements[-1]))

    def restore(self, translation: Hypothesis) -> str:
        """Put the tags into a translation of the text.

        A target word goes into the element of its source word; one without, into the elements that hold both
        its neighbours. Of its words, an element gets the longest run.
        """
        text, sources, targets = translation.text, word_spans(self.text), word_spans(translation.text)
        links = [] if translation.attention is None else translation.attention.links(sources, targets)
        starts, ends = [*(start for start, _ in targets), len(text)], [0, *(end for _, end in targets)]
        # Of a word in several elements, that of most of its characters counts, of two the inner one.
        owners = [Counter(self._owners[slice(*span)]).items() for span in sources]
        of_sources = [max(paths, key=lambda item: (item[1], len(item[0])))[0] for paths in owners] or [(0,)]
        linked = {target: of_sources[source] for source, target in links}
        before, after = [of_sources[0]], [of_sources[-1]]
        for word in range(len(targets)):
            before.append(linked.get(word, before[-1]))
            after.append(linked.get(len(targets) - 1 - word, after[-1]))
        of_targets = [_shared(*paths) for paths in zip(before[1:], reversed(after[1:]), strict=True)]

        def words_of(element: Element, first: int, stop: int) -> tuple[int, int]:
            """First word and last, exclusive; where it has none, twice the word that it stands before."""
            groups = groupby(range(first, stop), lambda word: element.path[-1] in of_targets[word])
            if runs := [[*run] for is_inside, run in groups if is_inside]:
                longest = max(runs, key=len)
                return longest[0], longest[-1] + 1
            around = self.elements[element.path[-2]]
            left = [
                n for n, (start, end) in enumerate(sources) if around.start <= start and end <= element.start
            ]
            if left and not any(element.stop <= start < around.stop for start, _ in sources):
                return stop, stop
            places = (
                tgt + 1 for n in reversed(left) for src, tgt in links if src == n and first <= tgt < stop
            )
            return (place := next(places, first)), place

        def written(parent: Element, first: int, stop: int, cursor: int, end: int) -> str:
            """The content of an element that has these words, and the characters from `cursor` to `end`."""
            children = [child for child in self.elements if child.path[:-1] == parent.path]
            spans, parts = [words_of(child, first, stop) for child in children], list[str]()
            # What has no words must not stand within another element.
            moved = [next((b for a, b in spans if a < span[0] == span[1] < b), None) for span in spans]
            spans = [
                span if place is None else (place, place) for span, place in zip(spans, moved, strict=True)
            ]
            order = sorted(range(len(spans)), key=lambda number: (spans[number][0], number))
            for child, (place, behind) in ((children[number], spans[number]) for number in order):
                is_apart = place < behind or self.text[: child.start][-1:] in ("", " ")
                start = min(max(starts[place] if is_apart else ends[place], cursor), end)
                last = min(max(ends[behind], start), end) if place < behind else start
                content = written(child, place, behind, start, last)
                parts += [escape(text[cursor:start], quote=False), child.opening, content, child.closing]
                cursor = last
            return "".join([*parts, escape(text[cursor:end], quote=False)])

        return written(self.elements[0], 0, len(targets), 0, len(text))


def _shared(path: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The elements that hold both."""
    return tuple(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(path, other, strict=False)))


class _PlainLines:
    """The text of lines of markup; `documents` are those that are not yet translated."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.documents, self.n_faults, self.fault = deque[Markup](), 0, ""
        self._lines, self._number = iter(lines), 0

    def __iter__(self) -> _PlainLines:
        return self

    def __next__(self) -> str:
        line, self._number = next(self._lines), self._number + 1
        try:
            self.documents.append(Markup(line))
        except DataError as error:
            self.n_faults += 1
            self.fault = self.fault or f"line {self._number}: {error}"
            self.documents.append(Markup(escape(line, quote=False)))
        return self.documents[-1].text

    def is_waiting(self) -> bool:
        """See `base.progress.LiveLines`."""
        return is_waiting_for(self._lines)


def translate_markup(
    translator: Translator, lines: Iterable[str], **settings: Any
) -> Iterator[list[Hypothesis]]:
    """Translate lines of markup; those that are not well formed are translated as text, and reported.

    Args:
        translator: Of any backend.
        lines: HTML, a sentence or segment each.
        settings: As of `Translator.translate`; tags count as no words.

    Yields:
        For each line its hypotheses, whose texts are well formed.
    """
    plain = _PlainLines(lines)
    for hypotheses in translator.translate(plain, alignments=True, **settings):
        markup = plain.documents.popleft()
        yield [replace(best, text=markup.restore(best)) for best in hypotheses]
    if plain.n_faults:
        _log.warning(
            "%d lines not well formed, translated as text; the first: %s", plain.n_faults, plain.fault
        )
