import bz2
import gzip
import lzma
import tracemalloc

import pytest

from syntaxformer.base.errors import DataError
from syntaxformer.base.files import MAX_LINE_BYTES, count_lines, plain_or_packed, read_lines

CONTENT = "\ufeffein Satz\r\n\nb\u2028c\x85d\tü\nlast".encode()


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_lines_end_at_line_feeds_only(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(CONTENT) if name.endswith("gz") else CONTENT)
    assert list(read_lines(path)) == ["ein Satz", "", "b\u2028c\x85d\tü", "last"]
    assert count_lines(path) == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ab\nc\xffd\n", "expected UTF-8, got byte 0xff at byte 2 of the line (5 of the file). Convert"),
        (
            b"\xef\xbb\xbfa\xc3\n",
            "expected UTF-8, got byte 0xc3 at byte 2 of the line (5 of the file). Convert",
        ),
        (b"\xff\xfea\0\n\0", "expected UTF-8, got UTF-16. Convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW."),
        (
            "ab\n".encode("utf-16-be").join([b"\xfe\xff", b""]),
            "expected UTF-8, got UTF-16. Convert it: iconv",
        ),
        ("ab\n".encode("utf-32"), "expected text, got a NUL at byte 3 of the line (3 of the file)."),
        (b"ab\nc\0\n", "expected text, got a NUL at byte 2 of the line (5 of the file)."),
    ],
)
def test_bytes_that_are_no_text_are_named(tmp_path, content, message):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    line = (
        1 + content[: content.find(b"c\xff") + 1].count(b"\n") if b"c\xff" in content else caught.value.line
    )
    assert str(caught.value).startswith(f"{path}:{line}: {message}")


def test_missing_file_folder_and_truncated_gzip(tmp_path):
    with pytest.raises(DataError, match=r"none\.txt: expected a readable file, got: No such file"):
        list(read_lines(tmp_path / "none.txt"))
    with pytest.raises(
        DataError, match=r"expected a readable file, got: No such file or directory\. Download it first\.$"
    ):
        list(read_lines("https://example.org/a.txt"))
    with pytest.raises(DataError, match="expected a readable file, got: Is a directory"):
        count_lines(tmp_path)
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(CONTENT * 99)[:-20])
    with pytest.raises(DataError, match=r"cut\.gz: expected a whole file, got: Compressed file ended"):
        list(read_lines(path))
    path.write_bytes(b"no gzip")
    with pytest.raises(DataError, match="expected a whole file, got: Not a gzipped file"):
        list(read_lines(path))


def test_lines_before_the_first_are_not_looked_at_but_counted(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\nb\nc\xff\n")
    lines = read_lines(path, 1)
    assert next(lines) == "b"
    with pytest.raises(
        DataError, match=r"a\.txt:3: expected UTF-8, got byte 0xff at byte 2 of the line \(6 of the file\)"
    ):
        next(lines)


def test_lines_of_old_macs_are_named_and_a_cr_within_a_line_is_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"ab\rcd\r")
    with pytest.raises(
        DataError, match=r"a\.txt: expected lines that end in LF or CR LF, got CR alone\. Convert it: tr"
    ):
        list(read_lines(path))
    path.write_bytes(b"ab\rcd\nef\r\n")
    assert list(read_lines(path)) == ["ab\rcd", "ef"]


@pytest.mark.parametrize("read", [count_lines, lambda path: list(read_lines(path))])
def test_no_more_of_a_line_than_the_bound_is_unpacked(tmp_path, read):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"short\n" + b"x" * 30_000_000, 1))
    tracemalloc.start()
    with pytest.raises(DataError, match=r"1,000,000 bytes.*--max-line-bytes 10000000") as caught:
        read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (caught.value.path, caught.value.line) == (str(path), 2)
    assert peak < 5_000_000


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
        (gzip.compress(CONTENT), "gzip -dc <"),
        (b"PK\x03\x04\n\0", "unzip -p"),
    ],
    ids=["xz", "bzip2", "empty bzip2", "zstd", "gzip", "zip"],
)
def test_packed_files_are_answered_by_what_unpacks_them(tmp_path, content, command):
    path = tmp_path / "train.en.xz"
    path.write_bytes(content)
    for read in (count_lines, lambda file: list(read_lines(file))):
        with pytest.raises(DataError, match=f"{command} FILE > NEW"):
            read(plain_or_packed(tmp_path / "train.en"))
