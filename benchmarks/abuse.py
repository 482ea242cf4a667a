"""Requests that mean harm to a service, and what an innocent client waits beside them.

    python benchmarks/abuse.py MODEL [--export FOLDER] [--classifier FOLDER] [--seconds 60]

It starts `python -m syntaxformer serve` on a free port of this machine, once for MODEL and once for its
export. Beside each crowd of hostile clients (see `crowds`) two innocent ones send one line again and again: a
client of another address than the crowd's, and a client of the same address. Then SIGTERM comes under load.
It ends with 1 where the 99th percentile of the innocent client of another address is over 2 s, where that
client gets 503, or where the service takes more than 10 s to end.

With `--malformed` it sends about fifty malformed or heavy requests instead, of a minute each at most, and
ends with 1 where `/healthz` waits for longer than a second or memory grows by more than 300 MB. All traffic
stays within 127.0.0.0/8.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

P99_S, STOP_S = 2.0, 10.0
STALL_S, GROWTH_MB = 1.0, 300
TIMEOUT_S = 60

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
"""Addresses of the crowd and of one innocent client; clients of a crowd that come from several have more."""

LINE = "Two dogs play in the snow ."


def bodies(limit):
    """Name → body; most have as many bytes as the service takes, and are not refused for their length."""
    room = limit - 100
    listed = {
        "numbers": b"1",
        "strings": b'""',
        "lists": b"[]",
        "objects": b"{}",
        "pairs of numbers": b"[1,1]",
        "objects with keys": b'{"a":1}',
        "nulls": b"null",
    }
    for name, item in listed.items():
        yield f"as many {name} as fit", b'{"texts":[' + b",".join([item] * (room // (len(item) + 1))) + b"]}"
    keys = b",".join(b'"k%d":1' % number for number in range(room // 12))
    yield "as many unknown keys as fit", b'{"texts":["a"],' + keys + b"}"
    yield "brackets", b'{"texts":' + b"[" * room
    yield "brackets of objects", b'{"a":' * (room // 5)
    yield "a number of as many digits", b'{"texts":["a"],"beam_size":' + b"9" * room + b"}"
    yield "a fraction of as many digits", b'{"texts":["a"],"length_penalty":0.' + b"9" * room + b"}"
    yield "many long numbers", b'{"texts":[' + b",".join([b"9" * 4000] * (room // 4001)) + b"]}"
    yield "a long name of a model", b'{"texts":["a"],"model":"' + b"m" * room + b'"}'
    yield "a long unknown key", b'{"texts":["a"],"' + b"k" * room + b'":1}'
    yield "a long text", b'{"texts":["' + b"t " * (room // 2) + b'"]}'
    yield "a long text of escapes", b'{"texts":["' + rb"\ud83d\ude00" * (room // 12) + b'"]}'
    yield "quotes", b'{"texts":["' + rb"\"" * (room // 2) + b'"]}'
    yield "an open string", b'{"texts":["' + b"\\" * room
    yield "UTF-16", ('{"texts":[' + ",".join(["1"] * (room // 4)) + "]}").encode("utf-16-le")[:room]
    yield "no UTF-8", b"\xff" * room
    yield "1,000,000 numbers", b'{"texts":[' + b",".join([b"1"] * 1_000_000) + b"]}"
    yield "3,840,000 numbers", b'{"texts":[' + b",".join([b"1"] * 3_840_000) + b"]}"
    yield "500,000 unknown keys", b"{" + b",".join(b'"k%d":1' % number for number in range(500_000)) + b"}"
    yield "a model's name of 6 MB", b'{"texts":["a"],"model":"' + b"m" * 6_000_000 + b'"}'


def requests(limit):
    """Name and bytes of each request."""
    for path in ("translate", "classify"):
        for name, body in bodies(limit):
            yield f"/v1/{path}: {name}", head(f"POST /v1/{path}", f"content-length: {len(body)}") + body
    for name, texts in (("long texts", ["a " * 2480] * 3), ("as much as is allowed", ["a " * 44] * 128)):
        body = json.dumps({"texts": texts, "show": ["attention"]}).encode()
        length = f"content-length: {len(body)}"
        yield f"/v1/translate: attention of {name}", head("POST /v1/translate", length) + body
    text = json.dumps({"text": "a " * 500}).encode()
    yield "/v1/explain: 500 words", head("POST /v1/explain", f"content-length: {len(text)}") + text
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in b'{"texts":[' + b"1," * 100_000) + b"0\r\n\r\n"
    yield "/v1/translate: chunks of a byte", head("POST /v1/translate", "transfer-encoding: chunked") + chunks
    yield "a long path", head("GET /" + "p" * 60_000)
    yield "many headers", head("GET /healthz", *(f"x-{number}: 1" for number in range(4000)))
    yield "another's name", head("GET /v1/models", host="attacker.example")


def head(line, *headers, host="127.0.0.1"):
    fields = [f"host: {host}", "content-type: application/json", "connection: close", *headers]
    return "\r\n".join([f"{line} HTTP/1.1", *fields, "", ""]).encode()


class Health(threading.Thread):
    """Asks `/healthz` without a pause, on one connection; the longest answer is the stall."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self.longest, self.is_over = 0.0, False

    def run(self):
        while not self.is_over:
            start = time.monotonic()
            with suppress(OSError, http.client.HTTPException):  # no answer counts as one that took as long
                self.connection.request("GET", "/healthz")
                self.connection.getresponse().read()
            self.longest = max(self.longest, time.monotonic() - start)
            time.sleep(0.01)


