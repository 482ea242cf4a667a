"""The trial on correct tags: two annotators whose tags differ and nothing else, and the old 8,280 pairs."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest

from syntaxformer.study.experiments.cell import resolve
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.translation.corpora import read_train
from syntaxformer.translation.prepare import nested_fraction
from syntaxformer.translation.recipe import load_recipe

FOLDER = Path(__file__).resolve().parents[4] / "experiments"


def _little_data():
    found = importlib.util.spec_from_file_location("little_data", FOLDER / "little_data.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "code"), [("tatoeba", "en"), ("multi30k", "en"), ("iwslt14", "de_lower")])
def test_real_and_permuted_tags_differ_by_their_annotator_alone(name, code):
    spec = load_spec(FOLDER / f"correct_tags_{name}.yaml")
    cells = {one.labels["system"]: one for one in spec.choosing({}).cells() if one.labels["seed"] == "1"}
    real, permuted = (dict(cells[system].settings) for system in ("real tags", "permuted tags"))
    assert permuted.pop("annotation.annotator") == f"permuted({code})"
    assert real == permuted
    assert resolve(cells["real tags"]).annotation.annotator == code


def test_the_sample_is_what_a_fraction_of_the_recipe_keeps(tmp_path):
    module, chosen = _little_data(), random.Random(3)
    for split, n_lines in (("train", 97), ("dev", 5), ("test", 7)):
        for language in ("en", "de"):
            lines = "".join(f"{language} {chosen.randrange(10**6)}\n" for _ in range(n_lines))
            (tmp_path / f"{split}.{language}").write_text(lines)
    found = dict(module.of_recipe(tmp_path, "tatoeba"))
    data = load_recipe("tatoeba", [f"data.dir={tmp_path}", "data.fraction=0.05"]).data
    kept = nested_fraction(read_train(data), data.fraction)
    assert found["train"] == list(zip(kept.src, kept.tgt, strict=True))
    assert [len(found[split]) for split in ("train", "dev", "test")] == [5, 5, 7]
