"""Where annotation is cached: one folder a user, or the one that `SYNTAXFORMER_CACHE` names."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Return `$SYNTAXFORMER_CACHE`, else the folder `syntaxformer` in `$XDG_CACHE_HOME` or `~/.cache`."""
    named = os.environ.get("SYNTAXFORMER_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "syntaxformer"
