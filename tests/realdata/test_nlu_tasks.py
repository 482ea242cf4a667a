"""Every task's real files: as many examples as the corpus says, labels, trees that fit."""

from __future__ import annotations

from collections import Counter

import pytest

from syntaxformer.encoders.classifier import annotate_examples
from syntaxformer.encoders.official_data import read_any_split
from syntaxformer.encoders.tasks import TASKS

pytestmark = pytest.mark.slow

GLUE = [
    ("cola", "CoLA", {"train": 8551, "dev": 1043, "test": 1063}),
    ("sst2", "SST-2", {"train": 67349, "dev": 872, "test": 1821}),
    ("mrpc", "MRPC", {"train": 3668, "dev": 408, "test": 1725, "test_labeled": 1725}),
    ("stsb", "STS-B", {"train": 5749, "dev": 1500, "test": 1379}),
    ("qnli", "QNLI", {"dev": 5463, "test": 5463}),
    ("rte", "RTE", {"train": 2490, "dev": 277, "test": 3000}),
    ("wnli", "WNLI", {"train": 635, "dev": 71, "test": 146}),
]


@pytest.mark.parametrize(("task", "folder", "counts"), GLUE, ids=[row[0] for row in GLUE])
def test_glue(data_root, task, folder, counts):
    for split, count in counts.items():
        found = read_any_split(TASKS[task], data_root / "glue" / folder, split)
        assert (len(found), found.left_out) == (count, {})
        labelled = [one.label is not None for one in found.examples]
        assert set(labelled) == {split != "test"}
        if split == "test":
            assert [one.index for one in found.examples] == [str(number) for number in range(count)]


def test_the_diagnostic_set(data_root):
    found = read_any_split(TASKS["mnli"], data_root / "glue" / "diagnostic", "diagnostic")
    assert len(found) == 1104


def test_inference_with_and_without_trees(data_root):
    dev = read_any_split(TASKS["snli"], data_root / "snli", "dev")
    assert len(dev) == 9842
    assert not dev.has_trees
    parsed = read_any_split(TASKS["snli"], data_root / "snli", "dev", "dev_subset_parsed.jsonl")
    assert parsed.left_out == {"no gold label": 39}
    assert parsed.has_trees
    assert len(read_any_split(TASKS["mnli"], data_root / "mnli", "dev")) == 9815
    for split, count in {"train": 4500, "dev": 500, "test": 4927}.items():
        sick = read_any_split(TASKS["sick"], data_root / "sick", split)
        assert (len(sick), sick.has_trees) == (count, True)
    related = read_any_split(TASKS["sick_relatedness"], data_root / "sick", "dev")
    assert (
        1.0 <= min(one.label for one in related.examples) <= max(one.label for one in related.examples) <= 5.0
    )


@pytest.mark.parametrize(("task", "folder", "split"), [("sick", "sick", "test"), ("sst1", "sst", "dev")])
def test_own_trees_fit_their_texts(data_root, task, folder, split):
    texts = read_any_split(TASKS[task], data_root / folder, split)
    examples = annotate_examples(texts.examples, None, use_trees=True)
    assert len(examples) == len(texts)
    for one, example in zip(texts.examples, examples, strict=True):
        assert tuple(segment.text for segment in example.segments) == one.texts
        assert all(segment.constituency for segment in example.segments)


def test_sst(data_root):
    dev = read_any_split(TASKS["sst1"], data_root / "sst", "dev")
    assert Counter(one.label for one in dev.examples) == {0: 139, 1: 289, 2: 229, 3: 279, 4: 165}
    assert len(read_any_split(TASKS["sst1"], data_root / "sst", "test")) == 2210
    two = [len(read_any_split(TASKS["sst2_trees"], data_root / "sst", split)) for split in ("dev", "test")]
    assert two == [872, 1821]
    assert len(read_any_split(TASKS["sst1"], data_root / "sst", "train", phrases=False)) == 8544
