"""`syntaxformer doctor`: shows what is installed, and which annotators and devices work."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from typer import echo

from syntaxformer.base.errors import SyntaxformerError

PACKAGES = (
    "syntaxformer",
    "torch",
    "transformers",
    "tokenizers",
    "datasets",
    "spacy",
    "sacrebleu",
    "matplotlib",
)

EXTRAS = {
    "ctranslate2": "export",
    "onnxruntime": "export",
    "fastapi": "serve",
    "ray": "ray",
    "optuna": "search",
}
"""Packages that some verbs need → the extra that installs them."""


def doctor() -> None:
    """Check the installation by using it: packages, devices and annotators, with remedies.

    syntaxformer doctor
    """
    echo(f"Python {platform.python_version()} on {platform.platform()}")
    for line in (*_packages(), *_devices(), *_annotators(), *_backends(), _cache()):
        echo(line)


def _packages() -> list[str]:
    remedies = {name: f'; python -m pip install "syntaxformer[{extra}]"' for name, extra in EXTRAS.items()}
    return [
        f"{name} {_version(name)}" if _version(name) else f"{name}: not installed{remedies.get(name, '')}"
        for name in (*PACKAGES, *EXTRAS)
    ]


def _version(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices() -> list[str]:
    import torch

    from syntaxformer.runs.processes import pick_precision

    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    place = ", ".join(devices) or f"CPU, {torch.get_num_threads()} threads"
    return [f"device: {place}; training.precision=auto is {pick_precision('auto')}"]


def _annotators() -> list[str]:
    from syntaxformer.annotate import load_annotator

    lines = []
    for name, text in (("en", "It works."), ("de", "Es geht.")):
        try:
            (sentence,) = load_annotator(name).annotate([text])
            tagged = zip(sentence.words, sentence.upos or (), strict=False)
            lines.append(f"annotator {name}: {' '.join(map('/'.join, tagged))}")
        except SyntaxformerError as error:
            lines.append(f"annotator {name}: {error}")
    return lines


def _backends() -> list[str]:
    from syntaxformer.annotate.annotator import BACKENDS
    from syntaxformer.annotate.backends.corenlp import ADDRESS_VARIABLE

    lines = []
    for scheme, backend in BACKENDS.items():
        found = backend.what
        if backend.package is not None:
            found = f"{backend.package} is not installed. Run: python -m pip install {backend.package}"
            if installed := _version(backend.package):
                found = f"{backend.package} {installed}; its models are installed separately"
        elif backend.argument == "URL":
            address = os.environ.get(ADDRESS_VARIABLE)
            found = _server(address) if address else "needs a running server"
        lines.append(f"annotator {scheme}:{backend.argument}: {found}")
    return lines


def _cache() -> str:
    """The size of the cache of annotation and large corpora, which only the user ever deletes."""
    from syntaxformer.annotate.corpora.cached import cache_folder

    folder = cache_folder()
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return f"cache {folder}: {len(sizes)} files, {sum(sizes) / 1e6:.1f} MB; may be deleted while nothing runs"


def _server(address: str) -> str:
    """Try the server that the environment names; the address itself is not shown."""
    from syntaxformer.annotate import load_annotator

    try:
        annotator = load_annotator(f"corenlp:{address}+timeout=60+retries=1")
        return f"{annotator.name} gives {', '.join(sorted(annotator.provides))}"
    except SyntaxformerError as error:
        return str(error)
