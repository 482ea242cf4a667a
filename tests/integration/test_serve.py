"""A real server in a process of its own: told to stop under load, it finishes what it took."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

SERVER = """
import sys, time
from types import SimpleNamespace
from syntaxformer.serve import ServiceConfig, create_app
from syntaxformer.serve.engines import TranslatorEngine
from syntaxformer.serve.schemas import ModelDescription, Translation
from syntaxformer.serve.server import serve_app

class Slow(TranslatorEngine):
    def __init__(self):
        self.translator = SimpleNamespace(info=SimpleNamespace(decoding=SimpleNamespace(beam_size=5)))
        self.description = ModelDescription(name="slow", task="translation", backend="none")
    def work(self, settings, items, is_over=None):
        time.sleep(0.15)
        return [Translation(text=text.upper()) for text in items]

config = ServiceConfig(models={"slow": "."}, port=0, max_batch=4)
serve_app(create_app(config, {"slow": Slow()}), config)
"""


class Server:
    """The process, and what it wrote to its log."""

    def __init__(self, script):
        self.lines = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )  # fmt: skip
        self.ready = threading.Event()
        self.port = 0
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if "Uvicorn running on" in line:
                self.port = int(json.loads(line)["event"].split(":")[2].split()[0])
                self.ready.set()
        self.ready.set()

    def __enter__(self):
        assert self.ready.wait(120)
        assert self.port, "".join(self.lines)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(20)
        self.reader.join(10)
        self.process.stderr.close()

    def answered(self):
        """Ids of the requests that the log says were answered with 200."""
        records = map(json.loads, self.lines)
        return {
            line["request_id"] for line in records if line["event"] == "request" and line["status"] == 200
        }


@pytest.mark.slow
def test_sigterm_under_load_loses_no_accepted_request():
    answers, refused = {}, []

    def client(number):
        for turn in range(1000):
            request_id, text = f"c{number}-{turn}", f"text {number} {turn}"
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            try:
                body = json.dumps({"texts": [text]})
                headers = {"content-type": "application/json", "x-request-id": request_id}
                connection.request("POST", "/v1/translate", body, headers)
                response = connection.getresponse()
                answers[request_id] = (
                    response.status,
                    json.loads(response.read())["translations"][0]["text"],
                    text,
                )
            except (OSError, http.client.HTTPException):  # or taken off the line before the server read it
                refused.append(request_id)
                return
            finally:
                connection.close()

    with Server(SERVER) as server:
        threads = [threading.Thread(target=client, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        while len(answers) < 12:
            time.sleep(0.02)
        before = len(answers)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(60)
        server.process.wait(60)
    assert len(answers) > before  # what was in its hands when told to stop, it finished
    assert all(
        status == 200 and translation == text.upper() for status, translation, text in answers.values()
    )
    assert server.answered() == set(answers)
    assert len(refused) == 12  # each client's last word: nobody listens any more
    assert any("Finished server process" in line for line in server.lines)


STUCK = SERVER.replace(
    "        time.sleep(0.15)",
    """        while not is_over():
            time.sleep(0.01)
        raise TimeoutError""",
).replace("import sys, time", "import sys, time, syntaxformer.serve.app as app; app.STOP_S = 0.3")


@pytest.mark.slow
def test_sigterm_ends_what_takes_long_with_503():
    statuses = []

    def ask():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("POST", "/v1/translate", '{"texts": ["x"]}', {"content-type": "application/json"})
        response = connection.getresponse()
        statuses.append((response.status, json.loads(response.read())["error"]["code"]))
        connection.close()

    with Server(STUCK) as server:
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
        assert time.monotonic() - start < 10
        for thread in threads:
            thread.join(10)
    assert statuses == [(503, "too_late")] * 3


@pytest.mark.slow
def test_half_open_connections_do_not_take_all_files():
    """They are more than the files that the process may open, and none of them is closed by its client."""
    pytest.importorskip("resource", reason="there is no limit of files here")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600))\n"
    seconds = []
    with ExitStack() as stack, Server(limit + SERVER) as server:
        for start in (
            b"",
            b"GET /healthz HTTP/1.1\r\nhost: loc",
            b"POST /v1/translate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{",
        ):
            for _ in range(250):
                client = socket.create_connection(("127.0.0.1", server.port), timeout=5)
                stack.enter_context(client).sendall(start)
                time.sleep(0.001)
            for _ in range(5):
                began = time.monotonic()
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
                connection.request("GET", "/healthz")
                assert connection.getresponse().read() == b'{"status":"ok"}'
                connection.close()
                seconds.append(time.monotonic() - began)
    assert max(seconds) < 5


def test_the_example_of_nginx_is_one_that_it_takes(tmp_path):
    nginx = shutil.which("nginx") or pytest.skip("nginx is not installed")
    config = Path(__file__).parents[2] / "docs" / "guides" / "nginx.conf"
    command = [nginx, "-t", "-p", str(tmp_path), "-c", str(config), "-e", str(tmp_path / "error.log")]
    done = subprocess.run(
        [*command, "-g", f"pid {tmp_path}/pid;"], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_others_are_answered_while_a_body_comes_in_chunks_of_a_byte():
    """What takes the parser of HTTP seconds altogether may take it none at a time."""
    chunks = b"1\r\n1\r\n" * 150_000
    head = b"POST /v1/translate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked"
    with Server(SERVER) as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        sender = threading.Thread(target=client.sendall, args=(head + b"\r\n\r\n" + chunks + b"0\r\n\r\n",))
        sender.start()
        other = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        seconds, answer = [], threading.Thread(target=client.recv, args=(4096,))
        answer.start()
        while answer.is_alive():
            start = time.monotonic()
            other.request("GET", "/healthz")
            assert other.getresponse().read() == b'{"status":"ok"}'
            seconds.append(time.monotonic() - start)
        other.close()
        sender.join()
    assert max(seconds) < 1


@pytest.mark.slow
def test_workers_that_cannot_load_their_models_end_the_service_with_the_reason(tmp_path):
    script = """
