"""From a trained spaCy folder to the one that ships: stripped, licensed, with its scores.

What training leaves behind and prediction never reads is dropped: empty vectors and lookup tables, and the
training half of the config.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import spacy
import srsly
from spacy.language import Language

UNUSED = ("vocab/vectors", "vocab/lookups.bin", "vocab/key2row", "vocab/vectors.cfg")
TRAINING_SECTIONS = ("paths", "system", "corpora", "training", "initialize", "pretraining")

LICENCE_URL = "https://creativecommons.org/licenses/by-sa/4.0/"

LICENSE = """\
This pipeline is licensed under the Creative Commons Attribution-ShareAlike 4.0 International
licence (CC BY-SA 4.0), {url}

It is adapted from the following treebanks: its weights were trained on their sentences, and on no
other text. Changes: the annotation was reduced to universal parts of speech, governors, relations,
lemmas and morphological features, and learned by a neural network.

{sources}
"""


def package(trained: Path, target: Path, description: Mapping[str, Any], scores: Mapping[str, Any]) -> None:
    """Write the pipeline folder that is shipped, replacing the one that is there.

    Args:
        trained: a folder written by `train_annotator`.
        target: the folder under `src/syntaxformer/annotate/pipelines/`.
        description: meta.json entries: name, version, description, sources.
        scores: the `performance` entry, measured on the packaged pipeline.
    """
    if target.exists():
        shutil.rmtree(target)
    _strip(spacy.load(trained), target)
    sources = description["sources"]
    attribution = "\n".join(_attribution(source) for source in sources)
    (target / "LICENSE").write_text(LICENSE.format(url=LICENCE_URL, sources=attribution), encoding="utf-8")
    describe(target, description, scores)


def describe(target: Path, description: Mapping[str, Any], scores: Mapping[str, Any]) -> None:
    """Fill meta.json and the README of a packaged pipeline."""
    path = target / "meta.json"
    meta = {
        **json.loads(path.read_text("utf-8")),
        **description,
        "license": "CC BY-SA 4.0",
        "performance": scores,
    }
    for name in ("feats", "trainable_lemmatizer"):  # hundreds, which spaCy takes from the components
        meta["labels"].pop(name, None)
    _write_json(path, meta)
    (target / "README.md").write_text(_readme(meta), encoding="utf-8")


def _strip(nlp: Language, target: Path) -> None:
    target.mkdir(parents=True)
    nlp.to_disk(target)
    for name in UNUSED:
        (target / name).unlink(missing_ok=True)
    if "trainable_lemmatizer" in nlp.pipe_names:
        _strip_strings(nlp, target)
    for file in target.glob("*/cfg"):  # on one line
        file.write_text(f"{json.dumps(json.loads(file.read_text('utf-8')), ensure_ascii=False)}\n", "utf-8")
    config = nlp.config
    for section in TRAINING_SECTIONS:
        config.pop(section, None)
    config.to_disk(target / "config.cfg")


def _strip_strings(nlp: Language, target: Path) -> None:
    """Keep the strings of labels and of the lemmatizer's edits, and none of the treebank's words."""
    stored: Any = srsly.read_msgpack(target / "trainable_lemmatizer" / "trees")
    trees = stored["trees"]
    edits = {nlp.vocab.strings[one[side]] for one in trees for side in ("orig", "subst") if one.get(side)}
    labels = {label for names in nlp.pipe_labels.values() for label in names}
    write = sorted({one for one in edits | labels if one})
    (target / "vocab" / "strings.json").write_text(json.dumps(write, ensure_ascii=False) + "\n", "utf-8")


def _attribution(source: Mapping[str, str]) -> str:
    return f"- {source['name']}, {source['url']}, {source['license']}\n  {source['author']}"


def _readme(meta: Mapping[str, Any]) -> str:
    tests = meta["performance"]["test_gold_words"]
    rows = "\n".join(f"| {name} | {value} |" for name, value in tests.items())
    return (
        f"# {meta['name']} {meta['version']}\n\n{meta['description']}\n\n"
        f"| test, gold words, one sentence a document | % |\n|---|---|\n{rows}\n\n"
        "`las` ignores relation subtypes; punctuation counts. Trained by `scripts/annotators/train.py`.\n"
        "Licence and sources: `LICENSE`.\n"
    )


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
