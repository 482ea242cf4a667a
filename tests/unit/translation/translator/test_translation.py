"""A training that diverged leaves no model."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from digit_pairs import digit_pairs
from syntaxformer.base.errors import ConfigError
from syntaxformer.runs.run_folder import running
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
        finish(run, None, chosen, {})
    assert not (tmp_path / "run").exists()


def test_a_training_that_diverged_writes_no_model(tmp_path):
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
    with pytest.raises(ConfigError) as caught:
        train_translator(load_recipe("tiny", settings))
    assert str(caught.value) == (
        "training.learning_rate: expected one that keeps the dev loss finite, got nan at update 3 with "
        "1e+30. Lower it."
    )
    assert not {"model.safetensors", "manifest.json"} & {path.name for path in (tmp_path / "run").iterdir()}
