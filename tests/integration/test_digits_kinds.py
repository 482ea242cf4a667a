"""Every infusion kind with a supervised LISA head and syntax attention learns to reverse digits.

Half a minute each. `make test` has a few updates of four kinds in test_kinds, and in test_digits two without LISA and masks.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from syntaxformer.nn import INFUSION_KINDS

SETTINGS = (
    "data.dev=dev", "subwords.vocab_size=301", "model.d_model=64", "model.d_ff=127", "model.dropout=0.0",
    "training.max_steps=480", "training.max_batch_tokens=521", "training.learning_rate=0.003",
    "training.warmup_steps=100", "training.eval_every=240", "training.precision=fp32", "decoding.beam_size=2",
    "training.tensorboard=false", "lisa={}", "masks.max_distance=5",
)  # fmt: skip


@pytest.mark.skipif("SYNTAXFORMER_EXHAUSTIVE" not in os.environ, reason="half a minute each: make test-long")
@pytest.mark.parametrize("kind", list(INFUSION_KINDS))
def test_reversal_is_learned_with_syntax_inside(digits, cli, tmp_path, kind):
    folder = tmp_path / kind
    where = (f"data.dir={digits.corpus}", f"output={folder}", f"infusion.kind={kind}")
    done = cli("--quiet", "train", "tiny", *where, *SETTINGS)
    assert (done.code, done.err) == (0, ""), done.err
    done = cli("translate", folder, digits.corpus / "test.en")
    assert done.err == ""
    found, expected = done.out.splitlines(), Path(digits.corpus / "test.de").read_text().splitlines()
    assert len(found) == len(expected)
    assert sum(map(str.__eq__, found, expected)) / len(expected) > 0.95
    # Chance is some 0.2; more than 0.7 is not in these trees, a tagger's idea of digits.
    assert json.loads((folder / "run.json").read_text())["dev_governor_accuracy"] > 0.3
    figure = tmp_path / "attention.png"
    done = cli("attend", folder, "3 1 7", "-o", figure)
    assert (done.code, done.out.splitlines()[0]) == (0, f"{folder}: 7 1 3")
