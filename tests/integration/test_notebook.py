"""The notebook of the documentation: ten cells, stored without outputs, that run from top to bottom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "docs" / "translator.ipynb"
LONG = pytest.mark.skipif(
    os.environ.get("SYNTAXFORMER_EXHAUSTIVE") != "1", reason="a minute and more: make test-long"
)


def cells():
    return json.loads(PATH.read_text("utf-8"))["cells"]


def test_it_has_ten_cells_and_no_outputs():
    assert len(cells()) == 10
    code = [cell for cell in cells() if cell["cell_type"] == "code"]
    assert len(code) == 9
    for cell in code:
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        compile("".join(cell["source"]), PATH.name, "exec")


@LONG
@pytest.mark.timeout(900)
def test_its_cells_run_one_after_the_other(tmp_path):
    """Each in the names of those before it, as in a notebook; the last shows that the loaded translator is the same."""
    code = ["".join(cell["source"]) for cell in cells() if cell["cell_type"] == "code"]
    script = f"names = {{'__name__': '__main__'}}\nfor code in {code!r}:\n    exec(code, names)\n"
    (tmp_path / "run.py").write_text(script, "utf-8")
    done = subprocess.run(
        [sys.executable, "run.py"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "chrF2" in done.stdout
    assert "| infused | sum_then_concat |" in done.stdout
    assert (tmp_path / "notebook" / "elsewhere" / "model.safetensors").is_file()