def memory_mb(pid, field):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(field)).split()[1]) / 1024


def send(port, request):
    """The status of a request, or what became of it."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as client:
        with suppress(OSError):  # refused before all of it was read
            client.sendall(request)
        try:
            return [*client.recv(4096).split(b" "), b"", b"closed"][1].decode() or "closed"
        except OSError:
            return "closed"


def measure(process, port, request):
    """Status, seconds, stall in seconds, and the largest memory meanwhile in MB."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the largest so far is the present one
    health = Health(port)
    health.start()
    time.sleep(0.1)
    start = time.monotonic()
    status = send(port, request)
    seconds = time.monotonic() - start
    time.sleep(0.1)
    health.is_over = True
    health.join(TIMEOUT_S)
    return status, seconds, health.longest, memory_mb(process.pid, "VmHWM")


class Client(threading.Thread):
    """Sends a body again and again, on a new connection each time if it leaves before the answer."""

    def __init__(self, port, path, body, address=HERE, leave_s=None, pause_s=0.05):
        super().__init__(daemon=True)
        self.port, self.path, self.address, self.leave_s = port, path, address, leave_s
        self.body, self.pause_s, self.is_over = json.dumps(body), pause_s, False
        self.seconds, self.statuses = [], Counter()

    def run(self):
        while not self.is_over:
            connection = http.client.HTTPConnection(
                "127.0.0.1", self.port, timeout=self.leave_s or TIMEOUT_S, source_address=(self.address, 0)
            )
            with suppress(OSError, http.client.HTTPException):
                while not self.is_over:
                    self.once(connection)
            connection.close()
            time.sleep(self.pause_s)

    def once(self, connection):
        start, status = time.monotonic(), "closed"
        try:
            connection.request("POST", self.path, self.body, {"content-type": "application/json"})
            response = connection.getresponse()
            response.read()
            status = response.status
        except TimeoutError:
            status = "left" if self.leave_s else "no answer"
            raise
        except ConnectionRefusedError:
            status = "refused"
            raise
        finally:
            self.statuses[status] += 1
            self.seconds.append(time.monotonic() - start)
        time.sleep(self.pause_s)


