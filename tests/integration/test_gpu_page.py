"""`make gpu`: its tiniest form runs on a processor, with nothing installed but torch, transformers and pydantic."""

from __future__ import annotations

import itertools
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from syntaxformer.nn.kernels import syntax_kernel

ROOT = Path(__file__).resolve().parents[2]
NEEDED = {
    "torch", "transformers", "pydantic",
    # what these need themselves, and what is not ours to ask
    "annotated_types", "pydantic_core", "typing_extensions", "typing_inspection", "functorch", "torchgen", "sympy",
    "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock", "numpy", "triton", "nvidia", "setuptools",
    "huggingface_hub", "hf_xet", "packaging", "yaml", "regex", "safetensors", "tokenizers", "tqdm", "typer", "click",
    "httpx", "httpcore", "httpx2", "httpcore2", "h11", "idna", "certifi", "truststore", "anyio", "sniffio", "requests",
    "urllib3", "charset_normalizer", "rich", "shellingham", "colorama", "_distutils_hack", "pip",
}  # fmt: skip
"""Everything else that is installed is hidden."""

BARE = f"""
import importlib.metadata as metadata, runpy, sys
for name in metadata.packages_distributions():
    if name not in {sorted(NEEDED)!r} and name.isidentifier() and not name.startswith("_") and name != "syntaxformer":
        sys.modules[name] = None
assert all(name in sys.modules and sys.modules[name] is None for name in ("spacy", "datasets", "accelerate", "jaxtyping"))
sys.argv = ["gpu.py", *sys.argv[1:]]
runpy.run_path({str(ROOT / "benchmarks" / "gpu.py")!r}, run_name="__main__")
"""


@pytest.mark.slow
def test_the_page_is_written_with_little_installed(tmp_path):
    page = tmp_path / "page.md"
    options = ("--device", "cpu", "--smallest", "--output", str(page))
    command = [sys.executable, "-W", "error", "-c", BARE, *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = page.read_text("utf-8")
    sections = text.split("\n## ")[1:]
    assert len(sections) == 8
    assert "Failed" not in text
    assert [one.splitlines()[0] for one in sections if "Skipped" in one] == [
        "Tests of devices",
        "Does anything wait?",
    ]
    assert "| 8 | 2 | fp32 | masks |" in text
    assert "| I have a dog . | Ich habe einen Hund" in text


def test_a_device_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device", "cuda:99"])
    with pytest.raises(SystemExit, match=r"^error: DEVICE: .*got cuda:99"):
        runpy.run_path(str(ROOT / "benchmarks" / "gpu.py"), run_name="__main__")


@pytest.mark.slow
def test_a_wrong_gradient_of_a_small_tensor_is_found(monkeypatch):
    """Gradients of topical queries are a millionth of the largest one; those of the second pass are spoiled."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    page = runpy.run_path(str(ROOT / "benchmarks" / "gpu.py"))
    compared = page["Sizes"](is_tiny=True, is_test=True), torch.device("cpu")
    assert len(list(page["losses"](*compared))) == 3
    right, n_calls = syntax_kernel._Batch.backward, itertools.count()

    def spoiled(batch, *given):
        *others, topical, biases, gates = right(batch, *given)
        return *others, (topical if next(n_calls) < 2 else -7 * topical), biases, gates

    monkeypatch.setattr(syntax_kernel._Batch, "backward", spoiled)
    with pytest.raises(AssertionError, match=r"^expected the processor's losses to 1e-3 \(bf16: 1e-2\)"):
        list(page["losses"](*compared))


def test_tags_that_are_pieces_are_compared(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    page = runpy.run_path(str(ROOT / "benchmarks" / "gpu.py"))
    model = page["Sizes"](is_tiny=True, is_test=True).own("prepend")
    model(**page["_padded"](model, 2, 8)).loss.backward()
    assert model.encoder.embedding.factors["pos"].weight.grad.any()
