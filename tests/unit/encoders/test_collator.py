"""`SyntaxCollator`: which word each piece has its tags and relations from, cuts, labels, seeds, folders."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast, PreTrainedTokenizerFast

import syntaxformer as sf
from syntaxformer.base.errors import ConfigError, DataError, TreeError
from syntaxformer.syntax import WordTrees, word_relations
from syntaxformer.syntax.factors import POS_TAGS
from syntaxformer.syntax.inputs import NO_GOVERNOR
from syntaxformer.syntax.piece_relations import cut_trees, phrases_of, sentence_trees
from syntaxformer.trees.phrase_structure import brackets_of_parse

VOCABULARY = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "old", "man", "sleep", "##s", "un", "##believ", "##ably", "dogs", "bark",
    ".", "a", "b", "c", "d", "e",
]  # fmt: skip
PAIR = 46


@pytest.fixture(scope="module")
def tokenizer():
    """A WordPiece tokenizer of a few words."""
    return BertTokenizerFast(vocab={piece: i for i, piece in enumerate(VOCABULARY)})


def sentence(words, governors, upos=None, **columns):
    return sf.Sentence.from_words(
        words.split(), governors=tuple(governors), upos=tuple(upos.split()) if upos else None, **columns
    )


MAN = sentence("The unbelievably old man sleeps .", [3, 2, 3, 4, -1, 4], "DET ADV ADJ NOUN VERB PUNCT",
               deprels=("det", "advmod", "amod", "nsubj", "root", "punct"))  # fmt: skip
DOGS = sentence("Dogs bark", [1, -1], "NOUN VERB", deprels=("nsubj", "root"))


def collator(tokenizer, names="masks,lisa,pos_add", **options):
    return sf.SyntaxCollator(tokenizer, sf.InfusionConfig.parse(names), **options)


def test_text_that_spells_a_special_piece_is_text(tokenizer):
    """Else "[SEP]" in a text would end it, and T5 would find two ends in a row."""
    spelt = sentence("dogs [SEP] bark", [2, 2, -1], "NOUN X VERB", deprels=("nsubj", "dep", "root"))
    made = collator(tokenizer)
    batch = made([sf.SyntaxExample((spelt,))])
    assert batch["input_ids"][0].tolist().count(tokenizer.sep_token_id) == 1
    assert tokenizer.unk_token_id in batch["input_ids"][0].tolist()
    words, _ = made.words_of_pieces([sf.SyntaxExample((spelt,))])
    assert {0, 1, 2} <= set(words[0].tolist())


def test_special_pieces_of_a_text_are_kept_if_that_is_asked(tokenizer, tmp_path, caplog):
    spelt = sf.SyntaxExample((sentence("dogs [SEP] bark", [2, 2, -1], "NOUN X VERB"),))
    made = collator(tokenizer, "pos_add", split_special_tokens=False)
    made.save_pretrained(tmp_path)
    for one in (made, sf.SyntaxCollator.from_pretrained(tmp_path)):
        batch = one([spelt])
        assert batch["input_ids"][0].tolist().count(tokenizer.sep_token_id) == 2
        assert batch["factor_ids"].shape[1] == batch["input_ids"].shape[1] == 5
    assert not caplog.text
    split = collator(tokenizer, "pos_add")
    split([spelt]), split([spelt])
    assert (
        caplog.text.count("texts hold '[SEP]', a special token of the tokenizer, which is read as text") == 1
    )


def test_every_factor_is_a_column(tokenizer):
    """[CLS] Dogs bark [SEP]: each value by its place in the vocabulary, behind <none> and <unk>."""
    names = ["depth", "pos", "predicate", "case", "subword"]
    config = sf.InfusionConfig(embedding={"kind": "concat", "factors": names, "width": 23})
    ids = sf.SyntaxCollator(tokenizer, config)([sf.SyntaxExample((DOGS,))])["factor_ids"][0]
    vocabularies = config.fitted().vocabularies
    values = [vocabularies[name].decode(ids[:, at].numpy()) for at, name in enumerate(names)]
    expected = ["1", "0"], ["NOUN", "VERB"], ["0", "1"], ["1", "0"], ["O", "O"]
    assert values == [["<none>", *of_words, "<none>"] for of_words in expected]
    bare = replace(DOGS, governors=None)
    with pytest.raises(DataError, match=r"^governors:"):
        sf.SyntaxCollator(tokenizer, config)([sf.SyntaxExample((bare,))])


def test_pieces_have_what_their_word_has(tokenizer):
    """[CLS] the un ##believ ##ably old man sleep ##s . [SEP] dogs bark [SEP], all worked out by hand."""
    batch = collator(tokenizer)([sf.SyntaxExample((MAN, DOGS))])
    pieces = tokenizer.convert_ids_to_tokens(batch["input_ids"][0])
    expected = "[CLS] the un ##believ ##ably old man sleep ##s . [SEP] dogs bark [SEP]"
    assert pieces == expected.split()
    tags = ["<none>", "<unk>", *POS_TAGS]
    expected = "<none> DET ADV ADV ADV ADJ NOUN VERB VERB PUNCT <none> NOUN VERB <none>"
    assert [tags[tag] for tag in batch["factor_ids"][0, :, 0]] == expected.split()
    none = NO_GOVERNOR
    assert batch["governors"][0].tolist() == [none, 6, 5, 2, 2, 6, 7, 7, 7, 7, none, 12, 12, none]
    first = [place for place, is_first in enumerate(batch["first_pieces"][0]) if is_first]
    assert first == [1, 2, 5, 6, 7, 9, 11, 12]
    assert batch["syntax"].dtype == torch.uint8
    dependency = batch["syntax"][0, 0]
    # [CLS] stands over the root (1), its child (2), grandchildren (3), great-grandchildren (4).
    assert dependency[0].tolist() == [0, 3, 4, 4, 4, 3, 2, 1, 1, 2, 0, 2, 1, 0]
    # "old": sibling 2 of "the", parent 1 of "unbelievably", child 1 of "man", child 2 of "sleeps", sibling 3 of ".".
    assert dependency[5].tolist() == [15 + 3, 30 + 2, 1, 1, 1, 0, 16, 17, 17, 30 + 3, 0, PAIR, PAIR, 0]
    assert dependency[2, 3] == 0
    constituency = batch["syntax"][0, 1]
    assert bool((constituency[1:10, 11:13] == PAIR).all())
    assert bool((constituency[11:13, 1:10] == PAIR).all())
    assert bool((constituency[5, 1:10] < PAIR).all())


