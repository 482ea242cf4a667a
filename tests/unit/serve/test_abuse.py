"""Requests that mean harm: each is refused in little time, in a short answer, and hurts no other."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

JSON = {"content-type": "application/json"}
TEXTS = "body: expected at most 128 texts, got far more values than these take. Send several requests."
KEYS = "body: expected at most 50 keys, got more."
DEEP = "body: expected brackets at most 10 deep, got more."
NO_JSON = "body: expected JSON, got brackets too deep, a number too long, or no UTF-8."


def _listing(item, n_items=300_000):
    return '{"texts": [' + ",".join([item] * n_items) + "]}"


# A megabyte at most, unlike those that were measured: what was too slow to count is told by how it is refused.
@pytest.mark.parametrize("path", ["translate", "classify"])
@pytest.mark.parametrize(
    ("body", "status", "code", "message"),
    [
        (_listing("1"), 422, "too_many_texts", TEXTS),
        (_listing('""'), 422, "too_many_texts", TEXTS),
        (_listing("{}"), 422, "too_many_texts", TEXTS),
        (_listing('["",1]', 150_000), 422, "too_many_texts", TEXTS),
        ('{"texts": ["x"]' + "".join(f', "{key}": 1' for key in range(80_000)) + "}", 422, "too_many_keys", KEYS),
        (_listing('{"a": 1}', 90_000), 422, "too_many_keys", KEYS),
        ('{"texts": ' + "[" * 400_000, 400, "not_json", DEEP),
        ('{"texts": ' + "[" * 600 + "]" * 600 + "}", 400, "not_json", DEEP),
        (f'{{"texts": ["x"], "beam_size": 1{"0" * 900_000}}}', 400, "not_json", NO_JSON),
    ],
    ids=["numbers", "strings", "objects", "pairs", "keys", "keys of objects", "open", "deep", "number"],
)  # fmt: skip
def test_a_malformed_body_is_refused_before_its_values_are_made(
    client, path, body, status, code, message, error_of
):
    start = time.monotonic()
    response = client.post(f"/v1/{path}", content=body, headers=JSON)
    assert time.monotonic() - start < 1
    assert error_of(response, status, code) == message


def test_what_counts_for_one_limit_counts_for_explain_and_without_a_classifier_too(make_app, echo, error_of):
    with TestClient(make_app(echo())) as client:
        for path in ("classify", "explain"):
            response = client.post(f"/v1/{path}", content=_listing("1", 30_000), headers=JSON)
            assert error_of(response, 422, "too_many_texts") == TEXTS


@pytest.mark.parametrize(
    "body",
    [
        _listing("1", 30).encode("utf-16-le"),
        '{"texts": ["\u2200", 1, "\u2200"]}'.encode("utf-16"),
        b'{\0"\0t\0"\0:\0[\0]\0}\0',
    ],
)
def test_what_is_counted_is_what_is_read(client, body, error_of):
    """Marks of JSON in UTF-16 are not where a count of bytes finds them."""
    message = error_of(client.post("/v1/translate", content=body, headers=JSON), 400, "not_json")
    assert message.startswith("body: expected JSON, got")


def test_a_byte_order_mark_and_escapes_are_json(client):
    text = 'a "[{,:}]" \\ \u2028 \U0001f701' * 40  # marks within strings count for nothing
    for body in (json.dumps({"texts": [text] * 100}), json.dumps({"texts": [text]}, ensure_ascii=False)):
        response = client.post("/v1/translate", content=b"\xef\xbb\xbf" + body.encode(), headers=JSON)
        assert response.json()["translations"][0]["text"] == text.upper()


def test_as_many_values_as_there_may_be(make_app):
    """The largest pairs that are allowed are no malformed body, nor is a single text, all of it escaped."""
    with TestClient(make_app(max_texts=128, max_characters=90_000)) as client:
        body = {"texts": [["x", "y"]] * 128, "model": "pairs"}
        assert client.post("/v1/classify", json=body).status_code == 200
        body = json.dumps({"texts": ["\U0001f701" * 90_000]})
        assert client.post("/v1/translate", content=body, headers=JSON).status_code == 200


def test_a_body_of_two_megabytes_is_refused_unless_asked_for(make_app, error_of):
    body = json.dumps({"texts": ["x" * 2_000_000]})
    with TestClient(make_app(max_body_bytes=3_000_000)) as client:
        error_of(client.post("/v1/translate", content=body, headers=JSON), 422, "text_too_long")
    with TestClient(make_app()) as client:
        message = error_of(client.post("/v1/translate", content=body, headers=JSON), 413, "too_large")
        assert message.startswith("body: expected at most 1280000 bytes, got 2000")
        headers = {**JSON, "content-length": "9" * 5000}
        message = error_of(client.post("/v1/translate", content=b"{}", headers=headers), 413, "too_large")
        assert len(message) < 200


LONG = "x" * 900_000


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("translate", {"texts": ["x"], "model": LONG}, f"model: expected one of echo, second, got '{'x' * 59}…. See GET /v1/models."),
        ("classify", {"texts": ["x"], "model": LONG}, f"model: expected one of length, pairs, got '{'x' * 59}…. See GET /v1/models."),
        ("explain", {"text": "x", "model": LONG}, f"model: expected one of echo, second, length, pairs, got '{'x' * 59}…. See GET /v1/models."),
        ("translate", {"texts": ["x"], LONG: 1}, f"{'x' * 60}: unknown field."),
        ("translate", {"texts": ["x"], "\ud800": 1}, "body: expected a valid string, unable to parse raw data as a unicode string, got '\\ud800'."),
        ("translate", {"texts": LONG}, f"texts: expected a valid list, got '{'x' * 59}…."),
        ("translate", {"texts": ["x"], "beam_size": {"x": LONG}}, f"beam_size: expected a valid integer, got {{'x': '{'x' * 53}…."),
    ],
)  # fmt: skip
def test_what_was_sent_comes_back_in_sixty_characters(client, path, body, message):
    response = client.post(f"/v1/{path}", content=json.dumps(body), headers=JSON)
    assert response.json()["error"]["message"] == message
    assert response.status_code == 422


def test_many_long_keys_and_a_long_path_are_a_short_answer(client):
    body = {f"{key}{'x' * 5000}": 1 for key in range(40)}
    response = client.post("/v1/translate", json=body)
    assert (response.status_code, len(response.content) < 2500) == (422, True)
    response = client.get("/" + "x" * 50_000)
    assert response.json()["error"]["message"].endswith(f"got '/{'x' * 58}…. See /openapi.json.")


HOST = "host: expected localhost or a name that --allowed-host gives, got {}. Start the service with --allowed-host NAME."


@pytest.mark.parametrize("path", ["/healthz", "/v1/models", "/metrics", "/"])
@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:8000", "localhost.attacker.example", "10.0.0.7", "[fe80::1]", ""]
)  # fmt: skip
def test_a_name_of_somebody_else_is_not_answered(make_app, path, host, error_of):
    with TestClient(make_app(allowed_hosts=[])) as client:
        response = client.get(path, headers={"host": host})
        assert error_of(response, 421, "wrong_host") == HOST.format(repr(host))
        assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("names", "answered", "refused"),
    [
        ([], ["localhost", "LOCALHOST:8000", "localhost.", "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000", "127.0.0.2:1"], []),
        (["Translate.example.org", "192.168.1.5:8000", "[2001:db8::7]"],
         ["translate.example.org", "TRANSLATE.example.org:443", "192.168.1.5", "[2001:db8::7]:80", "localhost"],
         ["example.org", "a.translate.example.org", "192.168.1.50"]),
    ],
)  # fmt: skip
def test_names_of_this_machine_and_those_that_were_allowed_are_answered(make_app, names, answered, refused):
    with TestClient(make_app(allowed_hosts=names)) as client:
        for host in (*answered, *refused):
            status = 200 if host in answered else 421
            assert client.get("/healthz", headers={"host": host}).status_code == status


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer", "bEARER "])
def test_a_scheme_is_one_in_any_case(make_app, scheme):
    with TestClient(make_app(api_key="s3cret")) as client:
        assert client.get("/v1/models", headers={"authorization": f"{scheme} s3cret"}).status_code == 200
        for other in (f"{scheme} S3CRET", f"{scheme} ", "Basic s3cret"):
            assert client.get("/v1/models", headers={"authorization": other}).status_code == 401


class Panic(BaseException):
    """As what comes out of a library in Rust: no `Exception`."""


def test_a_panic_of_a_model_fails_its_request_and_no_other(make_app, echo, error_of):
    gate = threading.Event()

    class Panicking(echo):
        def work(self, settings, items, is_over=None):
            gate.wait(10)
            if "panic" in items:
                raise Panic("regex: index out of bounds")
            return super().work(settings, items, is_over)

    engine = Panicking()
    app = make_app(engine, deadline_s=5)
    with TestClient(app) as client:
        waiting = {}
        with ThreadPoolExecutor(4) as threads:
            for text in ("first", "a", "panic", "b"):
                waiting[text] = threads.submit(client.post, "/v1/translate", json={"texts": [text]})
                time.sleep(0.1)  # the first is being worked on, the others wait and share a batch
            gate.set()
        message = error_of(waiting.pop("panic").result(), 500, "internal")
        assert message == "service: expected to answer, got an internal error. See its log."
        for text, answer in waiting.items():
            assert answer.result().json()["translations"][0]["text"] == text.upper()
        assert client.post("/v1/translate", json={"texts": ["later"]}).status_code == 200


@pytest.mark.parametrize("n_texts", [1, 9])
def test_a_panic_of_a_tokenizer_is_the_fault_of_the_text(make_app, echo, error_of, n_texts):
    class PanicException(BaseException):
        """As the tokenizers library names it; pieces of many texts are counted in another thread."""

    class Panicking(echo):
        def costs(self, settings, items):
            raise PanicException("regex: index out of bounds")

    with TestClient(make_app(Panicking(), max_characters=30)) as client:
        answer = client.post("/v1/translate", json={"texts": ["x"] * n_texts})
    message = error_of(answer, 422, "invalid")
    assert message == "tokenizer: expected one that can cut every text, got: regex: index out of bounds"


@pytest.mark.parametrize("shown", ["alignment", "attention"])
def test_what_grows_with_the_square_of_a_text_is_held_to_short_ones(make_app, echo, error_of, shown):
    with TestClient(make_app(echo(shows=("tags", shown)), max_explained_characters=11)) as client:
        for texts, cost in (["x" * 12], 144), (["x" * 9, "y" * 7], 130), (["x" * 11, ""], None):
            body = {"texts": texts, "show": ["tags"]}
            assert client.post("/v1/translate", json=body).status_code == 200
            answer = client.post("/v1/translate", json={**body, "show": [shown]})
            if cost is None:
                assert answer.status_code == 200
                continue
            message = error_of(answer, 422, "text_too_long")
            assert message.startswith(
                "texts: expected at most 11 characters in one, or 121 as the sum of the sq"
            )
            assert f"got {cost}." in message
