"""Pictures of the web explorer for the docs, from real models, in a headless Chromium.

    python benchmarks/explorer_screenshots.py runs/sit runs/base -o docs/images

Starts the service itself, on a free port. Fails where the page asks anything of another machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

CHROMIUM = "/usr/bin/chromium"
QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
TEXT = "A girl in a jean dress is walking along a raised balance beam."
DESKTOP, PHONE = {"width": 1180, "height": 1060}, {"width": 390, "height": 844}
SHOTS = {
    "explorer-light": (DESKTOP, "light", {"view": "attention"}),
    "explorer-dark": (DESKTOP, "dark", {"view": "dependencies"}),
    "explorer-phone": (PHONE, "light", {"view": "relations", "distance": "3"}),
}
"""File → size of the window, colours, and what is looked at."""


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


def take(address: str, query: dict[str, str], folder: Path) -> None:
    """Take all pictures."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        for name, (window, colours, view) in SHOTS.items():
            page = browser.new_page(viewport=window, color_scheme=colours)
            page.on("request", lambda request: _check(request.url, address))
            page.goto(f"{address}/?{urlencode({**query, **view})}")
            page.wait_for_selector("#view svg", timeout=60_000)
            page.wait_for_selector("#results:not([aria-busy])")
            if window is PHONE:
                page.evaluate("document.querySelector('.views').scrollIntoView()")
            path = folder / f"{name}.png"
            page.screenshot(path=path)
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
            page.close()
        browser.close()


def _check(url: str, address: str) -> None:
    if not url.startswith(address):
        raise SystemExit(f"the page asked for {url}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs=2, type=Path, help="two folders, side by side")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/images"))
    parser.add_argument("--text", default=TEXT)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    first, second = (model.resolve().name for model in given.models)
    with service(given.models) as address:
        take(address, {"text": given.text, "a": first, "b": second}, given.output)


if __name__ == "__main__":
    main()
