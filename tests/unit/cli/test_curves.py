"""`syntaxformer curves`: what is read from the logs of runs, and what is drawn."""

from __future__ import annotations

import pytest

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.cli.curves import curves
from syntaxformer.study import plots

pytest.importorskip("tensorboard", reason="curves are read from TensorBoard's files")


@pytest.fixture
def runs(tmp_path):
    """A run that was resumed at update 20 and logged it twice, and a fine-tuned run with logs of its own."""
    from torch.utils.tensorboard import SummaryWriter

    def log(folder: str, name: str, points: dict[int, float]) -> None:
        with SummaryWriter(str(tmp_path / folder)) as writer:
            for step, value in points.items():
                writer.add_scalar(name, value, step)

    log("base/logs", "eval_bleu", {10: 1.0, 20: 2.0})
    log("base/logs/later", "eval_bleu", {20: 2.5, 30: 4.0})
    log("sit/logs/tuned", "eval_bleu", {10: 3.0})
    log("sit/logs/tuned", "loss", {5: 9.0})
    return tmp_path / "base", tmp_path / "sit"


def test_each_number_has_a_panel_with_a_line_for_each_run(runs, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(plots, "draw_panels", lambda panels, path: drawn.update(panels))
    curves(list(runs), tmp_path / "curves.png")
    assert list(drawn) == ["eval_bleu", "loss"]
    base, sit = (drawn["eval_bleu"][str(run)] for run in runs)
    assert (base.x, base.y) == ([10, 20, 30], [1.0, 2.5, 4.0])
    assert (sit.x, sit.y) == ([10], [3.0])
    assert list(drawn["loss"]) == [str(runs[1])]


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