def test_relations_of_pieces_are_those_of_words_whatever_the_batch(tokenizer):
    """Alone or beside a longer example, and padded to a multiple of 8."""
    examples = [sf.SyntaxExample((DOGS,)), sf.SyntaxExample((MAN,))]
    together = collator(tokenizer, pad_to_multiple_of=8)(examples)
    assert together["input_ids"].shape[1] % 8 == 0
    for row, example in enumerate(examples):
        alone = collator(tokenizer)([example])
        n_pieces = alone["input_ids"].shape[1]
        assert torch.equal(together["syntax"][row, :, :n_pieces, :n_pieces], alone["syntax"][0])
        assert not together["syntax"][row, :, n_pieces:].any()
        assert not together["syntax"][row, ..., n_pieces:].any()
        for name in ("factor_ids", "governors", "first_pieces"):
            assert torch.equal(together[name][row, :n_pieces], alone[name][0])
        assert set(together["governors"][row, n_pieces:].tolist()) <= {NO_GOVERNOR}


def test_options_of_the_trees_arrive(tokenizer):
    example = [sf.SyntaxExample((MAN,))]
    make = lambda **masks: sf.SyntaxCollator(tokenizer, sf.InfusionConfig(masks=masks))(example)["syntax"]  # noqa: E731
    both = make()
    assert torch.equal(make(without=["constituency"])[:, 0], both[:, 0])
    assert torch.equal(make(trees=["constituency", "dependency"]), both.flip(1))
    assert int(make(specials="none")[:, :, 0].max()) == 0
    leaves = make(nodes="leaves")[0, 1, 1:10, 1:10]
    assert bool(((leaves == 0) | (leaves > 30)).all())
    assert int(make(max_distance=2)[0, 0].max()) <= 6


