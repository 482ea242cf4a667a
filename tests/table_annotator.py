"""An annotator without a model: words are what stands between spaces, tags come from a table."""

from __future__ import annotations

import re

from syntaxformer.trees import Sentence

TAGS = {"the": "DET", ".": "PUNCT", **dict.fromkeys(("cat", "cats"), "NOUN")}
TAGS |= dict.fromkeys(("sat", "sit", "purrs"), "VERB")


class TableAnnotator:
    """Every word is governed by the first; unknown words are "X"."""

    name, version = "table", "3"
    provides = frozenset({"upos", "governors", "deprels"})

    def stream(self, lines, *, n_processes=1):
        for line in lines:
            offsets = tuple(match.span() for match in re.finditer(r"\S+", line))
            words = tuple(line[start:end] for start, end in offsets)
            yield Sentence(
                line,
                words,
                offsets,
                upos=tuple(TAGS.get(word.lower(), "X") for word in words),
                governors=tuple(0 if place else -1 for place in range(len(words))),
                deprels=tuple("dep" if place else "root" for place in range(len(words))),
            )

    def annotate(self, lines, *, n_processes=1, progress=False):
        return list(self.stream(lines))

    def annotate_words(self, sentences):
        return self.annotate(" ".join(words) for words in sentences)
