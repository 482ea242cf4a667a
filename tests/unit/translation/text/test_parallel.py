"""Parallel files: what is read, and one clear error for everything that is wrong with them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from syntaxformer.base.errors import DataError
from syntaxformer.translation.corpora import CorpusConfig, find_file, read_split, read_train


def _write(folder: Path, src: bytes, tgt: bytes) -> CorpusConfig:
    (folder / "train.en").write_bytes(src)
    (folder / "train.de").write_bytes(tgt)
    return CorpusConfig(dir=folder)


def test_lines_in_pairs(tmp_path):
    text = read_split(_write(tmp_path, b"A cat.\n\nA dog.\r\n", "Eine Katze.\n\nEin Hünd.".encode()), "train")
    assert text.src == ["A cat.", "", "A dog."]
    assert text.tgt == ["Eine Katze.", "", "Ein Hünd."]
    assert len(text) == 3


def test_a_plain_file_and_a_packed_one_of_one_name_are_refused(tmp_path):
    (tmp_path / "train.en").write_text("plain\n")
    (tmp_path / "train.en.gz").write_bytes(gzip.compress(b"packed\n"))
    with pytest.raises(DataError, match=r"train\.en: .*train\.en\.gz"):
        find_file(tmp_path, "train", "en")


@pytest.mark.parametrize(("src", "tgt", "counts"), [(3, 5, "3 and 5"), (7, 2, "7 and 2"), (0, 1, "0 and 1")])
def test_unequal_counts_name_both(tmp_path, src, tgt, counts):
    config = _write(tmp_path, b"a\n" * src, b"b\n" * tgt)
    with pytest.raises(DataError) as caught:
        read_split(config, "train")
    assert str(caught.value) == (
        f"{tmp_path / 'train.en'}: expected as many lines as {tmp_path / 'train.de'}, got {counts}. "
        "Line n of one file must translate line n of the other."
    )


def test_a_tab_is_refused_with_its_place(tmp_path):
    config = _write(tmp_path, b"a\nb\n", "ä\nün\tb\n".encode())
    with pytest.raises(DataError, match="2: expected one sentence, got a tab at"):
        read_split(config, "train")


def test_tabs_as_spaces_are_counted_and_reported(tmp_path, caplog):
    config = _write(tmp_path, b"a\tb\nc\n", b"\td\ne\tf\n").model_copy(update={"tabs": "space"})
    text = read_split(config, "train")
    assert text.src == ["a b", "c"]
    assert text.tgt == ["d", "e f"]  # in the plain form
    assert "lines with tabs, which are read as spaces: 3" in caplog.text


def test_a_table_is_no_text_even_where_tabs_are_spaces(tmp_path):
    config = _write(tmp_path, b"a\tx\n" * 30, b"x\n" * 30).model_copy(update={"tabs": "space"})
    with pytest.raises(DataError, match=r"train\.en: expected one sentence in a line, got tabs in 30 of 60"):
        read_split(config, "train")


@pytest.mark.parametrize(
    ("src", "tgt", "n_lines"), [(b"", b"", 0), (b"\n\n", b"\n\n", 2), (b"a\n \n", b" \nb\n", 2)]
)
def test_a_corpus_without_a_pair_is_refused(tmp_path, src, tgt, n_lines):
    config = _write(tmp_path, src, tgt)
    with pytest.raises(DataError, match="expected at least one pair of lines with"):
        read_split(config, "train")


def test_selection_keeps_pairs_together(tmp_path):
    text = read_split(_write(tmp_path, b"a\nb\nc\n", b"x\ny\nz\n"), "train").select([2, 0])
    assert (text.src, text.tgt) == (["c", "a"], ["z", "x"])


def test_a_text_is_no_translation_of_itself(tmp_path):
    """The same file under two names, a link, a packed copy: known by what is in it."""
    config = _write(tmp_path, b"one\n\ntwo\n", b"")
    source, target = tmp_path / "train.en", tmp_path / "train.de"
    target.unlink()
    message = f"{source}: expected another text than in {{}}, got the same. Check data.tgt."
    for name in ("train.de", "train.de.gz"):
        packed = gzip.compress(source.read_bytes())
        target.symlink_to(source) if name == "train.de" else (tmp_path / name).write_bytes(packed)
        with pytest.raises(DataError) as caught:
            read_split(config, "train")
        assert str(caught.value) == message.format(tmp_path / name)
        (tmp_path / name).unlink()
    target.write_bytes(b"one\n\nzwei\n")
    assert read_split(config, "train").tgt == ["one", "", "zwei"]
    target.write_bytes(source.read_bytes())
    with pytest.raises(DataError, match="expected another text than"):
        read_train(config.model_copy(update={"on_disk": True, "cache": tmp_path / "cache"}))


def test_one_ending_for_both_sides_is_refused_and_one_language_is_not(tmp_path):
    with pytest.raises(ValueError, match=r"tgt: expected another ending than src \(src\.en, tgt\.en\), got"):
        CorpusConfig(dir=tmp_path, src="en", tgt="en")
    (tmp_path / "train.src.en").write_text("a cat\n")
    (tmp_path / "train.tgt.en").write_text("the cat\n")
    assert read_split(CorpusConfig(dir=tmp_path, src="src.en", tgt="tgt.en"), "train").tgt == ["the cat"]


@pytest.mark.parametrize(("ending", "splits"), [("deu_DE", False), ("en", True)])
def test_moses_has_the_rules_of_the_language(tmp_path, ending, splits):
    """The full stop of an ordinal number is part of it in German."""
    config = CorpusConfig(dir=tmp_path, src=ending, tgt="fr", moses=True)
    (text,) = config.preparation(ending).prepare(["3. Mai ist"]).texts
    assert text == ("3 . Mai ist" if splits else "3. Mai ist")


@pytest.mark.parametrize("setting", [{"moses": True}, {"detokenize": ["train"]}])
def test_moses_needs_a_language(tmp_path, setting):
    with pytest.raises(ValueError, match="tgt_language: expected a code, which Moses' rules need, got"):
        CorpusConfig(dir=tmp_path, src="en", tgt="bpe", **setting)
    assert CorpusConfig(dir=tmp_path, src="en", tgt="bpe", tgt_language="ger", **setting).tgt_language == "de"
