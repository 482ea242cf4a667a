"""The bundled corpus: everyday English sentences of Tatoeba with German translations.

Sentences have at most eight words, all of them frequent. `scripts/bundle_demo.py` chose them. Their licence
(CC BY 2.0 FR) is in the same folder and is copied with them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from syntaxformer.base.files import read_lines

ATTRIBUTION = "Tatoeba (tatoeba.org, paired by manythings.org), CC BY 2.0 FR"
"""The source of the sentences, in one line."""

_PAIRS = Path(__file__).with_name("pairs.tsv.gz")
_LICENSE = Path(__file__).with_name("LICENSE")


def read_pairs() -> dict[str, list[tuple[str, str]]]:
    """English and German sentences of `train` (20,000 pairs), `valid` and `test` (500 each).

    No sentence of `valid` or `test` occurs in `train`, on either side.
    """
    parts: dict[str, list[tuple[str, str]]] = {}
    for line in read_lines(_PAIRS):
        split, source, target = line.split("\t")
        parts.setdefault(split, []).append((source, target))
    return parts


def write_corpus(folder: str | Path) -> dict[str, list[tuple[str, str]]]:
    """Write SPLIT.en, SPLIT.de and the licence into a folder, and return the pairs."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_LICENSE, folder / _LICENSE.name)
    parts = read_pairs()
    for split, pairs in parts.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8", newline="\n")
    return parts
