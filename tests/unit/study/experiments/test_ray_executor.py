"""What a run gets of a cluster, and what becomes of Ray's errors; tasks for real are in tests/integration."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import pytest

from syntaxformer.base.errors import SyntaxformerError
from syntaxformer.study.experiments.runner import _RayProcess, share_of_a_run


@pytest.mark.parametrize(
    ("machines", "n_jobs", "share"),
    [
        ([(64, 0), (8, 1)], 1, 8),  # the head has no GPU: its processors are no use
        ([(64, 0), (8, 4)], 4, 2),
        ([(16, 0), *[(16, 4)] * 4], 16, 4),
        ([(4, 1), (64, 1)], 2, 4),
        ([(2, 4)], 4, 0),
        ([(8, 0)] * 3, 4, 4),
        ([(8, 0)], 1, 8),
        ([(2, 0)], 5, 1),
        ([], 1, 1),
    ],
)
def test_processors_of_a_run(machines, n_jobs, share):
    assert share_of_a_run([{"CPU": cpus, "GPU": gpus} for cpus, gpus in machines], n_jobs) == share


class RayError(Exception):
    pass


def _ray(error):
    """As much of Ray as a process of ours uses; its task ends with an error."""
    names = ("TaskCancelledError", "WorkerCrashedError", "NodeDiedError", "OutOfMemoryError")
    kinds = {name: type(name, (RayError,), {}) for name in names}

    def get(task):
        raise kinds[error]("lost") if error in kinds else error

    return SimpleNamespace(
        exceptions=SimpleNamespace(RayError=RayError, **kinds),
        get=get,
        wait=lambda tasks, timeout: (tasks, []),
        cancel=get,
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("TaskCancelledError", -signal.SIGTERM),
        ("WorkerCrashedError", -signal.SIGKILL),
        ("NodeDiedError", -signal.SIGKILL),
        ("OutOfMemoryError", -signal.SIGKILL),
    ],
)
def test_a_lost_task_is_a_killed_process(error, code):
    assert _RayProcess(_ray(error), "task").poll() == code


@pytest.mark.parametrize("error", [RayError("no shelf left"), ConnectionError("no shelf left")])
def test_other_errors_are_of_the_cluster(error):
    process = _RayProcess(_ray(error), "task")
    for act in (process.poll, process.wait, process.terminate):
        with pytest.raises(SyntaxformerError, match="ray: expected the cluster to work, got: no shelf left"):
            act()
