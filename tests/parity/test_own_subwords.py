"""SentencePiece models and tokenizer.json of one's own cut text as their libraries do, and say where."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from syntaxformer.base.errors import ConfigError
from syntaxformer.demo.corpus import read_pairs
from syntaxformer.translation.corpora import CorpusConfig, ParallelText
from syntaxformer.translation.data_report import UNKNOWN
from syntaxformer.translation.prepare import get_tokenizers
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.source import encode_pieces
from syntaxformer.translation.subwords import SubwordConfig, given_tokenizer, size_for, train_subwords
from syntaxformer.translation.training import prepare

ODD = [
    "Äpfel  und   Öl: ß für 3,50 €…", "  vorn und hinten  ", "Grüße 🙂👩‍👩‍👧 aus Köln", "naïve café ﬁne ½ Ⅷ", "中文 und кириллица",
    "Straße\u00a0\u200bhier", "don't",
]  # fmt: skip


@pytest.fixture(scope="module")
def lines():
    """English and German sentences of the demo, the umlauts among them."""
    pairs = read_pairs()["train"][:400]
    return [line for pair in pairs for line in pair]


def learned(lines, folder: Path, **options: object) -> str:
    options = {"model_type": "unigram", "vocab_size": 420, "character_coverage": 0.999, **options}
    SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(folder / "own"),
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return str(folder / "own.model")


BYTES = {"byte_fallback": True, "vocab_size": 700}
KINDS = [
    {}, BYTES, {"model_type": "bpe"}, {"model_type": "bpe", **BYTES}, {"remove_extra_whitespaces": False},
    {"model_type": "bpe", "add_dummy_prefix": False}, {"split_by_whitespace": False}, {"pad_id": 3},
    {"normalization_rule_name": "identity", **BYTES},
]  # fmt: skip


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_the_pieces_are_those_of_sentencepiece_with_their_places(lines, tmp_path, options):
    path = learned(lines, tmp_path, **options)
    theirs, ours = SentencePieceProcessor(model_file=path), given_tokenizer(path)
    for line, found in zip(lines + ODD, encode_pieces(ours, lines + ODD), strict=True):
        assert found.ids[:-1] == theirs.encode(line), line
        assert found.ids[-1] == ours.eos_token_id
        raw = line.encode()
        for piece, (start, end) in zip(
            theirs.encode(line, return_type="proto").pieces, found.offsets, strict=False
        ):
            if not piece.piece.startswith("<0x") and piece.piece != "▁":
                # SentencePiece counts bytes, and a space before a word as part of it. Of the pieces of one
                # character ("…" is "..."), it gives the place to one.
                first, last = (len(raw[:at].decode(errors="ignore")) for at in (piece.begin, piece.end))
                if line[first:last].strip():
                    assert line[start:end].strip() == line[first:last].strip(), (line, piece.piece)
                    assert end == last


def test_the_roles_of_special_pieces(lines, tmp_path):
    ours = given_tokenizer(learned(lines, tmp_path, pad_id=3, eos_id=1, bos_id=2, bos_piece="[BEGIN]"))
    roles = (ours.pad_token_id, ours.bos_token_id, ours.eos_token_id, ours.unk_token_id)
    assert roles == (3, 2, 1, 0)
    assert ours.bos_token == "[BEGIN]"
    added = given_tokenizer(learned(lines, tmp_path, eos_id=-1))
    assert (added.pad_token, added.pad_token_id) == ("<pad>", 420)
    assert (added.eos_token, added.eos_token_id) == ("</s>", 421)


SYMBOLS = ["a <num> b.", "<num> b, <num>,<num> c", "a<num>b", "a (<num>) <num>", "<num><num> <num>"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("is_folder", [True, False])
def test_symbols_of_ones_own_are_one_piece_and_come_back(lines, tmp_path, kind, is_folder):
    if is_folder:
        path = str(tmp_path)
        tokenizer = train_subwords(lines, SubwordConfig(kind=kind, vocab_size=400))
        tokenizer.add_special_tokens({"additional_special_tokens": ["<num>"]})
        tokenizer.save_pretrained(path)
    else:
        path = learned(lines, tmp_path, model_type=kind, user_defined_symbols=["<num>"], byte_fallback=True)
    ours = given_tokenizer(path)
    symbol = ours.convert_tokens_to_ids("<num>")
    for line, encoded in zip(SYMBOLS, encode_pieces(ours, SYMBOLS), strict=True):
        assert encoded.ids.count(symbol) == line.count("<num>"), line
        places = [encoded.offsets[at] for at, one in enumerate(encoded.ids) if one == symbol]
        assert {line[start:end] for start, end in places} == {"<num>"}
        assert ours.batch_decode([encoded.ids], skip_special_tokens=True) == [line]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"control_symbols": ["<2de>"]}, "train it with --user_defined_symbols instead."),
        ({"model_type": "char"}, "expected a SentencePiece model of type unigram or bpe"),
        ({"treat_whitespace_as_suffix": True}, "with spaces before words"),
    ],
)
def test_what_has_no_role_or_place_is_refused(lines, tmp_path, options, message):
    with pytest.raises(ConfigError, match=r"^subwords\.tokenizer: ") as caught:
        given_tokenizer(learned(lines, tmp_path, **options))
    assert message in str(caught.value)


def wordpieces(lines, folder: Path, **changes: object) -> str:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        lines, trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    )
    if "extra" in changes:
        tokenizer.add_special_tokens([AddedToken(str(changes["extra"]))])
    tokenizer.save(str(folder / "tokenizer.json"))
    if "decoder" in changes:
        content = json.loads((folder / "tokenizer.json").read_text())
        (folder / "tokenizer.json").write_text(json.dumps(content | {"decoder": None}))
    return str(folder / "tokenizer.json")


def test_a_tokenizer_json_is_taken_as_it_is(lines, tmp_path):
    path = wordpieces(lines, tmp_path)
    theirs, ours = Tokenizer.from_file(path), given_tokenizer(path)
    for line, found in zip(lines + ODD, encode_pieces(ours, lines + ODD), strict=True):
        wanted = theirs.encode(line, add_special_tokens=False)
        assert (found.ids[:-1], found.offsets[:-1]) == (wanted.ids, wanted.offsets)
    assert (ours.pad_token, ours.bos_token, ours.eos_token, ours.unk_token) == (
        "[PAD]",
        "[CLS]",
        "[SEP]",
        "[UNK]",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"extra": "<lang>"}, "got <lang> in "), ({"decoder": None}, "expected a decoder")],
)
def test_a_tokenizer_json_without_roles_or_decoder_is_refused(lines, tmp_path, changes, message):
    with pytest.raises(ConfigError) as caught:
        given_tokenizer(wordpieces(lines, tmp_path, **changes))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["none.model", "none.json", "text.model", "text.json"])
def test_a_file_that_is_no_tokenizer(tmp_path, name):
    (tmp_path / "text.model").write_text("a text")
    (tmp_path / "text.json").write_text("a text")
    with pytest.raises(ConfigError, match=r"subwords\.tokenizer:"):
        given_tokenizer(str(tmp_path / name))


def test_a_unigram_model_of_our_own_loses_nothing_and_is_learned_alike(lines):
    config = SubwordConfig(kind="unigram", vocab_size=600)
    ours, again = train_subwords(lines, config), train_subwords(lines, config)
    assert len(ours) == 600
    assert ours.backend_tokenizer.to_str() == again.backend_tokenizer.to_str()
    assert (ours.pad_token_id, ours.bos_token_id, ours.eos_token_id, ours.unk_token_id) == (0, 1, 2, 3)
    for line in [*lines, *ODD, "</s> <unk> <0x41>"]:
        (found,) = encode_pieces(ours, [line])
        assert ours.decode(found.ids, skip_special_tokens=True) == line
        assert not {0, 1, 3} & set(found.ids)
    with pytest.raises(ConfigError) as caught:
        train_subwords(lines, SubwordConfig(kind="unigram", vocab_size=301))
    assert re.fullmatch(
        r"subwords\.vocab_size: expected one that fits the text, got 301: Vocabulary size is smaller than "
        r"required_chars\. 301 vs \d+\. Raise it, or set it to null\.",
        str(caught.value),
    )


def _text(n: int) -> ParallelText:
    return ParallelText(["ein Haus"] * n, ["a house"] * n, Path("a"), Path("b"))


@pytest.mark.parametrize(("n", "size"), [(9_999, 2000), (10_000, 4000)])
def test_the_size_follows_the_data_and_is_said(caplog, n, size):
    caplog.set_level(logging.INFO)
    get_tokenizers(_text(n), SubwordConfig(), CorpusConfig(dir=Path(), src="de", tgt="en"))
    assert f"subwords.vocab_size: {size}, chosen for {n} pairs and 10 characters" in caplog.text


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_large_alphabet_leaves_room_for_words(kind):
    """1,800 characters and an English side: BPE would learn no merge, and SentencePiece refuses 2,000 pieces."""
    chinese = ["".join(map(chr, range(0x4E00 + at, 0x4E00 + at + 9))) for at in range(0, 1800, 9)] * 2
    text = ParallelText(chinese, ["the cat sat on the mat"] * len(chinese), Path("a"), Path("b"))
    (tokenizer, _) = get_tokenizers(text, SubwordConfig(kind=kind), CorpusConfig(dir=Path(), src="zh"))
    assert size_for(400) == 2000 < size_for(400, 1810) == 4 + 256 + 1810 + 1000
    assert any(len(piece) > 3 for piece in tokenizer.get_vocab() if piece[0] != "<")


def test_lines_that_do_not_come_back_are_counted(lines, tmp_path, caplog):
    text = ParallelText(["Äpfel  und Öl…", "das Haus"], ["apples", "houses"], Path("a"), Path("b"))
    config = SubwordConfig(tokenizer=learned(lines, tmp_path, **BYTES))
    get_tokenizers(text, config, CorpusConfig(dir=Path(), src="de", tgt="en"))
    assert "1 of 2 lines come back changed from their pieces" in caplog.text
    assert "Äpfel  und Öl…" in caplog.text
    many = ParallelText(["das Haus"] * 3000 + ["das  Haus"], ["a"] * 3001, Path("a"), Path("b"))
    get_tokenizers(many, config, CorpusConfig(dir=Path(), src="de", tgt="en"))
    assert "1 of 3001 lines come back changed" in caplog.text


@pytest.mark.parametrize(
    ("ending", "options", "unknown"),
    [("own.model", {}, [1, 2]), ("own.model", BYTES, []), ("bytes.json", {}, [])],
)
def test_characters_that_it_does_not_know_are_in_the_data_report(lines, tmp_path, ending, options, unknown):
    learned(lines, tmp_path, **options)
    backend = Tokenizer(models.BPE())  # of bytes, without an unknown piece: it knows everything
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    backend.train_from_iterator(
        lines, trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    )
    backend.save(str(tmp_path / "bytes.json"))
    for split, odd in (("train", "Häuser"), ("dev", "Haus")):
        (tmp_path / f"{split}.en").write_text("a house\nthe 日 house\nhouses\n")
        (tmp_path / f"{split}.de").write_text(f"ein Haus\ndas 日 Haus\nBuch {odd} ☃\n")
    settings = [f"data.dir={tmp_path}", f"data.cache={tmp_path}", f"subwords.tokenizer={tmp_path / ending}"]
    report = prepare(load_recipe("tiny", ["data.dev=dev", f"output={tmp_path / 'run'}", *settings])).report
    assert report.faults[UNKNOWN] == unknown
