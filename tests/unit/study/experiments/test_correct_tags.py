"""The trial on correct tags: two columns whose content differs and nothing else, and the old 8,280 pairs."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import torch
from transformers import set_seed

from syntaxformer.study.experiments.cell import resolve
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.syntax import FactorVocabulary
from syntaxformer.translation.corpora import read_train
from syntaxformer.translation.prepare import nested_fraction
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.subwords import SubwordConfig, train_subwords
from syntaxformer.translation.training import build_model

FOLDER = Path(__file__).resolve().parents[4] / "experiments"


def _little_data():
    found = importlib.util.spec_from_file_location("little_data", FOLDER / "little_data.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_real_and_permuted_tags_differ_by_their_content_alone():
    """Same settings but for the name of the column, and the same network to the last bit."""
    spec = load_spec(FOLDER / "correct_tags_tatoeba.yaml")
    cells = {one.labels["system"]: one for one in spec.choosing({}).cells() if one.labels["seed"] == "1"}
    settings = [dict(cells[name].settings) for name in ("real tags", "permuted tags")]
    columns = [(one.pop("infusion.factors"), one.pop("data.factor_files")) for one in settings]
    assert columns == [(["tag"], {"tag": "tag"}), (["permuted"], {"permuted": "permuted"})]
    assert settings[0] == settings[1]
    states, tokenizer = [], train_subwords(["the dog sees a cat"], SubwordConfig(vocab_size=301))
    for name, column in (("real tags", "tag"), ("permuted tags", "permuted")):
        vocabulary = FactorVocabulary(column, ("NOUN", "VERB"))
        set_seed(1)
        model = build_model(resolve(cells[name]), SourceEncoder(tokenizer, {column: vocabulary}))
        states.append({key.replace("permuted", "tag"): tensor for key, tensor in model.state_dict().items()})
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


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
