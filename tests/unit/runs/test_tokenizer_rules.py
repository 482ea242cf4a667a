"""Tokenizers that would make any length of a line, or take any time for it, by what their rules look at."""

from __future__ import annotations

import json

import pytest

from syntaxformer.base.errors import CheckpointError
from syntaxformer.runs.tokenizer_rules import check_tokenizer

GROWING = {"pattern": {"String": "a"}, "content": "aaaaaaaa"}
"""Which is read as a `Replace` where it names no kind, or one of another place."""


@pytest.fixture
def write(tmp_path):
    """Writes a tokenizer of words with some other parts."""

    def write_with(**parts):
        model = {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model, **parts}))
        return path

    return write_with


def _sequence(kind, *normalizers):
    return {"type": kind, "normalizers": list(normalizers)}


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": GROWING},
        {"normalizer": {"type": "Digits", **GROWING}},
        {"normalizer": {"type": None, **GROWING}},
        {"normalizer": _sequence("Sequence", GROWING)},
        {"normalizer": _sequence("Sequence", {"type": "WordPiece", **GROWING})},
        {"normalizer": _sequence("Split", {"type": "Lowercase"})},
        {"normalizer": _sequence("Sequence", *[{"prepend": "a"}] * 41)},
        {"normalizer": [[["abc"]] * 41]},
        {"normalizer": _sequence("Sequence", ["abc"])},
        {"decoder": {"type": "Lowercase", **GROWING}},
        {"decoder": {"type": "Sequence", "decoders": [GROWING]}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}]}},
        {"post_processor": {"single": [], "pair": [], "special_tokens": {}}},
        {"model": {"type": "Evil", "vocab": {}}},
    ],
)
def test_a_part_of_no_kind_or_of_another_places_is_refused(write, parts):
    """`tokenizers` would guess what it is from its other keys."""
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: \w+: expected what tokenizers of the"):
        check_tokenizer(write(**parts))


@pytest.mark.parametrize("name", ["id2label", "label2id", "[CLS]"])
def test_a_special_piece_may_have_any_name_but_not_any_number_of_pieces(write, name):
    def processor(n_ids):
        special = {name: {"id": name, "ids": [0] * n_ids, "tokens": ["x"] * n_ids}}
        return {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": special}

    check_tokenizer(write(post_processor=processor(256)))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: ids: expected what tokenizers of the"):
        check_tokenizer(write(post_processor=processor(257)))


def test_a_tokenizer_for_some_versions_of_transformers_is_checked_too(write, tmp_path):
    """`fast_tokenizer_files` names it, which transformers reads in the place of tokenizer.json."""
    write(normalizer=GROWING).rename(tmp_path / "tokenizer.4.0.json")
    write()
    with pytest.raises(CheckpointError, match=r"tokenizer\.4\.0\.json: \w+: expected what tokenizers of the"):
        check_tokenizer(tmp_path)
    write().rename(tmp_path / "tokenizer.4.0.json")
    names = (
        ["../tokenizer.4.0.json"],
        ["tokenizer.json", "/tmp/tokenizer.5.json"],
        ["my-tokenizer.4.json"],
        ["../tokenizer.4.json.spm"],
        5,
    )
    for versions in names:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"fast_tokenizer_files": versions}))
        with pytest.raises(CheckpointError, match=r"tokenizer_config\.json: fast_tokenizer_files: expected"):
            check_tokenizer(tmp_path)
    content = {"fast_tokenizer_files": ["tokenizer.json", "tokenizer.4.0.json"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(content))
    check_tokenizer(tmp_path)


def test_a_model_of_no_kind_is_that_of_an_old_file(write):
    check_tokenizer(write(model={"vocab": {"[UNK]": 0}, "merges": []}, normalizer=_sequence("Sequence")))
