"""A pretrained translator that training starts from: its tokenizer, its network, its adapters, its loss.

Marian, mBART, M2M100, NLLB, BART, Pegasus, T5 and mT5, in a folder of Hugging Face's layout. The tokenizer
becomes two fast ones, for source and target, with language codes and the prompt in their templates: from
there on a line takes the way of every other translator. Slow tokenizers (Marian, M2M100) are rebuilt from
their SentencePiece models, and compared with the original on the training text.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from langcodes import Language, tag_is_valid
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import generate_merges

from syntaxformer.base.config import nearest, read_yaml
from syntaxformer.base.downloads import say_download
from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError, SyntaxformerError
from syntaxformer.base.files import fetched, read_json
from syntaxformer.infusion import INFUSION_FILE
from syntaxformer.infusion import load as load_infused
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL, cross_entropy
from syntaxformer.runs.checkpoints import WEIGHTS, load_tensors, load_weights
from syntaxformer.runs.loading import (
    TRANSLATOR,
    auto_tokenizer,
    checked_checkpoint,
    checkpoint_errors,
    quiet_loading,
    verify_folder,
)
from syntaxformer.runs.tokenizer_rules import read_sentencepiece
from syntaxformer.translation.decoding import own_generation
from syntaxformer.translation.model import OF_INFUSION, TranslationOutput, shift_right
from syntaxformer.translation.source import SPECIAL_ROLES, unknown_pieces

_log = logging.getLogger("syntaxformer.data")

Side = Literal["source", "target"]

NOT_TEXT = -100.0
"""Score of special pieces in a unigram model: text that spells one of them is cut into smaller pieces."""

N_COMPARED = 2000
"""Lines on which a rebuilt tokenizer is compared with the original."""

_UNSEEN = "\0"
"""Begins the names of pieces that no text may be cut into: lines have no such character."""


@dataclass(frozen=True)
class Checkpoint:
    """What training needs to know of a pretrained translator before its network is loaded.

    Args:
        path: Folder, or name on the Hub.
        source: Tokenizer of the source: its language code and its prompt are in its template.
        start_id: Piece that the decoder begins with.
        n_known: Pieces that the checkpoint knows; what is added to them comes behind.
        longest: Positions of the network; None where they are relative, or computed for any length.
    """

    path: str
    source: PreTrainedTokenizerFast
    target: PreTrainedTokenizerFast
    start_id: int
    n_known: int
    longest: int | None = None

    @property
    def n_pieces(self) -> int:
        """Rows that the network's tables need."""
        return _n_pieces(self.source.backend_tokenizer, self.target.backend_tokenizer)

    @property
    def has_codes(self) -> bool:
        """Whether the frame of a line (codes, a prompt) or the first piece tells the languages."""
        kinds = (self.source.eos_token_id, self.target.pad_token_id, self.target.eos_token_id)
        frames = [tokenizer.backend_tokenizer.encode("").ids for tokenizer in (self.source, self.target)]
        return len(frames[1]) > 1 or frames[0] != frames[1] or self.start_id not in kinds

    @property
    def spells_bytes(self) -> bool:
        """Whether characters that are no pieces are spelled by those of their bytes."""
        return len(unknown_pieces(self.target)) > len(unknown_pieces(self.target, spelled=False))

    def missing_characters(
        self, sides: Sequence[Iterable[Sequence[str]]], spelled: bool = True
    ) -> tuple[Counter[str], list[int]]:
        """Characters that a side's tokenizer does not know, with their counts, and the rows that have some.

        `sides` are the prepared lines of source and target, in parts. If `spelled`, characters that are
        spelled by their bytes count as well, although nothing of them is lost.
        """
        counts, rows = Counter[str](), list[int]()
        for tokenizer, parts in zip((self.source, self.target), sides, strict=True):
            unknown, start = unknown_pieces(tokenizer, spelled), 0
            for lines in parts:
                encodings = tokenizer.backend_tokenizer.encode_batch(list(lines), add_special_tokens=False)
                for row, (line, encoding) in enumerate(zip(lines, encodings, strict=True), start):
                    if (is_unknown := np.isin(encoding.ids, unknown)).any():
                        spans = [encoding.offsets[at] for at in np.flatnonzero(is_unknown)]
                        counts.update(_characters(tokenizer, line, spans))
                        rows.append(row)
                start += len(lines)
        return counts, rows

    def with_characters(self, characters: Iterable[str], are_symbols: bool = False) -> Checkpoint:
        """The same with a piece for each of some characters, or symbols, after all others."""
        added = sorted(characters)
        pieces = {character: self.n_pieces + number for number, character in enumerate(added)}
        sides = []
        for tokenizer in (self.source, self.target):
            backend, roles = _with_pieces(tokenizer.backend_tokenizer, pieces), special_pieces(tokenizer)
            extended = PreTrainedTokenizerFast(tokenizer_object=backend, **roles)
            sides.append(add_symbols(extended, added if are_symbols else ()))
        return replace(self, source=sides[0], target=sides[1])


