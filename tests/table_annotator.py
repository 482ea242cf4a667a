"""An annotator without a model: words are what stands between spaces, tags come from a table."""

from __future__ import annotations

from syntaxformer.trees import Sentence

TAGS = {"the": "DET", ".": "PUNCT", **dict.fromkeys(("cat", "cats"), "NOUN")}
TAGS |= dict.fromkeys(("sat", "sit", "purrs"), "VERB")


class TableAnnotator:
    """Every word is governed by the first; unknown words are "X"."""

    name, version = "table", "3"
    provides = frozenset({"upos", "governors", "deprels"})

    def stream(self, lines, *, n_processes=1):
        for line in lines:
            words = line.split()
            offsets, end = [], 0
            for word in words:
                start = line.index(word, end)
                end = start + len(word)
                offsets.append((start, end))
            yield Sentence(
                line,
                tuple(words),
                tuple(offsets),
                upos=tuple(TAGS.get(word.lower(), "X") for word in words),
                governors=tuple(0 if place else -1 for place in range(len(words))),
                deprels=tuple("dep" if place else "root" for place in range(len(words))),
            )

    def annotate(self, lines, *, n_processes=1, progress=False):
        return list(self.stream(lines))

    def annotate_words(self, sentences):
        return self.annotate(" ".join(words) for words in sentences)