import os, sys, time
from pathlib import Path
from uvicorn.supervisors.multiprocess import Process
from syntaxformer.base.errors import ConfigError
from syntaxformer.serve import ServiceConfig, server

def ping_when_it_has_failed(self, timeout, ping=Process.ping):
    while not Path(os.environ["PROMETHEUS_MULTIPROC_DIR"], server.FAILURE).exists():
        time.sleep(0.05)
    time.sleep(1)
    return ping(self, timeout)

Process.ping = ping_when_it_has_failed
server.check_folder = lambda *_: None  # it was damaged, or the device is gone, after the look at it
try:
    server.run(ServiceConfig(models={"none": sys.argv[1]}, port=0, workers=2))
except ConfigError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=50,  # the health of a dead worker is awaited for 60 s
        check=False,
    )
    assert done.stdout.startswith(
        f"--workers: expected each to load the models, got: {tmp_path}/manifest.json: expected "
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--deadline", "--batch-seconds"])
@pytest.mark.parametrize("seconds", ["inf", "nan"])
def test_seconds_that_never_end_are_one_line(cli, tmp_path, option, seconds):
    done = cli("serve", tmp_path, option, seconds)
    if seconds == "inf":
        assert done.err == f"error: {option}: expected a finite number of seconds, got inf.\n"
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert option in done.err


@pytest.fixture
def server(monkeypatch):
    """The module of the server, to which any folder is a model."""
    from syntaxformer.serve import server

    monkeypatch.setattr(server, "check_folder", lambda *_: None)
    return server


def test_a_link_keeps_its_name(tmp_path, monkeypatch):
    from syntaxformer.serve import name_models

    (tmp_path / "2026-11-22").mkdir()
    (tmp_path / "live").symlink_to("2026-11-22")
    assert name_models([tmp_path / "live", tmp_path / "2026-11-22"]) == {
        "live": tmp_path / "live",
        "2026-11-22": tmp_path / "2026-11-22",
    }
    monkeypatch.chdir(tmp_path / "2026-11-22")
    assert list(name_models([Path()])) == ["2026-11-22"]


def test_a_port_that_is_taken_is_one_line(cli, tmp_path, server):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = cli("serve", tmp_path, "--port", port)
    assert (done.code, done.err) == (
        2,
        f"error: --host, --port: expected an address to listen on, got 127.0.0.1:{port}: Address already in use.\n",
    )
    done = cli("serve", tmp_path, "--host", "no.such.host.invalid")
    message = "error: --host, --port: expected an address to listen on, got no.such.host.invalid:8000"
    assert (done.code, done.err[: len(message)], len(done.err.splitlines())) == (2, message, 1)


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_whom_others_call_must_know_its_names(cli, tmp_path, monkeypatch, server, address):
    monkeypatch.setattr(server, "_build", lambda config: pytest.fail("it was loaded"))
    done = cli("serve", tmp_path, "--port", 0, "--host", address)
    assert (done.code, done.err) == (
        2,
        f"error: --allowed-host: expected the names by which others call {address}, got none. Give each name that "
        "the header `Host` may have: --allowed-host NAME.\n",
    )


@pytest.mark.parametrize("name", ["", "*", "https://example.org", "example.org/translate", "2001:db8::7"])
def test_a_name_that_no_request_can_have_is_refused(cli, tmp_path, monkeypatch, server, name):
    """As of a variable that is not set: the service would refuse everybody."""
    monkeypatch.setattr(server, "_build", lambda config: pytest.fail("it was loaded"))
    result = cli("serve", tmp_path, "--port", 0, "--allowed-host", "a.example:8000", "--allowed-host", name)
    message = f"error: --allowed-host: expected a host's name or address, such as example.org, got {name!r}."
    assert (result.code, result.err[: len(message)]) == (2, message)


@pytest.mark.parametrize(
    "options", [["--host", "0.0.0.0", "--allowed-host", "a.example"], ["--host", "localhost"], []]
)
def test_what_is_told_reaches_the_service(cli, tmp_path, monkeypatch, server, options):
    served = []
    monkeypatch.setattr(server, "_build", lambda config: None)
    monkeypatch.setattr(server, "serve_app", lambda app, config: served.append(config))
    done = cli("serve", tmp_path, "--port", 0, "--max-body-bytes", 12345, *options)
    assert (done.code, done.err) == (0, "")
    (config,) = served
    assert (config.allowed_hosts, config.max_body_bytes) == (options[3:4], 12345)
