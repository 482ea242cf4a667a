"""A run so small that a test can train it: digit strings and their reversals, without files or subwords."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import set_seed

from digit_pairs import digit_pairs
from syntaxformer.syntax.inputs import LineSyntax, SyntaxInputs
from syntaxformer.translation.batches import EncodedPairs
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig
from syntaxformer.translation.recipe import Recipe, load_recipe
from syntaxformer.translation.source import EncodedText
from syntaxformer.translation.training import SyntaxTrainer

TINY = {
    "model.d_model": 12, "model.d_ff": 17, "model.n_heads": 2,
    "model.encoder_layers": 1, "model.decoder_layers": 1, "model.dropout": 0.1,
    "training.max_steps": 13, "training.eval_every": 5, "training.log_every": 1,
    "training.max_batch_tokens": 131, "training.precision": "fp32", "training.tensorboard": "false",
    "data.max_pieces": 11, "infusion.width": 5,
}  # fmt: skip


def encoded(texts: list[str], n_factors: int = 0) -> EncodedText:
    """Digits are pieces 4 to 13, 2 is the end; as a factor a digit has its parity."""
    rows = [[4 + int(digit) for digit in text.split()] + [2] for text in texts]
    pieces = np.array([piece for row in rows for piece in row], np.int32)
    factors = np.repeat(np.where(pieces > 3, 2 + pieces % 2, 0)[:, None], n_factors, axis=1).astype(np.int32)
    lengths = np.array(list(map(len, rows)))
    owners = np.concatenate([[*range(n - 1), -1] for n in lengths])  # each digit is a word
    words = LineSyntax(SyntaxInputs(words=True), owners, np.cumsum([0, *(lengths - 1)]), None, None)
    return EncodedText(pieces, np.cumsum([0, *lengths]), factors, words if n_factors else None)


def make_pairs(n_pairs: int = 211, seed: int = 1, n_factors: int = 0) -> EncodedPairs:
    pairs = digit_pairs(n_pairs, seed, max_digits=7)
    return EncodedPairs(
        encoded([pair.source for pair in pairs], n_factors), encoded([pair.target for pair in pairs])
    )


def make_recipe(folder: Path, **settings: object) -> Recipe:
    content = {**TINY, "output": folder, **{key.replace("__", "."): value for key, value in settings.items()}}
    return load_recipe("tiny", [f"{key}={value}" for key, value in content.items()])


def make_trainer(recipe: Recipe, dev_bleu=None) -> SyntaxTrainer:
    set_seed(recipe.seed)
    plan = recipe.width_plan()
    model = SyntaxTransformer(
        SyntaxTransformerConfig(
            **recipe.model.model_dump(),
            vocab_size=17,
            infusion=plan.as_dict(),
            factor_sizes=dict.fromkeys(plan.factor_widths, 7),
            label_smoothing=recipe.training.label_smoothing,
        )
    )
    n_factors = len(plan.factors)
    train, dev = make_pairs(n_factors=n_factors), make_pairs(31, 2, n_factors)
    return SyntaxTrainer(model, recipe, train, dev, 0, dev_bleu)


@pytest.fixture
def tiny_recipe(tmp_path):
    return lambda **settings: make_recipe(tmp_path / "run", **settings)


@pytest.fixture
def tiny_trainer(tiny_recipe):
    return lambda dev_bleu=None, **settings: make_trainer(tiny_recipe(**settings), dev_bleu)
