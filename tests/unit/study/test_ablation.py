"""Spoiled inputs: what is asked for changes, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.collator import SyntaxCollator, SyntaxExample
from syntaxformer.infusion.config import InfusionConfig, LisaConfig, MaskConfig, TreeOptions
from syntaxformer.study.ablation import (
    Ablation,
    PieceWords,
    ablate_batch,
    ablate_classifier,
    ablate_factors,
    ablate_translator,
    drawn_for,
    word_roles,
)
from syntaxformer.syntax import FactorVocabulary, SyntaxInputs, WordColumns, dependency_relations
from syntaxformer.syntax.piece_relations import TREES
from syntaxformer.translation.source import SourceEncoder, source_batch
from syntaxformer.trees import Sentence

NAMES = ("pos", "case", "subword")
WORDS = [0, 1, 1, 1, 2, 2, 3, -1]
FACTORS = np.array(
    [[[3, 2, 5], [4, 2, 2], [4, 2, 3], [4, 2, 4], [5, 3, 2], [5, 3, 4], [6, 2, 5], [0, 0, 0]]], np.int32
)
"""Four words of one, three, two and one piece, and the end."""

PAIR = 46


def _of_pieces(words, segments=None, text=7):
    words = np.array([words])
    segments = np.zeros_like(words) if segments is None else np.array([segments])
    return PieceWords(words, segments, np.array([text]))


def _by_word(values, words):
    """The set of values that the pieces of each word have."""
    pairs = list(zip(values, words, strict=True))
    return [{one for one, of in pairs if of == word} for word in range(max(words) + 1)]


def test_words_change_places_and_all_pieces_of_a_word_go_along():
    found = ablate_factors(FACTORS, NAMES, _of_pieces(WORDS), Ablation(shuffle=("pos",)))[0]
    tags = _by_word(found[:, 0].tolist(), WORDS)
    assert all(len(one) == 1 for one in tags)
    assert [*map(min, tags)] != [3, 4, 5, 6]
    assert sorted(map(min, tags)) == [3, 4, 5, 6]
    assert found[7].tolist() == [0, 0, 0]
    assert found[:, 1:].tolist() == FACTORS[0, :, 1:].tolist()
    assert FACTORS[0, 0, 0] == 3  # what was given is left alone


def test_subword_positions_change_places_among_pieces():
    found = ablate_factors(FACTORS, NAMES, _of_pieces(WORDS), Ablation(shuffle=("subword",)))[0]
    assert found[:7, 2].tolist() != FACTORS[0, :7, 2].tolist()
    assert sorted(found[:7, 2]) == sorted(FACTORS[0, :7, 2])
    assert found[7, 2] == 0
    assert found[:, :2].tolist() == FACTORS[0, :, :2].tolist()


def test_a_blank_factor_has_no_value():
    found = ablate_factors(FACTORS, NAMES, _of_pieces(WORDS), Ablation(blank=("case",)))
    assert found[0, :, 1].tolist() == [0] * 8
    assert found[:, :, 0].tolist() == FACTORS[:, :, 0].tolist()


def test_the_seed_decides_and_the_text():
    spoiled = [
        ablate_factors(FACTORS, NAMES, _of_pieces(WORDS, text=text), Ablation(("pos",), seed=seed)).tolist()
        for seed, text in ((1, 7), (1, 7), *((seed, 7) for seed in range(2, 8)))
    ]
    assert spoiled[0] == spoiled[1]
    assert any(one != spoiled[0] for one in spoiled[2:])


def test_draws_differ_by_seed_text_and_name():
    keys = [(1, 7, "pos"), (2, 7, "pos"), (1, 8, "pos"), (1, 7, "case")]
    assert len({drawn_for(*key).integers(2**40) for key in (*keys, keys[0])}) == len(keys)


def test_each_word_may_take_the_place_of_any_other():
    words, segments = np.array([0, 0, 1, 2, -1]), np.zeros(5, np.int64)
    found = np.array([word_roles(words, segments, np.random.default_rng(seed)) for seed in range(40)])
    for piece in range(4):
        assert set(found[:, piece]) == {0, 2, 3}  # first pieces
    assert (found[:, 0] == found[:, 1]).all()
    assert (found[:, 4] == 4).all()


@pytest.fixture
def batch():
    """Two trees of 'She reads old books': dependency twice; a special piece at each end."""
    relations = np.zeros((1, 2, 6, 6), np.uint8)
    relations[:, :, 1:5, 1:5] = dependency_relations([1, -1, 3, 1])
    return {
        "input_ids": torch.arange(6)[None],
        "syntax": torch.from_numpy(relations),
        "governors": torch.tensor([[0, 2, 2, 4, 2, 5]]),
        "first_pieces": torch.tensor([[False, True, True, True, True, False]]),
        "factor_ids": torch.tensor([[[0], [5], [6], [7], [8], [0]]]),
    }


BATCH_WORDS = _of_pieces([-1, 0, 1, 2, 3, -1])


def _kinds(relations):
    return sorted(relations.flatten().tolist())


def test_a_shuffled_tree_has_the_same_shape_over_other_words(batch):
    found = ablate_batch(batch, TreeOptions(), BATCH_WORDS, Ablation(shuffle=("dependency",)))
    one, other = found["syntax"][0]
    assert _kinds(one) == _kinds(other)
    assert one.tolist() != other.tolist()
    assert other.tolist() == batch["syntax"][0, 1].tolist()
    assert not one[0].any()
    assert not one[:, 5].any()
    assert found["governors"].tolist() == batch["governors"].tolist()
    assert found["factor_ids"].tolist() == batch["factor_ids"].tolist()


def test_a_pair_keeps_its_segments_its_specials_and_its_pieces_together():
    """[CLS] a ##a b c [SEP] d ##d e [SEP], with a over b over c and d over e; [CLS] over all roots."""
    words = [-1, 0, 0, 1, 2, -1, 3, 3, 4, -1]
    segments = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    of_words = np.zeros((6, 6), np.uint8)
    of_words[:3, :3], of_words[3:5, 3:5] = dependency_relations([-1, 0, 1]), dependency_relations([-1, 0])
    of_words[:3, 3:5] = of_words[3:5, :3] = PAIR
    relations = torch.from_numpy(of_words[np.ix_(words, words)])
    relations[0, [1, 2, 6, 7]], relations[[1, 2, 6, 7], 0] = 1, 16  # [CLS] and the roots
    of_pieces = _of_pieces(words, segments)
    options = TreeOptions(trees=("dependency",))
    seen = set()
    for seed in range(8):
        spoiled = {"syntax": relations[None, None]}
        spoiled = ablate_batch(spoiled, options, of_pieces, Ablation(("syntax",), seed=seed))["syntax"][0, 0]
        assert torch.equal(spoiled == PAIR, relations == PAIR)
        assert spoiled[1].tolist()[3:] == spoiled[2].tolist()[3:]  # a and ##a, to all others
        assert spoiled[1, 2] == spoiled[2, 1] == spoiled[6, 7] == 0
        assert not spoiled[[5, 9]].any()
        roots = {words[place] for place in range(10) if spoiled[0, place]}
        assert [len(roots & one) for one in ({0, 1, 2}, {3, 4})] == [1, 1]
        assert torch.equal(spoiled[0] > 0, spoiled[:, 0] > 0)
        seen.add(str(spoiled.tolist()))
    assert len(seen) > 1


