"""Pairs on disk: the batches that memory gives, a damaged folder is made again, nothing is made twice."""

from __future__ import annotations

import ctypes
import logging
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from parallel_files import write_sides
from syntaxformer.translation import prepare as prepare_module
from syntaxformer.translation.batches import TranslationCollator
from syntaxformer.translation.corpora import read_train
from syntaxformer.translation.prepare import nested_fraction
from syntaxformer.translation.recipe import Recipe
from syntaxformer.translation.stored import (
    StoredLines,
    give_memory_back,
    map_arrays,
    stored_folder,
    write_arrays,
)
from syntaxformer.translation.training import prepare

NAMES, VERBS, THINGS = ("Anna", "Otto", "Mia"), ("sees", "takes"), ("trees", "the house", "an apple", "")
PAIRS = [(f"{name} {verb} {thing}.", f"{name.lower()} {thing}{verb}") for name, verb, thing in product(NAMES, VERBS, THINGS)]  # fmt: skip
PAIRS += [("", "leer"), ("long " * 53, "lang " * 53), ("Held out.", "Verborgen.")]
PAIRS += [(" Mia  sleeps ", "Mia schläft ")]

KINDS = {
    "none": {},
    "factors": {"infusion": {"kind": "sum_then_concat", "width": 5}},
    "tags": {"infusion": {"kind": "prepend"}},
    "trees": {"masks": {}, "lisa": {}},
    "parse": {"parse_task": {}, "infusion": {"kind": "add"}},
    "target": {"predict_target_pos": {"annotator": "en"}, "annotation": {"force": True}},
}


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A corpus that takes several chunks."""
    monkeypatch.setattr("syntaxformer.translation.prepare.CHUNK_LINES", 7)
    monkeypatch.setattr("syntaxformer.translation.stored.CHUNK", 7)
    for split, pairs in (("train", PAIRS), ("dev", PAIRS[-2:-1])):
        write_sides(tmp_path, *zip(*pairs, strict=True), split)
    return tmp_path


def _recipe(folder, on_disk: bool, kind: str = "none", **data) -> Recipe:
    section = {"dir": folder, "cache": folder / "cache", "max_pieces": 47, "on_disk": on_disk, **data}
    content = {"output": folder / "run", "data": section, "subwords": {"vocab_size": 311}} | KINDS[kind]
    return Recipe.model_validate(content).completed()


def _same(batch, other) -> None:
    assert batch.keys() == other.keys()
    for name, tensor in batch.items():
        assert tensor.dtype == other[name].dtype
        assert torch.equal(tensor, other[name]), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_memory(corpus, kind):
    memory, disk = (prepare(_recipe(corpus, on_disk, kind)) for on_disk in (False, True))
    again = prepare(_recipe(corpus, True, kind))
    assert isinstance(disk.train_text.src, StoredLines)
    assert list(disk.train_text.src) == list(memory.train_text.src)
    assert disk.info == memory.info
    n_pairs = len(memory.train)
    assert n_pairs == len(PAIRS) - 2
    for rows in ([0], [n_pairs - 1, 3, 8], list(range(n_pairs))):
        expected = TranslationCollator(memory.train, 0)(rows)
        _same(expected, TranslationCollator(disk.train, 0)(rows))
        _same(expected, TranslationCollator(again.train, 0)(rows))
    np.testing.assert_array_equal(disk.train.src.lengths, memory.train.src.lengths)
    assert isinstance(disk.train.src.pieces.base, np.memmap)


def test_text_is_chosen_as_in_memory(corpus, caplog):
    data = {"exclude": ["dev"], "drop_unreadable": True}
    memory, disk = (read_train(_recipe(corpus, on_disk, **data).data) for on_disk in (False, True))
    caplog.clear()
    with caplog.at_level("INFO"):
        read_train(_recipe(corpus, True, **data).data)
    assert caplog.messages == ["pairs of the files that are left out: 1; the log of the first run says why"]
    assert len(disk) == len(PAIRS) - 1
    assert (list(disk.src), list(disk.tgt)) == (memory.src, memory.tgt)
    assert (disk.sha256, list(disk.rows), disk.n_file_lines) == (memory.sha256, memory.rows, len(PAIRS))
    few, few_stored = nested_fraction(memory, 0.3), nested_fraction(disk, 0.3)
    assert (list(few_stored.src), few_stored.sha256) == (few.src, few.sha256)
    assert [few_stored.src[-1], *few_stored.src[1:4:2]] == [few.src[-1], *few.src[1:4:2]]
    assert few_stored.tgt[5:3] == []
    with pytest.raises(IndexError, match=r"line: expected 0 to 7, got 8\."):
        few_stored.src[8]


def test_large_files_go_to_the_disk_by_themselves(corpus, monkeypatch):
    assert not isinstance(read_train(_recipe(corpus, None).data).src, StoredLines)
    monkeypatch.setattr("syntaxformer.translation.corpora.LARGE_BYTES", 100)
    assert isinstance(read_train(_recipe(corpus, None).data).src, StoredLines)


@pytest.mark.parametrize("damage", ["truncated", "altered", "missing"])
def test_a_damaged_folder_is_made_again(corpus, caplog, damage):
    recipe = _recipe(corpus, True, "factors")
    expected = TranslationCollator(prepare(recipe).train, 0)([2, 0])
    (file,) = (corpus / "cache" / "pairs").glob("*/src.pieces")
    content = file.read_bytes()
    damaged = {"truncated": content[:-3], "altered": content[:-1] + bytes([content[-1] ^ 1])}
    file.write_bytes(damaged[damage]) if damage in damaged else file.unlink()
    with caplog.at_level(logging.WARNING, "syntaxformer.data"):
        again = prepare(recipe).train
    (line,) = [record.getMessage() for record in caplog.records if "again" in record.getMessage()]
    assert line.startswith(f"making a damaged cache folder again: {file}: expected")
    _same(expected, TranslationCollator(again, 0)([2, 0]))


@pytest.mark.slow
def test_nothing_is_encoded_twice_and_other_settings_are(corpus, monkeypatch):
    calls = []
    monkeypatch.setattr(prepare_module, "write_arrays", lambda *a: calls.append(1) or write_arrays(*a))
    prepare(_recipe(corpus, True, "factors"))
    prepare(_recipe(corpus, True, "factors"))
    assert len(calls) == 1
    prepare(_recipe(corpus, True, "factors", max_pieces=43))
    (corpus / "train.de").write_text("anders\n" * len(PAIRS), "utf-8")
    prepare(_recipe(corpus, True, "factors"))
    assert len(calls) == 3


def test_what_a_killed_process_left_is_cleared(tmp_path):
    folder = stored_folder(tmp_path, "kind", {"n": 1}, lambda folder: (folder / "a").touch())
    left = [folder.parent / f".{folder.name}.abcd_123{end}" for end in (".partial", ".old.partial")]
    for partial in left:
        partial.mkdir()
    (folder / "a").unlink()
    assert stored_folder(tmp_path, "kind", {"n": 1}, lambda folder: (folder / "a").touch()) == folder
    assert (folder / "a").exists()
    assert not any(partial.exists() for partial in left)


def test_arrays_grow_and_are_mapped(tmp_path):
    chunks = [np.full((n_rows, 3), n_rows, np.int16) for n_rows in (0, 1, 1_234)]
    splits = [np.array([0, 2]), np.array([0, 1, 1]), np.array([0, 3])]
    written = ({"a": a, "b.splits": b, "none": a[:, :0]} for a, b in zip(chunks, splits, strict=True))
    write_arrays(tmp_path, written)
    arrays = map_arrays(tmp_path)
    assert (arrays["a"].shape, arrays["a"].dtype) == ((1_235, 3), np.int16)
    assert arrays["a"][:2].tolist() == [[1] * 3, [1_234] * 3]
    assert arrays["b.splits"].tolist() == [0, 2, 3, 3, 6]
    assert arrays["none"].shape == (1_235, 0)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc has malloc_trim")
def test_what_chunks_took_is_given_back():
    """Their places lie below one that stays, so that freeing them alone gives nothing back."""
    chunks = [bytearray(2000) for _ in range(50_000)]
    last = chunks.pop()
    full = _anonymous_bytes()
    chunks.clear()
    give_memory_back()
    assert _anonymous_bytes() < full - 60_000_000
    assert len(last) == 2000


def _anonymous_bytes() -> int:
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status["RssAnon"].split()[0])
