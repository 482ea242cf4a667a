import bz2
import gzip
import lzma
import shutil
import tracemalloc
import zlib
from pathlib import Path

import pytest

from syntaxformer.base.errors import DataError
from syntaxformer.base.files import (
    MAX_LINE_BYTES,
    PACKED,
    atomic_text,
    continued_text,
    count_lines,
    plain_or_packed,
    read_lines,
    without_packing,
)

CONTENT = "\ufeffein\rSatz\r\n\nb\u2028c\x85d\tü\nlast".encode()


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_lines_end_at_line_feeds_only(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(CONTENT, mtime=0) if name.endswith("gz") else CONTENT)
    assert list(read_lines(path)) == ["ein\rSatz", "", "b\u2028c\x85d\tü", "last"]
    assert count_lines(path) == 4


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"ab\nc\xffd\n", 2, "UTF-8, got byte 0xff at byte 2 of the line (5 of the file)"),
        (b"\xef\xbb\xbfa\xc3\n", 1, "UTF-8, got byte 0xc3 at byte 2 of the line (5 of the file)"),
        (b"\xff\xfea\0\n\0", 1, "UTF-8, got UTF-16. Convert it: iconv -f UTF-16 -t UTF-8"),
        (b"\xfe\xff\0a\0b\0\n", 1, "UTF-8, got UTF-16. Convert it: iconv"),
        ("ab\n".encode("utf-32"), 1, "text, got a NUL at byte 3 of the line (3 of the file)"),
        (b"ab\nc\0\n", 2, "text, got a NUL at byte 2 of the line (5 of the file)"),
    ],
)
def test_bytes_that_are_no_text_are_named(tmp_path, content, line, message):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert str(caught.value).startswith(f"{path}:{line}: expected {message}")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, "No such file"),
        ("https://example.org/a.txt", None, "Download it first"),
        (".", None, "Is a directory"),
        ("cut.gz", gzip.compress(CONTENT * 99, mtime=0)[:-20], "whole file, got: Compressed file ended"),
        ("odd.gz", b"no gzip", "whole file, got: Not a gzipped file"),
        ("mac.txt", b"ab\rcd\r", "got CR alone"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, monkeypatch, name, content, message):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        list(read_lines(name))
    assert caught.value.path == str(Path(name))


def test_lines_before_the_first_are_not_looked_at_but_counted(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\nb\nc\xff\n")
    lines = read_lines(path, 1)
    assert next(lines) == "b"
    with pytest.raises(
        DataError, match=r"a\.txt:3: expected UTF-8, got byte 0xff at byte 2 of the line \(6 of the file\)"
    ):
        next(lines)


@pytest.mark.parametrize("ending", PACKED)
@pytest.mark.parametrize("read", [count_lines, lambda path: list(read_lines(path))])
def test_a_small_packed_file_cannot_fill_the_memory(tmp_path, ending, read):
    """No more of a line than the bound is unpacked."""
    path = tmp_path / f"bomb{ending}"
    with atomic_text(path) as file:
        file.write("short\n")
        file.writelines("x" * 500_000 for _ in range(60))
    tracemalloc.start()
    with pytest.raises(DataError, match=r"1,000,000 bytes.*--max-line-bytes 10000000") as caught:
        read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (caught.value.path, caught.value.line) == (str(path), 2)
    assert peak < 12_000_000  # the dictionary of xz has 8 MB


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_bound_counts_the_bytes_of_a_line_without_its_end(tmp_path, end, monkeypatch):
    monkeypatch.setenv(MAX_LINE_BYTES, "7")
    path = tmp_path / "a.txt"
    path.write_bytes("ab\n1234ü67".encode()[:-1] + end)  # ü has two
    assert list(read_lines(path)) == ["ab", "1234ü6"]
    assert count_lines(path) == 2
    path.write_bytes(b"1234567" + b"8" + end)
    with pytest.raises(DataError, match="at most 7 bytes"):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("content", "command"),
    [
        (lzma.compress(CONTENT), "xz -dc <"),
        (bz2.compress(CONTENT), "bzip2 -dc <"),
        (bz2.compress(b""), "bzip2 -dc <"),
        (b"\x28\xb5\x2f\xfd\x04\x58", "zstd -dc <"),
        (gzip.compress(CONTENT, mtime=0), "gzip -dc <"),
        (b"PK\x03\x04\n\0", "unzip -p"),
    ],
    ids=["xz", "bzip2", "empty bzip2", "zstd", "gzip", "zip"],
)
def test_packed_files_are_answered_by_what_unpacks_them(tmp_path, content, command):
    path = tmp_path / "train.en"  # which has no ending that says so
    path.write_bytes(content)
    for read in (count_lines, lambda file: list(read_lines(file))):
        with pytest.raises(DataError, match=f"{command} FILE > NEW"):
            read(plain_or_packed(path))


