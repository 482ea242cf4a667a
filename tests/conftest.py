"""Fixtures shared by all tests. Shapes in signatures are checked at run time while tests run."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import jaxtyping
import pytest
from jaxtyping import install_import_hook

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts jobs in the background without it
gc.disable()  # until all tests are imported

HEAVY = ("torch", "transformers", "spacy")
SLOWER = 3.0
"""Times the limit: so much slower may a machine be that others share."""

_NETWORK = ("nn", "translation.model")
# transformers 5.17, which a machine with a GPU may have, says of all tensors that they are on the processor.
if importlib.util.find_spec("beartype") and "SYNTAXFORMER_DEVICE" not in os.environ:
    install_import_hook([f"syntaxformer.{module}" for module in _NETWORK], "beartype.beartype")
_WHOLE_RUNS = ("tests/integration/", "tests/unit/translation/translator/", "tests/unit/translation/training/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--light", action="store_true", help=f"fail where {', '.join(HEAVY)} was imported")
    parser.addoption("--limit", type=float, help="processor seconds of a test without the mark `slow`")


def _processor_s() -> float:
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that takes longer than `--limit` fails unless it has the mark `slow`; fixtures are not counted.

    `make test` gives it, with two more tries for a test that pays for what it is the first to load.
    """
    start, limit = _processor_s(), item.config.getoption("--limit")
    result = yield
    taken = _processor_s() - start
    if limit is not None and taken > SLOWER * limit and item.get_closest_marker("slow") is None:
        pytest.fail(
            f"{taken:.1f} processor seconds, without the mark `slow` at most {limit:g}", pytrace=False
        )
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tests that are said to be light have imported nothing heavy."""
    imported = [name for name in HEAVY if name in sys.modules]
    if session.config.getoption("--light") and imported:
        session.config.get_terminal_writer().line(f"--light: {', '.join(imported)} was imported", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Whole trainings and translations would check, in 30 s, the shapes of 10,000 calls of what other rooms test.

    Accelerate, which offloads weights, gives an output all its fields as one.
    """
    unchecked = item.nodeid.startswith(_WHOLE_RUNS) or "offload" in item.name
    jaxtyping.config.update("jaxtyping_disable", unchecked)


def pytest_collection_finish() -> None:
    """What was imported stays: garbage, which each Trainer collects, is not looked for among its 900,000 objects."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("SYNTAXFORMER_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(autouse=True)
def _no_log_of_a_command_that_has_ended() -> Iterator[None]:
    """The command line logs to a stream that is closed with its test; a later test's thread would write there."""
    yield
    logging.getLogger("syntaxformer").setLevel(logging.NOTSET)  # a command that says less or more sets it
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler:
            root.removeHandler(handler)
    for name in ("syntaxformer.serve", "uvicorn.error", "asyncio"):  # the service's lines of JSON
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the real corpora (SYNTAXFORMER_DATA, by default ../shared/data); skips where there is none."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    root = Path(os.environ.get("SYNTAXFORMER_DATA", default))
    if not root.is_dir():
        pytest.skip(f"no real corpora at {root}; set SYNTAXFORMER_DATA")
    return root


@pytest.fixture(scope="session")
def gallery() -> ModuleType:
    """The script that draws the figure gallery."""
    file = Path(__file__).resolve().parents[1] / "experiments" / "gallery.py"
    found = importlib.util.spec_from_file_location("gallery", file)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
