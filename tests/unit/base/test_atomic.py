import errno
import os
import tempfile
import threading
from pathlib import Path

import pytest

from syntaxformer.base.errors import DataError
from syntaxformer.base.files import atomic_file, atomic_folder, atomic_text, remove_partials, verify_manifest


def test_the_file_appears_whole(tmp_path):
    path = tmp_path / "new" / "a.txt"
    with atomic_file(path) as temporary:
        temporary.write_text("content")
        assert not path.exists()
    assert path.read_text() == "content"
    assert [file.name for file in path.parent.iterdir()] == ["a.txt"]


def fail_halfway(open_atomic, path, error):
    with open_atomic(path) as temporary:
        (temporary if open_atomic is atomic_file else temporary / "weights").write_text("half")
        raise error


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    for open_atomic, name in ((atomic_file, "a.txt"), (atomic_folder, "b")):
        with pytest.raises(KeyError):
            fail_halfway(open_atomic, tmp_path / name, KeyError())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("open_atomic", "kind", "end"),
    [(atomic_file, "file", "Nothing was written."), (atomic_folder, "folder", "Nothing of it was kept.")],
)
def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path, open_atomic, kind, end):
    with pytest.raises(DataError) as caught:
        fail_halfway(open_atomic, tmp_path / "a", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    problem = f"expected to write the {kind}, got: No space left on device. {end}"
    assert str(caught.value) == f"{tmp_path / 'a'}: {problem}"
    assert list(tmp_path.iterdir()) == []


def test_a_link_keeps_leading_to_the_file(tmp_path):
    (tmp_path / "disk").mkdir()
    link = tmp_path / "a.txt"
    link.symlink_to(tmp_path / "disk" / "real.txt")
    for content in ("new", "newer"):
        with atomic_file(link) as temporary:
            temporary.write_text(content)
        assert link.is_symlink()
        assert (tmp_path / "disk" / "real.txt").read_text() == content


def test_a_pipe_gets_the_content_and_stays_one(tmp_path):
    pipe, contents = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: contents.append(pipe.read_text()))
    reader.start()
    with atomic_text(pipe) as file:
        file.write("content")
    reader.join(10)
    assert contents == ["content"]
    assert pipe.is_fifo()
    with atomic_text("/dev/null") as file:
        file.write("content")
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no memory disk here")
def test_a_file_on_a_disk_below_dev_is_a_file():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "new" / "a.txt"
        with atomic_text(path) as file:
            file.write("content")
            assert not path.exists()
        assert path.read_text() == "content"


def write_folder(path, content):
    with atomic_folder(path) as temporary:
        (temporary / "weights").write_text(content)


def test_a_folder_takes_the_place_of_another(tmp_path):
    (tmp_path / "disk").mkdir()
    link = tmp_path / "model"
    link.symlink_to(tmp_path / "disk" / "real")
    for content in ("new", "newer"):
        write_folder(link, content)
        verify_manifest(link)
        assert (tmp_path / "disk" / "real" / "weights").read_text() == content
    assert link.is_symlink()
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["real"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o755), (0o077, 0o700)])
def test_a_folder_is_open_to_whom_the_umask_lets_in(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_folder(tmp_path / "model", "content")
    finally:
        os.umask(before)
    assert (tmp_path / "model").stat().st_mode & 0o777 == mode


def test_the_old_folder_stays_where_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    write_folder(tmp_path / "model", "old")
    replace = type(tmp_path).replace

    def busy(self, target):
        if target == tmp_path / "model" and (self / "weights").read_text() == "new":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return replace(self, target)

    monkeypatch.setattr(type(tmp_path), "replace", busy)
    with pytest.raises(DataError, match="Device or resource busy"):
        write_folder(tmp_path / "model", "new")
    assert (tmp_path / "model" / "weights").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    monkeypatch.setattr(type(tmp_path), "is_mount", lambda self: True)
    with pytest.raises(DataError, match="mount point"):
        write_folder(tmp_path / "model", "new")


def test_a_folder_that_was_moved_aside_when_the_command_was_killed_comes_back(tmp_path, monkeypatch):
    write_folder(tmp_path / "model", "old")
    rename, n_renamed = type(tmp_path).replace, 0

    def killed(self, target):
        nonlocal n_renamed
        n_renamed += 1
        if n_renamed > 1:
            raise KeyboardInterrupt  # which nothing catches between the two
        return rename(self, target)

    monkeypatch.setattr(type(tmp_path), "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "model", "new")
    monkeypatch.undo()
    assert not (tmp_path / "model").exists()
    remove_partials(tmp_path, of="model")
    assert (tmp_path / "model" / "weights").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_was_moved_aside_and_half_deleted_does_not_come_back(tmp_path):
    aside = tmp_path / ".model.abcdefgh.partial" / ".inner.abcdefgh.old.partial"
    aside.mkdir(parents=True)
    (tmp_path / ".model.ijklmnop.old.partial").mkdir()
    remove_partials(tmp_path, below=True)
    assert list(tmp_path.iterdir()) == []


def test_a_plain_file_needs_no_folder_for_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: pytest.fail("asked for a temporary folder"))
    with atomic_text(tmp_path / "text.txt") as file:
        file.write("text")
    assert (tmp_path / "text.txt").read_text() == "text"


def test_a_folder_is_refused_before_the_work(tmp_path):
    with pytest.raises(DataError, match="it is a folder"), atomic_file(tmp_path):
        pytest.fail("the work began")
