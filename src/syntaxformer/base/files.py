"""Write files and folders whole or not at all, read text line by line, and detect changes by a manifest.

The content is written under a temporary name in the same folder, synced to disk and renamed in one step, so
a crash, a full disk or a second writer never leaves half a file under the name that others read.
"""

from __future__ import annotations

import bz2
import fcntl
import glob
import gzip
import hashlib
import json
import lzma
import math
import os
import re
import shutil
import tempfile
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from io import BufferedReader, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar

from pydantic import BaseModel, ValidationError

from syntaxformer.base.errors import CheckpointError, DataError, SyntaxformerError, one_line, panics

_OF_PROCESSES = ("/dev", "/dev/fd", "/proc/self/fd")
"""Folders whose files a process has already opened, even if they lead to a plain file."""


@contextmanager
def atomic_file(path: str | Path) -> Generator[Path, None, None]:
    """Give a temporary path to write to; on success it becomes `path`, on any error nothing is left behind.

    Args:
        path: Final name. Its folder is created; an older file of that name is replaced, or if the name is a
            link, the file that it leads to. A pipe or a device gets the content at the end.

    Raises:
        DataError: The folder or the file cannot be written (no space left, no permission, read-only disk).
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        is_plain = is_plain_output(path)
        if is_plain:
            path = Path(os.path.realpath(path))
            folder = path.parent
            folder.mkdir(parents=True, exist_ok=True)
        else:  # a pipe or a device, which no file may replace; /dev/stdout is a link to one
            folder = Path(tempfile.gettempdir())
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PARTIAL, dir=folder)
        os.close(handle)
        temporary = Path(name)
        make_readable(temporary)
        yield temporary
        if is_plain:
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
        else:
            with temporary.open("rb") as content, path.open("wb") as target:
                shutil.copyfileobj(content, target)
    except OSError as error:
        raise _not_written(error, path) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _not_written(error: OSError, path: Path) -> DataError:
    reason = error.strerror or str(error)
    return DataError(f"expected to write the file, got: {reason}. Nothing was written.", path)


@contextmanager
def atomic_text(path: str | Path) -> Generator[TextIO, None, None]:
    """Like `atomic_file`, but give a stream of UTF-8 text, compressed if the name ends as in `PACKED`."""
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        packed = pack(file, Path(path).suffix)
        with packed, TextIOWrapper(packed, "utf-8", newline="\n") as text:
            yield text


def is_plain_output(path: Path) -> bool:
    """Whether a path is to be a file, which may be written in several goes, and no pipe or device."""
    is_open_ended = path.exists() and not path.is_file()
    return not is_open_ended and str(path.absolute().parent) not in _OF_PROCESSES


@contextmanager
def continued_text(
    path: Path, origin: str, n_together: int | None
) -> Generator[tuple[TextIO, int], None, None]:
    """Like `atomic_text`, but what a killed or interrupted process wrote stays, for the next to go on with.

    Args:
        path: Final name of the file.
        origin: Eight characters for what the text is made from; a text of others is not gone on with.
        n_together: Go on after a multiple of so many lines; None to begin anew.

    Yields:
        The stream, to be flushed where others may go on, and the number of its lines.

    Raises:
        DataError: The file cannot be written, or another process writes it.
    """
    partial, is_ours = path.with_name(f".{path.name}.{origin}{PARTIAL}"), False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise DataError("expected a file that no other command writes, got another.", path) from error
            except OSError:  # a disk without locks
                pass
            is_ours = True
            file.seek(0)
            n_whole = sum(line.endswith(b"\n") for line in file) if n_together else 0
            n_lines = n_whole - n_whole % (n_together or 1)
            file.seek(0)
            file.truncate(sum(map(len, islice(file, n_lines))))
            with TextIOWrapper(file, "utf-8", newline="\n") as text:
                yield text, n_lines
                text.flush()
                file.seek(0)
                with atomic_text(path) as target:
                    shutil.copyfileobj(file, target.buffer)
                partial.unlink(missing_ok=True)  # before another command can lock it
    except (OSError, SyntaxformerError) as error:  # after other errors, too, there is something to go on with
        if is_ours:
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _not_written(error, path) from error
        raise


PACKED = (".gz", ".xz", ".zst", ".bz2")
"""Endings of compressed files that are read and written as plain ones are."""
MAX_XZ_BYTES = 2**28  # memory in which an xz file must be unpacked; `xz -9` asks for a quarter of it


def without_packing(name: str | Path) -> str:
    """A file's name, without its folder and without an ending of `PACKED`."""
    path = Path(name)
    return path.stem if path.suffix in PACKED else path.name


