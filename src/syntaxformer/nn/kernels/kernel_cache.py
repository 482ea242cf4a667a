"""How many compiled kernels oneDNN keeps: one for each shape it has seen, each with memory of its own.

`rows` makes their numbers of rows few; those of attention come in hundreds of shapes, and with room
for all of them a run grows for hours.
"""

from __future__ import annotations

import os

__all__ = ["bound_kernel_cache"]

BOUNDS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256", "LRU_CACHE_CAPACITY": "256"}
"""Kernels of oneDNN itself, and of PyTorch's layer over it; an update of a translator needs about 60."""


def bound_kernel_cache() -> None:
    """Set the bounds, unless the environment has others; in vain once PyTorch has computed something."""
    for name, bound in BOUNDS.items():
        os.environ.setdefault(name, bound)
