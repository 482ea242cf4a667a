"""A headless Chromium over a served application: nothing it opens may complain or ask another machine."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from syntaxformer.serve import add_explorer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
QUIET = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
DESKTOP, PHONE = {"width": 1180, "height": 820}, {"width": 390, "height": 844}


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The application with its explorer, in a thread; yields its address."""
    add_explorer(app)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    with api.sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield one
        one.close()


@contextmanager
def pages(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Opens a page in a window of a size; at the end no complaint and no request to another machine is allowed."""
    contexts, complaints = [], []

    def make(window: Any = DESKTOP, path: str = "/", **options: Any) -> Any:
        context = browser.new_context(viewport=window, **options)
        context.set_default_timeout(60_000)  # with other tests on the same cores, 15 s were too few
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console",
            lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda one: None if one.url.startswith((address, "blob:")) else complaints.append(one.url),
        )
        page.goto(address + path)
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == []


def wait_for_answers(page: Any) -> None:
    """Wait until the explorer has answered."""
    page.wait_for_selector("#results:not([hidden]):not([aria-busy])")
    page.wait_for_function("document.getElementById('status').textContent !== 'Working …'")
