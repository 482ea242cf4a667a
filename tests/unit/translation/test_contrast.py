"""Contrastive tests: the published formats, and which share of right translations is preferred."""

from __future__ import annotations

import gzip
import json

import pytest

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.statistics import wilson_interval
from syntaxformer.translation.contrast import check_key, contrast_table, read_contrasts
from syntaxformer.translation.decoding import Score

LINGEVAL = [
    {"source": "a market falls", "reference": "Die Börse stürzt.", "origin": "newstest2009.1", "errors": [
        {"type": "np_agreement", "contrastive": "Der Börse stürzt.", "distance": 2, "frequency": 2020},
        {"type": "polarity", "contrastive": "Die Börse stürzt nicht."},
    ]},
    {"source": "two", "reference": "zwei", "errors": []},
    {"source": "b", "reference": "B", "errors": [{"type": "np_agreement", "contrastive": "b", "distance": 17}]},
]  # fmt: skip
WRONG = [{"contrastive": text, "replacement": text[:3]} for text in ("Sie bellt.", "Es bellt.")]
BARKS = {"src segment": "It barks.", "ref segment": "Er bellt.", "intrasegmental": None, "errors": WRONG}
CONTRAPRO = [{**BARKS, "ante distance": distance} for distance in (0, 1, 1)]


def _file(path, content):
    text = (content if isinstance(content, str) else json.dumps(content)).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("name", ["l.json", "l.json.gz"])
def test_lingeval97_is_read_as_published(tmp_path, name, caplog):
    first, last = read_contrasts(_file(tmp_path / name, LINGEVAL))
    assert first.translations == ["Die Börse stürzt.", "Der Börse stürzt.", "Die Börse stürzt nicht."]
    assert first.model_extra == {"origin": "newstest2009.1"}
    assert last.errors[0].model_extra == {"type": "np_agreement", "distance": 17}
    assert "left out 1 of 3 entries without errors" in caplog.text


def test_a_table_is_read_with_windows_ends(tmp_path):
    text = "kind\tsource\treference\tcontrastive\r\nx\tone dog\tein Hund\teine Hund\r\n"
    (contrast,) = read_contrasts(_file(tmp_path / "t.tsv", text))
    assert (contrast.source, contrast.translations) == ("one dog", ["ein Hund", "eine Hund"])
    assert contrast.errors[0].model_extra == {"kind": "x"}


HEADER = "source\treference\tcontrastive\n"


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [
        ("a.tsv", HEADER + "a\tb\tc\na\tb\n", ":3: expected 3 cells, got 2"),
        ("a.tsv", HEADER + "a\tb\t \n", ":2: contrastive: "),
        ("a.tsv", "source\treference\tkind\na\tb\tc\n", ":2: contrastive: "),
        ("a.tsv", "source\tsource\nb\tc\n", ":2: expected 1 cells, got 2"),
        ("a.tsv", HEADER, ": expected at least one contrast"),
        ("a.json", '[{"source": "a",\n "reference": }]', ": expected JSON, .* line 2"),
        ("a.json", '{"source": "a"}', ": expected a JSON list, got dict"),
        ("a.json", ["a"], ": entry 1: "),
        ("a.json", [*CONTRAPRO, {"source": "a", "errors": [{"contrastive": "b"}]}], ": entry 4: reference: "),
        ("a.json", [{"source": "a", "reference": "b", "errors": [{"contrastive": 3}]}], "errors.0.contrastive"),
    ],
)  # fmt: skip
def test_what_is_malformed_is_named_by_file_and_row(tmp_path, name, content, where):
    path = _file(tmp_path / name, content)
    with pytest.raises(DataError, match=where) as refused:
        read_contrasts(path)
    assert str(refused.value).startswith(str(path))


def _scores(contrasts, *right):
    """Scores that prefer the right translation to the wrong ones where `right` says so."""
    preferences = iter(right)
    return [[Score("x", [-1.0]), *(Score("x", [-2.0 if next(preferences) else -1.0]) for _ in line.errors)] for line in contrasts]  # fmt: skip


def test_pairs_and_sources_are_counted_by_hand(tmp_path):
    """A tie is no preference; a key of wrong translations groups pairs, one of sources groups sources."""
    contrasts = read_contrasts(_file(tmp_path / "c.json", CONTRAPRO))
    scores = _scores(contrasts, True, True, True, False, True, True)
    systems = {"a": scores, "b": _scores(contrasts, *[True] * 6)}
    groups = {row["group"]: row for row in contrast_table(contrasts, systems, "ante distance")}
    assert [(name, row["n"], round(row["systems"]["a"]["mean"], 2)) for name, row in groups.items()] == [
        ("pairs", 6, 83.33), ("sources", 3, 66.67), ("ante distance 0", 1, 100), ("ante distance 1", 2, 50)
    ]  # fmt: skip
    against = groups["pairs"]["systems"]["b"]["against"]
    assert against["difference"] == pytest.approx(-100 / 6)
    assert against["no_p"] == "too few lines"
    by_pair = contrast_table(contrasts, {"a": scores}, "replacement")[2:]
    assert [(row["group"], row["n"]) for row in by_pair] == [("replacement Es ", 3), ("replacement Sie", 3)]


def test_groups_of_numbers_and_of_no_value(tmp_path):
    contrasts = read_contrasts(_file(tmp_path / "l.json", LINGEVAL))
    report = contrast_table(contrasts, {"a": _scores(contrasts, True, False, True)}, "distance")
    assert [(row["group"], row["n"], row["systems"]["a"]["mean"]) for row in report[2:]] == [
        ("distance 2", 1, 100), ("distance 16 to 31", 1, 100), ("distance none", 1, 0)
    ]  # fmt: skip


def test_keys_that_do_not_group(tmp_path):
    rows = "".join(f"a\tb\tc\t{number}x\n" for number in range(203))
    contrasts = read_contrasts(_file(tmp_path / "t.tsv", HEADER.replace("\n", "\torigin\n") + rows))
    with pytest.raises(ConfigError, match=r"--by: expected a key .* got orgin. Nearest: origin"):
        check_key(contrasts, "orgin")
    with pytest.raises(ConfigError, match=r"--by: expected a key of at most 200 values"):
        contrast_table(contrasts, {"a": _scores(contrasts, *[True] * 203)}, "origin")


def test_wilsons_interval_by_hand():
    """For 9 of 10 and z = 1.96: centre (0.9 + z²/20) / (1 + z²/10), half width z √(0.009 + z²/400) / (1 + z²/10)."""
    square = 1.959964**2
    centre, half = (0.9 + square / 20, (square * (0.009 + square / 400)) ** 0.5)
    interval = wilson_interval(9, 10)
    assert interval.mean == 90
    assert interval.low == pytest.approx(100 * (centre - half) / (1 + square / 10))
    assert interval.high == pytest.approx(100 * (centre + half) / (1 + square / 10))
