"""Pictures for the docs, from real models, in a headless Chromium: the explorer, and the curves of a report.

    syntaxformer demo -o demo
    python benchmarks/screenshots.py demo/infused demo/baseline -o docs/images

Starts the service itself, on a free port. Fails where a page asks anything of another machine. The report is
that of `REPORT`, written anew from the store that lies beside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image

CHROMIUM = "/usr/bin/chromium"
QUIET = (
    "--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip
TEXT = "He asked me whether I had seen his car."
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
TALL = {"width": 1280, "height": 1110}
EXPLORER = {
    "explorer-start-light": (DESKTOP, "light", None),
    "explorer-start-dark": (DESKTOP, "dark", None),
    "explorer-start-phone": (PHONE, "light", None),
    "explorer-start-phone-dark": (PHONE, "dark", None),
    "explorer-words": (TALL, "light", {"view": "words"}),
    "explorer-light": (TALL, "light", {"view": "attention"}),
    "explorer-dark": (TALL, "dark", {"view": "dependencies"}),
    "explorer-answer-phone": (PHONE, "dark", {"view": "words"}),
    "explorer-attention-phone": (PHONE, "light", {"view": "attention"}),
    "explorer-phone": (PHONE, "light", {"view": "relations", "distance": "3"}),
}
"""File → size of the window, colours, and what is looked at; None for the page before anything is asked."""

WORD = 6
"""The word of the text whose relation is pointed at."""

REPORT = ("bai2021_glue_minilm", "minilm")
"""An experiment, and its store."""
CURVES = {"report-curves": DESKTOP, "report-curves-phone": PHONE}
COLOURS = 256
"""Of a picture: enough for text and flat areas, and a third of the bytes."""


@contextmanager
def service(models: list[Path]) -> Iterator[str]:
    """The service as a process of its own; yields its address."""
    command = [sys.executable, "-m", "syntaxformer.cli.main", "serve", *map(str, models), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            if "Uvicorn running on" in line:
                yield json.loads(line)["event"].split()[3]
                return
        raise SystemExit("the service did not start")
    finally:
        process.terminate()
        process.wait(60)


def take_explorer(browser, address: str, query: dict[str, str], folder: Path) -> None:
    """Take all pictures of the explorer, after a first answer, which is slower than all others."""
    warm = browser.new_page()
    warm.goto(f"{address}/?{urlencode(query)}")
    warm.wait_for_selector("#results:not([hidden]):not([aria-busy])", timeout=60_000)
    warm.close()
    for name, (window, colours, view) in EXPLORER.items():
        page = browser.new_page(viewport=window, color_scheme=colours)
        page.on("request", lambda request: _check(request.url, address))
        page.goto(address if view is None else f"{address}/?{urlencode({**query, **view})}")
        page.wait_for_selector("#a option", state="attached")
        if view:
            page.wait_for_selector("#results:not([hidden]):not([aria-busy])", timeout=60_000)
        if window is TALL and view["view"] == "words":
            page.get_by_text("What the labels mean").click()
            page.locator(".words .relation").nth(WORD).hover()
        if window is PHONE and view:
            part = "#answers" if view["view"] == "words" else ".views"
            page.evaluate("part => document.querySelector(part).scrollIntoView()", part)
        _save(page, folder / f"{name}.png")


def take_curves(browser, folder: Path) -> None:
    """Take the learning curves of a report."""
    experiment, store = (Path(__file__).parents[1] / "experiments" / one for one in ("", "stores"))
    with tempfile.TemporaryDirectory() as place:
        files = (experiment / f"{REPORT[0]}.yaml", "--store", store / REPORT[1], "-o", place)
        command = ["experiment", "report", *files]
        subprocess.run([sys.executable, "-m", "syntaxformer.cli.main", *map(str, command)], check=True)
        for name, window in CURVES.items():
            page = browser.new_page(viewport=window)
            page.goto(f"file://{place}/report.html")
            page.get_by_role("heading", name="Learning curves").evaluate("one => one.scrollIntoView()")
            _save(page, folder / f"{name}.png")


def _save(page, path: Path) -> None:
    page.screenshot(path=path)
    page.close()
    Image.open(path).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def _check(url: str, address: str) -> None:
    if not url.startswith(address):
        raise SystemExit(f"the page asked for {url}")


def main() -> None:
    """Command line."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs=2, type=Path, help="two folders, side by side")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/images"))
    parser.add_argument("--text", default=TEXT)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    first, second = (model.resolve().name for model in given.models)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        with service(given.models) as address:
            take_explorer(browser, address, {"text": given.text, "a": first, "b": second}, given.output)
        take_curves(browser, given.output)
        browser.close()


if __name__ == "__main__":
    main()