class HalfOpen:
    """Connections that begin a request and send no more; those that are closed are opened again."""

    def __init__(self, port, n_sockets):
        self.port, self.n_sockets, self.sockets, self.is_over = port, n_sockets, [], False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.statuses = Counter()

    def start(self):
        self.thread.start()

    def run(self):
        while not self.is_over:
            for _ in range(self.n_sockets - len(self.sockets)):
                with suppress(OSError):
                    client = socket.create_connection(("127.0.0.1", self.port), timeout=1)
                    client.sendall(b"POST /v1/translate HTTP/1.1\r\nhost: loc")
                    client.setblocking(False)
                    self.sockets.append(client)
                    self.statuses["opened"] += 1
            for client in list(self.sockets):
                with suppress(BlockingIOError):
                    data = b""
                    with suppress(ConnectionError):
                        data = client.recv(100)
                    if not data:
                        client.close()
                        self.sockets.remove(client)
            time.sleep(0.5)

    def join(self, timeout_s):
        self.thread.join(timeout_s)
        for client in self.sockets:
            client.close()


def translation(texts, **settings):
    return "/v1/translate", {"texts": texts, **settings}


def crowds(port, has_classifier):
    """Name → the path of the innocent, and hostile clients."""
    many = translation(["x " * 50] * 64, beam_size=20)
    long = translation(["the old man on the hill saw a dog . " * 138] * 8, beam_size=20)
    pieces = translation(["x " * 110] * 8, beam_size=20)
    tags = translation(["the dog that the man saw ran . " * 160] * 128, beam_size=1, show=["tags"])
    explained = "/v1/explain", {"text": "the dog that the man saw ran . " * 32}
    listed = {
        "64 texts, beam 20": ("translate", [Client(port, *many)]),
        "the same, left after 0.3 s": ("translate", [Client(port, *many, leave_s=0.3)]),
        "4 clients, 8 texts of 5,000 characters, beam 20": (
            "translate",
            [Client(port, *long, address=f"127.0.0.{3 + n}") for n in range(4)],
        ),
        "4 clients, 8 texts of 220 characters, beam 20": (
            "translate",
            [Client(port, *pieces, address=f"127.0.0.{3 + n}") for n in range(4)],
        ),
        "128 texts of 5,000 characters, tags": ("translate", [Client(port, *tags) for _ in range(2)]),
        "1,000 characters explained": ("translate", [Client(port, *explained) for _ in range(4)]),
        "700 half-open sockets": ("translate", [HalfOpen(port, 700)]),
    }
    if has_classifier:
        for name, text in (("words", "the dog that the man saw ran "), ("letters", "x ")):
            body = {"texts": [text * (5000 // len(text))] * 128}
            clients = [Client(port, "/v1/classify", body, address=f"127.0.0.{3 + n}") for n in range(2)]
            listed[f"2 clients, 128 texts of 5,000 characters of {name}, classified"] = "classify", clients
    return listed


def crowd_row(name, port, path, hostile, seconds):
    """What two innocent clients wait beside a crowd; the row of the table, and whether all is well."""
    innocent = [Client(port, f"/v1/{path}", {"texts": [LINE]}, address) for address in (ELSEWHERE, HERE)]
    for client in hostile:
        client.start()
    time.sleep(1)
    for client in innocent:
        client.start()
    time.sleep(seconds)
    for client in (*hostile, *innocent):
        client.is_over = True
    for client in (*hostile, *innocent):
        client.join(TIMEOUT_S)
    theirs = sum((client.statuses for client in hostile), Counter())
    cells = [f"| {name} "]
    for client in innocent:
        ordered = sorted(client.seconds)
        p50, p99, longest = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99, 1))
        cells.append(f"| {p50:.2f} / {p99:.2f} / {longest:.2f} | {in_words(client.statuses)} ")
    print("".join(cells) + f"| {in_words(theirs)} |", flush=True)
    ordered = sorted(innocent[0].seconds)
    return ordered[int(0.99 * (len(ordered) - 1))] <= P99_S and set(innocent[0].statuses) == {200}


def in_words(statuses):
    return ", ".join(f"{status}: {number}" for status, number in sorted(statuses.items(), key=str))


def stop_row(process, port):
    """SIGTERM under load: seconds until the process has ended, and what those in flight got."""
    many = translation(["x " * 50] * 64, beam_size=20)
    clients = [Client(port, *many, address=f"127.0.0.{3 + n}") for n in range(3)]
    clients += [Client(port, *translation([LINE]), address=ELSEWHERE) for _ in range(3)]
    for client in clients:
        client.start()
    time.sleep(3)
    for client in clients:
        client.statuses, client.is_over = Counter(), True  # one more answer, that to what is in flight
    start = time.monotonic()
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(300)
    seconds = time.monotonic() - start
    for client in clients:
        client.join(TIMEOUT_S)
    statuses = sum((client.statuses for client in clients), Counter())
    print(f"\nSIGTERM: ended after {seconds:.1f} s; in flight: {in_words(statuses)}", flush=True)
    return seconds <= STOP_S and set(statuses) <= {200, 422, 503, "refused"}


def stand(folders, seconds):
    """Run all crowds beside one service; whether all is well."""
    process, port = start(*folders)
    is_well = True
    with ExitStack() as stack:
        stack.callback(process.wait, TIMEOUT_S)
        stack.callback(process.kill)
        print(f"\n{', '.join(map(str, folders))}: p50 / p99 / longest in seconds, and statuses\n")
        print(f"| crowd | another address | | the same address | | crowd's statuses |\n|{'---|' * 6}")
        for name, (path, hostile) in crowds(port, len(folders) > 1).items():
            is_well &= crowd_row(name, port, path, hostile, seconds)
        is_well &= stop_row(process, port)
    return is_well


def start(*folders):
    command = [sys.executable, "-m", "syntaxformer", "serve", *map(str, folders), "--port", "0"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    for line in process.stderr:
        if "Uvicorn running on" in line:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, int(json.loads(line)["event"].split(":")[2].split()[0])
        print(line, end="", file=sys.stderr)
    raise SystemExit("the service did not start")


def malformed(arguments):
    """Run the table of single requests; whether all is well."""
    process, port = start(arguments.model)
    worst_s = worst_mb = 0.0
    try:
        send(port, head("GET /v1/models"))
        before = memory_mb(process.pid, "VmRSS")
        print(f"| request | bytes | status | s | /healthz, ms | + MB of {before:.0f} |\n|{'---|' * 6}")
        for name, request in requests(arguments.limit):
            status, seconds, stall, peak = measure(process, port, request)
            worst_s, worst_mb = max(worst_s, stall), max(worst_mb, peak - before)
            found = f"{len(request):,} | {status} | {seconds:.2f} | {1000 * stall:.0f} | {peak - before:.0f}"
            print(f"| {name} | {found} |", flush=True)
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
    print(
        f"\n/healthz: {worst_s:.2f} s, at most {STALL_S:g}; memory: +{worst_mb:.0f} MB, at most {GROWTH_MB}"
    )
    return worst_s <= STALL_S and worst_mb <= GROWTH_MB


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--limit", type=int, default=1_280_000, help="bytes of a body that the service takes")
    parser.add_argument("--export", type=Path, help="an export of MODEL, to be tried after it")
    parser.add_argument(
        "--classifier", type=Path, help="a classifier with masks, served beside the translators"
    )
    parser.add_argument("--seconds", type=float, default=60, help="of each crowd")
    parser.add_argument("--malformed", action="store_true", help="send single malformed requests instead")
    arguments = parser.parse_args()
    if arguments.malformed:
        raise SystemExit(not malformed(arguments))
    others = [arguments.classifier] if arguments.classifier else []
    translators = [arguments.model, arguments.export] if arguments.export else [arguments.model]
    outcomes = [stand([one, *others], arguments.seconds) for one in translators]
    raise SystemExit(not all(outcomes))


if __name__ == "__main__":
    main()