@pytest.mark.parametrize("reach", [1, 3, 100])
@pytest.mark.parametrize("max_distance", [1, 2, 5, 15])
@pytest.mark.parametrize("n_words", [11, 12, 23])
def test_cut_trees_keep_the_relations_of_the_whole(n_words, max_distance, reach):
    """`reach` bounds how far back a governor is drawn from: at 1 every tree is one chain."""
    rng = np.random.default_rng(n_words)
    for _ in range(20):
        order = rng.permutation(n_words)
        governors = np.full(n_words, -1)
        for place in range(1, n_words):
            governors[order[place]] = order[rng.integers(max(0, place - reach), place)]
        brackets = _random_brackets(rng, n_words)
        words = sentence("w " * n_words, governors.tolist(), constituency=brackets)
        whole = sentence_trees(words, ["dependency", "constituency"])
        n_kept = int(rng.integers(1, n_words))
        cut = cut_trees(whole, n_kept, max_distance)
        of_whole, of_cut = (word_relations([trees], max_distance)[0] for trees in (whole, cut))
        assert np.array_equal(of_cut[:, :n_kept, :n_kept], of_whole[:, :n_kept, :n_kept])
        assert np.array_equal(of_cut[:, -2, :n_kept], of_whole[:, -2, :n_kept])


def _random_brackets(rng, n_words):
    parts = ["(X w)"] * n_words
    while len(parts) > 1:
        start = int(rng.integers(0, len(parts) - 1))
        stop = min(len(parts), start + int(rng.integers(2, 4)))
        parts[start:stop] = [f"({rng.choice(['NP', 'VP', 'PP'])} {' '.join(parts[start:stop])})"]
    return parts[0]


def _ten_thousand_words(governors):
    return sf.Sentence.from_words(
        ["dogs"] * 10_000, governors=governors, upos=("NOUN",) * 10_000,
        constituency="(S " + "(NP dogs) " * 10_000 + ")",
    )  # fmt: skip


def test_a_long_chain_is_cut(tokenizer):
    """All words hang from the last, 9,999 edges up: only what a relation reaches is kept."""
    many = _ten_thousand_words((*range(1, 10_000), -1))
    batch = collator(tokenizer, max_length=128)([sf.SyntaxExample((many,))])
    below_first = batch["syntax"][0, 0, 1]
    assert below_first[1:19].tolist() == [0, *range(16, 31), 0, 0]
    assert not batch["syntax"][0, 0, 0].any()
    assert batch["governors"][0, 1:4].tolist() == [2, 3, 4]


def test_long_texts_are_cut_and_counted(tokenizer):
    """10,000 words in a fraction of a second: relations are made of the words that are left."""
    many = _ten_thousand_words((9_999, *[0] * 9_998, -1))
    collate = collator(tokenizer, max_length=16)
    batch = collate([sf.SyntaxExample((first, second)) for first, second in ((many, DOGS), (DOGS, MAN), (DOGS, DOGS))])  # fmt: skip
    assert batch["input_ids"].shape == (3, 16)
    assert collate.n_truncated == 1
    first = batch["syntax"][0, 0]
    # The first word hangs from the last, which is cut; the others hang from the first.
    assert first[1, 2:12].tolist() == [1] * 10
    assert first[0, 1:4].tolist() == [2, 3, 3]
    assert batch["governors"][0, 1:4].tolist() == [NO_GOVERNOR, 1, 1]
    collate([sf.SyntaxExample((many, DOGS))])
    assert collate.n_truncated == 2


