"""What whoever makes a hostile folder does to a good one: deeds take the folder, and alter its files."""

from __future__ import annotations

import json
import os

from safetensors.torch import load, save

from syntaxformer.base.files import write_manifest


def put(name, content):
    def write(folder):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return write


def content(name, alter):
    """Change the bytes of a file."""
    return lambda folder: put(name, alter((folder / name).read_bytes()))(folder)


def keys(name, *sections, **values):
    """Change what stands in a JSON file, or in a section of it."""

    def alter(raw):
        whole = section = json.loads(raw)
        for key in sections:
            section = section[key]
        section.update(values)
        return json.dumps(whole)

    return content(name, alter)


def tensors(alter):
    return content(
        "model.safetensors",
        lambda raw: save({name: alter(tensor) for name, tensor in load(raw).items()}, {"format": "pt"}),
    )


def several(*deeds):
    return lambda folder: [deed(folder) for deed in deeds] and None


def after_signing(*deeds):
    return lambda folder: write_manifest(folder) or [deed(folder) for deed in deeds]


def piped(*names):
    return lambda folder: (
        [(folder / name).unlink(missing_ok=True) or os.mkfifo(folder / name) for name in names] and None
    )