def pack(file: BinaryIO, suffix: str) -> Any:
    """A stream that compresses into an open file; the same content gives the same bytes."""
    if suffix == ".gz":
        return gzip.GzipFile("", "wb", fileobj=file, mtime=0)  # without a name and a time
    if suffix == ".zst":
        from pyarrow import CompressedOutputStream

        return CompressedOutputStream(file, "zstd")
    return {".xz": lzma.open, ".bz2": bz2.open}[suffix](file, "wb") if suffix in PACKED else file


def write_text(path: Path, text: str) -> None:
    """Write a whole UTF-8 file, or nothing; see `atomic_file`."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, "utf-8")


_UMASK = threading.Lock()  # held while the umask, which all threads share, is set to be read


def make_readable(path: Path) -> None:
    """Give a file or folder the rights that the umask allows; tempfile and safetensors give the owner's."""
    with _UMASK:
        umask = os.umask(0)
        os.umask(umask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)


def sync(path: Path) -> None:
    """Sync a file or a folder's entries to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


LOCK = ".lock"  # that a command locks while it works in a folder
CARD = "README.md"  # the model card, which may change: no manifest lists it
HELD_OUT, TRAINED_ON, BAD_ROWS = "held_out.csv", "trained_on.txt", "bad_rows.csv"
"""Rows that were held out, hashes of those trained on, and rows that could not be used; no manifest lists
what may be removed."""

MANIFEST = "manifest.json"
INFUSION_FILE = "infusion.json"  # beside `config.json`
PARTIAL = ".partial"  # ending of files and folders that are being written
ASIDE = f".old{PARTIAL}"  # of a folder that is being replaced

MAX_JSON_BYTES = 8 * 2**20
"""Largest JSON file that is read; a list of empty lists takes 30 times as much memory as disk."""

MAX_PIECES_BYTES = 48 * 2**20
"""Largest file of pieces and of what cuts text into them; that of 256,000 pieces has 33 MB."""

KEPT = "annotator"  # the folder in a model's folder with its annotator, whose files its manifest lists

_READ = re.compile(
    rf"^{KEPT}/|token|vocab|merges|chat_template|adapter|\.safetensors|\.(model|spm)$|\.onnx|^(pytorch_)?model[.-]"
    r"|^(syntaxformer|classifier|collator|infusion|export|onnx|run|(\w+_)?config)\.json$"
)
"""Names of files that any library may read when it loads a model."""

_ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")

_Record = TypeVar("_Record", bound=BaseModel)


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Give a temporary folder to fill; on success it gets a manifest and becomes `path`, else it is deleted.

    Args:
        path: Final name; an older folder of that name is replaced, or if the name is a link, the folder that
            it leads to.

    Raises:
        DataError: The folder cannot be written (no space left, no permission), or it cannot be replaced
            because a disk is mounted on it.
    """
    path = Path(os.path.realpath(path))
    temporary: Path | None = None
    try:
        if path.is_mount():
            raise DataError("expected a folder to replace, got a disk's mount point. Give one in it.", path)
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=PARTIAL, dir=path.parent))
            yield temporary
            write_manifest(temporary)
            make_readable(temporary)
            _take_name(temporary, path)
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _take_name(folder: Path, path: Path) -> None:
    """Move a folder to a path; an older one there is deleted once the new one is in place."""
    if not path.exists():
        folder.replace(path)
        return
    aside = folder.with_suffix(ASIDE)
    path.replace(aside)
    try:
        folder.replace(path)
    except OSError:
        aside.replace(path)
        raise
    shutil.rmtree(aside)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a failed write inside any library into one error that names the folder.

    Raises:
        DataError: The folder cannot be written (no space left, no permission).
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
        elif match := re.search(r"([^:]+) \(os error \d+\)", str(error)):
            # safetensors and tokenizers report a failed write by their own exceptions.
            reason = match[1].strip()
        else:
            raise
        raise DataError(
            f"expected to write the folder, got: {reason}. Nothing of it was kept.", path
        ) from error