def test_a_pair_of_which_both_texts_are_cut_is_one_example(tokenizer):
    collate = collator(tokenizer, "none", max_length=4)
    collate.separate = True
    long, short = (sf.Sentence(text, (), ()) for text in ("a a a a", "a"))
    collate([sf.SyntaxExample(texts, 1.0) for texts in ((long, long), (short, short), (short, long))])
    assert collate.n_truncated == 2


@pytest.mark.parametrize("n_workers", [0, 2])
def test_cut_texts_are_counted_in_the_workers_of_a_loader(tokenizer, n_workers):
    collate = collator(tokenizer, "none", max_length=4)
    rows = [sf.SyntaxExample((sf.Sentence(text, (), ()),)) for text in ("a a a a", "a")] * 5
    loader = torch.utils.data.DataLoader(rows, batch_size=2, collate_fn=collate, num_workers=n_workers)
    assert len(list(loader)) == 5
    assert collate.n_truncated == 5
    collate.n_truncated = 0
    assert len(list(loader)) == collate.n_truncated == 5


@pytest.mark.parametrize("n_workers", [0, 2])
def test_what_save_stores_is_known_from_the_workers_of_a_loader(tokenizer, n_workers):
    collate = collator(tokenizer, "masks", text=("one", "other"))
    row = {"syntax": [DOGS.to_dict() | {"annotator": "own 1"}], "label": 1}
    assert collate.n_texts == 2
    loader = torch.utils.data.DataLoader([row] * 4, batch_size=2, collate_fn=collate, num_workers=n_workers)
    assert len(list(loader)) == 2
    assert (collate.n_texts, collate.annotators) == (1, {"own 1"})
    other = {"syntax": [DOGS.to_dict() | {"annotator": "other 2"}] * 2, "label": 1}
    collate([other])
    assert (collate.n_texts, collate.annotators) == (2, {"own 1", "other 2"})


@pytest.mark.parametrize(("device", "longest", "width"), [("cpu", 16, 4), ("cuda", 16, 8), ("cuda", 15, 4)])
def test_lengths_are_multiples_of_8_on_an_accelerator(tokenizer, device, longest, width):
    """Unless the longest text would be cut more."""
    made = collator(tokenizer, "masks", max_length=longest)
    batch = made.aligned(torch.device(device))([sf.SyntaxExample((DOGS,))])
    assert batch["input_ids"].shape[1] == batch["syntax"].shape[-1] == width
    assert made.pad_to_multiple_of is None, "the folder's collator stays as it is"


@pytest.mark.parametrize("names", ["masks,lisa,pos_add", "pos_concat", "relation_bias", "lisa", "let"])
def test_texts_without_words(tokenizer, names):
    empty = sf.Sentence("", (), ())
    batch = collator(tokenizer, names)([sf.SyntaxExample((empty, DOGS)), sf.SyntaxExample((DOGS, empty))])
    assert batch["input_ids"].shape == (2, 5)
    batch = collator(tokenizer, names)([sf.SyntaxExample((empty,))])
    assert batch["input_ids"].shape == (1, 2)
    assert ("governors" in batch) == ("lisa" in names)
    assert set(batch.get("governors", torch.tensor(NO_GOVERNOR)).flatten().tolist()) == {NO_GOVERNOR}