@pytest.mark.parametrize("ending", PACKED)
def test_packed_text_is_written_and_read_by_its_ending(tmp_path, ending):
    for name in ("a", "b"):
        with atomic_text(tmp_path / f"{name}.en{ending}") as file:
            file.writelines(f"{n} ä\n" for n in range(9999))
    path = plain_or_packed(tmp_path / "a.en")
    packed = path.read_bytes()
    assert packed == (tmp_path / f"b.en{ending}").read_bytes()
    assert len(packed) < 50_000
    assert list(read_lines(path)) == [f"{n} ä" for n in range(9999)]
    assert count_lines(path) == 9999
    assert without_packing(path) == "a.en"
    path.write_bytes(packed * 2)  # as `cat` joins packed files
    assert count_lines(path) == 2 * 9999
    for broken in (packed[: len(packed) // 2], packed[:-1], b"text\n" * 99):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=rf"a\.en\{ending}: expected .*Copy or pack it again"):
            list(read_lines(path))
    path.write_bytes(packed)
    path.with_name("a.en").write_text("")
    with pytest.raises(DataError, match=rf"a\.en: expected this file or a\.en\{ending}, got both"):
        plain_or_packed(path.with_name("a.en"))


def test_an_xz_file_that_needs_too_much_memory_is_refused(tmp_path):
    packed = bytearray(lzma.compress(CONTENT))
    flags, size_of_dictionary = packed.index(b"\x21\x01", 12), packed.index(b"\x21\x01", 12) + 2
    packed[size_of_dictionary] = 36  # 1 GB
    header = slice(12, 12 + 4 * (packed[12] + 1) - 4)
    assert flags < header.stop
    packed[header.stop : header.stop + 4] = zlib.crc32(packed[header]).to_bytes(4, "little")
    path = tmp_path / "a.xz"
    path.write_bytes(packed)
    with pytest.raises(DataError, match=r"a\.xz: .*in 268,435,456 bytes of memory, got: Memory usage limit"):
        count_lines(path)


def test_a_text_goes_on_after_whole_groups_of_lines(tmp_path):
    path = tmp_path / "new" / "out.bz2"

    def write(lines, n_together=None, error=None, origin="12345678"):
        with continued_text(path, origin, n_together) as (file, n_lines):
            file.writelines(f"{line}\n" for line in lines[n_lines:])
            if error:
                file.write("cut o")
                file.flush()
                raise error
        return n_lines

    lines = [f"{n} ä" for n in range(7)]
    for error in (KeyboardInterrupt, RuntimeError):  # as of a device that is full
        with pytest.raises(error):
            write(lines[:5], error=error)
        assert not path.exists()
        assert write(lines, 2, origin="87654321") == 0
        path.unlink()
        assert write(lines, 2) == 4
        assert list(read_lines(path)) == lines
        assert [entry.name for entry in path.parent.iterdir()] == ["out.bz2"]
        path.unlink()
    for error in (KeyboardInterrupt, DataError("expected a value, got none.")):
        with pytest.raises(type(error) if isinstance(error, DataError) else error):
            write(lines, 2, error)
    assert not [*path.parent.iterdir()]  # an error of the user's leaves nothing
    with continued_text(path, "12345678", None) as (file, _):
        with pytest.raises(DataError, match="expected a file that no other command writes"):
            write(lines)
        file.write("first\n")
    assert list(read_lines(path)) == ["first"]


def test_a_text_is_locked_until_it_has_its_name(tmp_path, monkeypatch):
    """Else another command would go on with lines that are being copied."""
    path, copy = tmp_path / "out.txt", shutil.copyfileobj

    def copy_beside_another(source, target):
        with (
            pytest.raises(DataError, match="expected a file that no other command writes"),
            continued_text(path, "12345678", 2),
        ):
            pytest.fail("begun")
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfileobj", copy_beside_another)
    with continued_text(path, "12345678", 2) as (file, _):
        file.write("first\n")
    assert path.read_text() == "first\n"
    assert list(tmp_path.iterdir()) == [path]
