"""What a tokenizer may do to a line: a stranger's could take any time and memory for it."""

from __future__ import annotations

import re
from base64 import b64decode
from collections import Counter
from pathlib import Path
from typing import Any

from syntaxformer.base.errors import CheckpointError
from syntaxformer.base.files import (
    MAX_PIECES_BYTES,
    MOST_PIECES,
    folder_errors,
    library_texts,
    read_json,
    values_of,
)

WORDS = r"(?i)\w+?(?=n['’]t\b)|n['’]t\b|['’](?:s|m|d|ll|re|ve)\b|\w+|[^\w\s]"
MARKS = r"[^\p{L}\p{M}\p{N}▁]"
"""What our tokenizers of words, and of byte-pair encoding, keep apart."""

_PATTERNS = (
    *(WORDS, MARKS, " {2,}", r"\s+", r"\n", r"[\n\r\t]", r"\s{2,}|[\n\r\t]", r"\d", r"\p{N}", r"\p{P}"),
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2, and Llama 3:
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
)
_KINDS = {
    "normalizer": "BertNormalizer|ByteLevel|Lowercase|NFK?[CD]|Nmt|Precompiled|Prepend|Replace|Sequence"
    "|Strip(Accents)?",
    "pre_tokenizer": "BertPreTokenizer|ByteLevel|Digits|Metaspace|Punctuation|Sequence|Split"
    "|Whitespace(Split)?",
    "post_processor": "BertProcessing|ByteLevel|RobertaProcessing|Sequence|TemplateProcessing",
    "decoder": "BPEDecoder|Byte(Fallback|Level)|Fuse|Metaspace|Replace|Sequence|Strip|WordPiece",
    "model": "BPE|Unigram|Word(Level|Piece)",
}
_KINDS |= {"normalizers": _KINDS["normalizer"], "pretokenizers": _KINDS["pre_tokenizer"]}
_KINDS |= {"processors": _KINDS["post_processor"], "decoders": _KINDS["decoder"]}
"""Patterns, and by the key of their place the parts, of the supported families and of ours, whose time grows
with the line and not faster. What a part of another kind or of none is, `tokenizers` guesses by its keys."""

_MOST_STEPS = {"Precompiled": 1, "ByteLevel": 4, "Replace": 6, "": 40}
"""Each of these parts may make a line longer, by a factor; "" is for all parts together."""

_FILES = re.compile(r"(\w+_)?tokenizer(\.[\w.]+)?\.json|[^/]+\.(model|spm)")
"""Names of tokenizers; `tokenizer.4.0.json` is one for transformers from that version on."""

_LONGEST_STRING, _LONGEST_FORM, _LONGEST_LISTS = 256, 40, {"single": 16, "pair": 16, "ids": 256}


def check_tokenizer(path: Path) -> None:
    """Check that each tokenizer of a folder, or that of a file, can do only what known ones do.

    Raises:
        CheckpointError: One may take any time or memory for a line, or cannot be read.
    """
    if path.is_dir():
        for file in library_texts(path):
            if _FILES.fullmatch(file.name) and file.parent == path:
                check_tokenizer(file)
        config = path / "tokenizer_config.json"
        settings = read_json(config, MAX_PIECES_BYTES) if config.is_file() else {}
        versions = settings.get("fast_tokenizer_files", [])
        if not isinstance(versions, list) or not all(_FILES.fullmatch(str(name)) for name in versions):
            expected = "names as tokenizer.4.0.json, of files in the folder"
            raise CheckpointError(
                f"{config}: fast_tokenizer_files: expected {expected}, got {str(versions)[:60]}."
            )
        return
    with folder_errors(path, "a tokenizer"):
        if path.suffix != ".json":
            read_sentencepiece(path.read_bytes())
            return
        content = read_json(path, MAX_PIECES_BYTES)
        content |= {"padding": None, "truncation": None}  # see `check_pieces`
        model = content["model"]
        vocabulary, model["merges"] = model.pop("vocab", {}), None
        if isinstance(vocabulary, list):  # of a unigram model, whose time also grows with the longest piece
            model["piece"] = max((piece for piece, _ in vocabulary), key=len)
        parts = [(key, value) for key, value, _ in values_of(content)]
        kinds = Counter(value for key, value in parts if key == "type" and isinstance(value, str))
        kinds["Replace"] -= sum(_divides(value) for _, value in parts)
        kinds[""] = kinds.total()
        strange = [pair for pair in parts if _is_strange(*pair)]
        model.setdefault("type", "BPE")  # old files name none, and all are allowed
        for key, part in parts:
            if key not in _KINDS or part is None:
                continue
            # A list elsewhere than under a plural would be read as a part, by the order of its values.
            for member in part if isinstance(part, list) and key.endswith("s") else [part]:
                kind = member.get("type") if isinstance(member, dict) else None
                if not re.fullmatch(_KINDS[key], str(kind)):
                    strange.append(("type", kind))
        strange += [("type", kind) for kind, most in _MOST_STEPS.items() if kinds[kind] > most]
        if strange:
            raise CheckpointError(
                f"{path}: {strange[0][0]}: expected what tokenizers of the supported families have, got "
                f"{str(strange[0][1])[:60]!r}. If you trust the folder, say so (--trust-annotator)."
            )


