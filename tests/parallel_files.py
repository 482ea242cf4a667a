"""Parallel text in the files of a folder, and the tiny recipe of a run on it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from syntaxformer.translation.recipe import Recipe, load_recipe


def write_sides(folder: Path, src: Iterable[str], tgt: Iterable[str], split: str = "train") -> Path:
    """Write SPLIT.en and SPLIT.de, and return their folder."""
    folder.mkdir(exist_ok=True)
    for ending, lines in (("en", src), ("de", tgt)):
        (folder / f"{split}.{ending}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return folder


def tiny_recipe(folder: Path, *settings: str) -> Recipe:
    """The recipe `tiny` on train.en and train.de of a folder, which is its cache and its dev set as well."""
    places = [f"data.dir={folder}", "data.dev=train", f"data.cache={folder}", f"output={folder / 'run'}"]
    return load_recipe("tiny", [*places, *settings])
