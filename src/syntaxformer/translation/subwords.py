"""Learns subwords from raw text, with visible spaces, so that output needs no detokeniser; reads others.

The result is a Hugging Face fast tokenizer. Any other fast tokenizer works in its place, for example that of
a pretrained encoder, and a SentencePiece model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any, Literal

from pydantic import Field, model_validator
from sentencepiece import SentencePieceTrainer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from syntaxformer.base.downloads import TOKENIZER, say_download
from syntaxformer.base.errors import ConfigError
from syntaxformer.runs.config import Section
from syntaxformer.runs.loading import auto_tokenizer, checkpoint_errors
from syntaxformer.runs.tokenizer_rules import MARKS, check_tokenizer
from syntaxformer.translation.checkpoint import add_symbols, sentencepiece_tokenizer, with_symbols
from syntaxformer.translation.protection import Symbols, expression_of
from syntaxformer.translation.source import SPECIAL_ROLES, Cut, encode_pieces
from syntaxformer.translation.stored import stored_folder

PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"
SPECIALS = (PAD, BOS, EOS, UNK)
FILE = "tokenizer.json"
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


class SubwordConfig(Section):
    """Subword section of a recipe."""

    kind: Literal["bpe", "unigram"] = Field(
        "bpe", description="byte-pair encoding, or a unigram model (Kudo 2018)"
    )
    vocab_size: int | None = Field(
        None,
        gt=300,
        le=2**20,
        description="pieces in a vocabulary, with the 256 bytes; null: 2,000 below 10,000 pairs, 4,000 below "
        "50,000, 8,000 below 200,000, 16,000 below a million, else 32,000; more for a text of many different "
        "characters",
    )
    joint: bool = Field(
        True, description="one vocabulary for both languages; false: one of this size for each"
    )
    target_vocab_size: int | None = Field(
        None, gt=300, le=2**20, description="with joint=false: pieces of the target's; null: vocab_size"
    )
    of_all_pairs: bool = Field(
        False, description="learn them on all training pairs, also where data.fraction takes a share"
    )
    min_frequency: int = Field(2, ge=1, description="with kind=bpe: a merge must occur this often")
    symbols: Symbols = Field(
        (), description="texts that are one piece each, wherever they stand: [<num>, {0}]"
    )
    tokenizer: str | None = Field(
        None,
        description="folder of an existing tokenizer, a SentencePiece .model, or tokenizer.json; of the "
        "other settings of subwords only symbols and dropout then have an effect; null: learn a tokenizer",
    )
    dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="BPE-dropout: each merge is left out with this probability, in training alone and anew "
        "in each epoch (Provilkov et al. 2020: 0.1)",
    )

    @model_validator(mode="after")
    def _two_sizes(self) -> SubwordConfig:
        if self.joint and self.target_vocab_size:
            raise ValueError("target_vocab_size: expected joint=false beside it, got true.")
        return self


def without_symbols(lines: Iterable[str], symbols: Sequence[str]) -> Iterable[str]:
    """Lines of which no piece is learned of a symbol's characters: a space stands for each."""
    expression = expression_of(tuple(symbols), are_symbols=True)
    return (expression.sub(" ", line) for line in lines) if symbols else lines