def remove_partials(folder: Path, below: bool = False, of: str | None = None) -> None:
    """Delete the partial files and folders, or those `of` one final name, that a killed process left.

    A folder that was moved aside gets its name back if the process had not put another one there.
    """
    start = ".*" if of is None else f".{glob.escape(of)}.????????"
    patterns = {f"{start}{PARTIAL}", f"{start}{ASIDE}"}
    find = folder.rglob if below else folder.glob
    for path in [partial for pattern in patterns for partial in find(pattern)]:
        aside = re.fullmatch(rf"\.(.+)\.\w{{8}}{re.escape(ASIDE)}", path.name)
        # Without a manifest it was already being deleted.
        if aside and (path / MANIFEST).exists() and not (final := path.with_name(aside[1])).exists():
            path.replace(final)
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_manifest(folder: Path) -> None:
    """Record the size and the sha256 of each file, and sync the files to the disk."""
    entries = {}
    for name, file in _entries(folder).items():
        if file.is_file() and name not in (MANIFEST, LOCK, CARD, HELD_OUT, TRAINED_ON, BAD_ROWS):
            sync(file)
            entries[name] = {"bytes": file.stat().st_size, "sha256": hash_file(file)}
    (folder / MANIFEST).write_text(json.dumps({"files": entries}, indent=1), "utf-8")
    sync(folder / MANIFEST)


def _entries(folder: Path) -> dict[str, Path]:
    """What is in a folder, and each file of the annotator in it, by the name that a manifest has for it."""
    annotator_files = [path for path in (folder / KEPT).rglob("*") if path.is_symlink() or not path.is_dir()]
    paths = sorted([*folder.iterdir(), *annotator_files])
    return {path.relative_to(folder).as_posix(): path for path in paths}


