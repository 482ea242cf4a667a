"""A trained translator against its exports: translations, log-probabilities, BLEU, speed, the share of tags.

    python benchmarks/export.py MODEL --src test2016.en.gz --ref test2016.de.gz [--rounds 3]

Text to text with the folder's own decoding settings. PyTorch and int8 take turns; float32 is run once.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from syntaxformer.base.files import read_lines
from syntaxformer.translation.export_ctranslate2 import export_translator
from syntaxformer.translation.model_folder import read_info
from syntaxformer.translation.scoring import score_translations
from syntaxformer.translation.translator import Translator


def translate(translator, lines):
    """Translations, seconds, and seconds of the processor."""
    start = time.perf_counter(), time.process_time()
    texts = [found[0].text for found in translator.translate(lines)]
    return texts, time.perf_counter() - start[0], time.process_time() - start[1]


def encoding_seconds(translator, lines):
    """Seconds of the processor for tags, alignment and pieces."""
    start = time.process_time()
    translator.encode(lines)
    return time.process_time() - start


def log_prob_difference(trained, exported, lines, translations):
    """The largest difference of a piece's log-probability, over the trained model's own translations."""
    scores = (system.score(lines, translations) for system in (trained, exported))
    rows = (zip(*of_line, strict=True) for of_line in zip(*scores, strict=True))
    pairs = (zip(one.log_probs, other.log_probs, strict=True) for row in rows for one, other in row)
    return max(abs(one - other) for pair in pairs for one, other in pair)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--ref", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    lines, references = (list(read_lines(path)) for path in (given.src, given.ref))
    decoding = read_info(given.model).decoding
    print(f"{given.model}, {len(lines)} lines, beam {decoding.beam_size}, batch {decoding.batch_size}")
    with TemporaryDirectory() as home:
        folders = {kind: Path(home) / kind for kind in ("float32", "int8")}
        for kind, folder in folders.items():
            export_translator(given.model, folder, kind)
        systems = {"pytorch": Translator.load(given.model)}
        systems |= {kind: Translator.load(folder) for kind, folder in folders.items()}
        for system in systems.values():
            translate(system, lines[:64])
        seconds, texts, shares = {"pytorch": [], "int8": []}, {}, []
        texts["float32"], *_ = translate(systems["float32"], lines)
        for _ in range(given.rounds):
            for kind, taken in seconds.items():
                texts[kind], wall, processor = translate(systems[kind], lines)
                taken.append(wall)
            shares.append(encoding_seconds(systems["int8"], lines) / processor)
        for kind, found in texts.items():
            scores = score_translations(found, references)
            same = sum(one == other for one, other in zip(found, texts["pytorch"], strict=True))
            print(f"{kind}: BLEU {scores.bleu:.2f}, chrF {scores.chrf:.2f}, {same} lines as PyTorch's")
        difference = log_prob_difference(systems["pytorch"], systems["float32"], lines, texts["pytorch"])
        print(f"float32: log-probabilities of pieces within {difference:.1e}")
    median = {kind: statistics.median(taken) for kind, taken in seconds.items()}
    for kind, taken in seconds.items():
        print(f"{kind}: {len(lines) / median[kind]:.0f} lines/s, seconds {[round(one, 2) for one in taken]}")
    print(f"int8 {median['pytorch'] / median['int8']:.2f} times as fast")
    print(f"tags, alignment and pieces: {statistics.median(shares):.1%} of int8's processor time")


if __name__ == "__main__":
    main()
