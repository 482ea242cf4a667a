import os
import signal

import pytest

from syntaxformer.annotate import parallel
from syntaxformer.errors import SyntaxformerError


def _load_a_killer(name):
    os.kill(os.getpid(), signal.SIGKILL)


def test_chunks_cover_the_lines_in_order():
    assert list(parallel.chunks_of(["a", "b", "c"], 2)) == [["a", "b"], ["c"]]
    assert list(parallel.chunks_of([], 2)) == []


def test_a_dead_worker_is_one_clear_error(monkeypatch):
    monkeypatch.setattr(parallel, "_load", _load_a_killer)
    with pytest.raises(SyntaxformerError) as caught:
        list(parallel.stream_in_processes("en", ["a"], 2))
    assert str(caught.value).startswith(
        "annotation with 2 processes: expected all to live, got a dead one (out of"
    )
