"""A run on a dirty corpus shows the data report, stores it, and cleans if it is asked to."""

from __future__ import annotations

import json

import pytest

from dirty_corpus import write_dirty

SETTINGS = (
    "data.src=ENG", "data.tgt=DEU", "data.train=Export (final)", "data.dev=test", "data.tabs=space", "data.max_pieces=97",
    "infusion.kind=none", "model.d_model=32", "model.d_ff=32", "training.max_steps=2", "training.eval_every=2",
    "training.warmup_steps=1", "subwords.vocab_size=400", "training.precision=fp32",
)  # fmt: skip


@pytest.mark.slow
def test_the_report_of_a_run(cli, tmp_path):
    planted = write_dirty(tmp_path)
    places = (f"data.dir={tmp_path}", f"data.cache={tmp_path / 'cache'}", f"output={tmp_path / 'run'}")
    result = cli("train", "tiny", *SETTINGS, *places, "data.clean=true").ok()
    assert "data.clean: left out" in result.err
    report = json.loads((tmp_path / "run" / "data_report.json").read_text())
    assert report["pairs"] == sum(map(len, planted.values()))
    assert report["kept"] >= 0.995 * len(planted["clean"])
    assert report["faults"]["that are also in test"]["pairs"] == 100
    assert report["faults"]["longer than the model takes"]["pairs"] == 0
    result = cli("train", "tiny", *SETTINGS, *places, "--overwrite").ok()
    report = json.loads((tmp_path / "run" / "data_report.json").read_text())
    assert report["kept"] == report["pairs"]
    n_long = report["faults"]["longer than the model takes"]["pairs"]
    assert n_long > 0
    assert f"left out {len(planted['empty'])} empty pairs and {n_long} of more than 97 pieces" in result.err
