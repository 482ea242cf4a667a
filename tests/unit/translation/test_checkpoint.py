"""Tokenizers of pretrained translators as two of ours: pieces, codes, prompts, new characters, offsets."""

from __future__ import annotations

import json
import logging
import shutil

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerFast

from pretrained_translators import KINDS, everyday_pairs, m2m100, make_translator
from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.runs.tokenizer_rules import check_tokenizer
from syntaxformer.translation.checkpoint import (
    compare,
    host_output,
    load_pretrained,
    open_checkpoint,
)
from syntaxformer.translation.model import shift_right
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.source import SourceEncoder

DROPOUTS = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
CODES = {"nllb": ("eng_Latn", "deu_Latn"), "m2m100": ("en", "de"), "mbart": ("en_XX", "de_DE")}
ODD = ["I  saw 3 cats …", " Ｗｉｄｅ ½ ﬁn", "Straße, Äpfel & Öl (ß)", "x😀y 漢字", "e\u0301tude", "a\u00a0b"]
"""Spaces, forms that are normalised, characters that were never seen."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A translator of each kind."""
    home = tmp_path_factory.mktemp("pretrained")
    return {kind: make_translator(kind, home / kind) for kind in KINDS}


def _open(folder, **options):
    codes = options.pop("codes", (None, None))
    given = {"adds_codes": False, "prompt": "", **options}
    return open_checkpoint(str(folder), ("en", "de"), codes, **given)