def test_blank_trees_and_kinds(batch):
    found = ablate_batch(batch, TreeOptions(), BATCH_WORDS, Ablation(blank=("constituency", "parent")))
    one, other = found["syntax"][0]
    assert not other.any()
    assert not ((one > 0) & (one <= 15)).any()
    assert one[1, 2] == 15 + 1  # She is the child of reads
    assert one[1, 4] == 30 + 2  # She and books are siblings
    assert one[2, 1] == 0


def test_governors_keep_the_shape_of_the_tree(batch):
    words = range(1, 5)
    seen = set()
    for seed in range(8):
        ablation = Ablation(shuffle=("governors",), seed=seed)
        found = ablate_batch(batch, None, BATCH_WORDS, ablation)["governors"][0]
        assert [found[0].item(), found[5].item()] == [0, 5]
        assert len([word for word in words if found[word] == word]) == 1
        pointed = sorted(sum(int(found[word] == place) for word in words) for place in words)
        assert pointed == [0, 0, 1, 3]  # old: none, She: none, books: one, reads: She, books and itself
        seen.add(tuple(found.tolist()))
    assert len(seen) > 1
    blank = ablate_batch(batch, None, BATCH_WORDS, Ablation(blank=("governors",)))["governors"][0]
    assert blank.tolist() == [0, 1, 2, 3, 4, 5]


