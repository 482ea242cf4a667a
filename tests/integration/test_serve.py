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
from contextlib import ExitStack, closing
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

    def ask(self, method, path, body=None, **headers):
        """The status and the body of an answer."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()

    def translate(self, text, **headers):
        body = json.dumps({"texts": [text]})
        status, answer = self.ask(
            "POST", "/v1/translate", body, **headers, **{"content-type": "application/json"}
        )
        return status, json.loads(answer)


@pytest.mark.slow
def test_sigterm_under_load_loses_no_accepted_request():
    answers, refused = {}, []

    def client(number):
        for turn in range(1000):
            request_id, text = f"c{number}-{turn}", f"text {number} {turn}"
            try:
                status, answer = server.translate(text, **{"x-request-id": request_id})
                answers[request_id] = status, answer["translations"][0]["text"], text
            except (OSError, http.client.HTTPException):  # or taken off the line before the server read it
                refused.append(request_id)
                return

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
    assert all((status, output) == (200, text.upper()) for status, output, text in answers.values())
    records = [line for line in map(json.loads, server.lines) if line["event"] == "request"]
    assert {line["request_id"] for line in records if line["status"] == 200} == set(answers)
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
        status, answer = server.translate("x")
        statuses.append((status, answer["error"]["code"]))

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
                assert server.ask("GET", "/healthz") == (200, b'{"status":"ok"}')
                seconds.append(time.monotonic() - began)
    assert max(seconds) < 5


def test_the_example_of_nginx_is_one_that_it_takes(tmp_path):
    nginx = shutil.which("nginx") or pytest.skip("nginx is not installed")
    config = Path(__file__).parents[2] / "docs" / "guides" / "nginx.conf"
    command = [nginx, "-t", "-p", str(tmp_path), "-c", str(config), "-e", str(tmp_path / "error.log")]
    command += ["-g", f"pid {tmp_path}/pid;"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
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
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)  # a dead worker's health: 60 s
    message = f"--workers: expected each to load the models, got: {tmp_path}/manifest.json: expected "
    assert done.stdout.startswith(message)
    assert "Traceback" not in done.stderr


@pytest.fixture
def serve(monkeypatch, cli, tmp_path):
    """The command, to which any folder is a model; gives its status, its message, and the settings with which it loads."""
    from syntaxformer.serve import server

    served = []
    monkeypatch.setattr(server, "check_folder", lambda *_: None)
    monkeypatch.setattr(server, "_build", served.append)
    monkeypatch.setattr(server, "serve_app", lambda app, config: None)

    def call(*options):
        done = cli("serve", tmp_path, *options)
        return done.code, done.err, served

    return call


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--deadline inf", "--deadline: expected a finite number of seconds, got inf."),
        ("--deadline nan", "Invalid value for '--deadline'"),
        ("--batch-seconds inf", "--batch-seconds: expected a finite number of seconds, got inf."),
        ("--batch-seconds nan", "Invalid value for '--batch-seconds'"),
        ("--host no.such.host.invalid", "--host, --port: expected an address to listen on, got no.such.host.invalid:8000"),
        *((f"--port 0 --host {host}",
           f"--allowed-host: expected the names by which others call {host}, got none. Give each name that the header `Host` may have: "
           "--allowed-host NAME.\n") for host in ("0.0.0.0", "::")),
        # An empty one is that of a variable that is not set: the service would refuse everybody.
        *((f"--port 0 --allowed-host a.example:8000 --allowed-host {name}",
           f"--allowed-host: expected a host's name or address, such as example.org, got {name!r}.")
          for name in ("", "*", "https://example.org", "example.org/translate", "2001:db8::7")),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_one_line_before_anything_is_loaded(serve, options, message):
    code, err, served = serve(*options.split(" "))
    assert (code, err.count("\n"), served) == (2, 1, [])
    assert err.startswith(f"error: {message}")


def test_a_port_that_is_taken(serve):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = "{}:{}".format(*other.getsockname())
        code, err, _ = serve("--port", address.partition(":")[2])
    message = f"--host, --port: expected an address to listen on, got {address}: Address already in use."
    assert (code, err) == (2, f"error: {message}\n")


@pytest.mark.parametrize("options", ["--host 0.0.0.0 --allowed-host a.example", "--host localhost", ""])
def test_options_reach_the_service(serve, options):
    code, err, (config,) = serve("--port", 0, "--max-body-bytes", 12345, *options.split())
    assert (code, err) == (0, "")
    assert (config.allowed_hosts, config.max_body_bytes) == (options.split()[3:4], 12345)
