"""The page lays models of one direction beside each other, and says why it does not do so with others."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from syntaxformer.serve.server import FOLDER

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node: apt-get install nodejs")

PAGE = """
const elements = new Map();
const nothing = () => undefined;
function make(tag) {
  const one = {
    tag, children: [], handlers: {}, dataset: {}, style: { setProperty: nothing }, value: "", textContent: "", offsetLeft: 0,
    classList: { add: nothing, toggle: nothing }, setAttribute(name, value) { this[name] = value; }, removeAttribute: nothing,
    addEventListener(name, act) { this.handlers[name] = act; }, contains: () => false, focus: nothing, getBoundingClientRect: () => ({}),
    append(...more) { this.children.push(...more); }, replaceChildren(...more) { this.children = more; }, querySelector: () => null,
    querySelectorAll: () => [], getContext: () => new Proxy({}, { get: () => nothing, set: () => true }),
  };
  return one;
}
globalThis.document = {
  getElementById(id) { if (!elements.has(id)) elements.set(id, make(id)); return elements.get(id); },
  createElement: make, createElementNS: (_, tag) => make(tag), createTextNode: (text) => text, documentElement: make("html"),
};
globalThis.location = { search: SEARCH, href: "http://x/" };
globalThis.history = { replaceState: nothing, pushState: nothing };
globalThis.ResizeObserver = class { observe() {} };
globalThis.sessionStorage = { getItem: () => null, setItem: nothing };
globalThis.localStorage = globalThis.sessionStorage;
globalThis.addEventListener = nothing;
globalThis.matchMedia = () => ({ matches: false, addEventListener: nothing });
const asked = [];
globalThis.fetch = async (path, request) => {
  const name = request?.body ? JSON.parse(request.body).model : null;
  if (name) asked.push(name);
  const answer = name ? { model: name, translation: "x", missing: {}, sentences: [], pieces: { texts: [], words: [], factors: {} },
    relations: { names: [], trees: {}, max_distance: 1 } } : { models: MODELS };
  return { ok: true, status: 200, json: async () => answer, headers: { get: () => null } };
};
process.on("unhandledRejection", nothing);
await import(APP).catch(nothing);
await new Promise((done) => setTimeout(done, 200));
const text = (one) => typeof one === "string" ? one : [one?.textContent ?? "", ...(one?.children ?? []).flat(9).map(text)].join(" ");
console.log(JSON.stringify({ asked, second: elements.get("b").value, answers: text(elements.get("answers")) }));
"""


def _open(search, *directions):
    """Open the page over models a, b …; gives who was asked, who stands beside the first, and what is shown."""
    models = [
        {"name": name, "task": "translation" if sides[0] else "classification", "backend": "pytorch", "factors": [],
         "source_language": sides[0], "target_language": sides[1], "n_texts": 1, "n_layers": 1, "n_heads": 1}
        for name, sides in zip("abc", directions, strict=False)
    ]  # fmt: skip
    values = {"SEARCH": search, "MODELS": models, "APP": (FOLDER / "app.js").as_uri()}
    script = PAGE
    for name, value in values.items():
        script = script.replace(name, json.dumps(value))
    command = [NODE, "--experimental-default-type=module", "--input-type=module", "-"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_model_of_another_direction_is_not_asked():
    found = _open("?text=Hi&a=a&b=b", ("de", "en"), ("en", "de"))
    assert found["asked"] == ["a"]
    assert (
        "This model translates en → de, the first one de → en: choose two of one direction."
        in found["answers"]
    )


@pytest.mark.parametrize("second", [("de", "en"), (None, None)])
def test_models_of_one_direction_and_classifiers_are(second):
    found = _open("?text=Hi&a=a&b=b", ("de", "en"), second)
    assert found["asked"] == ["a", "b"]
    assert "of one direction" not in found["answers"]


def test_the_page_begins_with_two_of_one_direction():
    assert _open("", ("de", "en"), ("en", "de"), ("de", "en"))["second"] == "c"