def size_for(n_pairs: int, n_characters: int = 0) -> int:
    """Pieces for so many pairs, of which small data sees rare ones too seldom to learn them.

    A text of many characters, such as Chinese, has more: half of the number is then left for longer pieces.
    """
    sizes = {10_000: 2000, 50_000: 4000, 200_000: 8000, 1_000_000: 16_000}
    size = next((size for most, size in sizes.items() if n_pairs < most), 32_000)
    return max(size, len(SPECIALS) + len(BYTES) + n_characters + size // 2)


def train_subwords(
    lines: Iterable[str], config: SubwordConfig, split_punctuation: bool = True, key: str = "vocab_size"
) -> PreTrainedTokenizerFast:
    """Learn a vocabulary.

    A space becomes part of the next piece ("▁"), and every punctuation mark is a piece. A character that was
    never seen is written as its UTF-8 bytes, so nothing is lost and nothing is unknown.

    Args:
        lines: Prepared text of one language or both.
        config: Kind, and size of the vocabulary; a small corpus may give fewer pieces.
        split_punctuation: False for text that is already split into words, where " ." may be one piece.
        key: The recipe's name of the size, for errors.

    Returns:
        A fast tokenizer that ends each text with `</s>`. Ids 0 to 3 are `<pad>`, `<s>`, `</s>`, `<unk>`.

    Source: Sennrich et al. (2016), byte-pair encoding; Kudo (2018), unigram models; Kudo & Richardson (2018)
    for visible spaces.
    """
    if config.kind == "unigram":
        return _fast(_unigram(lines, config.vocab_size or size_for(0), key), *SPECIALS)
    tokenizer = Tokenizer(models.BPE(unk_token=UNK, byte_fallback=True))
    spaces = pre_tokenizers.Metaspace(prepend_scheme="always")
    punctuation = pre_tokenizers.Split(Regex(MARKS), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([spaces, punctuation]) if split_punctuation else spaces
    to_text = [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always"), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(to_text)
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size or size_for(0),
        min_frequency=config.min_frequency,
        special_tokens=[*SPECIALS, *BYTES],
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    # Bytes become ordinary pieces: output would skip special ones, and text would match them.
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [piece for piece in state["added_tokens"] if piece["content"] in SPECIALS]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    _end_with(tokenizer, EOS)
    return _fast(tokenizer, *SPECIALS)


def _unigram(lines: Iterable[str], size: int, key: str) -> Tokenizer:
    """By SentencePiece's trainer, which, unlike that of tokenizers, learns the same from the same text."""
    model, limits = BytesIO(), {"max_sentence_length": 2**20, "num_threads": 1, "minloglevel": 2}
    as_it_is = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    pieces = {"vocab_size": size, "hard_vocab_limit": False, "byte_fallback": True}
    options = {**limits, **as_it_is, **pieces, "pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
    try:
        SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **options)
    except RuntimeError as error:
        reason, more, _ = str(error).rpartition("] ")[2].partition(" Increase vocab_size")
        raise ConfigError(
            f"subwords.{key}: expected one that fits the text, got {size}: {reason}"
            f"{' Raise it, or set it to null.' * bool(more)}"
        ) from error
    tokenizer, _ = sentencepiece_tokenizer(model.getvalue())
    # Text that spells a special piece ("</s>", "<0x41>") is cut behind "<", and not kept apart by a space.
    tokenizer.normalizer = normalizers.Prepend(" ")
    marks = pre_tokenizers.Split("<", "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([tokenizer.pre_tokenizer, marks])
    _end_with(tokenizer, EOS)
    return tokenizer


def stored_subwords(
    cache: Path | None, made_from: Mapping[str, Any], train: Callable[[], PreTrainedTokenizerFast]
) -> PreTrainedTokenizerFast:
    """The tokenizer that `train` returns, from the cache if it was trained on the same before.

    Raises:
        DataError: The cache cannot be written.
    """

    def build(folder: Path) -> None:
        (folder / FILE).write_text(train().backend_tokenizer.to_str(), "utf-8")

    folder = stored_folder(cache, "subwords", made_from, build)
    return _fast(Tokenizer.from_str((folder / FILE).read_text("utf-8")), *SPECIALS)


class BpeDropout:
    """Cuts lines at random, in place of `encode_pieces`: at each step each possible merge may be left out.

    Args:
        prob: Probability that a merge is left out.
        seed: Decides the cuts, together with the lines in their order.
        longest: A line that has or would get more pieces is cut as without dropout.

    Source: Provilkov et al. (2020), algorithm 1.
    """

    def __init__(self, prob: float, seed: object, longest: int) -> None:
        self.prob, self.longest, self._draw = prob, longest, Random(repr(seed)).random

    def __call__(self, tokenizer: PreTrainedTokenizerFast, lines: Sequence[str]) -> list[Any]:
        """Cut lines. Raises ConfigError if the tokenizer does not make its pieces by merges alone."""
        letters, merges = _letters_and_merges(tokenizer)
        cuts = [self._cut(line, merges) for line in letters.encode_batch(list(lines))]
        both = zip(cuts, encode_pieces(tokenizer, lines), strict=True)
        return [plain if max(len(cut.ids), len(plain.ids)) > self.longest else cut for cut, plain in both]

    def _cut(self, line: Any, merges: _Merges) -> Cut:
        cut, draw, prob = Cut([], []), self._draw, self.prob
        for _, word in groupby(zip(line.word_ids, line.ids, line.offsets, strict=True), itemgetter(0)):
            _, ids, offsets = map(list, zip(*word, strict=True))
            possible = True
            while possible and len(ids) > 1:
                known = enumerate(map(merges.get, pairwise(ids)))
                possible = sorted((*merge, at) for at, merge in known if merge is not None)
                # Of the merges that are left in, the earliest learned one is made.
                for _, piece, at in possible:
                    if draw() >= prob:
                        ids[at : at + 2] = [piece]
                        offsets[at : at + 2] = [(offsets[at][0], offsets[at + 1][1])]
                        break
                else:
                    possible = []
            cut.ids.extend(ids)
            cut.offsets.extend(offsets)
        return cut


_Merges = dict[tuple[int, int], tuple[int, int]]
"""Pair of pieces → place of its merge in the order of learning, and its result."""


@lru_cache(maxsize=4)
def _letters_and_merges(tokenizer: PreTrainedTokenizerFast) -> tuple[Tokenizer, _Merges]:
    """The tokenizer without any merge, which cuts into single letters, and its merges."""
    letters = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    model = json.loads(letters.to_str())["model"]
    marks = ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
    if model["type"] != "BPE" or any(map(model.get, marks)):
        raise ConfigError(
            "subwords.dropout: expected pieces of byte-pair encoding, made of nothing but merges, got "
            f"{model['type']}. Set subwords.dropout=0."
        )
    letters.model.dropout, letters.encode_special_tokens, ids = 1.0, True, model["vocab"]
    merges = enumerate(model["merges"])
    return letters, {(ids[a], ids[b]): (rank, ids[a + b]) for rank, (a, b) in merges}


_ROLES = {
    "pad_token": ("<pad>", "[PAD]"),
    "bos_token": ("<s>", "[CLS]", "<bos>"),
    "eos_token": ("</s>", "[SEP]", "<eos>", "<|endoftext|>"),
    "unk_token": ("<unk>", "[UNK]"),
    "mask_token": ("<mask>", "[MASK]"),
}
"""Usual names of special pieces in a file that does not tell their roles."""


def given_tokenizer(path: str) -> PreTrainedTokenizerFast:
    """The tokenizer in a folder, a SentencePiece model (`.model`) or a `tokenizer.json`.

    It adds one end piece and nothing else to each line, and neither cuts nor pads it. A folder's special
    pieces without a role, and a SentencePiece model's user-defined symbols, are one piece of text each. A
    file's have roles by SentencePiece's ids or usual names; padding and end are added if it has none.

    Raises:
        ConfigError: It cannot be read, is not fast, lacks padding, end or decoder, or has other specials.
    """
    roles: dict[str, str] = {}
    try:
        if Path(path).is_file():
            check_tokenizer(Path(path))
        if path.endswith(".model"):
            backend, roles = sentencepiece_tokenizer(Path(path).read_bytes())
        elif not path.endswith(".json"):
            say_download(path, TOKENIZER)
            tokenizer = _checked(auto_tokenizer(path), path)
            with_role = (getattr(tokenizer, role) for role in (*_ROLES, "cls_token", "sep_token"))
            added = {token.content for token in tokenizer.added_tokens_decoder.values()}
            symbols = {name for name in added - {*map(str, filter(None, with_role))} if name.strip()}
            return ended_by_one_piece(add_symbols(tokenizer, symbols, "subwords.tokenizer"))
        else:
            backend = Tokenizer.from_file(path)
    except ConfigError:
        raise
    except Exception as error:  # protobuf and tokenizers raise classes of their own
        kinds = "a tokenizer folder, a SentencePiece .model or a tokenizer.json"
        raise ConfigError(f"subwords.tokenizer: expected {kinds}, got: {error}") from error
    state = json.loads(backend.to_str())
    special = [token["content"] for token in state["added_tokens"] if token["special"]]
    for role, names in _ROLES.items():
        if role not in roles and (known := [name for name in names if name in special]):
            roles[role] = known[0]
    if homeless := sorted(set(special) - set(roles.values())):
        remedy = "Give a folder, whose config tells their roles."
        if path.endswith(".model"):
            remedy = "No text is cut into control symbols: train it with --user_defined_symbols instead."
        raise ConfigError(
            "subwords.tokenizer: expected special pieces for padding, start, end and unknown text, "
            f"got {', '.join(homeless[:5])} in {path}. {remedy}"
        )
    if state["decoder"] is None:
        raise ConfigError(
            f"subwords.tokenizer: expected a decoder, which makes text of pieces, got none in {path}."
        )
    added = {token["content"] for token in state["added_tokens"] if not token["special"]}
    backend = with_symbols(backend, {name for name in added if name.strip()}, "subwords.tokenizer")
    backend.add_special_tokens([roles.setdefault("pad_token", PAD), roles.setdefault("eos_token", EOS)])
    named = (roles.get(role) for role in SPECIAL_ROLES)
    return ended_by_one_piece(_checked(_fast(backend, *named), path))


def _checked(tokenizer: Any, path: str) -> PreTrainedTokenizerFast:
    if not tokenizer.is_fast or tokenizer.eos_token_id is None or tokenizer.pad_token_id is None:
        raise ConfigError(
            f"subwords.tokenizer: expected a fast tokenizer with end and padding pieces, got {path}."
        )
    if tokenizer.eos_token_id == tokenizer.pad_token_id:
        raise ConfigError(
            "subwords.tokenizer: expected different end and padding pieces, got "
            f"{tokenizer.eos_token!r} for both in {path}. Give it a padding piece of its own."
        )
    return tokenizer


def encoder_tokenizer(model: str, target: bool) -> PreTrainedTokenizerFast:
    """Load a tokenizer whose offsets refer to the line as it is given.

    Args:
        model: Folder or name of the encoder.
        target: For the target side. Lines then end in one end piece, as a decoder needs it, without a start
            piece, and decoding joins words by single spaces and changes nothing else.

    Raises:
        ConfigError: The tokenizer cannot be loaded, is not fast, or has no padding and end pieces.
    """
    with checkpoint_errors(model, "pretrained_embeddings: expected an encoder"):
        say_download(model)
        loaded = auto_tokenizer(model)
    bos, eos = loaded.bos_token or loaded.cls_token, loaded.eos_token or loaded.sep_token
    if not loaded.is_fast or loaded.pad_token is None or eos is None:
        raise ConfigError(
            "pretrained_embeddings: expected a fast tokenizer with padding and end pieces, "
            f"got that of {model}."
        )
    backend = _whole_lines(loaded)
    if target:
        if isinstance(backend.decoder, decoders.WordPiece):
            backend.decoder.cleanup = False
        _end_with(backend, str(eos))
    return _fast(backend, loaded.pad_token, bos, eos, loaded.unk_token)


def ended_by_one_piece(loaded: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The tokenizer, set to add one end piece and nothing else, and neither to cut nor to pad lines."""
    backend, eos = _whole_lines(loaded), loaded.eos_token
    line = "a line"
    if backend.encode(line).ids == [*backend.encode(line, add_special_tokens=False).ids, loaded.eos_token_id]:
        return loaded
    _end_with(backend, str(eos))
    return _fast(backend, loaded.pad_token, loaded.bos_token, eos, loaded.unk_token)


def _whole_lines(loaded: PreTrainedTokenizerFast) -> Tokenizer:
    """The tokenizer's backend, without the truncation and padding with which it was stored."""
    backend = loaded.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return backend


def _end_with(backend: Tokenizer, end: str) -> None:
    special = (end, backend.token_to_id(end))
    backend.post_processor = processors.TemplateProcessing(single=f"$A {end}", special_tokens=[special])


def _fast(backend: Tokenizer, pad: Any, bos: Any, eos: Any, unk: Any) -> PreTrainedTokenizerFast:
    roles = {"pad_token": pad, "bos_token": bos, "eos_token": eos, "unk_token": unk}
    named = {role: piece for role, piece in roles.items() if piece is not None}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **named)
