"""Requests that mean harm to a service: how long `/healthz` waits meanwhile, and what memory they take.

    python benchmarks/abuse.py MODEL

It starts `syntaxformer serve MODEL` on a free port of this machine, sends each request of the table once
(about fifty, of a minute each at most), and ends with 1 where `/healthz` waited for longer than a second
or memory grew by more than 300 MB. Nothing leaves the machine.
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
from contextlib import suppress
from pathlib import Path

STALL_S, GROWTH_MB = 1.0, 300
TIMEOUT_S = 60
SERVE = "from syntaxformer.cli.main import main; main()"


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


def start(model):
    command = [sys.executable, "-c", SERVE, "serve", str(model), "--port", "0"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    for line in process.stderr:
        if "Uvicorn running on" in line:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, int(json.loads(line)["event"].split(":")[2].split()[0])
        print(line, end="", file=sys.stderr)
    raise SystemExit("the service did not start")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--limit", type=int, default=1_280_000, help="bytes of a body that the service takes")
    arguments = parser.parse_args()
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
    raise SystemExit(worst_s > STALL_S or worst_mb > GROWTH_MB)


if __name__ == "__main__":
    main()