def verify_manifest(folder: str | Path) -> None:
    """Check that every file of a folder is as it was written.

    Raises:
        CheckpointError: There is no manifest, or a file is missing, cut off, changed, outside or not listed.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: expected a folder, found none.")
    files = read_json(folder / MANIFEST).get("files")
    is_list = isinstance(files, dict) and all(
        isinstance(entry, dict) and isinstance(entry.get("bytes"), int) and "sha256" in entry
        for entry in files.values()
    )
    if not files or not is_list:
        raise CheckpointError(f"{folder / MANIFEST}: expected a list of files. The folder was altered.")
    present, home = _entries(folder), folder.resolve()
    if unlisted := sorted(name for name in present.keys() - files.keys() if _READ.search(name)):
        raise CheckpointError(
            f"{folder / MANIFEST}: expected every file that is read, got none for {unlisted[0]}."
        )
    for name, entry in files.items():
        file, places = folder / name, (home / Path(name).parent, home.parent.parent / "blobs")
        if name not in present or not file.is_file():
            raise CheckpointError(f"{file}: expected a file of {entry['bytes']} bytes, found none.")
        # In the Hub's cache, the files of a snapshot are links to blobs that all snapshots share.
        if Path(os.path.realpath(file)).parent not in places:
            raise CheckpointError(f"{file}: expected a file in the folder, got a link that leads out of it.")
        if file.stat().st_size != entry["bytes"]:
            raise CheckpointError(
                f"{file}: expected {entry['bytes']} bytes, got {file.stat().st_size}. It is truncated."
            )
        if hash_file(file) != entry["sha256"]:
            raise CheckpointError(
                f"{file}: expected the content that was written, got another. It was altered."
            )


def is_local(name: str | Path) -> bool:
    """Whether the name of a model or data set is a path and none on the Hub.

    Raises:
        CheckpointError: It is a path (more than one slash, or "." or "/" or "~" at its start, or one below a
            folder that is here), but nothing is there.
    """
    path = Path(name)
    is_path = not _ON_HUB.fullmatch(str(name)) or ("/" in str(name) and path.parent.is_dir())
    if is_path and not path.exists():
        raise CheckpointError(f"{name}: expected a folder, found none.")
    return is_path or path.exists()


def fetched(model: str | Path, **options: Any) -> Path:
    """The folder of a model: itself, or that of the Hub's cache, into which it is fetched unless offline.

    Raises:
        CheckpointError: There is no such folder, and none of that name can be had from the Hub.
    """
    if is_local(model) or "/" not in str(model):  # models of ours have an owner there
        return Path(model)
    from huggingface_hub import snapshot_download

    # Not model.bin, the network of an export, nor lookups.bin of a pipeline.
    pickles = ["*pytorch_model*.bin", "*adapter_model*.bin", "*training_args.bin", "*.pt", "*.pth"]
    with folder_errors(model, "a model folder, or the name of one on the Hub"):
        return Path(snapshot_download(str(model), ignore_patterns=pickles, **options))


def read_json(path: Path, most: int = MAX_JSON_BYTES, kind: type = dict) -> Any:
    """Read an object, or a value of another `kind`, from a JSON file of a model folder.

    Raises:
        CheckpointError: The file is missing, has more than `most` bytes, is not JSON, has a key twice (each
            library would read another of them) or holds no object.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError("no file")
        if path.stat().st_size > most:
            raise ValueError(f"a file of more than {most} bytes")
        content = json.loads(path.read_text("utf-8"), object_pairs_hook=_unique)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path}: expected a file, found none. Is this a syntaxformer model folder?"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: expected JSON, got: {str(error)[:120]}.") from error
    if not isinstance(content, kind):
        expected = "object" if kind is dict else kind.__name__
        raise CheckpointError(f"{path}: expected a JSON {expected}, got {type(content).__name__}.")
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"{key[:60]!r} twice")
    return content


def write_json(path: Path, content: Any, indent: int | None = None) -> None:
    """Write a JSON file, or nothing; see `atomic_file`."""
    write_text(path, json.dumps(content, indent=indent))


def hash_file(path: Path) -> str:
    """sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_record(path: Path, record: type[_Record], format_version: int | None = None) -> _Record:
    """Read a JSON file of a model folder into a pydantic model.

    Raises:
        CheckpointError: The file is missing or not what this version writes.
    """
    try:
        instance = record.model_validate(read_json(path))
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"])) or "content"
        message = problem["msg"].removeprefix("Value error, ")
        raise CheckpointError(f"{path}: {key}: {message}. It was altered.") from error
    version = getattr(instance, "format_version", None)
    if format_version is not None and version != format_version:
        raise CheckpointError(f"{path}: expected format version {format_version}, got {version}.")
    return instance


_BOM = b"\xef\xbb\xbf"
_UTF_16_BOMS = (b"\xff\xfe", b"\xfe\xff")

_PACKED = re.compile(
    rb"(?P<gzip>\x1f[\x8b\x9d])|(?P<bzip2>BZh[1-9](1AY&SY|\x17rE8P))|(?P<xz>\xfd7zXZ\0)"
    rb"|(?P<zstd>\x28\xb5\x2f\xfd)|(?P<lz4>\x04\x22\x4d\x18)|(?P<unzip>PK\x03\x04)"
)
"""Beginnings of packed files, by the commands that unpack them."""

MAX_LINE_BYTES = "SYNTAXFORMER_MAX_LINE_BYTES"
"""Variable of the environment in which `--max-line-bytes` reaches all processes of a command."""


def max_line_bytes() -> int:
    """Most bytes of a line that is read; a stranger's file of 5 MB may unpack to a line of 6 GB."""
    return int(os.environ.get(MAX_LINE_BYTES) or 1_000_000)


