"""`PlainTokenizer`, which exports read, gives what transformers gives: ids, offsets, text, specials."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from pretrained_translators import make_translator
from syntaxformer.translation.checkpoint import open_checkpoint
from syntaxformer.translation.decoding import never_output
from syntaxformer.translation.source import PlainTokenizer, encode_pieces
from syntaxformer.translation.subwords import SubwordConfig, train_subwords

TEXT = [
    "A man in a blue shirt is standing on a ladder cleaning a window.",
    "Ein Mann mit grünem Hemd überquert die Straße, „zügig“ – und ruft: Vorsicht!",
    "Les élèves ont mangé à l'école où naquit l'œuvre ; ça coûte 3,50 €.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.", "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "今日は良い天気ですね。東京へ行きます。", "다람쥐 헌 쳇바퀴에 타고파.", "مرحبا بالعالم، كيف حالك؟", "שלום עולם, מה שלומך?",
    "นักเรียนกำลังอ่านหนังสือ", "नमस्ते दुनिया, आप कैसे हैं?",
]  # fmt: skip
ODD = [
    *("", " ", "   ", "\t", "a  b", " a", "a ", "\u00a0", "x\u200by", "e\u0301 é", "İstanbul ﬁnden ﬀ"),
    *("</s>", "<s> a </s>", "<pad>", "<unk><unk>", "a<s>b", "<0x0A>", "▁", "▁a▁", "a▁b", "￨ % @@"),
    *("👍🏽 👩‍👩‍👧", "\U0001d518", "\ufeffa", "\u202eabc", "\x01\x7f", "\ufffd", "a" * 999, "🙂" * 50, "-- ... !!!"),
]  # fmt: skip


@pytest.fixture(scope="module", params=["own", "marian", "mbart"])
def pair(request, tmp_path_factory):
    """A tokenizer as `train` writes it, from nothing or of a pretrained translator, read in both ways."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "own":
        train_subwords(TEXT * 5, SubwordConfig(vocab_size=700)).save_pretrained(folder)
    else:
        start = make_translator(request.param, folder / "start")
        open_checkpoint(str(start), ("en", "de"), (None, None), False, "").source.save_pretrained(folder)
    return _read(folder)


def _read(folder):
    assert PlainTokenizer.reads(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder), PlainTokenizer.from_pretrained(folder)


def _assert_same(pair, lines) -> None:
    theirs, ours = pair
    found = [encode_pieces(one, lines) for one in pair]
    for first, second in zip(*found, strict=True):
        assert (first.ids, first.offsets, first.tokens) == (second.ids, second.offsets, second.tokens)
        assert theirs.convert_ids_to_tokens(first.ids) == ours.convert_ids_to_tokens(first.ids)
    ids = [one.ids for one in found[0]]
    ids += [[*one[:-1], 0, 1, 2, 3, *one] for one in ids]  # special pieces inside
    for skip in (True, False):
        assert theirs.batch_decode(ids, skip_special_tokens=skip) == ours.batch_decode(
            ids, skip_special_tokens=skip
        )


def test_text_of_several_languages_and_odd_lines(pair):
    _assert_same(pair, [*TEXT, *ODD])


def test_every_piece_alone_and_the_special_ones(pair):
    theirs, ours = pair
    assert len(theirs) == len(ours)
    assert theirs.get_vocab() == ours.get_vocab()
    pieces = [[one] for one in range(len(ours))]
    assert theirs.batch_decode(pieces, skip_special_tokens=True) == ours.batch_decode(
        pieces, skip_special_tokens=True
    )
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id"):
        assert getattr(theirs, name) == getattr(ours, name)
    assert never_output(theirs) == never_output(ours)


@settings(max_examples=150, deadline=None)
@given(lines=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), min_size=1, max_size=4))
def test_any_text(pair, lines):
    _assert_same(pair, lines)


@pytest.mark.slow
def test_real_text(pair):
    """Both sides of Tatoeba, and treebanks' lines."""
    home = Path(os.environ.get("SYNTAXFORMER_DATA", "shared/data")) / "tatoeba"
    if not home.is_dir():
        pytest.skip(f"{home} is absent")
    for language in ("en", "de"):
        with gzip.open(home / f"anki_2018.{language}.gz", "rt", encoding="utf-8") as file:
            lines = file.read().splitlines()
        _assert_same(pair, lines[:: len(lines) // 2000])


@pytest.mark.parametrize("spelled", ["new", "in the vocabulary"])
def test_a_target_tokenizer_with_specials_of_its_own(tmp_path, spelled):
    """As `target_specials` gives them, also where the file does not know them as special."""
    tokenizer = train_subwords(TEXT * 5, SubwordConfig(vocab_size=600))
    path = tmp_path / "target_tokenizer.json"
    tokenizer.backend_tokenizer.save(str(path))
    stored = json.loads(path.read_text())
    stored["added_tokens"] = [] if spelled == "new" else stored["added_tokens"][:2]
    path.write_text(json.dumps(stored))
    specials = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(path), **specials)
    _assert_same((theirs, PlainTokenizer(tokenizer_file=str(path), **specials)), [*TEXT, *ODD])


@pytest.mark.parametrize(
    "more",
    [
        {"clean_up_tokenization_spaces": True},
        {"extra_special_tokens": ["<en>"]},
        {"tokenizer_class": "MarianTokenizer"},
        {"eos_token": {"content": "</s>", "lstrip": True}},
        {"add_prefix_space": False},
    ],
)
def test_settings_that_only_transformers_knows(tmp_path, more):
    train_subwords(TEXT, SubwordConfig(vocab_size=500)).save_pretrained(tmp_path)
    assert PlainTokenizer.reads(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **more}))
    assert not PlainTokenizer.reads(tmp_path)