def host_config(path: str) -> Any:
    """The config of a checkpoint's host.

    Raises:
        ConfigError: It cannot be read.
    """
    with checkpoint_errors(path, "model.init_from: expected a pretrained translator"):
        config: Any = AutoConfig.from_pretrained(path, trust_remote_code=False)
    return getattr(config, "host", config)


def open_checkpoint(
    path: str,
    languages: tuple[str | None, ...],
    codes: tuple[str | None, str | None],
    adds_codes: bool,
    prompt: str,
) -> Checkpoint:
    """Read the tokenizer of a pretrained translator from its folder or, by its name, from the Hub.

    `languages` are the ISO codes of source and target, None for an unknown one, and `codes` the checkpoint's
    own for them, None for those that fit. If it `adds_codes`, unknown ones become new pieces. The prompt is
    text before every source line: "translate English to German: " for T5.

    Raises:
        ConfigError: It cannot be read, is no translator, or has no such language.
    """
    config = host_config(path)
    with checkpoint_errors(path, "model.init_from: expected a pretrained translator"):
        tokenizer = auto_tokenizer(path)
    if not getattr(config, "share_encoder_decoder_embeddings", True):
        raise ConfigError(
            f"model.init_from: expected one vocabulary for both sides, got two in {path}, which "
            "this package cannot train."
        )
    if not config.is_encoder_decoder:
        raise ConfigError(
            f"model.init_from: expected a translator, an encoder with a decoder, got {path}, a model of the "
            f"kind {config.model_type!r}. `syntaxformer finetune` takes encoders."
        )
    known = _codes_of(tokenizer)
    is_multilingual_marian = hasattr(tokenizer, "spm_files") and bool(known)
    source_codes = {} if is_multilingual_marian else known
    chosen = [
        _choose_code(source_codes, codes[0], languages[0], "model.src_code", adds_codes),
        _choose_code(known, codes[1], languages[1], "model.tgt_code", adds_codes),
    ]
    framed: list[PreTrainedTokenizerFast] = []
    start_id, sides = config.decoder_start_token_id, ("source", "target")
    backends = [_backend(tokenizer, side) for side in sides]
    n_known, new = _n_pieces(*backends), sorted({code for code in chosen if code and code not in known})
    if any(chosen):
        codes_shown = [code and f"{code}{' (a new one)' * (code in new)}" for code in chosen]
        _log.info("model.init_from: language codes: %s", " → ".join(filter(None, codes_shown)))
    if new:
        if hasattr(tokenizer, "lang_code_to_token"):  # M2M100
            known |= {code: f"__{code}__" for code in new}
            new = [known[code] for code in new]
        known_pieces = {piece for backend in backends for piece in backend.get_vocab()}
        if taken := [code for code in new if code in known_pieces]:
            raise ConfigError(f"model.add_codes: expected a code that is no piece yet, got {taken[0]}.")
        numbers = {code: n_known + number for number, code in enumerate(new)}
        backends = [_with_pieces(backend, numbers, is_special=True) for backend in backends]
    for side, code, backend in zip(sides, chosen, backends, strict=True):
        before, after = _template(tokenizer, side, known, code, backend)
        if not after:
            raise ConfigError(
                "model.init_from: expected a tokenizer that ends each line with an end piece, got one in "
                f"{path} that adds none to the {side}'s lines. Give it a post-processor."
            )
        if is_multilingual_marian and side == "source":
            before = [tokenizer.convert_tokens_to_ids(known[str(chosen[1])]), *before]
        if side == "source" and prompt:
            before = [*before, *backend.encode(prompt, add_special_tokens=False).ids]
        if side == "target" and after[-1] != tokenizer.eos_token_id:
            # mBART writes its code behind the end piece and begins the decoder with it.
            start_id, after = after[-1], after[:-1]
        framed.append(_framed(backend, tokenizer, before, after))
    if start_id is None:
        raise ConfigError(
            f"model.init_from: expected decoder_start_token_id in config.json of {path}, got none."
        )
    return Checkpoint(path, *framed, start_id, n_known, getattr(config, "max_position_embeddings", None))