def larger_bound() -> str:
    """What to do about a line that is too long."""
    n_bytes = 10 * max_line_bytes()
    return f"Cut it, or give a larger bound: syntaxformer --max-line-bytes {n_bytes} VERB."


def plain_or_packed(path: Path) -> Path | None:
    """The file of that name, or else the one with an ending of `PACKED` added to it; None if there is none.

    Raises:
        DataError: There are several.
    """
    present = [file for end in ("", *PACKED) if (file := path.with_name(path.name + end)).is_file()]
    if len(present) > 1:
        names = " or ".join(file.name for file in present[1:])
        problem = f"expected this file or {names}, got {'both' if len(present) == 2 else 'all'}."
        raise DataError(f"{problem} Remove all but one of them.", present[0])
    return present[0] if present else None


def open_bytes(path: str | Path) -> BinaryIO:
    """Open a plain file or, by its suffix in `PACKED`, a compressed file for reading bytes.

    Raises:
        DataError: There is no such file, it is a folder, it may not be read, or needs too much memory.
    """
    path = Path(path)
    try:
        if path.suffix == ".zst":
            from pyarrow import CompressedInputStream

            return BufferedReader(CompressedInputStream(path.open("rb"), "zstd"))
        if path.suffix == ".xz" and path.is_file():
            with path.open("rb") as file:
                lzma.LZMADecompressor(memlimit=MAX_XZ_BYTES).decompress(file.read(4096), max_length=1)
        unpack: Any = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}.get(path.suffix, open)
        return unpack(path, "rb")
    except lzma.LZMAError as error:
        problem = f"expected an xz file that unpacks in {MAX_XZ_BYTES:,} bytes of memory, got: {error}."
        raise DataError(f"{problem} Copy or pack it again.", path) from error
    except OSError as error:
        remedy = " Download it first." if ":/" in str(path) else ""
        raise DataError(f"expected a readable file, got: {error.strerror}.{remedy}", path) from error


