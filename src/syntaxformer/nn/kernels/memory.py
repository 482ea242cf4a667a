"""Keep the memory that a beam search frees at each step in the process, so that the next step reuses it."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

KEPT = 1 << 30
"""Free bytes at the top of the heap that are kept, and the size from which a block is mapped separately."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_SET_BY_USER = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


@cache
def keep_freed_memory() -> None:
    """Make the C library keep up to `KEPT` freed bytes, for the whole process.

    Each step of a search makes new keys and values, one position longer, and frees the old ones. glibc gives
    such pages back to the system and faults them in again, which takes two fifths of a search's processor
    time. Nothing changes with another C library, or if environment variables already tune this one.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _SET_BY_USER):
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, KEPT)
        set_option(_M_TRIM_THRESHOLD, KEPT)


BOUNDS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256", "LRU_CACHE_CAPACITY": "256"}
"""Most kernels that oneDNN and PyTorch's layer over it keep; an update of a translator needs about 60."""


def bound_kernel_cache() -> None:
    """Set the bounds, unless the environment has others; this must precede any computation of PyTorch."""
    for name, bound in BOUNDS.items():
        os.environ.setdefault(name, bound)
