"""The notebooks of the documentation: few cells, stored without outputs, that run from top to bottom."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs" / "guides"
LONG = pytest.mark.skipif(
    os.environ.get("SYNTAXFORMER_EXHAUSTIVE") != "1", reason="a minute and more: make test-long"
)


def cells(name):
    return json.loads((DOCS / name).read_text("utf-8"))["cells"]


@pytest.mark.parametrize(
    ("name", "n_code"), [("translator.ipynb", 9), ("trainer.ipynb", 6), ("research.ipynb", 7)]
)
def test_they_have_few_cells_and_no_outputs(name, n_code):
    assert len(cells(name)) == n_code + 1
    code = [cell for cell in cells(name) if cell["cell_type"] == "code"]
    assert len(code) == n_code
    for cell in code:
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        compile("".join(cell["source"]), name, "exec")


def run_cells(name, folder, last=""):
    """Each in the names of those before it, as in a notebook; returns what was printed."""
    code = ["".join(cell["source"]) for cell in cells(name) if cell["cell_type"] == "code"]
    script = f"names = {{'__name__': '__main__'}}\nfor code in {[*code, last]!r}:\n    exec(code, names)\n"
    (folder / "run.py").write_text(script, "utf-8")
    done = subprocess.run([sys.executable, "run.py"], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@LONG
@pytest.mark.timeout(900)
def test_the_translator_runs(tmp_path):
    """The last cell shows that the loaded translator is the same."""
    printed = run_cells("translator.ipynb", tmp_path)
    assert "chrF2" in printed
    assert "| infused | sum_then_concat |" in printed
    assert (tmp_path / "notebook" / "elsewhere" / "model.safetensors").is_file()


@LONG
@pytest.mark.timeout(900)
def test_a_researchers_day_ends_with_a_report(tmp_path):
    printed = run_cells("research.ipynb", tmp_path)
    assert "planned: the right noun matters, hard_right_verb: deviation 0.20 as planned" in printed
    assert "| the right noun matters | hard_right_verb | greater | 3 |" in printed
    assert (tmp_path / "research" / "report" / "hard_right_verb_by_position.png").is_file()


@LONG
@pytest.mark.timeout(900)
def test_trainer_runs(tmp_path):
    """What Trainer trained answers right from its folder, on words that it has not seen."""
    last = "print(classify(['The woman likes the dog.', 'The woman the dog likes.']), trainer.evaluate()['eval_accuracy'])"
    printed = run_cells("trainer.ipynb", tmp_path, last)
    found = re.findall(r"'label': '(\w+)'", printed.splitlines()[-1])
    assert found == ["right", "wrong"]
    assert float(printed.split()[-1]) > 0.9