def of_own_folder(path: str, source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast) -> Checkpoint:
    """A translator that `train` wrote, ours or a pretrained one, whose tokenizers have been read."""
    config, n_known = host_config(path), _n_pieces(source.backend_tokenizer, target.backend_tokenizer)
    longest = getattr(config, "max_position_embeddings", None)
    return Checkpoint(path, source, target, config.decoder_start_token_id, n_known, longest)


def compare(checkpoint: Checkpoint, sides: Sequence[Sequence[str]]) -> None:
    """Say on how many lines a tokenizer that was rebuilt differs from the original."""
    original = auto_tokenizer(checkpoint.path)
    if original.is_fast:  # as it is in folders that `train` wrote
        return
    if known := _codes_of(original):
        original.tgt_lang = next(iter(known))
    for side, lines in zip(("source", "target"), sides, strict=True):
        lines = [line.strip() for line in lines[:N_COMPARED] if line.strip()]
        if not lines:
            continue
        texts = {"text": lines} if side == "source" else {"text_target": lines}
        ids = original(**texts, add_special_tokens=False)["input_ids"]
        ours = getattr(checkpoint, side).backend_tokenizer.encode_batch(lines, add_special_tokens=False)
        unlike = [line for line, row, other in zip(lines, ids, ours, strict=True) if row != other.ids]
        if unlike:
            _log.warning(
                "model.init_from: %d of %d %s lines are cut into other pieces than by the checkpoint's own "
                "tokenizer, such as: %s",
                *(len(unlike), len(lines), side, unlike[0][:80]),
            )


def _backend(tokenizer: Any, side: Side) -> Tokenizer:
    """A fast tokenizer of one side, without what frames a line, truncation and padding."""
    codes, of_user = {*_codes_of(tokenizer).values()}, set[str]()
    names = {*map(str, tokenizer.all_special_tokens), *codes}
    if tokenizer.is_fast:
        backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        backend.no_truncation()
        backend.no_padding()
    else:
        if hasattr(tokenizer, "spm_files"):  # Marian
            is_apart = side == "target" and tokenizer.separate_vocabs
            ids = tokenizer.target_encoder if is_apart else tokenizer.encoder
            file = tokenizer.spm_files[side == "target"]
        elif hasattr(tokenizer, "spm_file"):  # M2M100
            ids, file = {**tokenizer.encoder, **tokenizer.lang_token_to_id}, tokenizer.spm_file
        else:
            raise ConfigError(
                "model.init_from: expected a fast tokenizer, or one of SentencePiece, got "
                f"{type(tokenizer).__name__}."
            )
        proto = read_sentencepiece(Path(file).read_bytes())
        backend, of_user = _rebuilt(proto, ids, names), _symbols_of(proto)
    known = {name for name in names | of_user if backend.token_to_id(name) is not None}
    special = sorted(names & known)
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    others = {name for name in names if not _OF_GAPS.match(name)} - _roles_of(tokenizer) - codes
    return with_symbols(_specials_are_no_text(backend), known & (others | of_user), "model.init_from")


def sentencepiece_tokenizer(model: bytes) -> tuple[Tokenizer, dict[str, str]]:
    """A SentencePiece model of one's own as a fast tokenizer, and the names of its special pieces by role.

    Raises:
        ConfigError: It is no unigram model and not of byte-pair encoding, or marks spaces behind words.
    """
    proto = read_sentencepiece(model)
    if proto.trainer_spec.model_type > 2 or proto.trainer_spec.treat_whitespace_as_suffix:
        raise ConfigError(
            "subwords.tokenizer: expected a SentencePiece model of type unigram or bpe, with spaces before "
            "words, got another. Train it without --model_type=word|char and --treat_whitespace_as_suffix."
        )
    names = [piece.piece for piece in proto.pieces]
    ids = {role: getattr(proto.trainer_spec, role.replace("token", "id")) for role in SPECIAL_ROLES}
    backend = _rebuilt(proto, {name: number for number, name in enumerate(names)})
    special = [piece.piece for piece in proto.pieces if piece.type in (_UNKNOWN, _CONTROL)]
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    backend = with_symbols(_specials_are_no_text(backend), _symbols_of(proto), "subwords.tokenizer")
    return backend, {role: names[number] for role, number in ids.items() if number >= 0}


