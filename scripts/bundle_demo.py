"""The demo's corpus out of Tatoeba's pairs: short sentences of everyday words, held out by source sentence.

    python scripts/bundle_demo.py ../shared/data/tatoeba

Kept are pairs with at most 8 English words, all of both sides among the 1,000 most frequent English and the
1,600 most frequent German words. 500 English sentences each are held out for valid and test, with one of
their translations; of the others up to two translations are kept. No sentence of valid or test stands in
train, on either side.
"""

from __future__ import annotations

import gzip
import random
import re
import sys
from collections import Counter
from pathlib import Path

from syntaxformer.base.files import read_lines

BUNDLE = Path(__file__).resolve().parents[1] / "src" / "syntaxformer" / "demo" / "pairs.tsv.gz"
SEED, MAX_WORDS, N_ENGLISH, N_GERMAN = 1, 8, 1000, 1600
N_VALID, N_TEST, N_TRAIN, MAX_TRANSLATIONS = 500, 500, 20_000, 2

Pair = tuple[str, str]


def clean(text: str) -> str:
    """Single blanks, and no characters without width: some sentences have them."""
    return " ".join(re.sub("[\\u200b-\\u200f\\ufeff\\u00ad]", "", text).split())


def words(text: str) -> list[str]:
    """Words as they are counted: lower-cased, without punctuation."""
    return re.findall(r"\w+", text.lower())


def everyday(pairs: list[Pair]) -> list[Pair]:
    """Pairs that are short and made of frequent words."""
    frequent = [
        {word for word, _ in Counter(word for pair in pairs for word in words(pair[side])).most_common(size)}
        for side, size in enumerate((N_ENGLISH, N_GERMAN))
    ]
    return [
        pair
        for pair in pairs
        if len(words(pair[0])) <= MAX_WORDS
        and all(known.issuperset(words(text)) for known, text in zip(frequent, pair, strict=True))
    ]


def split_pairs(pairs: list[Pair]) -> dict[str, list[Pair]]:
    """Train, valid and test, in an order that depends on the seed alone."""
    chosen = random.Random(SEED)
    by_source: dict[str, list[str]] = {}
    for source, target in pairs:
        by_source.setdefault(source, []).append(target)
    sources = sorted(by_source)
    chosen.shuffle(sources)
    held_out = [(source, chosen.choice(by_source[source])) for source in sources[: N_VALID + N_TEST]]
    references = {target for _, target in held_out}
    train = [
        (source, target)
        for source in sources[len(held_out) :]
        for target in chosen.sample(by_source[source], min(MAX_TRANSLATIONS, len(by_source[source])))
        if target not in references
    ]
    chosen.shuffle(train)
    return {"train": train[:N_TRAIN], "valid": held_out[:N_VALID], "test": held_out[N_VALID:]}


def main(corpus: Path) -> None:
    """Read DIR/anki_2018.{en,de}.gz, write the bundle."""
    sides = [read_lines(corpus / f"anki_2018.{language}.gz") for language in ("en", "de")]
    pairs = [(clean(one), clean(other)) for one, other in zip(*sides, strict=True)]
    kept = everyday(pairs)
    print(f"{len(kept):,} pairs of {len({source for source, _ in kept}):,} sentences")
    parts = split_pairs(list(dict.fromkeys(kept)))
    rows = (f"{split}\t{source}\t{target}\n" for split, part in parts.items() for source, target in part)
    BUNDLE.write_bytes(gzip.compress("".join(rows).encode("utf-8"), mtime=0))
    print(*(f"{split} {len(part):,}" for split, part in parts.items()), f"{BUNDLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
