"""Scripts of `experiments/`: the split of Tatoeba, the sample for little data, and real against permuted tags."""

from __future__ import annotations

import random
from pathlib import Path

import little_data
import pytest
import split_tatoeba

from syntaxformer.study.experiments.cell import resolve
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.translation.corpora import read_train
from syntaxformer.translation.prepare import nested_fraction
from syntaxformer.translation.recipe import load_recipe

FOLDER = Path(__file__).resolve().parents[4] / "experiments"


@pytest.fixture(autouse=True)
def _small_splits(monkeypatch):
    monkeypatch.setattr(split_tatoeba, "N_DEV", 5)
    monkeypatch.setattr(split_tatoeba, "N_TEST", 7)


def test_parts_share_no_source():
    pairs = [(f"s{number % 31}", f"t{number}") for number in range(97)]
    parts = split_tatoeba.split_pairs(pairs)
    sources = {name: {source for source, _ in part} for name, part in parts.items()}
    assert [len(sources[name]) for name in ("dev", "test", "train")] == [5, 7, 19]
    assert not sources["dev"] & sources["test"] | sources["train"] & (sources["dev"] | sources["test"])
    assert [len(parts[name]) for name in ("dev", "test")] == [5, 7]
    assert set(parts["train"]) <= set(pairs)
    assert len(parts["train"]) == sum(source in sources["train"] for source, _ in pairs)
    assert parts == split_tatoeba.split_pairs(pairs)


def test_the_recipe_trains_on_no_sentence_of_dev_or_test(tmp_path):
    """Two English sentences may have one German translation: the split knows the English side only."""
    parts = split_tatoeba.split_pairs([(f"s{number}", f"t{number % 43}") for number in range(97)])
    for name, pairs in parts.items():
        for side, language in enumerate(("en", "de")):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    held_out = {target for name in ("dev", "test") for _, target in parts[name]}
    assert held_out & {target for _, target in parts["train"]}
    train = read_train(load_recipe("tatoeba", [f"data.dir={tmp_path}"]).data)
    assert train.tgt
    assert not held_out & set(train.tgt)


@pytest.mark.parametrize(("name", "code"), [("tatoeba", "en"), ("multi30k", "en"), ("iwslt14", "de_lower")])
def test_real_and_permuted_tags_differ_by_their_annotator_alone(name, code):
    spec = load_spec(FOLDER / f"correct_tags_{name}.yaml")
    cells = {cell.labels["system"]: cell for cell in spec.choosing({}).cells() if cell.labels["seed"] == "1"}
    real, permuted = (dict(cells[system].settings) for system in ("real tags", "permuted tags"))
    assert permuted.pop("annotation.annotator") == f"permuted({code})"
    assert real == permuted
    assert resolve(cells["real tags"]).annotation.annotator == code


def test_the_sample_is_what_a_fraction_of_the_recipe_keeps(tmp_path):
    chosen = random.Random(3)
    for split, n_lines in (("train", 97), ("dev", 5), ("test", 7)):
        for language in ("en", "de"):
            lines = "".join(f"{language} {chosen.randrange(10**6)}\n" for _ in range(n_lines))
            (tmp_path / f"{split}.{language}").write_text(lines)
    sample = dict(little_data.of_recipe(tmp_path, "tatoeba"))
    data = load_recipe("tatoeba", [f"data.dir={tmp_path}", "data.fraction=0.05"]).data
    train = nested_fraction(read_train(data), data.fraction)
    assert sample["train"] == list(zip(train.src, train.tgt, strict=True))
    assert [len(sample[split]) for split in ("train", "dev", "test")] == [5, 5, 7]
