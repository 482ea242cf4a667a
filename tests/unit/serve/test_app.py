"""Routes by HTTP: answers, and a status and a sentence for every request that cannot be answered."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace

import httpx
import pytest
import uvicorn
from fastapi.testclient import TestClient

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.cli.serve import serve
from syntaxformer.serve import ServiceConfig, gate, server
from syntaxformer.serve.gate import JsonLines

JSON = {"content-type": "application/json"}


def test_options_reach_the_model(make_app, echo):
    engine = echo()
    body = {"beam_size": 7, "n_best": 3, "length_penalty": 0.5, "scores": True, "show": ["tags"]}
    with TestClient(make_app(engine)) as client:
        response = client.post("/v1/translate", json={"texts": ["x"], **body})
    hypotheses = response.json()["translations"][0]["hypotheses"]
    assert [hypothesis["text"] for hypothesis in hypotheses] == ["0", "1", "2"]
    ((settings, _),) = engine.batches
    assert {name: getattr(settings, name) for name in body} == body


def test_translate_and_classify(client):
    response = client.post("/v1/translate", json={"texts": ["a cat", "", "ß"]})
    assert response.status_code == 200
    translations = [{"text": text, "truncated": False} for text in ("A CAT", "", "SS")]
    assert response.json() == {"model": "echo", "translations": translations}
    pairs = {"texts": [["a", "a"], ["a", "b"]], "model": "pairs"}
    for body, labels in ({"texts": ["short", "much longer"]}, ["short", "long"]), (pairs, ["long", "short"]):
        answers = client.post("/v1/classify", json=body).json()["classifications"]
        assert [answer["label"] for answer in answers] == labels
    assert answers[0]["probabilities"] == {"short": 0.0, "long": 1.0}


def test_models_probes_and_counters(client):
    models = client.get("/v1/models").json()["models"]
    assert [(model["name"], model["task"]) for model in models][:3] == [
        ("echo", "translation"), ("second", "translation"), ("length", "classification"),
    ]  # fmt: skip
    assert client.get("/healthz").json() == {"status": "ok"}
    assert [client.head(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]
    assert client.get("/readyz").json() == {"status": "ready"}
    client.post("/v1/translate", json={"texts": ["a", "b"]})
    counters = client.get("/metrics").text
    assert 'syntaxformer_texts_total{model="echo"} 2.0' in counters
    assert 'syntaxformer_requests_total{path="/v1/translate",status="200"} 1.0' in counters


def test_not_ready_before_the_start_and_after_the_end(make_app):
    app = make_app()
    client = TestClient(app)
    assert client.get("/readyz").status_code == 503
    with client:
        assert client.get("/readyz").status_code == 200
    assert client.get("/readyz").json() == {"status": "not ready"}


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "message"),
    [
        ("translate", {"texts": []}, 422, "invalid", "texts: expected at least 1 item after validation, not 0, got []."),
        ("translate", {"texts": "x"}, 422, "invalid", "texts: expected a valid list, got 'x'."),
        ("translate", {"texts": [5]}, 422, "invalid", "texts.0: expected a valid string, got 5."),
        ("translate", {}, 422, "invalid", "texts: expected a value, got nothing."),
        ("translate", {"texts": ["x"], "beam": 5}, 422, "invalid", "beam: unknown field."),
        ("translate", {"texts": ["x"], "beam_size": 0}, 422, "invalid", "beam_size: expected greater than or equal to 1, got 0."),
        ("translate", {"texts": ["x"], "n_best": 6}, 422, "invalid", "n_best: expected at most the beam size, 5, got 6. Raise beam_size."),
        ("translate", {"texts": ["x"] * 8}, 422, "too_many_texts", "texts: expected at most 7, got 8. Send several requests."),
        ("translate", {"texts": ["x", "y" * 102]}, 422, "text_too_long", "texts.1: expected at most 101 characters, got 102. Send it in parts, such as sentences."),
        ("translate", {"texts": ["x"], "model": "none"}, 422, "no_such_model", "model: expected one of echo, second, got 'none'. See GET /v1/models."),
        ("translate", {"texts": ["x"], "model": "length"}, 422, "no_such_model", "model: expected one of echo, second, got 'length'. See GET /v1/models."),
        ("translate", {"texts": ["x"], "show": ["tags", "attention"]}, 422, "invalid", "show: expected tags, got attention, which echo, exported to ctranslate2, does not give. Ask a model that was not exported."),
        ("classify", {"texts": [["x", "y"], ["x", "y" * 102]], "model": "pairs"}, 422, "text_too_long", "texts.1.1: expected at most 101 characters, got 102. Send it in parts, such as sentences."),
        ("classify", {"texts": ["x", " "]}, 422, "empty_text", "texts.1: expected a text that is not empty, got ''."),
        ("classify", {"texts": [["x", "y"]]}, 422, "invalid", "texts.0: expected a text for length, got 2."),
        ("classify", {"texts": ["x"], "model": "pairs"}, 422, "invalid", "texts.0: expected a pair of texts for pairs, got 1."),
        ("classify", {"texts": ["x"], "model": "echo"}, 422, "no_such_model", "model: expected one of length, pairs, got 'echo'. See GET /v1/models."),
    ],
)  # fmt: skip
def test_what_cannot_be_says_what_to_change(make_app, path, body, status, code, message, error_of):
    with TestClient(make_app(max_texts=7, max_characters=101)) as client:
        assert error_of(client.post(f"/v1/{path}", json=body), status, code) == message


def test_a_pair_counts_as_one_text(make_app, error_of):
    with TestClient(make_app(max_texts=3)) as client:
        body = {"texts": [["x", "y"]] * 3, "model": "pairs"}
        few = client.post("/v1/classify", json=body)
        many = client.post("/v1/classify", json={**body, "texts": [["x", "y"]] * 4})
    assert (few.status_code, len(few.json()["classifications"])) == (200, 3)
    error_of(many, 422, "too_many_texts")


def test_no_model_of_the_task(make_app, echo, error_of):
    with TestClient(make_app(echo())) as client:
        message = error_of(client.post("/v1/classify", json={"texts": ["x"]}), 422, "no_such_model")
    assert message.startswith(
        "model: expected a classifier among the served models, which have none, got noth"
    )


OTHER_TYPE = "body: expected JSON, got another content type. Send"


@pytest.mark.parametrize(
    ("content", "kind", "statuses", "message"),
    [
        *((content, "application/json", (400, 422), "body: expected ") for content in (b"{", b"\xff\xfe\x00", b"", b'{"texts": [NaN')),
        *((b'{"texts": ["x"]}', kind, (422,), OTHER_TYPE) for kind in ("application/x-www-form-urlencoded", "text/plain")),
        (b'{"texts": ["fine", "a\\ud800b"]}', "application/json", (422,), "texts.1: expected Unicode text, got '\\ud800', half a character, at 1."),
        (b'{"texts": ["fine"], "model": "\\ud800", "length_penalty": NaN}', "application/json", (422,), "length_penalty: expected "),
    ],
)  # fmt: skip
def test_bodies_that_are_no_json_or_not_said_to_be_or_hold_half_a_character(
    client, content, kind, statuses, message
):
    response = client.post("/v1/translate", content=content, headers={"content-type": kind})
    assert response.status_code in statuses
    assert response.json()["error"]["message"].startswith(message)


def test_too_large_bodies(make_app, error_of):
    with TestClient(make_app(max_body_bytes=50)) as client:

        def parts():  # sent in chunks, without a length
            yield b'{"texts": ["'
            yield b"x" * 60
            yield b'"]}'

        response = client.post("/v1/translate", content=parts(), headers=JSON)
        message = error_of(response, 413, "too_large")
        assert message == "body: expected at most 50 bytes, got more. Send the texts in several requests."


def test_a_body_that_never_ends(make_app, error_of):
    """Its bytes may come one by one: the deadline is that of the whole."""

    async def parts():
        while True:
            yield b"{"
            await asyncio.sleep(0.05)

    async def ask(app):
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
        async with client:
            return await client.post("/v1/translate", content=parts(), headers=JSON)

    answer = asyncio.run(ask(make_app(deadline_s=0.3)))
    assert error_of(answer, 408, "too_slow") == "body: expected all of it within 0.3 s, got a part."


def test_the_key(make_app, error_of):
    with TestClient(make_app(api_key="s3cret é")) as client:

        def ask(**headers):
            return client.post("/v1/translate", json={"texts": ["x"]}, headers=headers)

        message = error_of(ask(), 401, "no_key")
        assert message.startswith(
            "key: expected the service's key, got none. Send the header `Authorization: "
        )
        wrong = ask(authorization="Bearer wrong")
        assert "got another" in error_of(wrong, 401, "no_key")
        assert wrong.headers["www-authenticate"] == "Bearer"
        key = "s3cret é".encode()
        assert ask(authorization=b"Bearer " + key).status_code == 200
        assert ask(**{"x-api-key": key}).status_code == 200
        assert client.get("/v1/models").status_code == 401
        assert client.get("/healthz").status_code == 200


def test_other_paths_and_methods(client, error_of):
    message = error_of(client.get("/nowhere"), 404, "no_such_path")
    assert message.startswith("path: expected one of the service's paths, got '/nowhere'.")
    response = client.get("/v1/translate")
    assert error_of(response, 405, "wrong_method") == "method: expected POST, got GET."
    assert response.headers["allow"] == "POST"


def test_request_ids(client):
    def ask(request_id):
        return client.get("/healthz", headers={"x-request-id": request_id}).headers["x-request-id"]

    assert ask("mine-1") == "mine-1"
    assert len(ask("no good\t" * 20)) == 32


@pytest.mark.parametrize("log_texts", [False, True])
def test_the_log_has_no_text_of_users_unless_asked(make_app, caplog, log_texts):
    caplog.set_level(logging.INFO, "syntaxformer.serve")
    with TestClient(make_app(log_texts=log_texts)) as client:
        client.post("/v1/translate", json={"texts": ["my secret"]})
    (record,) = [record for record in caplog.records if record.name == "syntaxformer.serve"]
    line = json.loads(JsonLines().format(record))
    expected = {"event": "request", "path": "/v1/translate", "status": 200, "texts": 1, "characters": 9}
    assert line.items() >= expected.items()
    assert line.get("content") == (["my secret"] if log_texts else None)
    assert ("my secret" in json.dumps(line)) is log_texts


def test_an_error_with_a_text_says_what_to_change(make_app, echo, caplog, error_of):
    def refuse(settings, items, is_over):
        raise DataError(f"text: expected another, got {items[0]!r}.")

    app = make_app()
    for engine in app.state.engines.values():
        app.state.batchers[engine.description.name].work = refuse
    with TestClient(app) as client:
        for path in ("translate", "classify"):
            message = error_of(client.post(f"/v1/{path}", json={"texts": ["x"]}), 422, "invalid")
            assert message == "text: expected another, got 'x'."
    assert "Traceback" not in caplog.text


@contextmanager
def _running(app, **options):
    """The application on a port of this machine; gives its address."""
    running = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none", **options))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        _wait_for(lambda: running.started)
        yield running.servers[0].sockets[0].getsockname()
    finally:
        running.should_exit = True
        thread.join(20)


def test_a_client_that_goes_away_ends_its_work(make_app, slow):
    app = make_app(slow, max_batch=1)
    body = json.dumps({"texts": ["x"] * 50}).encode()
    head = f"host: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    with _running(app) as address:
        with socket.create_connection(address) as client:
            client.sendall(f"POST /v1/translate HTTP/1.1\r\n{head}\r\n\r\n".encode() + body)
            _wait_for(lambda: b'syntaxformer_waiting_texts{model="echo"} 49.0' in app.state.metrics.text())
            time.sleep(0.3)  # it is looked for meanwhile, and still there
            assert b'status="499"' not in app.state.metrics.text()
        _wait_for(lambda: b'status="499"' in app.state.metrics.text())
        slow.gate.set()
    assert len(slow.batches) == 1


@pytest.mark.slow
def test_connections_that_ask_nothing_are_closed(make_app, monkeypatch):
    """Else a few hundred would take all files that the process may open."""
    monkeypatch.setattr(server, "HEAD_S", 0.4)
    head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
    with _running(make_app(), http=server.SmallReads) as address, ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection(address, timeout=5)) for _ in range(3)]
        silent, dripping, asking = connections
        for index in range(9):  # a byte more of a head begins no new time
            with suppress(OSError):
                dripping.sendall(head[index : index + 1])
            asking.sendall(head + b"\r\n")
            answer = b""
            while not answer.endswith(b'{"status":"ok"}'):
                answer += asking.recv(4096) or pytest.fail("the connection was closed")
            time.sleep(0.1)
        for connection in (silent, dripping):
            connection.settimeout(0.2)
            with suppress(ConnectionResetError):
                assert connection.recv(4096) == b""
        asking.sendall(head)
        assert asking.recv(4096) == b""


def _wait_for(event):
    deadline = time.monotonic() + 10
    while not event():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_settings_that_follow_from_others():
    config = ServiceConfig(models={}, max_texts=3, max_characters=11)
    assert config.max_body_bytes == 1_000_000
    assert ServiceConfig(models={}, max_characters=11_000).max_body_bytes == 2 * 128 * 11_000
    assert ServiceConfig.model_validate_json(config.model_dump_json()) == config


def test_too_many_at_once(make_app, slow):
    with TestClient(make_app(slow, max_waiting=1, deadline_s=0.3)) as client:
        with ThreadPoolExecutor(6) as threads:
            answers = [*threads.map(lambda _: client.post("/v1/translate", json={"texts": ["x"]}), range(6))]
        slow.gate.set()
    assert {answer.status_code for answer in answers} == {429, 503}
    assert all(answer.headers["retry-after"] for answer in answers)


@pytest.mark.parametrize(("value", "key"), [("abc\n", "abc"), (None, None), ("", ""), (" \n", "")])
def test_a_key_in_the_environment(monkeypatch, tmp_path, value, key):
    """An empty one, as of a secret that is not there, must not open the service."""
    keys = []
    monkeypatch.setattr("syntaxformer.serve.run", lambda config: keys.append(config.api_key))
    monkeypatch.delenv("SYNTAXFORMER_API_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("SYNTAXFORMER_API_KEY", value)
    if key != "":
        serve([tmp_path])
        assert keys == [key]
        return
    with pytest.raises(ConfigError, match=r"^SYNTAXFORMER_API_KEY: expected a key or no variable, got an em"):
        serve([tmp_path])
    file = tmp_path / "key"
    file.write_text("abc\n")
    serve([tmp_path], api_key_file=file)
    assert keys == ["abc"]
    file.write_text("abc\ndef\n")
    with pytest.raises(ConfigError, match=r"key, got 2 lines\. A service has one key\.$"):
        serve([tmp_path], api_key_file=file)


def test_the_log_says_what_is_loaded_and_measured(echo, monkeypatch, caplog, tmp_path):
    """Both take seconds in which nothing else is heard of the service."""
    caplog.set_level(logging.INFO, "syntaxformer")
    logged = []
    engine = echo("sit")
    engine.warm_up = lambda *_: logged.append(caplog.messages[-1])
    monkeypatch.setattr(server, "load_engine", lambda *_: logged.append(caplog.messages[-1]) or engine)
    server._build(ServiceConfig(models={"sit": tmp_path}))
    assert logged == [f"loading the model sit from {tmp_path}", "measuring how fast sit works"]


def test_one_worker_logs_as_several_do_from_its_first_line(monkeypatch):
    steps = []
    monkeypatch.setattr(server, "_log_as_json", lambda: steps.append("JSON"))
    monkeypatch.setattr(server, "_build", lambda config: steps.append("models"))
    monkeypatch.setattr(server, "serve_app", lambda *_: None)
    server.run(ServiceConfig(models={}, port=0))
    assert steps == ["JSON", "models"]


def test_a_new_worker_forgets_what_a_killed_one_had_waiting(monkeypatch, tmp_path):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setenv(server.CONFIG, ServiceConfig(models={}).model_dump_json())
    monkeypatch.setattr(server, "_log_as_json", lambda: None)
    for pid in (os.getpid(), 2**30):
        (tmp_path / f"gauge_livesum_{pid}.db").touch()
        (tmp_path / f"counter_{pid}.db").touch()
    monkeypatch.setattr(server, "_build", lambda config: None)
    ends = []
    monkeypatch.setattr(server, "end_with_parent", ends.append)
    server.app_from_environment()
    assert len(ends) == 1  # else it would go on answering if its parent is killed
    names = {f"gauge_livesum_{os.getpid()}.db", f"counter_{os.getpid()}.db", f"counter_{2**30}.db"}
    assert {path.name for path in tmp_path.glob("*.db")} == names


@pytest.mark.parametrize(
    ("address", "client"),
    [("192.0.2.7", "192.0.2.7"), ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"), ("::ffff:192.0.2.7", "::ffff:192.0.2.7"), ("testclient", "testclient")]
)  # fmt: skip
def test_whose_turn_it_is(address, client):
    """A client has a network of IPv6 for itself, and could take another address of it each time."""
    assert gate.client_of(SimpleNamespace(client=SimpleNamespace(host=address))) == client
