"""`.ci/audit` fails for a known vulnerability and for nothing else; with a stub in pip-audit's place."""

import os
import subprocess
from pathlib import Path

import pytest

AUDIT = Path(__file__).resolve().parents[2] / ".ci" / "audit"


@pytest.mark.parametrize(
    ("said", "status", "code", "shown"),
    [
        ("No known vulnerabilities found", 0, 0, "audit: no known vulnerability in "),
        ("Found 2 known vulnerabilities in 1 package", 1, 1, "Found 2 known vulnerabilities in 1 package"),
        (
            "requests.exceptions.ProxyError: no way",
            1,
            0,
            "audit skipped: requests.exceptions.ProxyError: no way",
        ),
        ("", 124, 0, "audit skipped: "),
    ],
)
def test_only_a_vulnerability_fails(tmp_path, said, status, code, shown):
    if not AUDIT.exists():
        pytest.skip("the source distribution has no .ci")
    stub = tmp_path / "pip-audit"
    stub.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {status}\n")
    stub.chmod(0o755)
    done = subprocess.run([AUDIT], env={**os.environ, "PIP_AUDIT": str(stub)}, capture_output=True, text=True)
    assert done.returncode == code
    assert done.stdout.startswith(shown)
