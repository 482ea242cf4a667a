"""Corpora come from a mirror or their homes, and every file is checked."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.translation import fetch
from syntaxformer.translation.fetch import RECORD, fetch_corpus

TEXT = b"Ein Hund.\nEine Katze.\n"


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A mirror with one packed file of known checksum and one plain file that the table does not know."""
    folder = tmp_path / "mirror" / "m"
    folder.mkdir(parents=True)
    (folder / "train.de.gz").write_bytes(gzip.compress(TEXT))
    (folder / "extra.de").write_bytes(TEXT)
    table = tmp_path / "corpora.yaml"
    sha256 = hashlib.sha256(TEXT).hexdigest()
    table.write_text(
        f"toy: {{folder: m, home: 'https://home/', there: {{train: tr}}, files: {{train.de: {sha256}}}}}\n"
        "homeless: {folder: h, elsewhere: Ask the author., files: {}}\n"
    )
    monkeypatch.setattr(fetch, "TABLE", table)
    return tmp_path / "mirror"


def test_files_come_from_the_mirror_and_unknown_checksums_are_recorded(mirror, tmp_path, caplog):
    caplog.set_level("INFO")
    output = tmp_path / "out"
    files = fetch_corpus("toy", output, mirror)
    assert [path.name for path in files] == ["extra.de.gz", "train.de.gz"]
    assert all(gzip.decompress(path.read_bytes()) == TEXT for path in files)
    assert json.loads((output / RECORD).read_text()) == {"extra.de": hashlib.sha256(TEXT).hexdigest()}
    assert "no checksum was known of extra.de: recorded in" in caplog.text
    stamps = [path.stat().st_mtime_ns for path in files]
    assert [path.stat().st_mtime_ns for path in fetch_corpus("toy", output, mirror)] == stamps


@pytest.mark.parametrize("name", ["train.de.gz", "extra.de"])
def test_another_content_is_refused_and_not_kept(mirror, tmp_path, name):
    output = tmp_path / "out"
    fetch_corpus("toy", output, mirror)
    fetched = output / f"{name.removesuffix('.gz')}.gz"
    fetched.unlink()
    path = mirror / "m" / name
    path.write_bytes(gzip.compress(b"other\n") if name.endswith(".gz") else b"other\n")
    with pytest.raises(DataError, match="expected sha256"):
        fetch_corpus("toy", output, mirror)
    assert not fetched.exists()


def test_from_its_home(mirror, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        fetch,
        "_download",
        lambda address, path: (asked.append(address), path.write_bytes(gzip.compress(TEXT))),
    )
    fetch_corpus("toy", tmp_path / "out", None)
    assert asked == ["https://home/tr.de.gz"]
    monkeypatch.setattr(fetch, "_download", lambda address, path: path.write_bytes(b"<html>"))
    with pytest.raises(DataError, match=r"https://home/tr\.de\.gz: expected a whole gzip file"):
        fetch_corpus("toy", tmp_path / "new", None)


def test_what_cannot_be_had_is_said(mirror, tmp_path):
    with pytest.raises(ConfigError, match="expected one of toy, homeless, got x"):
        fetch_corpus("x", tmp_path, None)
    with pytest.raises(ConfigError, match=r"no public home of these very files\. Ask the author"):
        fetch_corpus("homeless", tmp_path, None)
    with pytest.raises(ConfigError, match="SYNTAXFORMER_DATA: expected the folder"):
        fetch_corpus("homeless", tmp_path, mirror)
