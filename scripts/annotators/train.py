"""Trains one bundled pipeline (or all) by `syntaxformer annotator train` and writes it into the package.

python scripts/annotators/train.py --data ../shared/data/ud --language en
"""

import argparse
import os
import random
import sys
from argparse import BooleanOptionalAction
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import fix_random_seed, use_ops

from syntaxformer.annotate.registry import load_annotator
from syntaxformer.annotate.training import (
    _altered,
    _fit,
    _row,
    read_treebank,
    score_annotator,
    train_annotator,
)
from syntaxformer.trees import read_conllu, write_conllu

if __package__ in (None, ""):  # run as a script: make the sibling modules importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from annotators.convert import LANGUAGES
from annotators.package import describe, package

ROOT = Path(__file__).resolve().parents[2]
PIPELINES = ROOT / "src" / "syntaxformer" / "annotate" / "pipelines"
DATA = Path(os.environ.get("SYNTAXFORMER_DATA", ROOT.parent / "shared" / "data")) / "ud"


def train_language(
    code: str, data: Path, work: Path, target: Path, hold_out: int | None = None, base: bool = True
) -> None:
    """Prepare, train, package and score one language.

    Args:
        code: A key of LANGUAGES.
        data: Folder of the UD files.
        work: Scratch folder.
        target: Folder the pipeline is written to.
        hold_out: Train without every n-th sentence of the dev file, which then choose the best state (German,
            whose dev file is training data otherwise).
        base: Train tagger and parser, too; False for those that are in the package.
    """
    language = LANGUAGES[code]
    work.mkdir(parents=True, exist_ok=True)
    held = {name: hold_out for name in language.train if name == language.dev}
    files = [
        language.prepared(data / name, work / f"train{place}.conllu", held.get(name), keep=False)
        for place, name in enumerate(language.train)
    ]
    if base:
        bare = [_without_forms(file, file.with_suffix(".bare.conllu")) for file in files]
        dev = None
        if hold_out or language.dev not in language.train:
            dev = language.prepared(data / language.dev, work / "dev.conllu", held.get(language.dev))
        train_annotator(bare, dev, work / "base", code.partition("_")[0], steps=language.steps)
    nlp = spacy.load(work / "base" if base else PIPELINES / code, exclude=FORMS)
    add_forms(nlp, files, language.form_steps).to_disk(work / "trained")
    package(work / "trained", target, language.description, {"test_gold_words": {}})
    tested = load_annotator(f"spacy:{target}")
    test = language.prepared(data / language.test, work / "test.conllu")
    scores = score_annotator(tested, read_treebank(test, tested.parser.nlp))
    found = {name.lower(): value for name, value in scores.items()}
    describe(target, language.description, {"test_gold_words": found})


def _without_forms(source: Path, target: Path) -> Path:
    write_conllu(target, [replace(one, lemmas=None, feats=None) for one in read_conllu(source)])
    return target


FORMS = ("forms", "feats", "trainable_lemmatizer")
"""Components that find lemmas and features, with a small network of their own (`forms`)."""


def add_forms(nlp: Language, files: Sequence[Path], steps: int, width: int = 64, seed: int = 13) -> Language:
    """Train lemmas and features, and add them to a pipeline, whose other components stay as they are."""
    rows = [_row(one) for file in files for one in read_treebank(file, nlp)]
    added = spacy.blank(nlp.lang)
    with use_ops("numpy", use_blis=False):
        fix_random_seed(seed)
        _add_forms(added, width)
        chance = random.Random(seed)
        examples = [_example_of_forms(row, added) for row in (*rows, *_altered(rows, random.Random(seed)))]
        _fit(added, examples, [], steps, chance)
    for name in FORMS:
        nlp.add_pipe(name, source=added)
    return nlp


def _add_forms(nlp: Language, width: int) -> None:
    shape = {"attrs": ["LOWER", "PREFIX", "SUFFIX", "SHAPE"], "rows": [3000, 300, 2500, 200]}
    embed = {"@architectures": "spacy.MultiHashEmbed.v2", "include_static_vectors": False, **shape}
    shape = {"depth": 3, "window_size": 1, "maxout_pieces": 3}
    encode = {"@architectures": "spacy.MaxoutWindowEncoder.v2", **shape, "width": width}
    model = {"@architectures": "spacy.Tok2Vec.v2", "embed": {**embed, "width": width}, "encode": encode}
    nlp.add_pipe("tok2vec", "forms", config={"model": model})
    reads = {"@architectures": "spacy.Tok2VecListener.v1", "width": width, "upstream": "forms"}
    tagger = {"@architectures": "spacy.Tagger.v2", "tok2vec": reads}
    # It adds features to words whose part of speech is known.
    nlp.add_pipe("morphologizer", "feats", config={"model": tagger, "overwrite": False, "extend": True})
    nlp.add_pipe("trainable_lemmatizer", config={"model": tagger, "min_tree_freq": 3})


def _example_of_forms(row: dict[str, Any], nlp: Language) -> Example:
    words = list(row["words"])
    lemmas = ["" if one == "_" else one for one in row["lemmas"]]
    return Example(
        Doc(nlp.vocab, words=words), Doc(nlp.vocab, words=words, lemmas=lemmas, morphs=list(row["feats"]))
    )


def main() -> None:
    """Train the languages asked for, into the package unless told otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the UD files")
    parser.add_argument("--language", choices=sorted(LANGUAGES), help="default: all")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "annotators", help="scratch folder")
    parser.add_argument("--output", type=Path, default=PIPELINES, help="folder of the pipeline folders")
    parser.add_argument("--base", action=BooleanOptionalAction, default=True, help="tagger and parser, too")
    parser.add_argument("--hold-out", type=int, help="keep every n-th dev sentence out of training")
    arguments = parser.parse_args()
    for code in [arguments.language] if arguments.language else sorted(LANGUAGES):
        folders = (arguments.data, arguments.work / code, arguments.output / code)
        train_language(code, *folders, arguments.hold_out, arguments.base)


if __name__ == "__main__":
    main()