def with_symbols(backend: Tokenizer, symbols: Collection[str], key: str) -> Tokenizer:
    """The tokenizer with pieces of its own as text: each is found whole, and is part of the output.

    If other parts of it cut a symbol or lose it, it is refused by its `key`.

    Raises:
        ConfigError: Its other parts cut a symbol, or lose it; the message begins with `key`.
    """
    if not symbols:
        return backend
    backend.add_tokens([AddedToken(symbol, normalized=True) for symbol in sorted(symbols)])
    # The rest of a line behind a symbol begins no word.
    state = json.loads(backend.to_str().replace('"prepend_scheme":"always"', '"prepend_scheme":"first"'))
    for added in state["added_tokens"]:
        if added["content"] in symbols:
            no = dict.fromkeys(("special", "single_word", "lstrip", "rstrip"), False)
            added |= {**no, "normalized": True}
    if state["normalizer"] == {"type": "Prepend", "prepend": " "}:  # a symbol would begin with it
        state["normalizer"] = None
    steps = (state["pre_tokenizer"] or {}).get("pretokenizers", ())
    if [step["type"] for step in steps] == ["WhitespaceSplit", "Metaspace"]:  # in which all words are first
        state["pre_tokenizer"], before = steps[1], state["normalizer"]
        spaces = [{"type": "Strip", "strip_left": True, "strip_right": True}, _SINGLE_SPACES]
        state["normalizer"] = {"type": "Sequence", "normalizers": [*([before] if before else []), *spaces]}
    backend = Tokenizer.from_str(json.dumps(state))
    for symbol in sorted(symbols):
        ids = backend.encode(f"a {symbol} a", add_special_tokens=False).ids
        if backend.token_to_id(symbol) not in ids or symbol not in backend.decode(ids):
            raise ConfigError(
                f"{key}: expected {symbol} whole in text, got it in pieces from this tokenizer. "
                "Leave it out of the symbols, or of additional_special_tokens."
            )
    return backend


_SINGLE_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}

_OF_GAPS = re.compile(r"<(extra_id|unk|mask)_\d+>|madeupword\d+")
"""Pieces of pretraining, which are in no text."""


def add_symbols(
    tokenizer: PreTrainedTokenizerFast, symbols: Collection[str], key: str = "subwords.symbols"
) -> PreTrainedTokenizerFast:
    """The tokenizer with symbols, see `with_symbols`; those that are no pieces yet come behind all."""
    if not symbols:
        return tokenizer
    backend = with_symbols(tokenizer.backend_tokenizer, symbols, key)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special_pieces(tokenizer))


def _symbols_of(proto: Any) -> set[str]:
    """The user-defined pieces of a SentencePiece model."""
    return {piece.piece for piece in proto.pieces if piece.type == _OF_USER}


_TEXT, _UNKNOWN, _CONTROL, _OF_USER = 1, 2, 3, 4
"""Types of SentencePiece's pieces; the others are bytes and unused ones."""


def _rebuilt(proto: Any, ids: dict[str, int], special: Collection[str] = ()) -> Tokenizer:
    """A SentencePiece model as a fast tokenizer whose ids, and special pieces, are those of a vocabulary."""
    text = {piece.piece: piece.score for piece in proto.pieces if piece.type in (_TEXT, _OF_USER)}
    scores = {piece.piece: text.get(piece.piece, NOT_TEXT) for piece in proto.pieces}
    unknown, spells_bytes = proto.trainer_spec.unk_piece, bool(proto.trainer_spec.byte_fallback)
    if proto.trainer_spec.model_type == 1:
        # As SentencePiece's unknown.
        rare = min(piece.score for piece in proto.pieces if piece.type == _TEXT) - 10
        names = {number: name for name, number in ids.items()}
        table = []
        for name in (names.get(number, "") for number in range(max(names) + 1)):
            # Of what only the other side has, characters are found by the original, too; no text matches the
            # others, which begin with a character that is never in a line.
            is_piece = name in scores or name in special or name[:1] == "<" or len(name) == 1
            missing = rare if len(name) == 1 else NOT_TEXT
            table.append((name, scores.get(name, missing)) if is_piece else (f"{_UNSEEN}{name}", 0.0))
        tokenizer = Tokenizer(models.Unigram(table, ids[unknown], spells_bytes))
    else:
        merges = generate_merges({name: number for number, name in enumerate(text)}, text)
        merges = [pair for pair in merges if "".join(pair) in ids and all(piece in ids for piece in pair)]
        options = {"unk_token": unknown, "fuse_unk": True, "byte_fallback": spells_bytes}
        tokenizer = Tokenizer(models.BPE(ids, merges, **options))
    spaces, splits = proto.normalizer_spec, proto.trainer_spec.split_by_whitespace
    steps: list[Any] = [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    if not spaces.remove_extra_whitespaces:
        steps, splits = [normalizers.Prepend(" ")] if spaces.add_dummy_prefix else [], False
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        steps.insert(0, normalizers.Precompiled(charsmap))
    tokenizer.normalizer = normalizers.Sequence(steps)
    first = "always" if spaces.add_dummy_prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=first, split=splits)
    spelled = [decoders.Replace(_UNSEEN, ""), decoders.ByteFallback()]
    tokenizer.decoder = decoders.Sequence(
        [*spelled, decoders.Metaspace(prepend_scheme=first), decoders.Fuse()]
    )
    return tokenizer


