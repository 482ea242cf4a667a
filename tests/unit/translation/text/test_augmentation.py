"""Altered training pairs: by hand, with words that stay in their places, anew in each epoch."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from parallel_files import tiny_recipe, write_sides
from syntaxformer.base.errors import ConfigError
from syntaxformer.syntax import WordColumns, build_vocabularies
from syntaxformer.translation.augmentation import (
    Augmentation,
    AugmentConfig,
    add_typos,
    capitals,
    title,
    with_lines,
    with_words,
)
from syntaxformer.translation.corpora import ParallelText
from syntaxformer.translation.prepare import prepare
from syntaxformer.translation.source import SourceEncoder, TextPreparation
from syntaxformer.translation.subwords import SubwordConfig, train_subwords

SRC = ["the cats sat .", "", "cats purrs ßß", "a cat sit the", "x"]
TGT = ["die Straße .", "leer", "Katzen schnurren", "ß", "ÿ"]


def _text(n=1) -> ParallelText:
    return ParallelText(SRC * n, TGT * n, Path("en"), Path("de"))


def _altered(seed=3, epoch=0, n=1, **shares):
    augmentation = Augmentation(AugmentConfig(**shares), seed, ("en", "de"))
    return with_lines(_text(n), *augmentation.draw(_text(n), epoch))


def test_case_by_hand():
    assert "".join(capitals("Die Straße, ÿ ŉ ǆ", "de")) == "DIE STRASSE, Ÿ ʼN Ǆ"
    assert "".join(capitals("iış", "tr")) == "İIŞ"
    assert "".join(title("don't («hello») the-end ßa 3d", "en")) == "Don't («Hello») The-end Ssa 3d"
    assert "".join(title("it is", "tr")) == "İt İs"
    assert len(capitals("straße", "de")) == len("straße")
    upper = _altered(upper=1.0)
    assert upper.src == [line.upper() for line in SRC]
    assert upper.tgt == [tgt.upper() if src else tgt for src, tgt in zip(SRC, TGT, strict=True)]


def test_typos_stay_within_long_words():
    for seed in range(200):
        letters = list("the quick a-b foxes")
        add_typos("the quick a-b foxes", letters, Random(seed))
        words = "".join(letters).split(" ")
        assert (words[0], words[2], len(words)) == ("the", "a-b", 4)
        pairs = zip(words, ("the", "quick", "a-b", "foxes"), strict=True)
        changed = [(word, old) for word, old in pairs if word != old]
        assert len(changed) <= 1, "a swap of equal letters changes nothing"
        for word, old in changed:
            assert word[0] == old[0]
            assert sorted(word) == sorted(old) or abs(len(word) - len(old)) == 1
    letters = list("a cat")
    add_typos("a cat", letters, Random(1))
    assert letters == list("a cat")


def test_noise_is_the_same_behind_both_sides():
    noisy = _altered(noise=1.0)
    for src, tgt, clean in zip(noisy.src, noisy.tgt, zip(SRC, TGT, strict=True), strict=True):
        if not clean[0]:
            assert (src, tgt) == clean, "an empty line does not become a line"
            continue
        ends = src.removeprefix(clean[0]), tgt.removeprefix(clean[1])
        assert ends[0] == ends[1]
        assert ends[0].startswith(" ")
        assert 2 <= len(ends[0]) <= 4


def test_shares_epochs_and_seeds():
    text = _text(800)
    shares = {"upper": 0.2, "title": 0.1, "typo": 0.05}
    first = _altered(n=800, **shares)
    kinds = Counter(
        "upper" if new == old.upper() else "title" if new.istitle() else "other"
        for new, old in zip(first.tgt, text.tgt, strict=True)
        if old == "die Straße ."
    )
    assert abs(kinds["upper"] / 800 - 0.2) < 0.05
    assert abs(kinds["title"] / 800 - 0.1) < 0.04
    for settings, is_same in (({}, True), ({"epoch": 1}, False), ({"seed": 4}, False)):
        assert (_altered(n=800, **settings, **shares).src == first.src) == is_same


@pytest.fixture
def encoder() -> SourceEncoder:
    return SourceEncoder(train_subwords([*SRC, *TGT], SubwordConfig(vocab_size=301)))


@pytest.mark.parametrize("size", [2, 3, 100])
def test_words_are_carried_to_the_altered_line(annotator, encoder, size):
    sentences = annotator.annotate(SRC)
    chunks = [WordColumns.from_sentences(sentences[at : at + size]) for at in range(0, len(SRC), size)]
    vocabularies = build_vocabularies(chunks, ("pos",))
    altered, _ = Augmentation(AugmentConfig(upper=1, typo=1, noise=1), 5, ("en", "de")).draw(_text(), 0)
    moved = with_words(chunks, altered, size)
    assert [*altered] == [0, 2, 3, 4]
    altered = {row: altered.get(row, [""]) for row in range(5)}
    for row, (letters, sentence) in enumerate(zip(altered.values(), sentences, strict=True)):
        words, at = moved[row // size], row % size
        line, of_line = "".join(letters), slice(*words.row_splits[at : at + 2])
        assert words.texts[at] == line
        spans = zip(words.starts[of_line], words.ends[of_line], strict=True)
        assert [line[start:end] for start, end in spans] == line.split()[: len(sentence)]
        assert words.upos.codes.tolist() == chunks[row // size].upos.codes.tolist()
    assert chunks[0].texts[0] == SRC[0], "the clean annotation stays"
    encoder = replace(encoder, vocabularies=vocabularies)
    for at, chunk in zip(range(0, len(SRC), size), moved, strict=True):
        encoded = encoder.encode(["".join(letters) for letters in [*altered.values()][at : at + size]], chunk)
        tags = encoder.factor_values(encoded.factors)["pos"]
        for sentence, (start, stop) in zip(sentences[at : at + size], pairwise(encoded.splits), strict=True):
            assert {*tags[start:stop]} == {*sentence.upos, "<none>"}


@pytest.mark.parametrize("settings", [
    pytest.param(("infusion.kind=add", "infusion.factors=[pos,case,subword]"), marks=pytest.mark.slow),
    pytest.param(("infusion.kind=prepend", "subwords.dropout=0.3"), marks=pytest.mark.slow),
    pytest.param(("masks={}", "data.tokenized=true"), marks=pytest.mark.slow),
    ("infusion.kind=add", "infusion.factors=[case,subword]", "annotation.annotator=spaces"),
    pytest.param(("infusion.kind=add", "infusion.factors=[case]", "data.moses=true"), marks=pytest.mark.slow),
])  # fmt: skip
def test_a_run_encodes_the_same_pairs_in_each_epoch(tmp_path, settings, caplog):
    lines = [f"Tom saw {word} cats ." for word in ("two", "three", "red", "old", "seven")] + ["", "x " * 13]
    sides = ([f"{line} {ending}" if line else "" for line in lines * 3] for ending in ("en", "de"))
    shares = "data.augment={upper: 0.3, title: 0.3, typo: 0.5, noise: 0.3}"
    sizes = "data.max_pieces=24", "subwords.vocab_size=340"
    data = prepare(tiny_recipe(write_sides(tmp_path, *sides), shares, *sizes, *settings))
    clean, epochs, n_pairs = data.train.src.pieces.tolist(), [], len(data.train)
    caplog.clear()
    for epoch in (0, 1, 2, 1):
        data.train.set_epoch(epoch)
        assert len(data.train) == n_pairs
        assert max(data.train.src.lengths.max(), data.train.tgt.lengths.max()) <= 24
        epochs.append(data.train.src.pieces.tolist())
    assert epochs[1] == epochs[3] != epochs[0] != clean
    assert "left out" not in caplog.text
    text = data.encoder.tokenizer.decode([*epochs[0], *epochs[1], *epochs[2]])
    assert "TOM SAW" in text or settings[0] != "masks={}"


def test_a_pair_that_a_tokenizer_cannot_write_stays_clean(tmp_path):
    from syntaxformer.translation.prepare import _fitting

    tokenizer = train_subwords(["abc"] * 3, SubwordConfig(vocab_size=301))
    encoder = SourceEncoder(tokenizer, preparation=TextPreparation())
    text = ParallelText(["abc", "abc"], ["abc", "abc"], tmp_path, tmp_path)
    altered = {0: ["a", "b", "c", "A" * 9], 1: ["a", "b", "c", ""]}
    assert _fitting(text, (altered, {0: list("abc"), 1: list("abc")}), (encoder, encoder), 8) == [1]
    backend = Tokenizer(models.BPE({"?": 0, "a": 1, "b": 2, "c": 3}, [], unk_token="?"))
    encoder = SourceEncoder(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?"))
    assert _fitting(text, (altered, altered), (encoder, encoder), 80) == [1]
    assert _fitting(text, ({}, {}), (encoder, encoder), 80) == []


def test_a_text_on_disk_is_refused(tmp_path):
    write_sides(tmp_path, ["a cat"] * 3, ["eine Katze"] * 3)
    recipe = tiny_recipe(tmp_path, "data.on_disk=true", "data.augment.upper=0.1")
    message = r"^data\.augment: expected a training text in memory, .* Set data\.on_disk=false, or data\.augment=null\.$"
    with pytest.raises(ConfigError, match=message):
        prepare(recipe)