def test_labels(tokenizer):
    make = lambda *labels: collator(tokenizer, "none")([sf.SyntaxExample((DOGS,), label) for label in labels])  # noqa: E731
    assert make(1, 0)["labels"].dtype == torch.int64
    assert make(1, 0.5)["labels"].tolist() == [1.0, 0.5]
    assert make((1, 0), (0, 1))["labels"].dtype == torch.int64
    assert make((0.5, 1.5), (2.0, 0.0))["labels"].tolist() == [[0.5, 1.5], [2.0, 0.0]]
    assert make(np.float32(0.75), np.int32(2))["labels"].tolist() == [0.75, 2.0]
    assert "labels" not in make(None, None)
    row = {"text": "Dogs bark", "labels": torch.tensor([1.0, 0.0])}
    assert collator(tokenizer, "none")([row])["labels"].tolist() == [[1.0, 0.0]]
    assert make("dogs bark", "the")["labels"].tolist() == [[2, 12, 13, 3], [2, 4, 3, -100]]
    for wrong in ((1, None), (1, "a")):
        with pytest.raises(DataError, match=r"^labels: expected one kind for all examples or none, got a m"):
            make(*wrong)
    infusion = SimpleNamespace(config=sf.InfusionConfig())
    classifier = SimpleNamespace(infusion=infusion, config=SimpleNamespace(is_encoder_decoder=False))
    of_classes = sf.SyntaxCollator(tokenizer, classifier)
    assert of_classes([sf.SyntaxExample((DOGS,), 1)])["labels"].tolist() == [1]
    with pytest.raises(DataError, match=r"^labels: expected numbers for a model that writes no text, got"):
        of_classes([sf.SyntaxExample((DOGS,), "pos")])


_OF = "for 'Dogs bark', got"


@pytest.mark.parametrize(
    ("head", "n", "tags", "label", "message"),
    [
        ("ForSequenceClassification", 1, None, float("nan"), f"finite numbers {_OF} nan"),
        (None, 3, None, float("-inf"), f"finite numbers {_OF} -inf"),
        (None, 3, None, [1.0, float("nan")], rf"finite numbers {_OF} \[1.0, nan\]"),
        ("ForSequenceClassification", 3, None, [1.0, 0.0], rf"3 finite numbers {_OF} \[1.0, 0.0\]"),
        ("ForSequenceClassification", 3, None, 3, f"a class of the model, 0 to 2 {_OF} 3"),
        ("ForSequenceClassification", 3, None, -1, f"a class of the model, 0 to 2 {_OF} -1"),
        ("ForSequenceClassification", 3, None, 1.0, f"a class of the model, 0 to 2 {_OF} 1.0"),
        ("ForTokenClassification", 3, "first", (0, 7), rf"a class of the model, 0 to 2 {_OF} \(0, 7\)"),
        (None, 3, "all", ("NOUN", "VERB"), f"finite numbers {_OF} "),
    ],
)
def test_a_label_that_cannot_be_learned_is_told_with_its_text(tokenizer, head, n, tags, label, message):
    """Torch says "Target 3 is out of bounds" of a batch, and of NaN nothing."""
    model = type(f"Bert{head}", (), {"infusion": SimpleNamespace(config=sf.InfusionConfig())})()
    model.config = SimpleNamespace(num_labels=n)
    make = sf.SyntaxCollator(tokenizer, model, tags=tags)
    good = 0.5 if n == 1 else 0 if tags is None else (0,) * 6
    if isinstance(label, list):
        good = [0.5] * (3 if head else 2)
    with pytest.raises(DataError, match=f"^labels: expected {message}"):
        make([sf.SyntaxExample((MAN,), good), sf.SyntaxExample((DOGS,), label)])
    assert make([sf.SyntaxExample((MAN,), good)] * 2)["labels"].shape[0] == 2


def test_tags_are_as_many_as_the_words(tokenizer):
    make = collator(tokenizer, "none", tags="first")
    long = sf.SyntaxExample((MAN,), (1, 2, 3, 4, 5, 6))
    assert make([sf.SyntaxExample((DOGS,), (1, 2)), long])["labels"][0].tolist()[:4] == [-100, 1, 2, -100]
    for label, got in (((1,), 1), ((1, 2, 3), 3), (None, 0)):
        with pytest.raises(DataError, match=f"labels: .*the 2 words of 'Dogs bark', got {got}"):
            make([long, sf.SyntaxExample((DOGS,), label)])


def test_byte_level_pieces_with_their_space(tmp_path):
    """RoBERTa's tokenizers give a piece the space before it; it still belongs to its word."""
    pieces = ["<s>", "</s>", "<pad>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=False)
    specials = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, **specials)
    batch = collator(tokenizer)([sf.SyntaxExample((DOGS,))])
    assert batch["factor_ids"][0, :, 0].tolist() == [0, *[9] * 4, 0, *[17] * 4, 0]
    assert batch["first_pieces"][0].nonzero().flatten().tolist() == [1, 6]