def _specials_are_no_text(backend: Tokenizer) -> Tokenizer:
    """A unigram model takes any piece for text, also "</s>": special ones get the score `NOT_TEXT`."""
    state = json.loads(backend.to_str())
    if state["model"]["type"] != "Unigram":
        return backend
    special = [token for token in state["added_tokens"] if token["special"]]
    for added in special:
        if added["id"] < len(state["model"]["vocab"]):
            state["model"]["vocab"][added["id"]][1] = NOT_TEXT
    safe = Tokenizer.from_str(json.dumps(state))
    # Where the characters of "</s>" are unknown, even that score is better than theirs: a space divides it.
    names = (token["content"] for token in special)
    apart = [normalizers.Replace(name, f"{name[0]} {name[1:]}") for name in names if len(name) > 1]
    safe.normalizer = normalizers.Sequence([*apart, *([safe.normalizer] if safe.normalizer else [])])
    return safe


def _template(
    tokenizer: Any, side: Side, known: dict[str, str], code: str | None, backend: Tokenizer
) -> tuple[list[int], list[int]]:
    """Ids of the pieces before and behind a line."""
    unknown = (None, tokenizer.unk_token_id)
    is_new = code is not None and tokenizer.convert_tokens_to_ids(known.get(code, code)) in unknown
    stand_in = next(iter(known)) if is_new else code
    if code is not None and hasattr(tokenizer, "src_lang"):
        setattr(tokenizer, "src_lang" if side == "source" else "tgt_lang", stand_in)
    text = {"text": "a"} if side == "source" else {"text_target": "a"}
    bare = tokenizer(**text, add_special_tokens=False)["input_ids"]
    ids = tokenizer(**text)["input_ids"]
    first = next(start for start in range(len(ids)) if ids[start : start + len(bare)] == bare)
    before, after = ids[:first], ids[first + len(bare) :]
    if code is None or stand_in == code:
        return before, after
    old = tokenizer.convert_tokens_to_ids(known[stand_in])
    new = cast("int", backend.token_to_id(known.get(code, code)))
    before, after = ([new if piece == old else piece for piece in ids] for ids in (before, after))
    return before, after


def _framed(
    backend: Tokenizer, tokenizer: Any, before: Sequence[int], after: Sequence[int]
) -> PreTrainedTokenizerFast:
    """The backend with a line's frame, as a tokenizer of ours that names its special pieces."""
    frame = [
        {"id": name, "ids": list(ids), "tokens": [backend.id_to_token(piece) for piece in ids]}
        for name, ids in (("before", before), ("after", after))
        if ids
    ]
    single = ["before", "$A", "after"] if len(frame) == 2 else ["$A", "after"]
    backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=frame)
    roles = special_pieces(tokenizer)
    roles.pop("bos_token", None)  # the frame has it already
    if not {"pad_token", "eos_token"} <= roles.keys():
        raise ConfigError(
            "model.init_from: expected a tokenizer with padding and end pieces, got one without."
        )
    return PreTrainedTokenizerFast(tokenizer_object=backend, **roles)


def special_pieces(tokenizer: Any) -> dict[str, str]:
    """The names of a tokenizer's special pieces, by role."""
    return {role: str(getattr(tokenizer, role)) for role in SPECIAL_ROLES if getattr(tokenizer, role)}


def _roles_of(tokenizer: Any) -> set[str]:
    """The names of all special pieces of a tokenizer that have a role."""
    return {piece for piece in tokenizer.special_tokens_map.values() if isinstance(piece, str)}


