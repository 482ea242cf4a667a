"""`--address` is of a Ray cluster."""

from __future__ import annotations


def test_an_address_without_its_engine(cli):
    done = cli("annotate", "in.txt", "-o", "out.parquet", "--address", "auto")
    assert (done.code, done.err) == (
        2,
        "error: --address: expected --engine ray with it, got the local engine.\n",
    )
