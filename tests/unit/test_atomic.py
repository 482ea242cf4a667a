import errno
import os

import pytest

from syntaxformer.atomic import atomic_file
from syntaxformer.errors import DataError


def test_the_file_appears_whole(tmp_path):
    path = tmp_path / "new" / "a.txt"
    with atomic_file(path) as temporary:
        temporary.write_text("content")
        assert not path.exists()
    assert path.read_text() == "content"
    assert [file.name for file in path.parent.iterdir()] == ["a.txt"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail_halfway():
        with atomic_file(path) as temporary:
            temporary.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(DataError) as caught, atomic_file(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(caught.value) == (
        f"{path}: expected to write the file, got: No space left on device. Nothing was written."
    )
    assert list(tmp_path.iterdir()) == []