def _codes_of(tokenizer: Any) -> dict[str, str]:
    """Language codes of a tokenizer, each with the piece that stands for it; none for one without."""
    if hasattr(tokenizer, "lang_code_to_token"):  # M2M100: "de" is "__de__"
        return dict(tokenizer.lang_code_to_token)
    if codes := getattr(tokenizer, "supported_language_codes", None):  # OPUS-MT of several target languages
        return {code.strip("<>"): code for code in codes}
    if not hasattr(tokenizer, "src_lang"):
        return {}
    roles = _roles_of(tokenizer)
    pieces = map(str, tokenizer.all_special_tokens)
    return {piece: piece for piece in pieces if piece not in roles and piece[:1] != "<"}


def _choose_code(
    known: dict[str, str], code: str | None, language: str | None, key: str, adds_codes: bool
) -> str | None:
    """The checkpoint's code of a language; None where it has no codes."""
    if not known and code is not None:
        raise ConfigError(f"{key}: expected none, as this checkpoint has no language codes, got {code!r}.")
    if not known or code in known or (code is not None and adds_codes):
        return code
    if code is not None:
        raise ConfigError(
            f"{key}: expected a language code of the checkpoint, got {code!r}. "
            f"{nearest(code, sorted(known))} For a language that it does not know, model.add_codes=true "
            "adds the code as a new piece."
        )
    iso = None if language is None else _language(language)
    fitting = [known_code for known_code in known if _language(known_code) == iso]
    if len(fitting) != 1:
        language, codes = language or "an unknown language", ", ".join(fitting) or "none"
        raise ConfigError(
            f"{key}: expected the checkpoint's code of {language!r}, of which it has {codes}. Give "
            f"{key}=CODE; model.add_codes=true adds one that it does not know."
        )
    return fitting[0]


def _language(code: str) -> str:
    """ISO 639 of a code: de of deu_Latn, de_DE and de."""
    first = code.replace("_", "-").partition("-")[0]
    return (tag_is_valid(first) and Language.get(first).prefer_macrolanguage().language) or code


def _characters(tokenizer: PreTrainedTokenizerFast, line: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """Characters within some spans of a line, as the model's pieces would spell them; spaces are none."""
    indices = {at for start, end in spans for at in range(start, end)}
    text = "".join(line[at] for at in sorted(indices))
    normalizer = tokenizer.backend_tokenizer.normalizer
    text = normalizer.normalize_str(text) if normalizer is not None else text
    return [character for character in text if not character.isspace() and character != "▁"]


def _n_pieces(*backends: Tokenizer) -> int:
    return 1 + max(max(backend.get_vocab().values()) for backend in backends)


def _with_pieces(backend: Tokenizer, pieces: dict[str, int], is_special: bool = False) -> Tokenizer:
    """More pieces in the model of a tokenizer, which cuts text; their ids come behind all others."""
    state = json.loads(backend.to_str())
    vocabulary = state["model"]["vocab"]
    added = {token["id"]: token["content"] for token in state["added_tokens"]}
    if isinstance(vocabulary, dict):
        # Ids of special pieces that are not in the model are numbered anew on reading, behind all of it.
        vocabulary |= {piece: number for number, piece in added.items()} | pieces
    else:  # a list, in which a piece's place is its id
        lowest = min(score for _, score in vocabulary if score > NOT_TEXT)
        vocabulary += [
            [added.get(number, f"{_UNSEEN}{number}"), NOT_TEXT]
            for number in range(len(vocabulary), max(pieces.values()) + 1)
        ]
        for piece, number in pieces.items():
            vocabulary[number] = [piece, NOT_TEXT if is_special else lowest]
    extended = Tokenizer.from_str(json.dumps(state))
    if is_special:
        extended.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in pieces])
    return extended


_OF_TASKS = re.compile(r"target_tagger\.|parse_labels\.")
_MAY_LACK = re.compile(f"{OF_INFUSION.pattern}|{_OF_TASKS.pattern}")

ADAPTER = "default"
"""PEFT's name of the one adapter that is trained."""


@cache
def local_folder(name: str) -> str:
    """The folder of a checkpoint, fetched once from the Hub if there is none of that name here.

    Raises:
        ConfigError: It cannot be had.
    """
    try:
        say_download(name)
        return str(fetched(name))
    except CheckpointError as error:
        raise ConfigError(f"model.init_from: {error}") from error


