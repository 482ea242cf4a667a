"""Trains one bundled pipeline (or all) by `syntaxformer annotator train` and writes it into the package.

python annotators/train.py --data ../shared/data/ud --language en
"""

import argparse
import os
import sys
from pathlib import Path

from syntaxformer.annotate.annotator import load_annotator
from syntaxformer.annotate.training import read_treebank, score_annotator, train_annotator

if __package__ in (None, ""):  # run as a script: make the sibling modules importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from annotators.convert import LANGUAGES
from annotators.package import describe, package

ROOT = Path(__file__).resolve().parents[1]
PIPELINES = ROOT / "src" / "syntaxformer" / "annotate" / "pipelines"
DATA = Path(os.environ.get("SYNTAXFORMER_DATA", ROOT.parent / "shared" / "data")) / "ud"


def train_language(code: str, data: Path, work: Path, target: Path, hold_out: int | None = None) -> None:
    """Prepare, train, package and score one language.

    Args:
        code: A key of LANGUAGES.
        data: Folder of the UD files.
        work: Scratch folder.
        target: Folder the pipeline is written to.
        hold_out: Train without every n-th sentence of the dev file, which then choose the best state (German,
            whose dev file is training data otherwise).
    """
    language = LANGUAGES[code]
    work.mkdir(parents=True, exist_ok=True)
    held = {name: hold_out for name in language.train if name == language.dev}
    files = [
        language.prepared(data / name, work / f"train{place}.conllu", held.get(name), keep=False)
        for place, name in enumerate(language.train)
    ]
    dev = None
    if hold_out or language.dev not in language.train:
        dev = language.prepared(data / language.dev, work / "dev.conllu", held.get(language.dev))
    train_annotator(files, dev, work / "trained", code.partition("_")[0], steps=language.steps)
    package(work / "trained", target, language.description, {"test_gold_words": {}})
    tested = load_annotator(f"spacy:{target}")
    test = language.prepared(data / language.test, work / "test.conllu")
    scores = score_annotator(tested, read_treebank(test, tested.parser.nlp))
    found = {name.lower(): value for name, value in scores.items()}
    describe(target, language.description, {"test_gold_words": found})


def main() -> None:
    """Train the languages asked for, into the package unless told otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the UD files")
    parser.add_argument("--language", choices=sorted(LANGUAGES), help="default: all")
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
