"""A loopback server that answers as Stanford CoreNLP does, by the JSON of its `JSONOutputter`.

Words are runs of letters, digits or apostrophes, or single other characters; sentences end at a full stop or at
a blank line; offsets count UTF-16 code units; every word hangs from the one before it, the first is the root.
"""

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit

WORD = re.compile(r"[\w']+|\S")
ESCAPES = {"(": "-LRB-", ")": "-RRB-"}


def units(text):
    return len(text.encode("utf-16-le")) // 2


def analyse(text, properties):
    """The server's answer to a text, as a dict."""
    by_lines = properties.get("tokenize.whitespace") == "true"
    pattern = re.compile(r"\S+") if by_lines else WORD
    sentences, waiting = [], []
    for match in pattern.finditer(text):
        if waiting and ("\n" if by_lines else "\n\n") in text[waiting[-1].end() : match.start()]:
            sentences.append(waiting)
            waiting = []
        waiting.append(match)
        if match[0] == "." and not by_lines:
            sentences.append(waiting)
            waiting = []
    annotators = properties["annotators"].split(",")
    return {
        "sentences": [sentence(matches, text, annotators) for matches in [*sentences, waiting] if matches]
    }


def sentence(matches, text, annotators):
    words = [ESCAPES.get(match[0], match[0]) for match in matches]
    tokens = [
        {
            "index": index,
            "word": word,
            "originalText": match[0],
            "characterOffsetBegin": units(text[: match.start()]),
            "characterOffsetEnd": units(text[: match.end()]),
            "pos": "NN" if match[0][0].isalpha() else ".",
            **({"lemma": match[0].lower()} if "lemma" in annotators else {}),
        }
        for index, (word, match) in enumerate(zip(words, matches, strict=True), 1)
    ]
    answer = {"index": 0, "tokens": tokens}
    if "depparse" in annotators:
        answer["basicDependencies"] = [
            {"dep": "ROOT" if position == 0 else "dep", "governor": position, "dependent": position + 1}
            for position in range(len(words))
        ]
    if "parse" in annotators:
        answer["parse"] = f"(ROOT (S {' '.join(f'(NN {word})' for word in words)}))"
    return answer


class Stub:
    """What a test sees of the server, and sets.

    Args:
        url: Its address.
        requests: What it was asked: (path, query, text, authorization).
        answers: What to answer instead of an analysis, one each: a function of the handler.
        refuses: Texts holding this are answered with HTTP 500.
        change: What to do to each sentence of an answer.
    """

    def __init__(self):
        self.url = ""
        self.requests = []
        self.answers = []
        self.refuses = None
        self.change = lambda sentence: None
        self.release = threading.Event()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub: Stub

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        # As the real one: percent-decoded only for this content type, the charset behind the semicolon.
        assert self.headers["Content-Type"] == "application/x-www-form-urlencoded;charset=UTF-8"
        text = unquote_to_bytes(body.replace(b"+", b" ")).decode("utf-8")
        address = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        self.stub.requests.append((address.path, query, text, self.headers.get("Authorization")))
        if self.stub.answers:
            return self.stub.answers.pop(0)(self)
        if self.stub.refuses and self.stub.refuses in text:
            return self.reply(500, b"java.lang.RuntimeException: no\nthanks")
        answer = analyse(text, json.loads(query["properties"]))
        for sentence_of_answer in answer["sentences"]:
            self.stub.change(sentence_of_answer)
        return self.reply(200, json.dumps(answer).encode())

    def reply(self, status, body, **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Be quiet."""


@contextmanager
def serving():
    """Run a stub server."""
    stub = Stub()
    handler = type("OwnHandler", (Handler,), {"stub": stub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    stub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        stub.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