def own_sections(path: str) -> dict[str, Any]:
    """Sections `model` and `infusion` of the recipe of our own translator's folder.

    Raises:
        ConfigError: The folder is not finished, or has no recipe.
    """
    try:
        verify_folder(Path(path), TRANSLATOR)
        content = read_yaml(Path(path) / "recipe.yaml")
        if not all(isinstance(content.get(name), dict) for name in ("model", "infusion")):
            raise CheckpointError(f"{path}/recipe.yaml: expected sections model and infusion, got others.")
    except SyntaxformerError as error:
        raise ConfigError(str(error)) from error
    return {"model": {**content["model"], "init_from": path}, "infusion": content["infusion"]}


def host_sections(path: str) -> dict[str, Any]:
    """Of a pretrained translator: the section `model` of a recipe, its dropout, what it is infused with.

    Raises:
        ConfigError: Its config cannot be read.
    """
    config = host_config(path)
    common = getattr(config, "dropout", getattr(config, "dropout_rate", 0.0))
    names = ("dropout", "attention_dropout", "activation_dropout")
    model = {"init_from": path, **{name: getattr(config, name, common) for name in names}}
    dropouts = {name for name in names if hasattr(config, name)} | {"dropout"}
    if (infusion := stored_infusion(path)) is not None:
        embedding = infusion.embedding and infusion.embedding.model_copy(update={"values": None})
        infusion = infusion.model_copy(update={"embedding": embedding, "seed": 0})
    return {"kind": config.model_type, "dropouts": dropouts, "model": model, "infusion": infusion}


def normalizes_punctuation(path: str) -> bool:
    """Whether a checkpoint was trained on text with Moses' plain punctuation: NLLB, and what came of it."""
    stored = Path(path) / TRANSLATOR
    if stored.is_file():
        return bool(read_json(stored).get("normalize_punctuation", False))
    config = Path(path) / "tokenizer_config.json"
    return config.is_file() and "Nllb" in str(read_json(config).get("tokenizer_class"))


def stored_infusion(path: str) -> InfusionConfig | None:
    """What a checkpoint is infused with; None for a plain one."""
    if not (Path(path) / INFUSION_FILE).is_file():
        return None
    return InfusionConfig.from_json(read_json(Path(path) / INFUSION_FILE)["infusion"], path)


def load_pretrained(checkpoint: Checkpoint, dropouts: Mapping[str, float]) -> PreTrainedModel:
    """The network of a checkpoint in fp32, with rows for all pieces: new ones are the mean row.

    Raises:
        ConfigError: It cannot be read, or lacks weights.
    """
    path = checkpoint.path
    rates = {**dropouts, "dropout_rate": dropouts["dropout"]}  # T5 has one for all
    rates |= {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}  # no key tells of them
    with checkpoint_errors(path, "model.init_from: expected a translator"), quiet_loading():
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
        host = getattr(config, "host", config)
        for name, rate in rates.items():
            if hasattr(host, name):
                setattr(host, name, rate)
        read: Any = load_infused
        if not (Path(path) / INFUSION_FILE).is_file():
            checked_checkpoint(path, AutoModelForSeq2SeqLM)
            read = AutoModelForSeq2SeqLM.from_pretrained
        options = {"use_safetensors": True, "output_loading_info": True, "dtype": torch.float32}
        model, report = read(path, config=config, **options)
    if missing := sorted(report["missing_keys"])[:3]:
        raise ConfigError(
            f"model.init_from: expected all weights of a {model.config.model_type} model at "
            f"{path}, missing: {', '.join(missing)}."
        )
    if checkpoint.n_pieces > checkpoint.n_known:
        _lengthen(model, checkpoint.n_pieces, checkpoint.n_known)
    model.config.decoder_start_token_id = checkpoint.start_id
    model._has_warned_of_loss = True  # `host_output` adds the loss of pointing at governors
    model.generation_config = own_generation(checkpoint.target, checkpoint.start_id)
    return model


