"""Phrases of training lines are those of the same lines when they are translated: with the heads of the parse."""

from __future__ import annotations

import numpy as np

from syntaxformer.syntax import WordColumns
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.training import prepare

LINES = ("She was happy to see him .", "The dog that I saw sleeps .", "He gave her a small book .")


def test_of_one_tree_alone(tmp_path):
    for split in ("train", "valid"):
        for ending in ("en", "de"):
            (tmp_path / f"{split}.{ending}").write_text("".join(f"{line} {ending}\n" for line in LINES))
    settings = (f"data.dir={tmp_path}", f"data.cache={tmp_path / 'cache'}", f"output={tmp_path / 'out'}")
    trees = ("annotation.annotator=en+phrases", "masks.trees=[constituency]", "subwords.vocab_size=301")
    data = prepare(load_recipe("tiny", [*settings, *trees]))
    lines = list(data.train_text.src)
    translated = data.encoder.encode(lines, WordColumns.from_sentences(data.annotator.annotate(lines)))
    for trained, one in zip(
        data.train.src.syntax.phrases.arrays, translated.syntax.phrases.arrays, strict=True
    ):
        np.testing.assert_array_equal(trained, one)
