"""No English sentence stands in two parts; no German one that is trained on in dev or test."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from syntaxformer.translation.corpora import read_train
from syntaxformer.translation.recipe import load_recipe

FILE = Path(__file__).resolve().parents[4] / "experiments" / "split_tatoeba.py"


def _module():
    found = importlib.util.spec_from_file_location("split_tatoeba", FILE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    module.N_DEV, module.N_TEST = 5, 7
    return module


def test_parts_share_no_source():
    module = _module()
    pairs = [(f"s{number % 31}", f"t{number}") for number in range(97)]
    parts = module.split_pairs(pairs)
    sources = {name: {source for source, _ in part} for name, part in parts.items()}
    assert [len(sources[name]) for name in ("dev", "test", "train")] == [5, 7, 19]
    assert not sources["dev"] & sources["test"] | sources["train"] & (sources["dev"] | sources["test"])
    assert [len(parts[name]) for name in ("dev", "test")] == [5, 7]
    assert set(parts["train"]) <= set(pairs)
    assert len(parts["train"]) == sum(source in sources["train"] for source, _ in pairs)
    assert parts == module.split_pairs(pairs)


def test_the_recipe_trains_on_no_sentence_of_dev_or_test(tmp_path):
    """Two English sentences may have one German translation: the split knows the English side only."""
    parts = _module().split_pairs([(f"s{number}", f"t{number % 43}") for number in range(97)])
    for name, pairs in parts.items():
        for place, language in enumerate(("en", "de")):
            lines = "".join(f"{pair[place]}\n" for pair in pairs)
            (tmp_path / f"{name}.{language}").write_text(lines)
    held_out = {target for name in ("dev", "test") for _, target in parts[name]}
    assert held_out & {target for _, target in parts["train"]}
    train = read_train(load_recipe("tatoeba", [f"data.dir={tmp_path}"]).data)
    assert train.tgt
    assert not held_out & set(train.tgt)