def test_two_matrices_of_a_tree_are_spoiled_alike(batch):
    """Siblings beside parents and children."""
    both = {"syntax": batch["syntax"].repeat_interleave(2, 1)}
    options = TreeOptions(siblings="all")
    shuffled = ablate_batch(both, options, BATCH_WORDS, Ablation(shuffle=("constituency",)))["syntax"][0]
    changed = options.planes.index("constituency")
    kept = 2 - changed
    assert torch.equal(shuffled[kept : kept + 2], both["syntax"][0, kept : kept + 2])
    assert torch.equal(shuffled[changed], shuffled[changed + 1])
    assert not torch.equal(shuffled[changed], both["syntax"][0, changed])
    blank = ablate_batch(both, options, BATCH_WORDS, Ablation(blank=("constituency",)))["syntax"][0]
    assert not blank[changed : changed + 2].any()
    assert torch.equal(blank[kept : kept + 2], both["syntax"][0, kept : kept + 2])


def test_kinds_are_those_of_trees_and_not_numbers_of_the_users_own_relations(batch):
    options = SimpleNamespace(planes=("near", "dependency"), relations={"near": 20}, max_distance=15)
    found = ablate_batch(batch, options, BATCH_WORDS, Ablation(blank=("parent", "sibling")))["syntax"][0]
    assert torch.equal(found[0], batch["syntax"][0, 0])
    assert set(found[1].unique().tolist()) <= {0, *range(16, 31)}


def test_only_first_pieces_have_and_are_governors(batch):
    """[CLS] a ##a b [SEP]: the second piece of a word points at its first, whatever is spoiled."""
    governors = torch.tensor([[0, 3, 1, 3, 4, 5]])
    of_pieces = _of_pieces([-1, 0, 0, 1, -1, -1])
    given = {**batch, "governors": governors}
    blank = ablate_batch(given, None, of_pieces, Ablation(blank=("governors",)))["governors"][0]
    assert blank.tolist() == [0, 1, 1, 3, 4, 5]
    seen = {
        tuple(
            ablate_batch(given, None, of_pieces, Ablation(("governors",), seed=seed))["governors"][0].tolist()
        )
        for seed in range(16)
    }
    assert seen == {(0, 3, 1, 3, 4, 5), (0, 1, 1, 1, 4, 5)}


def test_governors_of_a_pair_stay_in_their_segments(batch):
    governors = torch.tensor([[0, 2, 2, 4, 4, 5]])  # two segments of two words, the second word the root
    of_pieces = _of_pieces([-1, 0, 1, 2, 3, -1], [0, 0, 0, 1, 1, 1])
    for seed in range(8):
        ablation = Ablation(shuffle=("governors",), seed=seed)
        found = ablate_batch({**batch, "governors": governors}, None, of_pieces, ablation)["governors"][0]
        assert found[1] == found[2] in (1, 2)
        assert found[3] == found[4] in (3, 4)


def test_tags_of_a_classifier(batch):
    found = ablate_batch(batch, None, BATCH_WORDS, Ablation(blank=("pos",)), ("pos",))
    assert found["factor_ids"].tolist() == [[[0]] * 6]
    assert found["input_ids"] is batch["input_ids"]


@pytest.fixture
def classifier(letters):
    """Of nothing but its collator and settings: what an ablation looks at."""

    def build(infusion):
        collator = SyntaxCollator(letters, infusion, max_length=31)
        return SimpleNamespace(collator=collator)

    return build


@pytest.fixture
def letters():
    """A tokenizer whose pieces are letters."""
    made = Tokenizer(models.BPE({"[PAD]": 0, "[CLS]": 1, **{c: i for i, c in enumerate("abcdefg", 2)}}, []))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A [CLS] $B:1", special_tokens=[("[CLS]", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", eos_token="[CLS]")


def _example(text, governors, tags, *more):
    one = Sentence.from_words(text.split(), governors=governors, upos=tuple(tags.split()))
    return SyntaxExample((one, *more))


EXAMPLES = [
    _example("ab c def g", (1, -1, 3, 1), "DET NOUN VERB ADV"),
    _example("a b cd", (-1, 0, 1), "NOUN VERB PUNCT"),
    _example("g fe dc b a", (1, 2, -1, 2, 3), "DET ADJ NOUN VERB ADV"),
]


@pytest.mark.parametrize("name", ["dependency", "pos", "governors"])
def test_a_batch_is_spoiled_the_same_whatever_is_beside_and_before_it(classifier, name):
    lisa = LisaConfig(inject="gold")
    infusion = InfusionConfig(masks=MaskConfig(trees=("dependency",)), embedding={"kind": "add"}, lisa=lisa)
    intact = classifier(infusion)
    spoiled = ablate_classifier(intact, Ablation(shuffle=(name,))).collator
    first, again, turned = spoiled(EXAMPLES), spoiled(EXAMPLES), spoiled(EXAMPLES[::-1])
    key = {"dependency": "syntax", "pos": "factor_ids"}.get(name, name)
    assert torch.equal(first[key], again[key])
    assert torch.equal(first[key].flip(0), turned[key])
    assert not torch.equal(first[key], intact.collator(EXAMPLES)[key])
    for row, example in enumerate(EXAMPLES):
        alone = spoiled([example])[key][0]
        within = first[key][row]
        for axis in range(alone.ndim):
            within = within.narrow(axis, 0, alone.shape[axis])
        assert torch.equal(alone, within)