def _is_strange(key: str, value: Any) -> bool:
    """Whether known tokenizers have no such value."""
    if key == "dropout":  # each line would be cut by chance
        return bool(value)
    if key == "Regex":
        return value not in _PATTERNS
    if key == "precompiled_charsmap":
        return _longest_form(b64decode(value)) > _LONGEST_FORM
    if isinstance(value, list):
        texts = [
            segment["Sequence"]["id"]
            for segment in value
            if isinstance(segment, dict) and "Sequence" in segment
        ]
        return len(value) > _LONGEST_LISTS.get(key, MOST_PIECES) or len(texts) > len(set(texts))
    if isinstance(value, dict) and {"pattern", "content"} <= value.keys():  # grows only where it is divided
        return len(value["content"]) > len(value["pattern"].get("String", " ")) and not _divides(value)
    if isinstance(value, dict) and value.get("lstrip"):  # each of them looks at all of the line before it
        return not value["special"]
    is_id = key in ("id", "ids", "sep", "cls", "unk_id", "pad_id")
    size = len(value) if isinstance(value, str) else value if isinstance(value, int) and not is_id else 0
    return size > _LONGEST_STRING


def _divides(step: Any) -> bool:
    """Whether a step of a tokenizer puts a space behind "<" of "</s>", so that no text matches that piece."""
    old = step["pattern"].get("String", "") if isinstance(step, dict) and "pattern" in step else ""
    return len(old) > 1 and " " not in old and step.get("content") == f"{old[0]} {old[1:]}"


def _longest_form(charsmap: bytes) -> int:
    """Bytes of the longest text that SentencePiece puts in the place of another; in Unicode's forms 33."""
    return max(map(len, charsmap[4 + int.from_bytes(charsmap[:4], "little") // 4 * 4 :].split(b"\0")))


def read_sentencepiece(model: bytes) -> Any:
    """The protocol buffer of a SentencePiece model; ValueError if it may take any time for a line."""
    from transformers.convert_slow_tokenizer import import_protobuf

    proto = import_protobuf().ModelProto()
    proto.ParseFromString(model)
    longest = max(len(piece.piece) for piece in proto.pieces)
    n_added = sum(piece.type == 4 for piece in proto.pieces)
    form = _longest_form(proto.normalizer_spec.precompiled_charsmap)
    if form > _LONGEST_FORM or longest > _LONGEST_STRING or n_added > MOST_PIECES:
        raise ValueError(f"pieces of {longest} characters, forms of {form} bytes, {n_added} pieces of a user")
    return proto


def check_pieces(folder: Path, tokenizer: Any, n_rows: int) -> None:
    """Check that a network has a row for each piece of a tokenizer, which pads to a limit and cuts nothing.

    Raises:
        CheckpointError: A row is missing, or the tokenizer pads lines to more than 1,024 pieces.
    """
    tokenizer.backend_tokenizer.no_truncation()  # whose windows may be many; we cut by ourselves
    padding = tokenizer.backend_tokenizer.padding or {}
    longest = max(padding.get("length") or 0, padding.get("pad_to_multiple_of") or 0)
    last = max(tokenizer.get_vocab().values(), default=0)
    for what, number, most in (("padding", longest, 1024), ("piece", last, n_rows - 1)):
        if number > most:
            raise CheckpointError(f"{folder}: tokenizer: {what}: expected at most {most}, got {number}.")
