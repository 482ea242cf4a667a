"""`syntaxformer curves`: what is read from the logs of runs, and what is drawn."""

from __future__ import annotations

import os

import pytest

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.cli.curves import curves
from syntaxformer.study import plots

pytest.importorskip("tensorboard", reason="curves are read from TensorBoard's files")


@pytest.fixture
def runs(tmp_path):
    """A run that was resumed at update 20 and logged it twice, and one with logs for each learning rate."""
    from torch.utils.tensorboard import SummaryWriter

    def log(folder: str, name: str, points: dict[int, float]) -> None:
        with SummaryWriter(str(tmp_path / folder)) as writer:
            for step, value in points.items():
                writer.add_scalar(name, value, step)

    log("base/logs", "eval_bleu", {10: 1.0, 20: 2.0})
    os.utime(next((tmp_path / "base/logs").iterdir()), (1, 1))
    log("base/logs", "eval_bleu", {20: 2.5, 30: 4.0})
    log("sit/logs/5e-05", "eval_bleu", {10: 3.0})
    log("sit/logs/5e-05", "loss", {5: 9.0})
    log("sit/logs/2e-05", "eval_bleu", {10: 5.0})
    return tmp_path / "base", tmp_path / "sit"


def test_each_number_has_a_panel_with_a_line_for_each_log(runs, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(plots, "draw_panels", lambda panels, path: drawn.update(panels))
    curves(list(runs), tmp_path / "curves.png")
    assert list(drawn) == ["eval_bleu", "loss"]
    lines = {name: (list(line.x), list(line.y)) for name, line in drawn["eval_bleu"].items()}
    assert lines == {
        str(runs[0]): ([10, 20, 30], [1.0, 2.5, 4.0]),
        str(runs[1] / "logs" / "5e-05"): ([10], [3.0]),
        str(runs[1] / "logs" / "2e-05"): ([10], [5.0]),
    }
    assert list(drawn["loss"]) == [str(runs[1] / "logs" / "5e-05")]


@pytest.mark.parametrize(("name", "start"), [("c.png", b"\x89PNG"), ("c.html", b"<!doctype html>")])
def test_a_picture_or_a_page_is_written(runs, tmp_path, name, start):
    curves(list(runs), tmp_path / name, only=["eval_bleu"])
    written = (tmp_path / name).read_bytes()
    assert written.lower().startswith(start.lower())
    assert len(written) > 5000


def test_bad_input_is_refused(runs, tmp_path):
    with pytest.raises(ConfigError, match="--only: expected one of eval_bleu, loss, got bleu"):
        curves(list(runs), tmp_path / "c.png", only=["bleu"])
    with pytest.raises(DataError, match="none: expected logs of a run, found none"):
        curves([tmp_path / "none"], tmp_path / "c.png")
    with pytest.raises(ConfigError, match=r"expected .*\.png"):
        curves(list(runs), tmp_path / "c.docx")