def _original(kind, folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if kind in CODES:
        tokenizer.src_lang, tokenizer.tgt_lang = CODES[kind]
    return tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_and_written_may_be_loaded(kind, folders, tmp_path):
    """Also what has one step for each special piece, which no text may spell."""
    checkpoint = _open(folders[kind], codes=("xx", "yy") if kind in CODES else (None, None), adds_codes=True)
    for side in ("source", "target"):
        getattr(checkpoint, side).save_pretrained(tmp_path / side)
        check_tokenizer(tmp_path / side)


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_those_of_the_checkpoints_tokenizer(kind, folders):
    """On 600 real pairs, with codes and end pieces; mBART's code is what the decoder begins with."""
    checkpoint, original = _open(folders[kind]), _original(kind, folders[kind])
    sources, targets = map(list, zip(*everyday_pairs(), strict=True))
    wanted = original(sources, text_target=targets)
    for side, lines, ids in (("source", sources, "input_ids"), ("target", targets, "labels")):
        found = getattr(checkpoint, side).backend_tokenizer.encode_batch(lines)
        ours = [one.ids for one in found]
        if kind == "mbart" and side == "target":
            code = original.convert_tokens_to_ids("de_DE")
            assert checkpoint.start_id == code
            ours = [[*one, code] for one in ours]
        assert ours == wanted[ids]


@pytest.mark.parametrize("pieces", ["bpe", "unigram"])
def test_language_codes_are_no_text_whatever_the_pieces_are(tmp_path, pieces):
    """M2M100's codes stand in its vocabulary and not in its SentencePiece model."""
    sources, targets = map(list, zip(*everyday_pairs(), strict=True))
    m2m100(tmp_path, (sources, targets), pieces).save_pretrained(tmp_path)
    checkpoint, original = _open(tmp_path), _original("m2m100", tmp_path)
    found = [one.ids for one in checkpoint.target.backend_tokenizer.encode_batch(targets)]
    assert found == original(text_target=targets)["input_ids"]
    assert checkpoint.target.convert_ids_to_tokens(found[0][0]) == "__de__"
    texts = checkpoint.target.batch_decode(found, skip_special_tokens=True)
    assert not [text for text in texts if "__" in text]


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_that_is_cut_keeps_its_end(kind, folders):
    """The end piece, and mBART's code behind it; pieces that stand before the line stay too."""
    encoder = SourceEncoder(_open(folders[kind]).source)
    whole = encoder.encode(["cats " * 30, "cats"])
    cut = encoder.encode(["cats " * 30, "cats"], longest=8)
    end = 2 if kind == "mbart" else 1
    assert cut.pieces[:8].tolist() == [*whole.pieces[: 8 - end], *whole.pieces[: whole.splits[1]][-end:]]
    assert cut.pieces[8:].tolist() == whole.pieces[whole.splits[1] :].tolist()
    assert cut.is_cut.tolist() == [True, False]


@pytest.mark.parametrize("kind", ["marian", "m2m100"])
def test_rebuilt_tokenizers_cut_odd_text_as_the_original(kind, folders, caplog):
    """Spaces, normalisation and characters that were never seen; what differs would be said.

    Marian's original loses a run of unknown characters as a whole, even where its joint vocabulary has one of
    them from the other side; ours keeps that one.
    """
    caplog.set_level(logging.WARNING, "syntaxformer.data")
    lines = [line for line in ODD if kind != "marian" or not set(line) & set("½ß")]
    compare(_open(folders[kind]), (lines, lines))
    assert not caplog.messages


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_are_those_of_the_line(kind, folders):
    """Each piece's characters are its own, also behind double spaces and wide letters."""
    line = "I  saw three  cats."
    encoding = _open(folders[kind]).source.backend_tokenizer.encode(line)
    covered = "".join(line[start:end] for start, end in encoding.offsets)
    assert covered.replace(" ", "") == line.replace(" ", "")
    assert all(start == end for start, end in encoding.offsets[-1:])


@pytest.mark.parametrize("kind", ["marian", "t5", "mbart", "m2m100", "nllb"])
def test_text_that_spells_the_end_piece_is_text(kind, folders):
    """As in our own tokenizers, whether its characters are known or not."""
    for checkpoint in (_open(folders[kind]), _open(folders[kind]).with_characters("</>")):
        backend = checkpoint.source.backend_tokenizer
        backend.encode_special_tokens = True
        inner = backend.encode("x </s> y", add_special_tokens=False).ids
        assert checkpoint.source.eos_token_id not in inner


def test_new_characters_and_codes_come_behind_all_pieces(folders):
    """Counted, added on both sides under one id, found inside of words; rows begin as the mean row."""
    lines = ["Ein 漢字 und ein 字.", "x😀y"]
    for kind in ("marian", "m2m100", "nllb", "mbart", "t5"):
        checkpoint = _open(folders[kind])
        counts, rows = checkpoint.missing_characters([[[]], [lines]])
        assert {one: counts[one] for one in "漢字😀"} == {"漢": 1, "字": 2, "😀": 1}
        assert rows == [0, 1]
        more = checkpoint.with_characters(counts)
        assert more.n_pieces == checkpoint.n_known + len(counts)
        assert more.missing_characters([[[]], [lines]])[0].total() == 0
        for tokenizer in (more.source, more.target):
            ids = tokenizer.backend_tokenizer.encode(lines[0]).ids
            assert tokenizer.decode(ids, skip_special_tokens=True).strip() == lines[0]
        table = load_pretrained(more, DROPOUTS).get_input_embeddings().weight
        known = AutoModelForSeq2SeqLM.from_pretrained(folders[kind]).get_input_embeddings().weight
        mean = known[: checkpoint.n_known].mean(0)
        new = table[checkpoint.n_known : more.n_pieces]
        torch.testing.assert_close(new, mean.expand_as(new))


def test_a_new_symbol_is_whole_wherever_it_stands(folders):
    """Though no merge makes it."""
    more = _open(folders["nllb"]).with_characters(["<NUM>"], are_symbols=True)
    ids = more.target.backend_tokenizer.encode("a<NUM>b").ids
    assert ids.count(more.n_pieces - 1) == 1
    assert "<NUM>" in more.target.decode(ids, skip_special_tokens=True)


def test_a_new_language_is_a_new_code(folders):
    """Asked for by `add_codes`; else refused with the nearest one."""
    for kind, code in (("nllb", "nds_Latn"), ("m2m100", "nds"), ("mbart", "nds_XX")):
        with pytest.raises(ConfigError, match=r"model\.tgt_code: expected a language code .*add_codes=true"):
            _open(folders[kind], codes=(None, code))
        checkpoint = _open(folders[kind], codes=(None, code), adds_codes=True)
        new = checkpoint.target.convert_tokens_to_ids("__nds__" if kind == "m2m100" else code)
        assert new == checkpoint.n_known
        ids = checkpoint.target.backend_tokenizer.encode("Katze").ids
        assert checkpoint.start_id == new if kind == "mbart" else ids[0] == new
        model = load_pretrained(checkpoint, DROPOUTS)
        assert model.generation_config.forced_bos_token_id == (None if kind == "mbart" else new)


def test_codes_fit_languages_or_are_asked_for(folders):
    """One fits: it is taken. Two or none: which it has is said. A checkpoint without codes takes none."""
    with pytest.raises(ConfigError, match="of which it has zho_Hans, zho_Hant"):
        open_checkpoint(str(folders["nllb"]), ("en", "zh"), (None, None), False, "")
    with pytest.raises(ConfigError, match="of which it has none"):
        open_checkpoint(str(folders["nllb"]), ("en", "sw"), (None, None), False, "")
    with pytest.raises(ConfigError, match="code of 'an unknown language', of which it has none"):
        open_checkpoint(str(folders["nllb"]), (None, "de"), (None, None), False, "")
    with pytest.raises(ConfigError, match=r"model\.src_code: expected none"):
        _open(folders["marian"], codes=("en", None))


def test_a_prompt_stands_before_the_line_and_belongs_to_no_word(folders):
    """T5's: pieces as the checkpoint cuts them, without characters of the line."""
    prompt = "translate English to German: "
    found = _open(folders["t5"], prompt=prompt).source.backend_tokenizer.encode("I see.")
    wanted = AutoTokenizer.from_pretrained(folders["t5"])(f"{prompt}I see.")["input_ids"]
    n_prompt = len(wanted) - len(AutoTokenizer.from_pretrained(folders["t5"])("I see.")["input_ids"])
    assert found.ids == wanted
    assert all(start == end for start, end in found.offsets[:n_prompt])
    assert found.offsets[n_prompt] == (0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_loss_is_that_of_the_host(kind, folders):
    """Mean per piece without smoothing, as transformers computes it from the same decoder input."""
    checkpoint = _open(folders[kind])
    model = load_pretrained(checkpoint, DROPOUTS).eval()
    sources, targets = map(list, zip(*everyday_pairs(4), strict=True))
    inputs = checkpoint.source(sources, return_tensors="pt", padding=True, return_token_type_ids=False)
    rows = [one.ids for one in checkpoint.target.backend_tokenizer.encode_batch(targets)]
    labels = torch.full((4, max(map(len, rows))), -100)
    for place, row in enumerate(rows):
        labels[place, : len(row)] = torch.tensor(row)
    ours = host_output(model, {**inputs, "labels": labels})
    theirs = model(**inputs, labels=labels, decoder_input_ids=shift_right(labels, model.config))
    torch.testing.assert_close(ours.loss, theirs.loss)


def test_what_is_no_translator_is_refused(tmp_path):
    """An encoder, and nothing at all."""
    from transformers import BertConfig

    BertConfig(hidden_size=8, num_attention_heads=1).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"expected a translator, .* a model of the kind 'bert'"):
        _open(tmp_path)
    with pytest.raises(ConfigError, match=r"model\.init_from: expected a pretrained translator"):
        _open(tmp_path / "nothing")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"got: adapters in adapter_config\.json\. Merge them with PEFT's"):
        _open(tmp_path)


