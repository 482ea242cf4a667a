"""Where a result comes from: the commit of the code, the size of the model."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

from syntaxformer import __version__

__all__ = ["code_version", "count_parameters"]


def code_version() -> str:
    """The commit of the source tree that this package runs from, "+" if it was changed; else the version."""
    folder = Path(__file__).resolve().parent
    commands = (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "-uno", "--", folder.parent])
    try:
        commit, changes = (
            subprocess.run(
                ["git", "-C", folder, *command], capture_output=True, text=True, check=True, timeout=30
            ).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{commit}+" if changes else commit


def count_parameters(folder: Path) -> int:
    """Numbers in a folder's safetensors files; a tied table is stored, and counted, once."""
    from safetensors import safe_open

    total = 0
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "np") as tensors:
            total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    return total
