"""Training corpora with weights and tags: their shares of each epoch, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.translation.batches import Shares, TokenBudgetBatches
from syntaxformer.translation.corpora import Corpus, CorpusConfig, read_dev, read_train
from syntaxformer.translation.prepare import prepare
from syntaxformer.translation.recipe import load_recipe

BUDGET, SIZES = 53, (101, 67, 31)


def _shares(weights=(0.4, 2.5, 1.0), seed=3) -> tuple[Shares, np.ndarray, np.ndarray]:
    lengths = np.random.default_rng(1).integers(2, 29, sum(SIZES))
    corpora = np.repeat([0, 1, 2], SIZES)
    return Shares(corpora, weights, lengths, seed), corpora, lengths


def test_each_epoch_has_the_same_shares_and_pairs_take_turns():
    shares, corpora, _ = _shares()
    expected = [round(101 * 0.4), 2 * 67 + round(67 / 2), 31]
    assert shares.sizes == expected
    epochs = [Counter(shares.rows(epoch).tolist()) for epoch in range(6)]
    for rows in epochs:
        by_corpus = Counter(corpora[[*rows.elements()]].tolist())
        assert [by_corpus[corpus] for corpus in range(3)] == expected
        assert {rows[row] for row in range(101)} == {0, 1}
        assert {rows[row] for row in range(101, 168)} == {2, 3}
        assert {rows[row] for row in range(168, 199)} == {1}
    assert {row for rows in epochs[2:5] for row in rows} == {*range(199)}, "three epochs see all of 0.4"
    assert shares.rows(4).tolist() == _shares()[0].rows(4).tolist() != _shares(seed=4)[0].rows(4).tolist()
    tiny = Shares(np.array([0, 1, 1]), [0.01, 1.0, 2.0], np.array([3, 3, 3]), 1)
    assert tiny.sizes == [1, 2, 0], "a corpus does not vanish for its weight"


def _epoch(batches, epoch) -> list[list[int]]:
    batches.set_epoch(epoch)
    return list(batches)


def test_batches_of_shares_fit_the_budget_and_are_the_same_again_on_several_processes():
    shares, corpora, lengths = _shares()
    sides = lengths, lengths, BUDGET, 7
    alone = TokenBudgetBatches(*sides, per_update=6, shares=shares)
    parts = [TokenBudgetBatches(*sides, per_update=6, rank=n, world=3, shares=_shares()[0]) for n in range(3)]
    n_batches = len(alone)
    for epoch in (5, 0, 3):
        batches = _epoch(alone, epoch)
        assert len(batches) == n_batches
        assert max(len(batch) * lengths[batch].max() for batch in batches) <= BUDGET
        distinct = batches[: alone.n_batches]  # what follows fills the last update
        drawn = Counter(corpora[[row for batch in distinct for row in batch]].tolist())
        assert [drawn[corpus] for corpus in range(3)] == shares.sizes
        assert [batch for turn in zip(*(_epoch(part, epoch) for part in parts), strict=True) for batch in turn] == batches  # fmt: skip
    assert sum(map(len, _epoch(alone, 1)[: alone.n_batches])) == sum(shares.sizes)


def _write(folder, name, n, word) -> None:
    for ending in ("en", "de", "fr"):
        (folder / f"{name}.{ending}").write_text("".join(f"{word} {row} {ending}\n" for row in range(n)))


@pytest.fixture
def folder(tmp_path) -> Path:
    for name, n, word in (("a", 12, "cat"), ("bt", 40, "dog"), ("dev", 5, "cow")):
        _write(tmp_path, name, n, word)
    return tmp_path


def _recipe(folder, *settings):
    return load_recipe("tiny", [
        f"data.dir={folder}", f"data.cache={folder}", f"output={folder / 'run'}", "subwords.vocab_size=301", "data.dev=dev", *settings
    ])  # fmt: skip


CORPORA = "data.train=[{name: a, weight: 3}, {name: bt, weight: 0.25, tag: '<bt>'}]"


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_report_says_what_each_corpus_gave(folder, on_disk):
    data = prepare(_recipe(folder, CORPORA, f"data.on_disk={on_disk}", "data.exclude=[dev]"))
    assert data.report.to_dict()["corpora"] == [
        {"name": "a", "weight": 3.0, "tag": None, "pairs": 12, "pairs_in_epoch": 36},
        {"name": "bt", "weight": 0.25, "tag": "<bt>", "pairs": 40, "pairs_in_epoch": 10},
    ]
    assert "corpus bt: 40 pairs, 10 in each epoch, tag: <bt>." in str(data.report)
    tag = data.encoder.tokenizer.convert_tokens_to_ids("<bt>")
    firsts = data.train.src.pieces[data.train.src.splits[:-1]]
    assert (firsts == tag).tolist() == [False] * 12 + [True] * 40
    assert not (data.dev.src.pieces == tag).any()
    assert Counter(np.asarray(data.train.corpora)[data.train.shares.rows(2)].tolist()) == {0: 36, 1: 10}


def test_plain_names_are_as_before(folder):
    recipe = _recipe(folder, "data.train=[a, bt]")
    data = prepare(recipe)
    assert data.train.shares is None
    assert data.report.corpora[1]["pairs_in_epoch"] == 40
    assert prepare(_recipe(folder, "data.train=a")).report.to_dict().keys() == {"text", "pairs", "kept", "faults", "notes"}  # fmt: skip
    for train in ("a", ["a", "bt"], [{"name": "a", "weight": 2.0, "tag": None, "src": None, "tgt": None}]):
        config = CorpusConfig(dir=folder, train=train)
        stored = json.loads(config.model_dump_json())
        assert stored["train"] == train
        assert CorpusConfig.model_validate(stored) == config
    assert CorpusConfig(dir=folder).train == [Corpus(name="train")]


def test_shares_go_with_a_fraction_and_with_synthetic_pairs(folder, tmp_path):
    (tmp_path / "more").mkdir()
    _write(tmp_path / "more", "train", 6, "made")
    data = prepare(_recipe(folder, CORPORA, f"data.synthetic={tmp_path / 'more'}", "data.fraction=0.5"))
    sizes = data.train_text.sizes
    assert (sum(sizes), sizes[2], len(sizes)) == (32, 6, 3)
    rows = [line.split()[0] for line in data.train_text.src]
    assert [rows.count(word) for word in ("cat", "dog", "made")] == list(sizes)
    assert [corpus["pairs_in_epoch"] for corpus in data.report.corpora][::2] == [3 * sizes[0], 6]


@pytest.mark.parametrize(
    ("train", "problem"),
    [
        ("[{name: a, weight: 0}]", "data.train.0.weight: expected greater than 0, got 0"),
        ("[{name: a, weight: -1}]", "data.train.0.weight: expected greater than 0, got -1"),
        ("[{name: a, weight: .inf}]", "data.train.0.weight: expected a finite number, got inf"),
        ("[{name: a, weight: 1e9}]", "data.train.0.weight: expected less than or equal to 1000"),
        ("[{name: a, wieght: 2}]", "data.train.0.wieght: unknown key. Nearest: weight."),
        ("[{weight: 2}]", "data.train.0.name: expected a value, got nothing."),
        ("[{name: a, tag: bt}]", "data.train.0.tag: expected symbols such as <bt> or <2de>"),
        ("[{name: a, tag: '</s>'}]", "data.train.0.tag: expected symbols such as <bt> or <2de>"),
        ("[{name: a, tag: '<bt> '}]", "data.train.0.tag: expected symbols such as <bt> or <2de>"),
        ("2016", "data.train.0.name: expected a valid string, got 2016. Put it in quotes."),
        ("[{name: a, tgt: fr}]", "train: expected the tag <2fr> of a, got None."),
        ("[bt, {name: a, tgt: fr, tag: <2fr>}]", "train: expected a tag such as <2de> of each corpus or none, got bt."),
        ("[{name: a, tgt: en, tag: <2en>}]", "train: expected two endings of a, got one for both sides."),
    ],
)  # fmt: skip
def test_what_is_refused(folder, train, problem):
    with pytest.raises(ConfigError) as caught:
        _recipe(folder, f"data.train={train}")
    assert problem in str(caught.value)


def test_a_corpus_that_is_not_there(folder):
    with pytest.raises(ConfigError, match=r"data: expected the file .*c\.en"):
        read_train(CorpusConfig(dir=folder, train=[{"name": "c", "weight": 2}]))


def test_several_target_languages(folder):
    train = "data.train=[{name: a, tag: <2de>}, {name: bt, tgt: fr, tag: <2fr><bt>}]"
    recipe = _recipe(folder, train)
    assert list(recipe.data.directions) == ["de", "fr"]
    data = prepare(recipe)
    names = [
        data.encoder.piece_names(data.train.src.pieces[at : at + 2]) for at in data.train.src.splits[[0, 12]]
    ]
    assert (names[0][0], names[1]) == ("<2de>", ["<2fr>", "<bt>"])
    assert data.train_text.tgt[0].endswith("de")
    assert data.train_text.tgt[12].endswith("fr")
    dev = read_dev(recipe.data)
    assert (dev.sizes, dev.tags) == ((5, 5), (("<2de>",), ("<2fr>",)))
    assert dev.tgt[4:6] == ["cow 4 de", "cow 0 fr"]
    both = _recipe(folder, "data.train=[{name: a, tag: <2de>}, {name: a, src: de, tgt: en, tag: <2en>}]")
    assert read_train(both.data).src[11:13] == ["cat 11 en", "cat 0 de"]
    with pytest.raises(ConfigError, match=r"data\.train: expected src=en in each corpus, as an annotator reads one language, got de"):  # fmt: skip
        _recipe(folder, "data.train=[{name: a, tag: <2de>}, {name: a, src: de, tgt: en, tag: <2en>}]",
                "infusion.kind=add")  # fmt: skip
