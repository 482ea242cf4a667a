import gzip
import signal
import subprocess
import sys

import pytest

from syntaxformer.errors import DataError
from syntaxformer.textfile import LiveLines, TextLines, count_lines, read_lines

CONTENT = "\ufeffein Satz\r\n\nb\u2028c\x85d\tü\nlast".encode()


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_lines_end_at_line_feeds_only(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(CONTENT) if name.endswith("gz") else CONTENT)
    assert list(read_lines(path)) == ["ein Satz", "", "b\u2028c\x85d\tü", "last"]
    assert count_lines(path) == 4
    lines = TextLines(path)
    assert len(lines) == len(list(lines)) == len(list(lines)) == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ab\nc\xffd\n", "expected UTF-8, got byte 0xff at byte 2 of the line (5 of the file). Convert"),
        (
            b"\xef\xbb\xbfa\xc3\n",
            "expected UTF-8, got byte 0xc3 at byte 2 of the line (5 of the file). Convert",
        ),
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
    with pytest.raises(DataError, match="expected a readable file, got: Is a directory"):
        count_lines(tmp_path)
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(CONTENT * 99)[:-20])
    with pytest.raises(DataError, match=r"cut\.gz: expected a whole file, got: Compressed file ended"):
        list(read_lines(path))
    path.write_bytes(b"no gzip")
    with pytest.raises(DataError, match="expected a whole file, got: Not a gzipped file"):
        list(read_lines(path))


def test_live_lines_know_whether_the_next_has_come():
    import threading

    gate = threading.Event()

    def typed():
        yield b"one\n"
        yield b"two\r\n"
        gate.wait()
        yield b"three"

    lines = LiveLines(typed(), "standard input")
    assert next(lines) == "one"
    assert not lines.is_waiting()
    assert next(lines) == "two"
    assert lines.is_waiting()
    gate.set()
    assert list(lines) == ["three"]
    assert list(lines) == []
    assert not lines.is_waiting()  # the end has come


def test_live_lines_report_what_was_read_wrongly():
    lines = LiveLines([b"one\n", b"\xff\n"], "standard input")
    assert next(lines) == "one"
    with pytest.raises(DataError, match=r"^standard input:2: expected UTF-8, got byte 0xff"):
        next(lines)

    def broken():
        yield b"one\n"
        raise OSError(5, "gone")

    with pytest.raises(OSError, match="gone"):
        list(LiveLines(broken(), "standard input"))


@pytest.mark.parametrize("stop", ["raise SystemExit(7)", "raise KeyboardInterrupt"])
def test_a_program_may_end_while_standard_input_is_open(stop):
    script = f"from syntaxformer.textfile import LiveLines\nlines = LiveLines.of_standard_input()\nprint(next(lines), flush=True)\n{stop}"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"one\n"
        process.wait(60)  # and nobody closes its input
        assert b"Fatal" not in process.stderr.read()
    assert process.returncode == (7 if "Exit" in stop else -signal.SIGINT)


def test_lines_before_the_first_are_not_looked_at_but_counted(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\nb\nc\xff\n")
    lines = read_lines(path, 1)
    assert next(lines) == "b"
    with pytest.raises(
        DataError, match=r"a\.txt:3: expected UTF-8, got byte 0xff at byte 2 of the line \(6 of the file\)"
    ):
        next(lines)