def read_lines(path: str | Path, first: int = 0, is_document: bool = False) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without their line ends; a byte order mark is dropped.

    Args:
        path: Plain file, or a compressed one if the name ends so (`PACKED`).
        first: The line to begin with, counted from 0; earlier lines are not checked.
        is_document: The text is one document, which may stand on one line: 200 times the bound of a line.

    Raises:
        DataError: The file cannot be read or unpacked, is packed otherwise, a line is longer than
            `max_line_bytes`, or it holds bytes that are not UTF-8 or a NUL.
    """
    with open_bytes(path) as file:
        yield from decode_lines(file.readline, path, first, is_document)


def decode_lines(
    readline: Callable[[int], bytes], name: str | Path, first: int = 0, is_document: bool = False
) -> Iterator[str]:
    """Yield the lines of an open binary file or stream, with the checks and errors of `read_lines`."""
    position = 0
    for number, raw in enumerate(raw_lines(readline, name, is_document), 1):
        if number > first:
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1:
                line = line.removeprefix(_BOM)
                if line.startswith(_UTF_16_BOMS) and not line.startswith(b"\xff\xfe\0\0"):  # that is UTF-32
                    remedy = "Convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW."
                    raise DataError(f"expected UTF-8, got UTF-16. {remedy}", name, number)
                if b"\r" in line and not raw.endswith(b"\n"):  # the only line
                    remedy = "Convert it: tr '\\r' '\\n' < FILE > NEW."
                    raise DataError(f"expected lines that end in LF or CR LF, got CR alone. {remedy}", name)
            yield _decode(line, name, number, position + raw.find(line))
        position += len(raw)


def count_lines(path: str | Path) -> int:
    """Count the lines that `read_lines` yields, without decoding them; errors as there."""
    with open_bytes(path) as file:
        return sum(1 for _ in raw_lines(file.readline, path))


def raw_lines(
    readline: Callable[[int], bytes], name: str | Path, is_document: bool = False
) -> Iterator[bytes]:
    """Yield the lines of an open file with their ends; of a line over the bound, no more is unpacked.

    `readline` gives the next line, or so many bytes of it.

    Raises:
        DataError: A line is longer than the bound, the file is packed, or it cannot be read to its end.
    """
    bound = max_line_bytes() * (200 if is_document else 1)
    try:
        for number, line in enumerate(iter(lambda: readline(bound + 2), b""), 1):
            if number == 1 and (packed := _PACKED.match(line)) is not None:
                unpack = "unzip -p" if packed.lastgroup == "unzip" else f"{packed.lastgroup} -dc <"
                raise DataError(f"expected text, got a packed file. Unpack it: {unpack} FILE > NEW.", name)
            if len(line) > bound and len(line.removesuffix(b"\n").removesuffix(b"\r")) > bound:
                problem = f"expected at most {bound:,} bytes in a line, got more."
                raise DataError(f"{problem} {larger_bound()}", name, number)
            yield line
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"expected a whole file, got: {error}. Copy or pack it again.", name) from error


def _decode(line: bytes, path: str | Path, number: int, position: int) -> str:
    def wrong(problem: str, place: int, remedy: str = "") -> DataError:
        location = f"byte {place + 1} of the line ({position + place + 1} of the file)"
        return DataError(f"expected {problem} at {location}.{remedy}", path, number)

    if (nul := line.find(b"\0")) >= 0:
        raise wrong("text, got a NUL", nul)
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"UTF-8, got byte 0x{line[error.start]:02x}"
        raise wrong(problem, error.start, " Convert the file to UTF-8.") from error


# What a model folder may not ask for. It is checked before anything is built: a stranger may have made it.

_SETTINGS = ("tokenizer_config", "config", "generation_config", "infusion", "collator")
_LARGEST_NUMBER, _MOST_LAYERS, _MOST_COMPUTED, _LONGEST_TEXT = 2**20, 1024, 5_000_000, 4096
MOST_PIECES = 4096  # that a tokenizer may have besides those of its vocabulary
_SIZES = re.compile(r"(\w+_)?(layers?|heads?)|(vocab|hidden|intermediate|embedding)_size|d_\w+|(hidden_)?dim")
_ELSEWHERE = re.compile(
    r"auto_map|(attn|experts)_implementation|kernel|quantization|transformers_weights|distributed|gguf"
    r"|custom_generate|trust_remote|(?<!special_tokens_map)_files?$"
)
"""Settings that make transformers fetch code or read files other than ours."""

_OTHER_WEIGHTS = re.compile(
    r"adapter_.*|shard-.*|(?!(training_args|optimizer|scheduler|scaler|sampler|r(ng|andom)_states?\w*)\.)"
    r"(?!model\.bin$)[^/]+\.(bin|pt|pth|pkl|pickle|ckpt|joblib)"
)
"""Other weights and pickles, but for those that transformers' `Trainer` leaves and nothing here reads."""


