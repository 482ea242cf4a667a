"""Load on a running service: many clients, mixed sizes, every answer held against the offline translation.

Start `syntaxformer serve MODEL`, then

    python benchmarks/serve_load.py MODEL --text test2016.en.gz --clients 64 --seconds 60 --pid PID

It prints requests and texts a second, percentiles of the time to answer, how many answers were wrong (there
must be none), and the memory of the server process before it and at each tenth of the time.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

SIZES = (1, 1, 1, 2, 4, 8)
"""Texts of a request, drawn evenly."""

N_MEMORY = 10
"""Looks at the server's memory during the load."""


class Client(threading.Thread):
    """Sends requests one after the other on one connection."""

    def __init__(self, number, arguments, expected, until, sizes=SIZES):
        super().__init__()
        self.random, self.until, self.sizes = random.Random(number), until, sizes
        self.texts, self.expected = list(expected), expected
        self.connection = http.client.HTTPConnection("127.0.0.1", arguments.port, timeout=120)
        self.seconds, self.statuses, self.wrong, self.n_texts = [], Counter(), [], 0

    def run(self):
        while time.monotonic() < self.until:
            self.once()
        self.connection.close()

    def once(self):
        texts = self.random.choices(self.texts, k=self.random.choice(self.sizes))
        start = time.monotonic()
        body = json.dumps({"texts": texts})
        self.connection.request("POST", "/v1/translate", body, {"content-type": "application/json"})
        response = self.connection.getresponse()
        content = json.loads(response.read())
        self.seconds.append(time.monotonic() - start)
        self.statuses[response.status] += 1
        if response.status == 200:
            self.n_texts += len(texts)
            found = [one["text"] for one in content["translations"]]
            wanted = [self.expected[text] for text in texts]
            self.wrong += [pair for pair in zip(found, wanted, strict=True) if pair[0] != pair[1]]


def offline(model, text, n_lines):
    from syntaxformer.base.files import read_lines
    from syntaxformer.translation.translator import Translator

    lines = list(dict.fromkeys(read_lines(text)))[:n_lines]
    return dict(zip(lines, (best[0].text for best in Translator.load(model).translate(lines)), strict=True))


def memory_mb(pid):
    """Resident memory of a process, in MB."""
    status = Path(f"/proc/{pid}/status").read_text() if pid else "VmRSS: 0 kB"
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def percentiles(seconds):
    ordered = sorted(seconds)
    places = {
        name: int(share / 100 * (len(ordered) - 1)) for name, share in (("p50", 50), ("p95", 95), ("p99", 99))
    }
    return {name: round(1000 * ordered[place], 1) for name, place in places.items()}


def load(arguments, expected):
    until = time.monotonic() + arguments.seconds
    clients = [
        Client(number, arguments, expected, until, arguments.sizes) for number in range(arguments.clients)
    ]
    start, memory = time.monotonic(), [memory_mb(arguments.pid)]
    for client in clients:
        client.start()
    for _ in range(N_MEMORY):
        time.sleep(arguments.seconds / N_MEMORY)
        memory.append(memory_mb(arguments.pid))
    for client in clients:
        client.join()
    passed = time.monotonic() - start
    statuses = sum((client.statuses for client in clients), Counter())
    return {
        "clients": arguments.clients,
        "seconds": round(passed, 1),
        "statuses": dict(statuses),
        "requests_per_s": round(statuses.total() / passed, 1),
        "texts_per_s": round(sum(client.n_texts for client in clients) / passed, 1),
        "wrong": sum(len(client.wrong) for client in clients),
        "ms": percentiles([second for client in clients for second in client.seconds]),
        "memory_mb": [round(one) for one in memory],
    }


def alone(arguments, expected):
    """One client, one sentence of fifteen words at a time: what somebody waits who is alone."""
    fifteen = {text: found for text, found in expected.items() if len(text.split()) == 15}
    client = Client(0, arguments, fifteen, 0, sizes=(1,))
    for _ in range(100):
        client.once()
    client.connection.close()
    return {
        "sentences": len(fifteen),
        "first_ms": round(1000 * client.seconds[0], 1),
        "ms": percentiles(client.seconds[5:]),
        "wrong": len(client.wrong),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="texts a request, drawn evenly")
    parser.add_argument("--pid", type=int, help="the server's process, for its memory")
    arguments = parser.parse_args()
    expected = offline(arguments.model, arguments.text, arguments.lines)
    print(json.dumps({"alone": alone(arguments, expected)}))
    print(json.dumps({"load": load(arguments, expected)}))


if __name__ == "__main__":
    main()
