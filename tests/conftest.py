"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the real corpora (SYNTAXFORMER_DATA, by default ../shared/data); skips where there is none."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    root = Path(os.environ.get("SYNTAXFORMER_DATA", default))
    if not root.is_dir():
        pytest.skip(f"no real corpora at {root}; set SYNTAXFORMER_DATA")
    return root
