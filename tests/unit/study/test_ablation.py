"""Ablated inputs: what is asked for changes, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

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
SEEDS = range(8)


def _of_pieces(words, segments=None, text=7):
    segments = None if segments is None else np.array([segments])
    return PieceWords(np.array([words]), np.array([text]), segments)


@pytest.mark.parametrize(("name", "column"), [("pos", 0), ("subword", 2)])
def test_values_change_places_among_words_or_among_pieces(name, column):
    ablated = ablate_factors(FACTORS, NAMES, _of_pieces(WORDS), Ablation(shuffle=(name,)))[0]
    values, before = ablated[:, column], FACTORS[0, :, column]
    assert values.tolist() != before.tolist()
    assert ablated[7].tolist() == [0, 0, 0]
    others = [other for other in range(3) if other != column]
    assert ablated[:, others].tolist() == FACTORS[0][:, others].tolist()
    assert FACTORS[0, 0, 0] == 3  # the values themselves are left alone
    if name == "subword":
        assert sorted(values) == sorted(before)
        return
    of_words = [{*values[np.array(WORDS) == word]} for word in range(4)]
    assert [len(tags) for tags in of_words] == [1] * 4
    assert sorted(map(min, of_words)) == [3, 4, 5, 6]


def test_a_blank_factor_has_no_value():
    ablated = ablate_factors(FACTORS, NAMES, _of_pieces(WORDS), Ablation(blank=("case",)))
    assert ablated[0, :, 1].tolist() == [0] * 8
    assert ablated[:, :, 0].tolist() == FACTORS[:, :, 0].tolist()


def test_seed_text_and_name_decide_and_each_word_may_take_the_place_of_any_other():
    words = [0, 0, 1, 2, -1]
    roles = np.stack([_of_pieces(words).roles("pos", seed)[0] for seed in range(40)])
    for piece in range(4):
        assert set(roles[:, piece]) == {0, 2, 3}  # first pieces
    assert (roles[:, 0] == roles[:, 1]).all()
    assert (roles[:, 4] == 4).all()
    long = [*range(30)]
    keys = [(7, "pos", 1), (7, "pos", 2), (8, "pos", 1), (7, "case", 1), (7, "pos", 1)]
    drawn = {str(_of_pieces(long, text=text).roles(name, seed)) for text, name, seed in keys}
    assert len(drawn) == 4


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


def test_a_shuffled_tree_has_the_same_shape_over_other_words(batch):
    ablated = ablate_batch(batch, TreeOptions(), BATCH_WORDS, Ablation(shuffle=("dependency",)))
    tree, other = ablated["syntax"][0]
    assert sorted(tree.flatten().tolist()) == sorted(other.flatten().tolist())
    assert tree.tolist() != other.tolist()
    assert other.tolist() == batch["syntax"][0, 1].tolist()
    assert not tree[0].any()
    assert not tree[:, 5].any()
    for name in ("governors", "factor_ids"):
        assert ablated[name].tolist() == batch[name].tolist()


def test_a_pair_keeps_its_segments_its_specials_and_its_pieces_together():
    """[CLS] a ##a b c [SEP] d ##d e [SEP], with a over b over c and d over e; [CLS] over all roots."""
    words = [-1, 0, 0, 1, 2, -1, 3, 3, 4, -1]
    of_pieces = _of_pieces(words, [0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    of_words = np.zeros((6, 6), np.uint8)
    of_words[:3, :3], of_words[3:5, 3:5] = dependency_relations([-1, 0, 1]), dependency_relations([-1, 0])
    of_words[:3, 3:5] = of_words[3:5, :3] = PAIR
    relations = torch.from_numpy(of_words[np.ix_(words, words)])
    relations[0, [1, 2, 6, 7]], relations[[1, 2, 6, 7], 0] = 1, 16  # [CLS] and the roots
    seen = set()
    for seed in SEEDS:
        ablation, options = Ablation(("syntax",), seed=seed), TreeOptions(trees=("dependency",))
        batch = ablate_batch({"syntax": relations[None, None]}, options, of_pieces, ablation)
        ablated = batch["syntax"][0, 0]
        assert torch.equal(ablated == PAIR, relations == PAIR)
        assert ablated[1].tolist()[3:] == ablated[2].tolist()[3:]  # a and ##a, to all others
        assert ablated[1, 2] == ablated[2, 1] == ablated[6, 7] == 0
        assert not ablated[[5, 9]].any()
        roots = {words[piece] for piece in range(10) if ablated[0, piece]}
        assert [len(roots & segment) for segment in ({0, 1, 2}, {3, 4})] == [1, 1]
        assert torch.equal(ablated[0] > 0, ablated[:, 0] > 0)
        seen.add(str(ablated.tolist()))
    assert len(seen) > 1


def test_blank_trees_and_kinds(batch):
    ablation = Ablation(blank=("constituency", "parent"))
    tree, other = ablate_batch(batch, TreeOptions(), BATCH_WORDS, ablation)["syntax"][0]
    assert not other.any()
    assert not ((tree > 0) & (tree <= 15)).any()
    assert tree[1, 2] == 15 + 1  # She is the child of reads
    assert tree[1, 4] == 30 + 2  # She and books are siblings
    assert tree[2, 1] == 0
    # Ids of the user's own relations are no kinds.
    options = SimpleNamespace(planes=("near", "dependency"), relations={"near": 20}, max_distance=15)
    ablation = Ablation(blank=("parent", "sibling"))
    near, tree = ablate_batch(batch, options, BATCH_WORDS, ablation)["syntax"][0]
    assert torch.equal(near, batch["syntax"][0, 0])
    assert set(tree.unique().tolist()) <= {0, *range(16, 31)}


def test_two_matrices_of_a_tree_are_ablated_alike(batch):
    """Siblings beside parents and children."""
    both, options = {"syntax": batch["syntax"].repeat_interleave(2, 1)}, TreeOptions(siblings="all")
    changed = options.planes.index("constituency")
    rest = slice(2 - changed, 4 - changed)
    shuffled, blank = (
        ablate_batch(both, options, BATCH_WORDS, ablation)["syntax"][0]
        for ablation in (Ablation(shuffle=("constituency",)), Ablation(blank=("constituency",)))
    )
    assert torch.equal(shuffled[changed], shuffled[changed + 1])
    assert not torch.equal(shuffled[changed], both["syntax"][0, changed])
    assert not blank[changed : changed + 2].any()
    for ablated in (shuffled, blank):
        assert torch.equal(ablated[rest], both["syntax"][0, rest])


def _governors(governors, of_pieces):
    """Of each seed, shuffled, and blank at the end."""
    inputs = {"governors": torch.tensor([governors])}
    ablations = [*(Ablation(("governors",), seed=seed) for seed in SEEDS), Ablation(blank=("governors",))]
    return [
        ablate_batch(inputs, None, of_pieces, ablation)["governors"][0].tolist() for ablation in ablations
    ]


def test_governors_keep_the_shape_of_the_tree(batch):
    *shuffled, blank = _governors([0, 2, 2, 4, 2, 5], BATCH_WORDS)
    words = range(1, 5)
    for governors in shuffled:
        assert (governors[0], governors[5]) == (0, 5)
        assert sum(governors[word] == word for word in words) == 1
        # old: none, She: none, books: one, reads: She, books and itself
        assert sorted(governors[1:5].count(word) for word in words) == [0, 0, 1, 3]
    assert len({*map(tuple, shuffled)}) > 1
    assert blank == [0, 1, 2, 3, 4, 5]


def test_only_first_pieces_have_and_are_governors_within_their_segment():
    """[CLS] a ##a b [SEP]: the second piece of a word points at its first, whatever is ablated."""
    *shuffled, blank = _governors([0, 3, 1, 3, 4, 5], _of_pieces([-1, 0, 0, 1, -1, -1]))
    assert {*map(tuple, shuffled)} == {(0, 3, 1, 3, 4, 5), (0, 1, 1, 1, 4, 5)}
    assert blank == [0, 1, 1, 3, 4, 5]
    pair = _of_pieces([-1, 0, 1, 2, 3, -1], [0, 0, 0, 1, 1, 1])  # the second word of each is the root
    for governors in _governors([0, 2, 2, 4, 4, 5], pair)[:-1]:
        assert governors[1] == governors[2] in (1, 2)
        assert governors[3] == governors[4] in (3, 4)


@pytest.fixture
def letters():
    """A tokenizer whose pieces are letters."""
    pieces = {"[PAD]": 0, "[CLS]": 1, **{letter: number for number, letter in enumerate("abcdefg", 2)}}
    tokenizer = Tokenizer(models.BPE(pieces, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A [CLS] $B:1", special_tokens=[("[CLS]", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", eos_token="[CLS]")


@pytest.fixture
def classifier(letters):
    """Of nothing but its collator and settings: what an ablation looks at."""
    return lambda infusion: SimpleNamespace(collator=SyntaxCollator(letters, infusion, max_length=31))


def _example(text, governors, tags):
    return SyntaxExample((Sentence.from_words(text.split(), governors=governors, upos=tuple(tags.split())),))


EXAMPLES = [
    _example("ab c def g", (1, -1, 3, 1), "DET NOUN VERB ADV"),
    _example("a b cd", (-1, 0, 1), "NOUN VERB PUNCT"),
    _example("g fe dc b a", (1, 2, -1, 2, 3), "DET ADJ NOUN VERB ADV"),
]


@pytest.mark.parametrize("name", ["dependency", "pos", "governors"])
def test_a_batch_is_ablated_the_same_whatever_is_beside_and_before_it(classifier, name):
    lisa, masks = LisaConfig(inject="gold"), MaskConfig(trees=("dependency",))
    whole = classifier(InfusionConfig(masks=masks, embedding={"kind": "add"}, lisa=lisa))
    collator = ablate_classifier(whole, Ablation(shuffle=(name,))).collator
    first, again, turned = collator(EXAMPLES), collator(EXAMPLES), collator(EXAMPLES[::-1])
    key = {"dependency": "syntax", "pos": "factor_ids"}.get(name, name)
    assert torch.equal(first[key], again[key])
    assert torch.equal(first[key].flip(0), turned[key])
    assert not torch.equal(first[key], whole.collator(EXAMPLES)[key])
    for row, example in enumerate(EXAMPLES):
        alone = collator([example])[key][0]
        assert torch.equal(alone, first[key][row][tuple(slice(size) for size in alone.shape)])


def test_an_ablated_collator_counts_what_it_cuts_once(classifier):
    long = _example("abcdefg abcdefg abcdefg abcdefg abcdefg", (-1, 0, 1, 2, 3), "X X X X X")
    whole = classifier(InfusionConfig.parse("pos_add"))
    collator = ablate_classifier(whole, Ablation(shuffle=("pos",))).collator
    collator.n_truncated = 0
    collator([long, EXAMPLES[0]])
    assert collator.n_truncated == 1


def test_a_translator_is_ablated_line_by_line(letters):
    lines, sentences = ["ab c def g", "a b cd", "g fe dc b a"], [example.segments[0] for example in EXAMPLES]
    values = tuple({tag for sentence in sentences for tag in sentence.upos or ()})
    syntax = SyntaxInputs(trees=TreeOptions(trees=("dependency",)), governors=True)
    whole = SourceEncoder(letters, {"pos": FactorVocabulary("pos", values)}, syntax=syntax)
    ablation = Ablation(shuffle=("pos", "syntax", "governors"))
    ablated = ablate_translator(SimpleNamespace(encoder=whole, others=()), ablation).encoder

    def encode(encoder, *rows):
        words = WordColumns.from_sentences([sentences[row] for row in rows])
        encoded = encoder.encode([lines[row] for row in rows], words)
        batch = source_batch(encoded, range(len(rows)), 0)  # as `translate` makes it
        return encoded, {name: tensor.numpy() for name, tensor in batch.items()}

    (together, batch), (intact, intact_batch) = encode(ablated, 0, 1, 2), encode(whole, 0, 1, 2)
    assert together.factors.tolist() != intact.factors.tolist()
    for row in range(3):
        alone, batch_alone = encode(ablated, row)
        pieces = slice(*together.splits[row : row + 2])
        n = pieces.stop - pieces.start
        assert together.factors[pieces].tolist() == alone.factors.tolist()
        assert set(alone.factors[:, 0]) == set(intact.factors[pieces, 0])
        assert np.array_equal(batch["syntax"][row, :, :n, :n], batch_alone["syntax"][0])
        assert np.array_equal(batch["governors"][row, :n], batch_alone["governors"][0])
    for name in ("syntax", "governors"):
        assert not np.array_equal(batch[name], intact_batch[name])


def test_an_ablated_translator_keeps_its_language_and_its_members(letters):
    plain = SourceEncoder(letters, {"pos": FactorVocabulary("pos", ("NOUN",))})
    member = SimpleNamespace(encoder=plain, others=())
    translator = SimpleNamespace(encoder=plain, others=[member], language="de")
    ablation = Ablation(blank=("pos",))
    ablated = ablate_translator(translator, ablation)
    assert ablated.language == "de"
    assert [system.encoder.ablation for system in (ablated, *ablated.others)] == [ablation] * 2
    assert translator.encoder is member.encoder is plain
    assert translator.others == [member]


def test_what_a_model_does_not_read(monkeypatch, classifier):
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
    Ablation(("syntax", "dependency"), ("pair", "child")).check((), ("dependency",), False)
    monkeypatch.setitem(TREES, "near", replace(TREES["dependency"], function=lambda sentence: None))
    with pytest.raises(ConfigError, match=r"--blank: .*got parent"):
        Ablation(blank=("parent",)).check((), ("near",), False)
    Ablation(blank=("parent",)).check((), ("near", "dependency"), False)
    plain = classifier(InfusionConfig(lisa=LisaConfig()))  # whose governors are targets of training alone
    for ablation in (Ablation(shuffle=("governors",)), Ablation(blank=("governors",))):
        with pytest.raises(ConfigError, match=r"got governors\. It reads neither"):
            ablate_classifier(plain, ablation)
