"""Lists of terms from parallel text, for `data.terms` and for a test with other terms than those of training.

    python experiments/terms.py data/multi30k/train en de runs/terms

A term is a noun's lemma in 5 to 500 pairs. Its translations are the forms of the noun that occurs with it
most, by a Dice coefficient of 0.4 or more. A fifth is held out, by a hash of its letters: train.tsv has the
others with all forms, test.tsv these with the most frequent form.
"""

from __future__ import annotations

import sys
import zlib
from collections import Counter, defaultdict
from pathlib import Path

from syntaxformer.annotate import annotate_cached, load_annotator
from syntaxformer.base.files import atomic_text, plain_or_packed, read_lines

FEWEST, MOST, DICE = 5, 500, 0.4


def nouns(lines: list[str], language: str) -> list[set[tuple[str, str]]]:
    """Lemma and form of the nouns of each line, of two letters or more."""
    corpus = annotate_cached(lines, load_annotator(language), None)
    return [
        {(lemma, word) for word, tag, lemma in zip(each.words, each.upos, each.lemmas, strict=True)
         if tag == "NOUN" and word.isalpha() and len(word) > 1}
        for each in corpus
    ]  # fmt: skip


def terms_of(
    sources: list[set[tuple[str, str]]], targets: list[set[tuple[str, str]]]
) -> dict[str, list[str]]:
    """Term → forms of its translation, the most frequent first."""
    both, forms = Counter[tuple[str, str]](), defaultdict[tuple[str, str], Counter[str]](Counter)
    n_source, n_target = Counter[str](), Counter[str]()
    for source, target in zip(sources, targets, strict=True):
        terms, words = {lemma.lower() for lemma, _ in source}, {lemma for lemma, _ in target}
        n_source.update(terms)
        n_target.update(words)
        both.update((term, word) for term in terms for word in words)
        for lemma, form in target:
            for term in terms:
                forms[term, lemma][form] += 1
    chosen: dict[str, tuple[float, str]] = {}
    for (term, word), n in both.items():
        dice = 2 * n / (n_source[term] + n_target[word])
        if FEWEST <= n_source[term] <= MOST and dice >= max(DICE, chosen.get(term, (0.0, ""))[0]):
            chosen[term] = dice, word
    return {term: [form for form, _ in forms[term, word].most_common()] for term, (_, word) in chosen.items()}


def main(text: str, src: str, tgt: str, output: Path) -> None:
    """Read TEXT.SRC and TEXT.TGT, plain or packed, and write both lists."""
    sides = [list(read_lines(plain_or_packed(Path(f"{text}.{side}")) or text)) for side in (src, tgt)]
    terms = terms_of(nouns(sides[0], src), nouns(sides[1], tgt))
    with atomic_text(output / "train.tsv") as train, atomic_text(output / "test.tsv") as test:
        for term, forms in sorted(terms.items()):
            is_held_out = zlib.crc32(term.encode()) % 5 == 0
            (test if is_held_out else train).write(
                f"{term}\t{forms[0] if is_held_out else '|'.join(forms)}\n"
            )


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
