"""A client of a running Stanford CoreNLP server: one POST a batch, retries, and errors without secrets.

Neither the path of its address nor user name and password ever stand in a name, a message or a log.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from syntaxformer.errors import BackendMissingError, ConfigError, SyntaxformerError

__all__ = ["ADDRESS_VARIABLE", "CoreNLPClient", "ServerRefusedError"]

ADDRESS_VARIABLE = "SYNTAXFORMER_CORENLP"
"""Environment variable with the full address of a server, where that holds a password or a secret path."""

MAX_ANSWER_BYTES = 512 * 2**20
PAUSE_S = 0.5
"""Seconds before the first retry; each further one waits twice as long."""

_PASSING = frozenset({429, 502, 503, 504})
_START = "java -mx4g -cp '*' edu.stanford.nlp.pipeline.StanfordCoreNLPServer -port {port} -timeout 60000"


class ServerRefusedError(SyntaxformerError):
    """The server is there and said no to this text: too long, out of time, out of memory."""


class CoreNLPClient:
    """Sends text to a server and gets its analysis.

    Args:
        url: "http://localhost:9000", also with user:password@ before the host and a path behind it.
        timeout_s: Seconds to wait for an answer; the first one is slow, the server loads its models then.
        retries: Further attempts where the connection fails or the server is busy.

    Raises:
        ConfigError: That is no http(s) address.
    """

    def __init__(self, url: str, timeout_s: float, retries: int) -> None:
        parts = _split(url)
        self.place = f"{parts.scheme}://{_host(parts)}"
        full = _full_address(parts)
        self.uses_variable = full is not parts and full.username is not None
        self.path = full.path.rstrip("/")
        self.timeout_s = timeout_s
        self.retries = retries
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._authorization = _basic(full)
        # Redirects are not followed: the password must not go elsewhere.
        self._opener = urllib.request.build_opener(_NoRedirect)

    def analyse(self, text: str, properties: Mapping[str, str], language: str | None) -> dict[str, Any]:
        """Return the server's JSON for a text.

        Raises:
            ServerRefusedError: The server answered with an error.
            BackendMissingError: There is no server; names the command that starts one.
            SyntaxformerError: No answer in time, or no JSON.
        """
        query = {"properties": json.dumps({**properties, "outputFormat": "json"})}
        if language is not None:
            query["pipelineLanguage"] = language
        request = urllib.request.Request(
            f"{self.place}{quote(self.path, safe='/%')}/?{urlencode(query)}",
            # Percent-encoded: the one form that servers of all versions read alike ("+" and "%" in text).
            data=quote(text, safe="").encode("ascii"),
            headers={
                "Content-Type": "application/x-www-form-urlencoded;charset=UTF-8",
                **self._authorization,
            },
        )
        return self._json(self._send(request))

    def _send(self, request: urllib.request.Request) -> bytes:
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(PAUSE_S * 2 ** (attempt - 1))
            last = attempt == self.retries
            try:
                with self._opener.open(request, timeout=self.timeout_s) as answer:
                    return cast(bytes, answer.read(MAX_ANSWER_BYTES))
            except urllib.error.HTTPError as error:
                if error.code not in _PASSING or last:
                    raise self._refused(error) from None
            except TimeoutError:
                if last:
                    raise self._late() from None
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                if last:
                    raise self._late() if isinstance(reason, TimeoutError) else self._absent(reason) from None
        raise AssertionError("the last attempt returns or raises")

    def _refused(self, error: urllib.error.HTTPError) -> SyntaxformerError:
        with error:
            said = " ".join(error.read(2000).decode("utf-8", "replace").split())[:200]
        if error.code in (401, 403):
            return SyntaxformerError(
                f"corenlp: expected {self.place} to let us in, got HTTP {error.code}. Give user and password "
                f"in the address, or the whole address in ${ADDRESS_VARIABLE}."
            )
        return ServerRefusedError(
            f"corenlp: expected an analysis from {self.place}, got HTTP {error.code}: {said or error.reason}."
        )

    def _late(self) -> SyntaxformerError:
        return SyntaxformerError(
            f"corenlp: expected an answer of {self.place} in {self.timeout_s:g} s, got none in "
            f"{self.retries + 1} attempt(s). Wait longer (+timeout=300), or start it with a longer -timeout."
        )

    def _absent(self, reason: object) -> BackendMissingError:
        why = getattr(reason, "strerror", None) or type(reason).__name__
        return BackendMissingError(
            f"a CoreNLP server at {self.place} ({why})",
            f"in the folder of CoreNLP, {_START.format(port=self._port)}",
        )

    def _json(self, answer: bytes) -> dict[str, Any]:
        try:
            # Not strict: older servers leave control characters in strings.
            content = json.loads(answer.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError) as error:
            raise SyntaxformerError(
                f"corenlp: expected JSON from {self.place}, got {answer[:60]!r}. Is it a CoreNLP server?"
            ) from error
        if not isinstance(content, dict) or "sentences" not in content:
            raise SyntaxformerError(
                f"corenlp: expected an object with sentences from {self.place}, got "
                f"{answer[:60]!r}. Is it a CoreNLP server?"
            )
        return cast("dict[str, Any]", content)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow nothing; the answer then is an HTTP error."""


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        usable, parts = False, urlsplit("")
    if not usable:
        raise ConfigError("annotator corenlp: expected an address like http://localhost:9000, got another.")
    return parts


def _host(parts: SplitResult) -> str:
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port}" if parts.port else f"{host}"


def _full_address(parts: SplitResult) -> SplitResult:
    """The environment's address, where it is of the same server and this one has neither user nor path."""
    variable = os.environ.get(ADDRESS_VARIABLE)
    if variable is None or parts.username or parts.path.strip("/"):
        return parts
    full = _split(variable)
    return full if (full.scheme, _host(full)) == (parts.scheme, _host(parts)) else parts


def _basic(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
