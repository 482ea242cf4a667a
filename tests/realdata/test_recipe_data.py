"""The recipes for real corpora find their data, and keep test sentences out of training."""

from __future__ import annotations

import pytest

from syntaxformer.translation.corpora import read_split, read_train
from syntaxformer.translation.recipe import load_recipe

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("recipe", "folder", "test", "n_pairs"),
    [
        ("iwslt14_de_en", "iwslt14", "test", 41_687),
        ("iwslt14_small", "iwslt14", "test", 41_687),
        ("news_low", "wmt", "newstest2014", 56_908),
        ("news_low_small", "wmt", "newstest2014", 56_908),
    ],
)
def test_training_text(recipe, folder, test, n_pairs, data_root):
    if not (data_root / folder).is_dir():
        pytest.skip(f"no corpus at {data_root / folder}")
    config = load_recipe(recipe, [f"data.dir={data_root / folder}"]).data
    text = read_train(config.model_copy(update={"detokenize": []}))  # it takes long, and changes no counts
    held_out = read_split(config, test)
    assert len(text) == n_pairs
    assert not set(text.src) & (set(held_out.src) - {""})
    assert not set(text.tgt) & (set(held_out.tgt) - {""})
    assert not any("&quot;" in line for line in text.src[:5000])
