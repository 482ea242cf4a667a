"""The explorer's page and its files on the same server: static, offline, allowed to talk to nobody else."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

__all__ = ["FOLDER", "POLICY", "add_explorer"]

FOLDER = Path(__file__).parent / "explorer"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content-Security-Policy: nothing inline, nothing from elsewhere, in no other page's frame."""

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class _Files(StaticFiles):
    """Files with the page's headers."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer a request for a file."""
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response


def add_explorer(app: FastAPI) -> None:
    """Add the page at `/` and `/explore`."""

    async def page() -> Response:
        return FileResponse(FOLDER / "index.html", headers=_HEADERS)

    for path in ("/", "/explore"):
        app.get(path, include_in_schema=False)(page)
    app.mount("/explore/static", _Files(directory=FOLDER), name="explorer")
