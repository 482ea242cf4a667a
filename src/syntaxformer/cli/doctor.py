"""`syntaxformer doctor`: what is installed, what works, and what to type where something does not."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, version

from typer import Exit, echo

from syntaxformer.base.downloads import MODEL_SIZES
from syntaxformer.base.errors import ConfigError, SyntaxformerError

BROKEN = "broken: "
"""Begins the line of what nobody can do without."""

_PIP = "python -m pip install"
_EXAMPLES = {"en": "It works.", "de": "Es geht.", "de_lower": "es geht."}


def doctor() -> None:
    """Check the installation by using it, and say what to type where something is missing.

    Ends with exit status 1 if something is broken that everybody needs.

    syntaxformer doctor
    """
    is_broken = False
    for check in (_packages, _torch, _annotators, _cache):
        try:
            lines = list(check())
        except (ImportError, OSError) as error:
            lines = [f"{BROKEN}{error}. Run: {_PIP} --force-reinstall syntaxformer torch"]
        is_broken |= any(line.startswith(BROKEN) for line in lines)
        echo("\n".join(lines))
    if is_broken:
        raise Exit(1)


def _packages() -> Iterator[str]:
    """What the package asks for, against what is installed."""
    from packaging.requirements import Requirement

    about, good = metadata("syntaxformer"), dict[str, list[str]]()
    yield f"syntaxformer {about['Version']}, Python {platform.python_version()} on {platform.platform()}"
    extras = about.get_all("Provides-Extra") or []
    for package in map(Requirement, about.get_all("Requires-Dist") or []):
        marker = package.marker
        extra = next((name for name in extras if marker and marker.evaluate({"extra": name})), "")
        if extra in ("dev", "docs"):
            continue
        try:
            installed = version(package.name)
        except PackageNotFoundError:
            installed = "none"
        if installed != "none" and package.specifier.contains(installed, prereleases=True):
            good.setdefault(extra or "needed", []).append(f"{package.name} {installed}")
        else:
            target = f"syntaxformer[{extra}]" if extra else f"{package.name}{package.specifier}"
            problem = f"{package.name}: expected {package.specifier}, got {installed}"
            yield f'{"optional: " if extra else BROKEN}{problem}. Run: {_PIP} "{target}"'
    yield from (f"{name}: {', '.join(packages)}" for name, packages in good.items())


def _torch() -> Iterator[str]:
    """Whether torch's build fits the machine, and the device that is taken."""
    import torch

    from syntaxformer.runs.loading import pick_device
    from syntaxformer.runs.processes import pick_precision

    cuda, has_card = torch.version.cuda, shutil.which("nvidia-smi") is not None
    install = f"{_PIP} --force-reinstall torch=={torch.__version__.partition('+')[0]}"
    processor = f"{install} --index-url https://download.pytorch.org/whl/cpu"
    try:
        device = pick_device("cuda" if cuda and has_card else None)
    except ConfigError as error:
        yield f"{error}. Run: nvidia-smi, and take a driver for CUDA {cuda}, or {processor}"
        return
    if has_card and not cuda:
        yield f"torch is the build for processors, and there is an NVIDIA card. Run: {install}"
    elif cuda and not has_card:
        yield f"torch is the build for CUDA {cuda}, which takes gigabytes, without a card. Run: {processor}"
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    precision = pick_precision("auto")
    yield f"device: {hardware}, {torch.get_num_threads()} threads; training.precision=auto is {precision}"


def _annotators() -> Iterator[str]:
    """The bundled ones, and a server that the environment names, by using them."""
    from syntaxformer.annotate.backends import BACKENDS
    from syntaxformer.annotate.backends.corenlp import ADDRESS_VARIABLE

    remedy = f". Run: {_PIP} --force-reinstall syntaxformer"
    yield from (_tried(name, name, text, BROKEN, remedy) for name, text in _EXAMPLES.items())
    for scheme, backend in BACKENDS.items():
        title, description = f"{scheme}:{backend.argument}", backend.what
        address = os.environ.get(ADDRESS_VARIABLE) if backend.argument == "URL" else None
        if address:
            yield _tried(title, f"corenlp:{address}+timeout=60+retries=1", "It works.")
            continue
        if size := MODEL_SIZES.get(scheme):
            description += f"; downloaded apart, {size}"
        if backend.argument == "URL" and not shutil.which("java"):
            description += ", and java. Run: apt-get install default-jre-headless"
        yield f"annotator {title}: {description}"


def _tried(title: str, name: str, text: str, broken: str = "", remedy: str = "") -> str:
    """What an annotator makes of a text. Of its name, only the title is shown: an address is kept secret."""
    from syntaxformer.annotate import load_annotator

    try:
        (sentence,) = load_annotator(name).annotate([text])
        tagged = zip(sentence.words, sentence.upos or (), strict=False)
        return f"annotator {title}: {' '.join(map('/'.join, tagged))}"
    except SyntaxformerError as error:
        return f"{broken}annotator {title}: {error}{remedy}"


def _cache() -> Iterator[str]:
    """The folder of annotated text: nothing but its owner ever empties it."""
    from syntaxformer.annotate.store import cache_folder

    folder = cache_folder()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        yield f"{BROKEN}cache {folder}: cannot be written. Run: export SYNTAXFORMER_CACHE=FOLDER"
        return
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    size = f"{sum(sizes) / 1e6:.1f} MB"
    yield f"cache {folder}: {len(sizes)} files, {size}; may be deleted while nothing runs"
