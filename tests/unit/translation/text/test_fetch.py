"""Corpora come from a mirror or their homes, and every file is checked."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from syntaxformer.base.config import read_yaml
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
        f"toy: {{folder: m, home: 'https://home/', at_home: {{train: ['tr.{{}}.gz']}}, files: {{train.de: {sha256}}}}}\n"
        "other: {folder: h, home: 'https://other/', at_home: {}, files: {}}\n"
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


TALKS = (
    "<url>http://talks/1</url>\n<keywords>dogs</keywords>\n<talkid>1</talkid>\n<title>Title {0}</title>\n"
    "<description>About {0} </description>\n"
    + "".join(f" line {n} {{0}}\n" for n in range(1, 44))
    + "< {0}\n"
)
XML = '<mteval><doc>\n<title>No</title>\n<seg id="1"> {0} in {1} </seg>\n</doc></mteval>\n'
SETS = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]


def _tar(folder, members):
    with tarfile.open(folder / "de-en.tgz", "w:gz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(f"de-en/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))


@pytest.fixture
def homes(tmp_path, monkeypatch):
    """A server on this machine, with files called as at the homes of the real table."""
    folder = tmp_path / "www"
    folder.mkdir()
    with zipfile.ZipFile(folder / "deu-eng.zip", "w") as archive:
        archive.writestr("_about.txt", "about")
        archive.writestr("deu.txt", "Go.\tGeh.\tCC-BY 2.0\nHi.\tHallo!\tCC-BY 2.0\n")
    talks = {f"train.tags.de-en.{code}": TALKS.format(code) for code in ("de", "en")}
    tests = {
        f"IWSLT14.{name}.de-en.{code}.xml": XML.format(code, name) for name in SETS for code in ("de", "en")
    }
    _tar(folder, talks | tests)
    for name in ["train", *(f"newstest{year}" for year in range(2012, 2016))]:
        for code in ("de", "en"):
            (folder / f"{name}.{code}").write_text(f"{name} {code} &apos;s two ##AT##-##AT## year\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address, table = f"http://127.0.0.1:{server.server_port}/", read_yaml(fetch.TABLE)
    for corpus in table.values():
        corpus["home"] = address + corpus["home"].rpartition("/")[2]
    moved = tmp_path / "moved.yaml"
    moved.write_text(json.dumps(table))
    monkeypatch.setattr(fetch, "TABLE", moved)
    yield folder
    server.shutdown()
    server.server_close()


def _fetched(name, output):
    files = fetch_corpus(name, output, None)
    assert json.loads((output / RECORD).read_text()).keys() == {path.name[:-3] for path in files}
    assert {path.name for path in output.iterdir()} == {RECORD, *(path.name for path in files)}
    return {path.name.removesuffix(".gz"): gzip.decompress(path.read_bytes()).decode() for path in files}


def test_homes_of_the_real_table(homes, tmp_path):
    assert _fetched("tatoeba", tmp_path / "tatoeba") == {"anki.de": "Geh.\nHallo!\n", "anki.en": "Go.\nHi.\n"}
    texts = _fetched("iwslt14", tmp_path / "iwslt14")
    for code in ("de", "en"):
        # Two lines before the 43 of the talk, and one after them: the 23rd line is the 21st of the talk.
        lines = [f"Title {code}", f"About {code}", *(f"line {n} {code}" for n in range(1, 44)), f"< {code}"]
        assert texts[f"valid.raw.{code}"].splitlines() == [lines[22], lines[45]]
        assert texts[f"train.raw.{code}"].splitlines() == lines[:22] + lines[23:45]
        assert texts[f"test.raw.{code}"].splitlines() == [f"{code} in {name}" for name in SETS]
    texts = _fetched("wmt14", tmp_path / "wmt14")
    assert len(texts) == 10
    assert texts["newstest2014.tok.de"] == "newstest2014 de &apos;s two-year\n"
    # What was recorded at the first download is checked at the next one.
    (homes / "train.de").write_text("other\n")
    (tmp_path / "wmt14" / "train.tok.de.gz").unlink()
    with pytest.raises(DataError, match="expected sha256"):
        fetch_corpus("wmt14", tmp_path / "wmt14", None)
    assert fetch_corpus("tatoeba", tmp_path / "tatoeba", None)


def test_a_home_that_has_something_else_is_refused(homes, tmp_path):
    _tar(homes, {"readme": "moved"})
    with pytest.raises(DataError, match=r"de-en\.tgz: expected de-en/train\.tags\.de-en\.de, got: .*not"):
        fetch_corpus("iwslt14", tmp_path / "iwslt14", None)
    (homes / "deu-eng.zip").write_text("<html>")
    with pytest.raises(DataError, match=r"deu-eng\.zip: expected deu\.txt, got: File is not a zip file"):
        fetch_corpus("tatoeba", tmp_path / "tatoeba", None)
    (homes / "newstest2012.de").unlink()
    with pytest.raises(DataError, match="404"):
        fetch_corpus("wmt14", tmp_path / "wmt14", None)
    assert not (tmp_path / "wmt14" / RECORD).exists()


def test_what_cannot_be_had_is_said(mirror, tmp_path):
    with pytest.raises(ConfigError, match="expected one of toy, other, got x"):
        fetch_corpus("x", tmp_path, None)
    with pytest.raises(ConfigError, match="SYNTAXFORMER_DATA: expected the folder"):
        fetch_corpus("other", tmp_path, mirror)
