"""The demo's folder."""

from __future__ import annotations

import shutil

import pytest

from syntaxformer.demo import first_look as demo
from syntaxformer.runs import run_folder


class _Begun(Exception):
    pass


@pytest.mark.parametrize("n_deleted", range(4))
def test_overwriting_that_was_cut_short_can_be_done_again(monkeypatch, tmp_path, n_deleted):
    for name in ("infused", "corpus", "baseline", "cache"):
        (tmp_path / name).mkdir()
    counts = iter(range(9))

    def rmtree(path):
        if next(counts) == n_deleted:
            raise KeyboardInterrupt
        shutil.rmtree(path)

    def begin(corpus):
        raise _Begun

    monkeypatch.setattr(demo, "write_demo", begin)
    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "shutil", type("Cut", (), {"rmtree": staticmethod(rmtree)}))
        with pytest.raises(KeyboardInterrupt):
            demo.run_demo(tmp_path, overwrite=True)
    assert len(list(tmp_path.iterdir())) == 4 - n_deleted
    with pytest.raises(_Begun):
        demo.run_demo(tmp_path, overwrite=True)
    assert list(tmp_path.iterdir()) == []