@torch.no_grad()
def _lengthen(model: PreTrainedModel, n_pieces: int, n_known: int) -> None:
    """A row for each new piece, which begins as the mean of those that the checkpoint knows."""
    if n_pieces > len(model.get_input_embeddings().weight):
        is_tied, config = model.config.tie_word_embeddings, model.config
        # mT5 and T5 1.1 have an output layer of their own, which would be tied again by their config.
        same = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        config.tie_word_embeddings = is_tied and same
        with quiet_loading():
            model.resize_token_embeddings(n_pieces, mean_resizing=False)
        config.tie_word_embeddings = is_tied
    tables: Any = (model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    for table in {id(table): table for table in tables}.values():
        table[n_known:n_pieces] = table[:n_known].mean(0)
    if (bias := getattr(model, "final_logits_bias", None)) is not None:  # which is not trained
        bias[:, n_known:n_pieces] = bias[:, :n_known].mean()


def take_weights(model: nn.Module, start: Checkpoint) -> None:
    """Weights of another translator of ours; new pieces begin as the mean row, heads of tasks anew.

    Raises:
        ConfigError: They are of another network.
    """
    weights, current = load_tensors(Path(start.path) / WEIGHTS), model.state_dict()
    weights = {name: tensor for name, tensor in weights.items() if not _OF_TASKS.match(name)}
    for name, tensor in weights.items():
        if name in current and len(current[name]) > len(tensor) == start.n_known:
            n_new = len(current[name]) - len(tensor)
            weights[name] = torch.cat([tensor, tensor.mean(0, keepdim=True).expand(n_new, *tensor.shape[1:])])
    try:
        load_weights(model, weights, Path(start.path), may_lack=_MAY_LACK)
    except CheckpointError as error:
        raise ConfigError(f"model.init_from: {error}") from error


def add_adapters(
    model: PreTrainedModel, r: int, alpha: int, dropout: float, targets: Sequence[str] | None
) -> Any:
    """Put low-rank adapters into the linear maps of a pretrained translator, which keeps its class.

    Adapters and infusion are trained from there on. What is returned is PEFT's object, which merges them.

    Source: Hu et al. (2022), "LoRA".

    Raises:
        BackendMissingError: PEFT is not installed.
        ConfigError: No map has one of the names.
    """
    try:
        from peft import LoraConfig
        from peft.tuners.lora import LoraModel
    except ImportError as error:
        raise BackendMissingError("PEFT, for training.lora,", "python -m pip install peft") from error
    output = model.get_output_embeddings()
    names = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not output and "infusion" not in name.split(".")
    ]
    known = sorted({name.rpartition(".")[2] for name in names})
    if unknown := [target for target in targets or () if target not in known]:
        raise ConfigError(
            f"training.lora.targets: expected some of {', '.join(known)}, got {', '.join(unknown)}."
        )
    chosen = [name for name in names if targets is None or name.rpartition(".")[2] in targets]
    config = LoraConfig(r=r, lora_alpha=alpha, lora_dropout=dropout, target_modules=chosen, bias="none")
    adapters = LoraModel(model, config, ADAPTER)
    if hasattr(model, "infusion"):
        model.infusion.requires_grad_(True)
    return adapters


def save_adapter(model: PreTrainedModel, adapters: Any, folder: Path) -> None:
    """Write the adapters, and the infusion with them, as PEFT reads them."""
    folder.mkdir()
    config = copy(adapters.peft_config[ADAPTER])
    config.modules_to_save = ["infusion"] if hasattr(model, "infusion") else None
    config.task_type, config.inference_mode = "SEQ_2_SEQ_LM", True
    config.save_pretrained(str(folder))
    weights = {
        f"base_model.model.{name.replace(f'.{ADAPTER}.', '.')}": tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if ".lora_" in name or name.startswith("infusion.")
    }
    save_file(weights, str(folder / "adapter_model.safetensors"))


def host_output(
    model: Any, batch: dict[str, Tensor], smoothing: float = 0.0, n_items: Tensor | int | None = None
) -> TranslationOutput:
    """Loss of a batch, as `SyntaxTransformer` gives it: per target piece; in training with LISA's.

    The model is a pretrained translator, plain or infused, perhaps wrapped for several processes. `smoothing`
    is the share of probability spread over all pieces; `n_items` None divides by the batch's target pieces.
    """
    inner = getattr(model, "module", model)
    labels = batch["labels"]
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    output = model(**inputs, decoder_input_ids=shift_right(labels, inner.config), use_cache=False)
    n_pieces = (labels != IGNORED_LABEL).sum()
    total, tallies = cross_entropy(output.logits, labels, smoothing), None
    infusion = getattr(inner, "infusion", None)
    if infusion is not None and infusion.config.lisa is not None:
        hits, pointing = infusion.seen.governor_hits(), infusion.seen.governor_loss()
        tallies = {"governor_accuracy": hits[max(hits)]} if hits else None
        if inner.training and infusion.config.lisa.supervised and pointing is not None:
            total = total + n_pieces * infusion.config.lisa.weight * pointing
    loss = total / (n_pieces if n_items is None else n_items)
    return TranslationOutput(loss=loss, logits=output.logits, tallies=tallies)
