"""The demo from its corpus to its figure, with models too small to learn anything."""

from __future__ import annotations

import pytest

from syntaxformer.demo import corpus

SETTINGS = (
    "training.max_steps=2", "training.eval_every=2", "training.precision=fp32", "model.d_model=32", "model.d_ff=31",
    "decoding.beam_size=1", "decoding.max_length_factor=0.1",
)  # fmt: skip


@pytest.mark.slow
def test_table_examples_and_figure(cli, tmp_path, monkeypatch):
    few = {split: pairs[:1000] for split, pairs in corpus.read_pairs().items()}
    monkeypatch.setattr(corpus, "read_pairs", lambda: few)
    done = cli("--quiet", "demo", "-o", tmp_path / "demo", *SETTINGS).silent()
    lines = [line.split() for line in done.out.splitlines() if line]
    assert "500 test sentences of Tatoeba (tatoeba.org, paired by manythings.org), CC BY 2.0 FR\n" in done.out
    assert lines[1] == ["system", "BLEU", "chrF", "parameters", "seconds", "folder"]
    assert [line[0] for line in lines[2:5]] == ["baseline", "infused", "difference"]
    assert [line[-1] for line in lines[2:4]] == [
        str(tmp_path / "demo" / name) for name in ("baseline", "infused")
    ]
    sizes = [int(line[3].replace(",", "")) for line in lines[2:4]]
    assert sizes[0] >= sizes[1]  # no part of the difference is that of a larger model
    sources = [line for line in lines if line[0] == "source"]
    assert len(sources) == 6
    assert all("/" in tagged for line in sources for tagged in line[1:])
    assert (tmp_path / "demo" / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert cli("translate", tmp_path / "demo" / "infused", stdin=b"A fly flies.\n\n").out.count("\n") == 2