def test_a_spoiled_collator_counts_what_it_cuts_once(classifier):
    long = _example("abcdefg abcdefg abcdefg abcdefg abcdefg", (-1, 0, 1, 2, 3), "X X X X X")
    spoiled = ablate_classifier(
        classifier(InfusionConfig.parse("pos_add")), Ablation(shuffle=("pos",))
    ).collator
    spoiled.n_truncated = 0
    spoiled([long, EXAMPLES[0]])
    assert spoiled.n_truncated == 1


def test_governors_that_a_head_does_not_look_at(classifier):
    """Without injection they are targets of training alone."""
    plain = classifier(InfusionConfig(lisa=LisaConfig()))
    for ablation in (Ablation(shuffle=("governors",)), Ablation(blank=("governors",))):
        with pytest.raises(
            ConfigError, match=r"expected what the model reads, got governors\. It reads neither"
        ):
            ablate_classifier(plain, ablation)
    ablate_classifier(classifier(InfusionConfig(lisa=LisaConfig(inject="gold"))), Ablation(("governors",)))


def test_a_translator_is_spoiled_line_by_line(letters):
    lines = ["ab c def g", "a b cd", "g fe dc b a"]
    sentences = [one.segments[0] for one in EXAMPLES]
    values = tuple({tag for one in sentences for tag in one.upos or ()})
    encoder = SourceEncoder(
        letters,
        {"pos": FactorVocabulary("pos", values)},
        syntax=SyntaxInputs(trees=TreeOptions(trees=("dependency",)), governors=True),
    )
    whole = SimpleNamespace(encoder=encoder, decoder=None, info=None, annotator=None)
    with patch("syntaxformer.study.ablation.Translator", lambda _, encoder, *__: encoder):
        spoiled = ablate_translator(whole, Ablation(shuffle=("pos", "syntax", "governors")))

    def encode(encoder, rows):
        words = WordColumns.from_sentences([sentences[row] for row in rows])
        found = encoder.encode([lines[row] for row in rows], words)
        batch = source_batch(found, range(len(rows)), 0)  # as `translate` makes it
        return found, {name: tensor.numpy() for name, tensor in batch.items()}

    together, batch = encode(spoiled, [0, 1, 2])
    intact, intact_batch = encode(encoder, [0, 1, 2])
    assert together.factors.tolist() != intact.factors.tolist()
    for row in range(3):
        alone, batch_alone = encode(spoiled, [row])
        own = slice(*together.splits[row : row + 2])
        n = own.stop - own.start
        assert together.factors[own].tolist() == alone.factors.tolist()
        assert sorted(set(alone.factors[:, 0])) == sorted(set(intact.factors[own, 0]))
        assert np.array_equal(batch["syntax"][row, :, :n, :n], batch_alone["syntax"][0])
        assert np.array_equal(batch["governors"][row, :n], batch_alone["governors"][0])
    for name in ("syntax", "governors"):
        assert not np.array_equal(batch[name], intact_batch[name])


def test_what_a_model_does_not_read(monkeypatch):
    ablation = Ablation.parse(["pos, syntax", "parent"], ["kase"])
    assert (ablation.shuffle, ablation.blank) == (("pos", "syntax", "parent"), ("kase",))
    assert not Ablation()
    with pytest.raises(ConfigError) as error:
        ablation.check(("pos", "case"), (), False)
    assert error.value.problems == [
        "--shuffle: expected what the model reads, got syntax. Known: case, pos.",
        "--shuffle: expected what the model reads, got parent. Known: case, pos.",
        "--blank: expected what the model reads, got kase. Nearest: case.",
    ]
    with pytest.raises(ConfigError, match="It reads neither factors nor trees"):
        Ablation(shuffle=("pos",)).check((), (), False)
    Ablation(("syntax", "dependency"), ("pair", "child")).check((), ("dependency",), False)
    monkeypatch.setitem(TREES, "near", replace(TREES["dependency"], function=lambda sentence: None))
    with pytest.raises(ConfigError, match=r"^--blank: expected what the model reads, got parent\."):
        Ablation(blank=("parent",)).check((), ("near",), False)
    Ablation(blank=("parent",)).check((), ("near", "dependency"), False)