def test_a_tokenizer_that_adds_no_end_piece_is_refused(folders, tmp_path):
    """A decoder would never learn to end."""
    start = shutil.copytree(folders["t5"], tmp_path / "start")
    backend = AutoTokenizer.from_pretrained(start).backend_tokenizer
    state = {**json.loads(backend.to_str()), "post_processor": None}
    bare = Tokenizer.from_str(json.dumps(state))
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=bare, **roles).save_pretrained(start)
    with pytest.raises(
        ConfigError, match=r"^model\.init_from: expected a tokenizer that ends each line with"
    ):
        _open(start)


def test_a_code_that_is_a_piece_is_refused(folders):
    """It would take the place of the piece inside of words."""
    known = _open(folders["nllb"]).source
    piece = next(one for one in known.get_vocab() if one.isalpha() and len(one) == 2)
    with pytest.raises(ConfigError, match="expected a code that is no piece yet"):
        _open(folders["nllb"], codes=(None, piece), adds_codes=True)


def test_opus_mt_of_several_languages_is_told_which(tmp_path):
    """Its piece stands before the source line, as where a user writes it into the text."""
    folder = make_translator("marian", tmp_path / "mul")
    ids = json.loads((folder / "vocab.json").read_text())
    ids |= {">>deu<<": len(ids), ">>fra<<": len(ids) + 1}
    (folder / "vocab.json").write_text(json.dumps(ids))
    found = _open(folder).source.backend_tokenizer.encode("I see.")
    assert found.ids == AutoTokenizer.from_pretrained(folder)(">>deu<< I see.")["input_ids"]
    assert found.offsets[1] == (0, 1)
    with pytest.raises(ConfigError, match="of which it has none"):
        open_checkpoint(str(folder), ("en", "sw"), (None, None), False, "")


def test_characters_are_added_as_the_normaliser_writes_them(folders):
    """The micro sign becomes the Greek letter: that is what must be known."""
    lines = ["5 \u00b5m"]
    for kind in ("marian", "m2m100"):
        checkpoint = _open(folders[kind])
        counts, _ = checkpoint.missing_characters([[lines], [[]]])
        assert "\u03bc" in counts
        more = checkpoint.with_characters(counts)
        assert more.missing_characters([[lines], [[]]])[0].total() == 0


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_file_of_the_checkpoint_that_was_cut_is_named(name, folders, tmp_path):
    """And the recipe is not."""
    start = tmp_path / "start"
    shutil.copytree(folders["marian"], start)
    (start / name).write_text((start / name).read_text("utf-8")[:40], "utf-8")
    with pytest.raises(CheckpointError, match=rf"^{start / name}: expected JSON, got"):
        load_recipe("finetune_translator", [f"model.init_from={start}"])
