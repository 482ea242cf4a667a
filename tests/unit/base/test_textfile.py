import gzip

import pytest

from syntaxformer.base.errors import DataError
from syntaxformer.base.files import count_lines, read_lines

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