def check_settings(folder: Path, is_checkpoint: bool = False) -> None:
    """Check that no setting names code or a file elsewhere, or is an impossible number.

    Of a pretrained checkpoint, which may have weights in other formats too, only `config.json` is read.

    Raises:
        CheckpointError: One does, a file is a pipe, too large or has a key twice, or there are other weights
            beside those of the model.
    """
    names = _entries(folder)
    read = [path for name, path in names.items() if _READ.search(name)]
    if odd := [path for path in read if not path.is_file() and not path.is_dir()]:
        raise CheckpointError(f"{odd[0]}: expected a plain file, got a pipe, a device or a broken link.")
    if not is_checkpoint and (other_weights := sorted(filter(_OTHER_WEIGHTS.fullmatch, names))):
        raise CheckpointError(
            f"{folder}: expected the weights of one model, in model.safetensors, got also {other_weights[0]}."
        )
    sizes = [_LARGEST_NUMBER]
    for path in library_texts(folder):
        if path.suffix != ".json" or path.parent != folder or (is_checkpoint and path.name != "config.json"):
            continue
        most = MAX_PIECES_BYTES if re.search("token|vocab", path.name) else MAX_JSON_BYTES
        content = read_json(path, most, dict if path.stem in _SETTINGS else object)
        if path.stem in _SETTINGS:
            counts = [n for key, n in content.items() if key.endswith("vocab_size") and isinstance(n, int)]
            sizes = counts or sizes
            for key, value, is_top in values_of(content):
                if expected := _expected(key, value, max(sizes), is_top):
                    raise CheckpointError(f"{path}: {key}: expected {expected}, got {str(value)[:60]!r}.")


def library_texts(folder: Path) -> Iterator[Path]:
    """Files of text that libraries read whole, once their size is checked."""
    for name, path in _entries(folder).items():
        if _READ.search(name) and re.search(r"\.(json|txt|model|spm|cfg|jinja)$", name):
            if path.is_file() and (size := path.stat().st_size) > MAX_PIECES_BYTES:
                raise CheckpointError(f"{path}: expected at most {MAX_PIECES_BYTES} bytes, got {size}.")
            yield path


def values_of(content: Any) -> Iterator[tuple[str, Any, bool]]:
    """Give every value, its key, and whether it stands outside all sections."""
    waiting: list[tuple[str, Any, int]] = [("", content, 0)]
    while waiting:
        key, value, depth = waiting.pop()
        yield key, value, depth == 1
        is_of_words = depth == 1 and key in ("id2label", "label2id")  # whose keys are the user's
        if isinstance(value, dict) and not is_of_words:
            waiting += [(name, entry, depth + 1) for name, entry in value.items()]
        elif isinstance(value, list):
            waiting += [(key, element, depth + 1) for element in value]


def _expected(key: str, value: Any, n_pieces: int, is_top: bool) -> str | None:
    """What a value should be; None if it is allowed."""
    if isinstance(value, str | dict) and value not in ("", {}, "eager", "sdpa") and _ELSEWHERE.search(key):
        return "none, since it fetches code or files"
    if (key, value) in (("return_dict", False), ("torchscript", True)):
        return f"{not value}, since outputs have names"
    if isinstance(value, str) and len(value) > _LONGEST_TEXT and key != "chat_template":
        return f"at most {_LONGEST_TEXT} characters"
    if isinstance(value, list | dict) and len(value) > MOST_PIECES and "token" in key:
        return f"at most {MOST_PIECES} pieces"
    if isinstance(value, bool) or not isinstance(value, int | float) or key == "model_max_length":
        return None
    if not math.isfinite(value):
        return "a finite number"
    if key.endswith("_token_id") and not -(key == "pad_token_id") <= value < n_pieces:
        return f"a piece, 0 to {n_pieces - 1}"
    if abs(value) > _LARGEST_NUMBER and not re.search("theta|seed", key):
        return f"at most {_LARGEST_NUMBER}"
    return "at least 1" if is_top and value < 1 and _SIZES.fullmatch(key) else None


