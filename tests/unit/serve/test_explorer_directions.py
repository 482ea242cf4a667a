"""Parts of the page in node, with stand-ins for the browser: models of one direction, rows, cards, large matrices."""

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
    return _run(PAGE, values)


def _in_browser(script, **values):
    """What a script prints after `BROWSER`."""
    return _run(BROWSER + script, {"SEARCH": "", "ROOM": f"{FOLDER.as_uri()}/", **values})


def _run(script, values):
    """What a script prints in which names stand for values."""
    for name, value in values.items():
        script = script.replace(name, json.dumps(value))
    command = [NODE, "--experimental-default-type=module", "--input-type=module", "-"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_model_of_another_direction_is_not_asked():
    page = _open("?text=Hi&a=a&b=b", ("de", "en"), ("en", "de"))
    assert page["asked"] == ["a"]
    words = "This model translates en → de, the first one de → en: choose two of one direction."
    assert words in page["answers"]


@pytest.mark.parametrize("second", [("de", "en"), (None, None)])
def test_models_of_one_direction_and_classifiers_are(second):
    page = _open("?text=Hi&a=a&b=b", ("de", "en"), second)
    assert page["asked"] == ["a", "b"]
    assert "of one direction" not in page["answers"]


def test_the_page_begins_with_two_of_one_direction():
    assert _open("", ("de", "en"), ("en", "de"), ("de", "en"))["second"] == "c"


BROWSER = PAGE.partition("const asked")[0]
for snippet, other in {
    "querySelector: () => null": 'querySelector: () => make("div")',
    "get: () => nothing": "get: () => () => [5]",
    "contains: () => false": "contains: () => false, cloneNode: () => make(tag)",
}.items():
    BROWSER = BROWSER.replace(snippet, other)


ROWS = """
const all = (one) => [one, ...(one?.children ?? []).flat(9).flatMap(all)];
const { rowsPanel } = await import(ROOM + "rows.js");
let n = 0;
globalThis.fetch = async (path, request) => {
  const [ok, name] = [n++ > 0, JSON.parse(request.body).model];
  return { ok, status: ok ? 200 : 401, json: async () => (ok ? { classifications: ANSWERS[name] } : { error: { message: "no key" } }) };
};
const panel = () => all(rowsPanel({ text: "x" }, ["a", "b"].map((name) => ({ name, task: "classification" })), () => undefined));
async function ask() {
  const page = panel();
  const field = page.find((one) => one.tag === "textarea");
  field.value = ["x", "y"].join(String.fromCharCode(10));
  field.handlers.input();
  page.find((one) => one.textContent !== undefined && one.tag === "button").handlers.click();
  await new Promise((done) => setTimeout(done, 20));
  return panel();
}
document.getElementById("key-field").hidden = true;
const refused = (await ask()).includes("no key") && !document.getElementById("key-field").hidden;
const page = await ask();
console.log(JSON.stringify({ refused, told: page.filter((one) => `${one}`.includes("differ")), marks: page.filter((one) => one.tag === "mark").length }));
"""


@pytest.mark.parametrize(
    ("answer", "other"),
    [
        ({"labels": ["u", "v"]}, {"labels": ["u"]}),
        ({"score": 1.5}, {"score": 2.5}),
        ({"answer": {"answer": "u", "score": 0.5}}, {"answer": {"answer": "", "score": 0.5}}),
        ({"label": "u", "probabilities": {"u": 0.9}}, {"label": "v", "probabilities": {"v": 0.9}}),
    ],
)
def test_rows_are_compared_by_what_a_model_answers_and_can_be_asked_again(answer, other):
    """The first request is refused for want of a key; the same rows are then asked again."""
    same = {**answer, "probabilities": {"u": 0.8}}  # another probability is no other label
    page = _in_browser(ROWS, ANSWERS={"a": [answer, answer], "b": [other, same]})
    (message,) = page["told"]
    assert message.endswith("; they differ on 1.")
    assert (page["refused"], page["marks"]) == (True, 2)


LARGE = """
const { DRAW } = await import(ROOM + "views.js");
const { element } = await import(ROOM + "dom.js");
const count = (one, tag) => (one?.tag === tag) + (one?.children ?? []).flat(9).reduce((sum, child) => sum + count(child, tag), 0);
const rows = Array.from({ length: 400 }, () => Array(400).fill(0));
rows[399][399] = 1;
const names = Array(400).fill("w");
const relations = DRAW.relations({ sentences: [{ words: names }], relations: { names: ["none", "parent 3"], trees: { dependency: rows } } }, { distance: 5 });
const attention = DRAW.attention({ attention: { weights: rows, rows: names, columns: names, layer: 0, head: 0 } });
const networks = DRAW.networks({ networks: { names, layers: names, occurs: names.map((_, place) => place === 399), weights: rows } });
const children = element("div", {}, Array(160000).fill("x")).children.length;
const cells = (drawn) => count(drawn, "rect") - 2; // without the frame and the cursor
console.log(JSON.stringify([cells(relations), cells(attention), count(networks, "td"), children]));
"""


def test_matrices_of_long_texts_are_drawn():
    """400 words have more pairs than a call in JavaScript takes arguments."""
    assert _in_browser(LARGE) == [1, 1, 400, 160_000]


CARDS = """
const { answerCards } = await import(ROOM + "answers.js");
const { resultOf } = await import(ROOM + "history.js");
function shown(one) {
  const inside = (one?.children ?? []).map((child) => (typeof child === "string" ? child : shown(child))).join("|");
  return one.tag === "mark" ? `<${inside}>` : one.class === "chosen" ? `*${inside}` : inside;
}
const model = { name: "m", task: "classification", backend: "pytorch" };
const answers = ANSWERS.map((classification) => ({ classification, sentences: [{ text: "who ?" }, { text: "the dog runs" }] }));
console.log(JSON.stringify(answers.map((answer) => [shown(answerCards([{ model, answer }])[0].children[2]), resultOf(answer)])));
"""
CARDS_OF = [
    ({"tags": [{"word": "the", "entity": "DET"}, {"word": "dog", "entity": "B-X"}]}, "DET|the|B-X|dog", "the/DET dog/B-X"),
    ({"answer": {"answer": "dog", "start": 4, "end": 7, "score": 0.9}}, "the |<dog>| runs", "dog"),
    ({"answer": {"answer": "", "start": 0, "end": 0, "score": 0.1}}, "The text does not answer this.", "(no answer)"),
    ({"labels": ["b"], "probabilities": {"a": 0.2, "b": 0.9}}, "*b||90.0 %|a||20.0 %", "b"),
    ({"scores": {"x": 1.5, "y": 2}}, "x 1.500, y 2.000", "x 1.500, y 2.000"),
    ({"score": 3.14159}, "3.142", "3.1416"),
    ({"label": "b", "probabilities": {"a": 0.2, "b": 0.8}}, "*b||80.0 %|a||20.0 %", "b (80.0 %)"),
]  # fmt: skip


def test_cards_and_results_of_all_kinds_of_answer():
    shown = _in_browser(CARDS, ANSWERS=[classification for classification, *_ in CARDS_OF])
    assert shown == [expected for _, *expected in CARDS_OF]
