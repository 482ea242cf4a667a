"""Trains one bundled pipeline (or both) and writes it into the package, scores and licence included.

This is `spacy train` through its Python functions: the same config, but numpy's matrix product,
which is about 1.3 times as fast here as the one spaCy chooses.

    python annotators/train.py --data ../shared/data/ud --language en
"""

import argparse
import itertools
import os
import sys
from pathlib import Path
from typing import Any

import spacy
from spacy import util
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from thinc.api import NumpyOps, set_current_ops

if __package__ in (None, ""):  # run as a script: make the sibling modules importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from annotators import corpus  # noqa: F401  (registers the training reader)
from annotators.convert import LANGUAGES, Language, write_docbin
from annotators.evaluate import gold_word_scores, raw_text_scores, words_per_second
from annotators.package import describe, package

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "annotators" / "config.cfg"
PIPELINES = ROOT / "src" / "syntaxformer" / "annotate" / "pipelines"
DATA = Path(os.environ.get("SYNTAXFORMER_DATA", ROOT.parent / "shared" / "data")) / "ud"


def train_language(code: str, data: Path, work: Path, target: Path, hold_out: int | None = None) -> None:
    """Convert, train, package and score one language.

    Args:
        code: a key of LANGUAGES.
        data: folder of the UD files.
        work: scratch folder for DocBins and checkpoints.
        target: folder the pipeline is written to.
        hold_out: train without every n-th sentence of the dev file and measure on those, to choose
            settings (German, whose dev file is training data otherwise).
    """
    language = LANGUAGES[code]
    (work / "checkpoints").mkdir(parents=True, exist_ok=True)
    _convert(language, data, work, hold_out)
    paths = {"paths.train": str(work / "train.spacy"), "paths.dev": str(work / "dev.spacy")}
    set_current_ops(NumpyOps(use_blis=False))
    settings = {"nlp.lang": code, **paths, **language.settings}
    nlp = init_nlp(util.load_config(CONFIG, overrides=settings))
    train(nlp, work / "checkpoints", use_gpu=-1)
    package(work / "checkpoints" / "model-last", target, language.description, {"test_gold_words": {}})
    describe(target, language.description, score(target, language, data))


def score(pipeline: Path, language: Language, data: Path) -> dict[str, Any]:
    """What meta.json records: test scores on gold words and on raw text, and dev where it is unseen."""
    nlp = spacy.load(pipeline)
    splits = {"test": language.test} | ({"dev": language.dev} if language.dev not in language.train else {})
    scores: dict[str, Any] = {}
    for split, name in splits.items():
        sentences = language.read(data, name)
        scores[f"{split}_gold_words"] = _rounded(gold_word_scores(nlp, sentences))
        scores[f"{split}_raw_text"] = _rounded(raw_text_scores(nlp, sentences))
    texts = [gold.text for gold in language.read(data, language.test)]
    return {**scores, "words_per_cpu_s": round(words_per_second(nlp, texts))}


def _convert(language: Language, data: Path, work: Path, hold_out: int | None) -> None:
    dev = language.read(data, language.dev)[::hold_out]
    sentences = itertools.chain.from_iterable(language.read(data, name) for name in language.train)
    held_out = set(dev) if hold_out else set()
    write_docbin(work / "train.spacy", (gold for gold in sentences if gold not in held_out))
    write_docbin(work / "dev.spacy", dev)


def _rounded(scores: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in scores.items()}


def main() -> None:
    """Train the languages asked for, into the package unless told otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the UD files")
    parser.add_argument("--language", choices=sorted(LANGUAGES), help="default: both")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "annotators", help="scratch folder")
    parser.add_argument("--output", type=Path, default=PIPELINES, help="folder of the pipeline folders")
    parser.add_argument("--hold-out", type=int, help="keep every n-th dev sentence out of training")
    arguments = parser.parse_args()
    for code in [arguments.language] if arguments.language else sorted(LANGUAGES):
        train_language(
            code, arguments.data, arguments.work / code, arguments.output / code, arguments.hold_out
        )


if __name__ == "__main__":
    main()
