"""`--address` is of a Ray cluster."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "verb", [("annotate", "in.txt", "-o", "out.parquet"), ("experiment", "run", "spec.yaml")]
)
def test_an_address_without_its_engine(cli, verb):
    done = cli(*verb, "--address", "auto")
    assert (done.code, done.err) == (
        2,
        "error: --address: expected --engine ray with it, got the local engine.\n",
    )