def test_a_last_special_stands_over_the_roots_where_there_is_no_first(tokenizer):
    """T5 has only </s>."""
    made = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    made.post_processor = processors.TemplateProcessing(single="$A [SEP]", special_tokens=[("[SEP]", 3)])
    how = {"pad_token": "[PAD]", "eos_token": "[SEP]", "padding_side": "left"}
    last = PreTrainedTokenizerFast(tokenizer_object=made, **how)
    batch = collator(last)([sf.SyntaxExample((DOGS,)), sf.SyntaxExample((MAN,))])
    assert batch["attention_mask"][0].tolist() == [0] * 7 + [1] * 3
    assert batch["syntax"][0, 0, 9].tolist() == [0] * 7 + [2, 1, 0]


def test_what_lacks_is_named(tokenizer):
    bare, parsed = sf.Sentence.from_words(["Dogs", "bark"]), sentence("Dogs bark", [1, -1])
    for lacking, names, told in (
        (bare, "masks", "governors: .*'Dogs bark', got none"),
        (parsed, "masks", "constituency: .*'Dogs bark', .*: it lacks upos, deprels"),
        (bare, "pos_add", "upos: .*'Dogs bark', got none"),
    ):
        with pytest.raises(DataError, match=f"^{told}"):
            collator(tokenizer, names)([sf.SyntaxExample((lacking,))])
    with pytest.raises(DataError, match=r"^segments:"):
        collator(tokenizer)([sf.SyntaxExample((MAN,)), sf.SyntaxExample((MAN, DOGS))])
    with pytest.raises(DataError, match=r"^segments: expected one sentence or two, got 3"):
        sf.SyntaxExample((MAN, DOGS, MAN))
    with pytest.raises(TreeError, match=r"^constituency:"):
        phrases_of(sentence("Dogs bark", [1, -1], constituency="(S (A a) (B b) (C c))"))
    assert isinstance(sentence_trees(sf.Sentence("", (), ()), ["dependency", "constituency"]), WordTrees)


def test_what_is_no_tokenizer_no_length_and_no_example_is_refused(tokenizer):
    with pytest.raises(ConfigError, match=r"^tokenizer:"):
        sf.SyntaxCollator(object(), sf.InfusionConfig())
    for lengths in ({"max_length": 3}, {"max_length": 30, "pad_to_multiple_of": 8}):
        with pytest.raises(ConfigError, match=r"^max_length:"):
            collator(tokenizer, **lengths)
    with pytest.raises(TypeError, match=r"^examples:"):
        sf.SyntaxCollator(tokenizer, "masks")(["Dogs bark"])


def test_folder_round_trip(tokenizer, tmp_path):
    collate = collator(tokenizer, "masks,let", max_length=12, pad_to_multiple_of=4)
    collate.save_pretrained(tmp_path)
    loaded = sf.SyntaxCollator.from_pretrained(tmp_path)
    assert loaded.config == collate.config
    examples = [sf.SyntaxExample((MAN, DOGS), 1)]
    for name, value in collate(examples).items():
        assert torch.equal(loaded(examples)[name], value)
    (tmp_path / "collator.json").write_text('{"infusion": {"mask": {}}}', "utf-8")
    with pytest.raises(ConfigError, match=r"collator\.json: mask: unknown key\. Nearest: masks\.$"):
        sf.SyntaxCollator.from_pretrained(tmp_path)


def _depths(sentence):
    return np.minimum(np.subtract.outer(range(len(sentence)), range(len(sentence))) % 5, 2)


def _other_depths(sentence):
    return _depths(sentence).T


