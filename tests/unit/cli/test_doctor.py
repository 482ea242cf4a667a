"""`syntaxformer doctor`: what it checks, its remedies, and when it ends with an error. Other machines are faked."""

from __future__ import annotations

import re
from email.message import Message
from importlib.metadata import PackageNotFoundError

import pytest
import torch
from typer import Exit

from syntaxformer.base.downloads import MODEL_SIZES
from syntaxformer.base.errors import BackendMissingError, ConfigError
from syntaxformer.cli import doctor

NEEDED = (
    "torch>=2.6",
    'ray[data]>=2.60; extra == "ray"',
    'stanza<2,>=1.10; extra == "stanza"',
    'ruff; extra == "dev"',
)


@pytest.fixture
def said(capsys):
    """Run it: exit status and lines."""

    def call() -> tuple[int, list[str]]:
        code = 0
        try:
            doctor.doctor()
        except Exit as stopped:
            code = stopped.exit_code
        return code, capsys.readouterr().out.splitlines()

    return call


@pytest.fixture
def installed(monkeypatch):
    """Packages and their versions, as this machine has them; what is asked for stands in `NEEDED`."""
    packages = {"torch": "2.13.0+cpu", "ray": "2.60.0", "stanza": "1.15.0"}
    about = Message()
    about["Version"] = "0.1.0"
    for extra in ("dev", "ray", "stanza"):
        about["Provides-Extra"] = extra
    for requirement in NEEDED:
        about["Requires-Dist"] = requirement

    def version(name):
        if name not in packages:
            raise PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr(doctor, "metadata", lambda _: about)
    monkeypatch.setattr(doctor, "version", version)
    return packages


def test_a_machine_on_which_all_works(said):
    code, lines = said()
    assert code == 0
    assert not [line for line in lines if line.startswith(doctor.BROKEN)]
    text = "\n".join(lines)
    assert re.search(r"^needed: accelerate \d.*, torch \d.*, transformers \d", text, re.MULTILINE)
    assert re.search(r"^serve: fastapi \d", text, re.MULTILINE)
    for line in ("annotator en: It/PRON works/VERB ./PUNCT", "annotator de: Es/PRON geht/VERB ./PUNCT"):
        assert line in lines
    for scheme, size in MODEL_SIZES.items():
        assert re.search(rf"^annotator {scheme}:.*; downloaded apart, {size}", text, re.MULTILINE)


def test_extras_that_are_missing_have_their_command_and_break_nothing(installed, said):
    del installed["ray"]
    installed["stanza"] = "2.1"
    code, lines = said()
    assert code == 0
    for name, versions in (("ray", ">=2.60, got none"), ("stanza", "<2,>=1.10, got 2.1")):
        problem = f"optional: {name}: expected {versions}."
        assert f'{problem} Run: python -m pip install "syntaxformer[{name}]"' in lines
    assert "needed: torch 2.13.0+cpu" in lines
    assert "ruff" not in "\n".join(lines), "What is for those who work on the package is nobody else's lack."


@pytest.mark.parametrize("version", ["2.5.1", None])
def test_a_package_that_everybody_needs(installed, said, version):
    del installed["torch"]
    installed |= {"torch": version} if version else {}
    code, lines = said()
    assert code == 1
    problem = f"broken: torch: expected >=2.6, got {version or 'none'}."
    assert f'{problem} Run: python -m pip install "torch>=2.6"' in lines


@pytest.mark.parametrize(
    ("cuda", "card", "remedy"),
    [
        (None, None, None),
        ("12.8", "/usr/bin/nvidia-smi", None),
        (None, "/usr/bin/nvidia-smi", "torch is the build for processors, and there is an NVIDIA card. Run: "
         "python -m pip install --force-reinstall torch=={}"),
        ("12.8", None, "torch is the build for CUDA 12.8, which takes gigabytes, without a card. Run: "
         "python -m pip install --force-reinstall torch=={} --index-url https://download.pytorch.org/whl/cpu"),
    ],
)  # fmt: skip
def test_a_build_of_torch_for_another_machine(monkeypatch, cuda, card, remedy):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(doctor.shutil, "which", lambda _: card)
    monkeypatch.setattr("syntaxformer.runs.loading.pick_device", lambda name: torch.device(name or "cpu"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Big Card")
    *before, device = doctor._torch()
    number = torch.__version__.partition("+")[0]
    assert before == ([remedy.format(number)] if remedy else [])
    assert device.startswith(f"device: {'Big Card' if cuda and card else 'CPU'}, ")


def test_a_card_that_torch_cannot_use(monkeypatch):
    def pick(name):
        assert name == "cuda"
        raise ConfigError("device: expected a device of this machine, got cuda. PyTorch says: driver too old")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(doctor.shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    monkeypatch.setattr("syntaxformer.runs.loading.pick_device", pick)
    (line,) = doctor._torch()
    assert "driver too old. Run: nvidia-smi, and take a driver for CUDA 13.0, or python -m pip" in line
    assert line.endswith("--index-url https://download.pytorch.org/whl/cpu")


def test_a_bundled_pipeline_that_is_missing(monkeypatch, said):
    from syntaxformer import annotate

    load = annotate.load_annotator

    def broken(name):
        if name == "de":
            raise BackendMissingError("the bundled pipeline 'de'", "make annotators")
        return load(name)

    monkeypatch.setattr(annotate, "load_annotator", broken)
    code, lines = said()
    assert code == 1
    (line,) = [line for line in lines if line.startswith(doctor.BROKEN)]
    assert line.startswith("broken: annotator de: the bundled pipeline 'de' is not installed. Run: ")
    assert line.endswith(". Run: python -m pip install --force-reinstall syntaxformer")
    assert "annotator en: It/PRON works/VERB ./PUNCT" in lines


@pytest.mark.parametrize(
    "error", [ImportError("No module named 'spacy'"), OSError("libcudart.so: no such file")]
)
def test_a_package_that_does_not_load(monkeypatch, said, error):
    monkeypatch.setattr(doctor, "_annotators", lambda: iter(["the others"]))

    def check():
        yield "before"
        raise error

    monkeypatch.setattr(doctor, "_torch", check)
    code, lines = said()
    assert code == 1
    assert f"broken: {error}. Run: python -m pip install --force-reinstall syntaxformer torch" in lines
    assert "the others" in lines


def test_a_server_of_the_environment_is_asked_and_its_address_kept(monkeypatch, said):
    monkeypatch.setenv("SYNTAXFORMER_CORENLP", "http://ann:secret@127.0.0.1:9/hidden")
    monkeypatch.setattr("syntaxformer.annotate.backends.corenlp.PAUSE_S", 0)
    code, lines = said()
    text = "\n".join(lines)
    assert code == 0
    assert "annotator corenlp:URL: a CoreNLP server at http://127.0.0.1:9 (" in text
    assert "secret" not in text
    assert "hidden" not in text


def test_corenlp_without_java(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    (line,) = [line for line in doctor._annotators() if "corenlp:" in line]
    assert line.endswith(", some 500 MB, and java. Run: apt-get install default-jre-headless")


def test_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SYNTAXFORMER_CACHE", str(tmp_path))
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "a.parquet").write_bytes(b"x" * 200_000)
    assert [*doctor._cache()] == [f"cache {tmp_path}: 1 files, 0.2 MB; may be deleted while nothing runs"]
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    (line,) = doctor._cache()
    assert line == f"broken: cache {tmp_path}: cannot be written. Run: export SYNTAXFORMER_CACHE=FOLDER"