@contextmanager
def folder_errors(folder: str | Path, expected: str = "weights that fit config.json") -> Iterator[None]:
    """Turn any error of a library that cannot read a folder into one `CheckpointError`."""
    try:
        with panics():
            yield
    except CheckpointError:
        raise
    except Exception as error:  # each library raises its own classes
        raise CheckpointError(f"{folder}: expected {expected}, got: {one_line(error, 300)}") from error


def check_weights(folder: Path, build: Callable[[], Any]) -> None:
    """Check that weights are finite and fit `config.json`, before memory is allocated for the network.

    Raises:
        CheckpointError: The network cannot be built, or its weights are missing, not finite or do not fit.
    """
    import torch
    from transformers.initialization import no_init_weights

    with folder_errors(folder):
        config = read_json(folder / "config.json")
        dtype = getattr(torch, config.get("dtype") or config.get("torch_dtype") or "float32")
        stored = _stored(folder, min(_LARGEST_NUMBER, torch.finfo(dtype).max))
        most = min(_MOST_LAYERS, sum(tensor.numel() > 0 for tensor in stored.values()))
        for key, value, _ in values_of(config):
            # A layer takes memory even if it has no weights.
            if isinstance(value, int) and value > most and re.search("layer|group|block", key):
                raise ValueError(f"{value} for {key}, with {most} tensors")
        with torch.device("meta"), no_init_weights():
            network = build()
        expected = network.state_dict()
        # Tied tables are stored once, positions that are computed are not stored.
        computed = {*(network._keys_to_ignore_on_save or ())} - {*network.all_tied_weights_keys, *stored}
        unsaved = {*network.all_tied_weights_keys, *computed}
        for name in expected.keys() & stored.keys():
            tensor, other = expected[name], stored[name]
            if tensor.shape != other.shape:
                raise ValueError(f"{name} of {tuple(other.shape)}, not {tuple(tensor.shape)}")
            if tensor.is_floating_point() != other.is_floating_point():
                raise ValueError(f"{name} of {other.dtype}, not {tensor.dtype}")
        tables = [buffer for name, buffer in network.named_buffers() if name not in expected]
        tables += [tensor for name, tensor in expected.items() if name in computed]
        n_computed = sum(table.numel() for table in tables if table.is_floating_point())
        if n_computed > _MOST_COMPUTED:
            raise ValueError(f"max_position_embeddings with {n_computed} numbers to compute")
        lacking = [tensor.numel() for name, tensor in expected.items() if name not in {*stored, *unsaved}]
        if sum(lacking) > 2 * sum(tensor.numel() for tensor in stored.values()):
            raise ValueError(f"none for {sum(lacking)} numbers")


def _stored(folder: Path, most: float) -> dict[str, Any]:
    """Check that all tensors are finite, and at most so large, and give them without their content."""
    from safetensors import safe_open

    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise CheckpointError(f"{folder}: expected model.safetensors, found none. Was it saved whole?")
    indices = sorted(folder.glob("model.safetensors.index*.json"))
    shards = [path.name for path in (*files, *indices) if re.match(r"model(-|\.safetensors\.)", path.name)]
    if shards and folder / "model.safetensors" in files:
        raise ValueError(f"{shards[0]} beside model.safetensors")
    for index in indices:
        if missing := set(read_json(index)["weight_map"].values()) - {path.name for path in files}:
            raise ValueError(f"no file {missing.pop()!r} in the folder")
    tensors: dict[str, Any] = {}
    for path in files:
        with path.open("rb") as head:
            if int.from_bytes(head.read(8), "little") > MAX_JSON_BYTES:
                raise ValueError("Error while deserializing header: header too large")
        with safe_open(path, "pt") as file:
            for name in sorted(file.keys()):
                tensors[name] = (tensor := file.get_tensor(name)).to("meta")
                is_float = tensor.is_floating_point() and tensor.numel()
                if is_float and not max(map(abs, map(float, tensor.aminmax()))) <= most:
                    raise ValueError(f"NaN or infinity in {name}, or numbers above {most:g}")
    return tensors