def _settings():
    """Infusions of which none reads the batches of another: what differs → the config."""
    sf.register_relations("depths", _depths, 3)
    sf.register_relations("other_depths", _other_depths, 4)
    masks = {
        "plain": {}, "max_distance": {"max_distance": 5}, "dependency": {"trees": ["dependency"]}, "order": {"trees": ["constituency", "dependency"]},
        "constituency": {"trees": ["constituency"]}, "without": {"without": ["dependency"], "nodes": "leaves"}, "nodes": {"nodes": "leaves"},
        "siblings": {"siblings": "all"}, "specials": {"specials": "none"},
        "own": {"trees": ["depths"]}, "another's own": {"trees": ["other_depths"]}, "both": {"trees": ["dependency", "depths"]},
    }  # fmt: skip
    found = {name: sf.InfusionConfig(masks=one) for name, one in masks.items()}
    found["lisa"] = sf.InfusionConfig(masks={}, lisa={})
    found["lisa alone"] = sf.InfusionConfig(lisa={})
    factors = [["pos"], ["case", "pos"], ["pos", "case"], ["deprel"]]
    for names in factors:
        config = sf.InfusionConfig(embedding={"kind": "add", "factors": names}, masks=masks["dependency"])
        found[" ".join(names)] = config.fitted([MAN, MAN])
    found["other values"] = config.fitted([DOGS, DOGS])
    return found


def _infused(config):
    torch.manual_seed(1)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 7}
    plain = BertForSequenceClassification(BertConfig(vocab_size=len(VOCABULARY), **sizes))
    return sf.infuse(plain, config).eval()


def test_a_model_takes_batches_for_its_own_infusion_alone(tokenizer):
    """Numbers of relations and values mean something else in another: every pair of different settings is refused."""
    settings = _settings()
    models = {name: _infused(config) for name, config in settings.items()}
    known = [*settings["plain"].batch_settings, "syntax", "factor_ids"]
    row, refused = [sf.SyntaxExample((DOGS,))], rf"^({'|'.join(known)}): expected "
    batches = {name: sf.SyntaxCollator(tokenizer, model)(row) for name, model in models.items()}
    for name, other in product(models, batches):
        with nullcontext() if name == other else pytest.raises(ValueError, match=refused):
            models[name](**batches[other])


def test_a_batch_of_two_infusions_is_refused_and_one_made_by_hand_is_not(tokenizer):
    settings, row = _settings(), [sf.SyntaxExample((DOGS,))]
    model = _infused(settings["plain"])
    right, wrong = (sf.SyntaxCollator(tokenizer, settings[name])(row) for name in ("plain", "max_distance"))
    for batch in (wrong, {key: torch.cat([right[key], wrong[key]]) for key in right}):
        with pytest.raises(ValueError, match=r"^max_distance: .*that of the model, 15, got 5"):
            model(**batch)
    model(**{key: one for key, one in right.items() if key != "syntax_settings"})


def test_rows_of_another_annotator_are_told(tokenizer, tmp_path, caplog):
    """Once, also by a collator that was loaded: phrases may be another parser's."""
    make = collator(tokenizer, "masks")
    rows = [{"syntax": {**DOGS.to_dict(), "annotator": by}} for by in ("en 1", "en+phrases 1")]
    make(rows[:1] * 2)
    make.save_pretrained(tmp_path)
    assert not caplog.messages
    for one in (make, sf.SyntaxCollator.from_pretrained(tmp_path)):
        caplog.clear()
        one(rows[:1])
        one(rows[1:])
        one(rows[1:])
        assert caplog.messages == ["rows were annotated by en 1 and en+phrases 1: trees may differ"]


def test_phrases_of_words_without_them_are_those_that_the_parse_gives(tokenizer):
    """`en` and `en+phrases` are read alike: trees that are not given are converted from the parse."""
    given = replace(MAN, constituency=replace(MAN, constituency=brackets_of_parse).constituency)
    with_phrases, without = (collator(tokenizer, "masks")([sf.SyntaxExample((one,))]) for one in (given, MAN))
    assert torch.equal(with_phrases["syntax"], without["syntax"])
