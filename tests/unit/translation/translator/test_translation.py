"""A training that diverged leaves no model."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save_file

from digit_pairs import digit_pairs
from syntaxformer.base.errors import ConfigError
from syntaxformer.runs.run_folder import open_run, running
from syntaxformer.translation import training
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.training import finish, train_translator


@pytest.mark.parametrize("average", [1, 2])
def test_weights_that_are_no_numbers_become_no_model(tmp_path, average):
    recipe = load_recipe("tiny", [f"output={tmp_path / 'run'}", f"training.average={average}"])
    chosen = [tmp_path / f"checkpoint-{number}" for number in range(1, average + 1)]
    for folder in chosen:
        folder.mkdir()
        save_file({"a": torch.tensor([1.0, float("nan")])}, folder / "model.safetensors")
    diverged = pytest.raises(
        ConfigError, match=r"^training\.learning_rate: expected one that keeps weights finite"
    )
    with running(recipe) as run, diverged:
        finish(run, None, chosen, {}, None)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def diverging(tmp_path):
    """The recipe of a training on digits that diverges."""
    for split, seed in (("train", 1), ("dev", 2)):
        pairs = digit_pairs(41, seed, max_digits=5)
        (tmp_path / f"{split}.en").write_text("".join(f"{pair.source}\n" for pair in pairs))
        (tmp_path / f"{split}.de").write_text("".join(f"{pair.target}\n" for pair in pairs))
    settings = [
        f"output={tmp_path / 'run'}", f"data.dir={tmp_path}", f"data.cache={tmp_path / 'cache'}", "data.dev=dev",
        "infusion.kind=none", "subwords.vocab_size=301", "model.d_model=12", "model.d_ff=17", "model.n_heads=2",
        "model.encoder_layers=1", "model.decoder_layers=1", "training.max_steps=5", "training.eval_every=3",
        "training.max_batch_tokens=67", "training.learning_rate=1.0e+30", "training.tensorboard=false",
        "training.precision=fp32",
    ]  # fmt: skip
    return load_recipe("tiny", settings)


def test_an_older_run_is_kept_if_the_network_is_refused(diverging, tmp_path, monkeypatch):
    open_run(diverging)
    (tmp_path / "run" / "model.safetensors").write_text("old")
    monkeypatch.setattr(training, "build", Mock(side_effect=ConfigError("data.max_pieces: too many")))
    with pytest.raises(ConfigError, match=r"^data\.max_pieces: too many$"):
        train_translator(diverging, overwrite=True)
    assert (tmp_path / "run" / "model.safetensors").read_text() == "old"


def test_a_training_that_diverged_writes_no_model(diverging, tmp_path):
    with pytest.raises(ConfigError, match=r"training\.learning_rate:"):
        train_translator(diverging)
    assert not {"model.safetensors", "manifest.json"} & {path.name for path in (tmp_path / "run").iterdir()}
