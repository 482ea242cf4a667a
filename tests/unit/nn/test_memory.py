"""What is freed and taken again costs no page faults; bounds of oneDNN's cache are set once, and the user's own stay."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from syntaxformer.nn.kernels.memory import BOUNDS, bound_kernel_cache

SCRIPT = """
import resource
import torch
from syntaxformer.nn.kernels.memory import keep_freed_memory

keep_freed_memory()
for step in range(24):
    if step == 12:  # by then the heap is as large as it gets
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    states = torch.full((20 * 2**20,), 1.0)  # 80 MiB, 20,480 pages
    del states
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(**environment):
    names = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no mallopt")
def test_pages_are_kept_unless_the_user_tunes_the_library():
    assert _faults() < 1000
    assert _faults(MALLOC_TOP_PAD_="0") > 1000


def test_bounds_are_set_and_the_users_own_stay(monkeypatch):
    first, second = BOUNDS
    monkeypatch.delenv(first, raising=False)
    monkeypatch.setenv(second, "7")
    bound_kernel_cache()
    assert (os.environ[first], os.environ[second]) == (BOUNDS[first], "7")
    monkeypatch.setenv(first, "")  # so that it is taken away after the test
