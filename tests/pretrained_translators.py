"""Tiny pretrained translators with random weights, each with the tokenizer of its kind, made here."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BartTokenizer,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
)
from transformers.convert_slow_tokenizer import generate_merges

from syntaxformer.demo.corpus import read_pairs

SIDE_SHAPE = {"layers": 2, "attention_heads": 2, "ffn_dim": 48}
SHAPE = {"d_model": 32, "max_position_embeddings": 128}
SHAPE |= {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in SIDE_SHAPE.items()}
N_PAIRS, N_PIECES = 600, 300


SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")


def everyday_pairs(n_pairs: int = N_PAIRS) -> list[tuple[str, str]]:
    """The first pairs of the demo's corpus."""
    return read_pairs()["train"][:n_pairs]


def sentencepieces(lines: Sequence[str], kind: str = "unigram") -> bytes:
    """A SentencePiece model."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=N_PIECES,
        model_type=kind,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
    )
    return model.getvalue()


def _scores(model: bytes) -> dict[str, float]:
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    return {pieces.id_to_piece(one): pieces.get_score(one) for one in range(3, pieces.get_piece_size())}


def _marian(folder: Path, sides: tuple[list[str], list[str]]) -> Any:
    ids = {"</s>": 0, "<unk>": 1}
    for name, lines in zip(("source", "target"), sides, strict=True):
        model = sentencepieces(lines)
        (folder / f"{name}.spm").write_bytes(model)
        for piece in _scores(model):
            ids.setdefault(piece, len(ids))
    ids["<pad>"] = len(ids)
    (folder / "vocab.json").write_text(json.dumps(ids), "utf-8")
    files = {"source_spm": "source.spm", "target_spm": "target.spm", "vocab": "vocab.json"}
    tokenizer = MarianTokenizer(**{key: str(folder / name) for key, name in files.items()})
    tokenizer.save_pretrained(folder)
    special = {"pad_token_id": ids["<pad>"], "decoder_start_token_id": ids["<pad>"], "eos_token_id": 0}
    return MarianMTModel(MarianConfig(vocab_size=len(ids), **SHAPE, **special))


def m2m100(folder: Path, sides: tuple[list[str], list[str]], pieces: str = "bpe") -> Any:
    model = sentencepieces([*sides[0], *sides[1]], pieces)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    ids = {name: place for place, name in enumerate((*SPECIALS, *_scores(model)))}
    (folder / "vocab.json").write_text(json.dumps(ids), "utf-8")
    tokenizer = M2M100Tokenizer(str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"))
    tokenizer.save_pretrained(folder)
    config = M2M100Config(vocab_size=len(ids) + 108, **SHAPE, decoder_start_token_id=2, pad_token_id=1)
    return M2M100ForConditionalGeneration(config)


def _nllb(folder: Path, sides: tuple[list[str], list[str]]) -> Any:
    scores = _scores(sentencepieces([*sides[0], *sides[1]], "bpe"))
    ids = {name: place for place, name in enumerate((*SPECIALS, *scores))}
    merges = generate_merges({name: place for place, name in enumerate(scores)}, scores)
    codes = ["eng_Latn", "deu_Latn", "zho_Hans", "zho_Hant", "srd_Latn"]
    tokenizer = NllbTokenizer(vocab=ids, merges=merges, extra_special_tokens=codes)
    tokenizer.save_pretrained(folder)
    config = M2M100Config(vocab_size=len(tokenizer), **SHAPE, decoder_start_token_id=2, pad_token_id=1)
    return M2M100ForConditionalGeneration(config)


def _mbart(folder: Path, sides: tuple[list[str], list[str]]) -> Any:
    scores = _scores(sentencepieces([*sides[0], *sides[1]]))
    tokenizer = MBartTokenizer(vocab=[*((name, 0.0) for name in SPECIALS), *scores.items()])
    tokenizer.save_pretrained(folder)
    config = MBartConfig(vocab_size=len(tokenizer), **SHAPE, pad_token_id=1, eos_token_id=2)
    config.decoder_start_token_id = None
    return MBartForConditionalGeneration(config)


def _t5(folder: Path, sides: tuple[list[str], list[str]]) -> Any:
    prompt = ["translate English to German: "] * 3
    scores = _scores(sentencepieces([*sides[0], *sides[1], *prompt]))
    tokenizer = T5Tokenizer(
        vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *scores.items()], extra_ids=0
    )
    tokenizer.save_pretrained(folder)
    shape = {"d_model": 32, "d_kv": 16, "num_heads": 2, "num_layers": 2, "d_ff": 48}
    return T5ForConditionalGeneration(
        T5Config(vocab_size=len(tokenizer) + 20, **shape, decoder_start_token_id=0)
    )


def _bart(folder: Path, sides: tuple[list[str], list[str]]) -> Any:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    pieces = (*SPECIALS, "<mask>", *bytes_to_unicode().values())
    ids = {piece: place for place, piece in enumerate(pieces)}
    tokenizer = BartTokenizer(vocab=ids, merges=[])
    tokenizer.save_pretrained(folder)
    config = BartConfig(vocab_size=len(ids), **SHAPE, decoder_start_token_id=2, forced_bos_token_id=0)
    return BartForConditionalGeneration(config)


KINDS: dict[str, Callable[[Path, tuple[list[str], list[str]]], Any]] = {
    "marian": _marian,
    "m2m100": m2m100,
    "nllb": _nllb,
    "mbart": _mbart,
    "t5": _t5,
    "bart": _bart,
}


def make_translator(kind: str, folder: Path, without: str = "", padding: bool = False) -> Path:
    """Write a translator of a kind into a folder; its tokenizer has never seen the characters of `without`.

    With `padding` the row of padding is not zero: a tied output trains it, and Marian's decoder begins with it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pairs = [pair for pair in everyday_pairs() if not set(without) & set("".join(pair))]
    torch.manual_seed(3)
    model = KINDS[kind](folder, ([one for one, _ in pairs], [other for _, other in pairs]))
    if padding:
        table = model.get_input_embeddings()
        torch.nn.init.normal_(table.weight.data[table.padding_idx])
    model.eval().save_pretrained(folder)
    return folder
