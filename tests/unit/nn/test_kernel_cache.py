"""Bounds of oneDNN's cache are set once, and the user's own stay."""

from __future__ import annotations

import os

from syntaxformer.nn.kernels.memory import BOUNDS, bound_kernel_cache


def test_bounds_are_set_and_the_users_own_stay(monkeypatch):
    first, second = BOUNDS
    monkeypatch.delenv(first, raising=False)
    monkeypatch.setenv(second, "7")
    bound_kernel_cache()
    assert (os.environ[first], os.environ[second]) == (BOUNDS[first], "7")
    monkeypatch.setenv(first, "")  # so that it is taken away after the test
