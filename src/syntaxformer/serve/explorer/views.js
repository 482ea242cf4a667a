// The views: each turns one answer of /v1/explain into an element, and gives the reason for absent parts.

import { element, scrolling } from "./dom.js";
import { inWords, legend, valueInWords } from "./glossary.js";
import { matrix } from "./matrix.js";
import { readable, specialInWords } from "./pieces.js";
import { label } from "./tips.js";
import { arcs, phraseTree } from "./trees.js";

const STRONGEST = 16;

/** The largest of all cells; by rows, because a call takes no 360,000 arguments. */
const largest = (rows) => rows.reduce((most, row) => Math.max(most, ...row), 0);

const note = (text) => element("p", { class: "muted" }, text);
const lacking = (answer, what) => note(answer.missing?.[what] ?? "Not there.");
const allWords = (answer) => answer.sentences.flatMap((one) => one.words);
const meant = (kind) => (name) => [name, inWords(kind, name)];

/** What `draw` makes of each sentence, and below it what the labels mean. */
const perSentence = (answer, draw, labels) =>
  element("div", { class: "stack" }, answer.sentences.map(draw), legend(answer.sentences.flatMap(labels)));
const tagsOf = (sentence) => (sentence.upos ?? []).map(meant("tag"));
const relationsOf = (sentence) => (sentence.governors ?? []).map((governor, place) => meant("relation")(governor < 0 ? "root" : sentence.deprels?.[place] ?? ""));

function words(answer) {
  const relation = (sentence, place) => {
    const governor = sentence.governors?.[place];
    if (governor === undefined) return null;
    const name = governor < 0 ? "root" : sentence.deprels?.[place] ?? "";
    const text = governor < 0 ? "root" : `${name} of ${sentence.words[governor]}`;
    return label("span", { class: "relation" }, text, inWords("relation", name));
  };
  const draw = (sentence) => element("ol", { class: "words" }, sentence.words.map((word, place) => element("li", {},
    element("span", { class: "word" }, word),
    sentence.upos ? label("span", { class: "tag" }, sentence.upos[place], inWords("tag", sentence.upos[place])) : null,
    relation(sentence, place))));
  return perSentence(answer, draw, (sentence) => [...tagsOf(sentence), ...relationsOf(sentence)]);
}

function pieces(answer) {
  const { texts, words: owners, factors } = answer.pieces;
  const names = Object.keys(factors);
  const all = allWords(answer);
  const head = ["Piece", "Word"].map((name) => element("th", { scope: "col" }, name));
  const heads = [...head, ...names.map((name) => label("th", { scope: "col" }, name, inWords("factor", name)))];
  const shown = (value) => (value === "<none>" ? "–" : value);
  const meaning = (name, value) => (value === "<none>" ? "this piece belongs to no word" : value === "<unk>" ? "not seen in training" : valueInWords(name, value));
  const rows = texts.map((text, place) => element("tr", {},
    label("th", { scope: "row", class: "piece" }, readable(text), specialInWords(text)),
    element("td", {}, owners[place] < 0 ? "" : all[owners[place]]),
    names.map((name) => {
      const value = factors[name][place];
      return label("td", value === "<none>" ? { class: "muted" } : {}, shown(value), meaning(name, value));
    })));
  const table = element("table", { class: "pieces" }, element("thead", {}, element("tr", {}, heads)), element("tbody", {}, rows));
  const plain = names.length ? null : note("This model reads pieces alone, without factors.");
  const values = names.flatMap((name) => factors[name].filter((value) => value !== "<none>").map((value) => [/^\d/.test(value) ? `${name} ${value}` : value, meaning(name, value)]));
  return element("div", { class: "stack" }, plain, scrolling("Pieces", {}, table), legend([...names.map(meant("factor")), ...values, ...texts.map((text) => [text, specialInWords(text)])]));
}

/** How strong the colour of a cell is: a bar from nothing to the largest weight, right on a light and on a dark ground. */
const scale = (strongest) => element("span", { class: "scale" }, "0", element("span", { class: "ramp", "aria-hidden": "true" }), strongest.toFixed(2));

function attention(answer) {
  const found = answer.attention;
  if (!found) return lacking(answer, "attention");
  const strongest = Math.min(1, Math.max(largest(found.weights), 2 / found.columns.length)); // all equal: half the colour
  const cell = (row, column) => {
    const weight = found.weights[row][column];
    return { value: weight / strongest, text: weight.toFixed(3) };
  };
  const head = found.head === undefined ? `mean of ${found.n_heads} heads` : `head ${found.head}`;
  const what = found.network ?? (found.kind === "cross" ? "translation → source" : "piece → piece");
  const title = `${what}, layer ${found.layer}, ${head}`;
  return element("figure", {},
    element("figcaption", { class: "muted small" }, `${title}; `, scale(strongest)),
    matrix(found.rows.map(readable), found.columns.map(readable), cell, title));
}

function dependencies(answer) {
  if (!HAS.dependencies(answer)) return lacking(answer, "trees");
  return perSentence(answer, (sentence) => (sentence.governors ? arcs(sentence) : null), (sentence) => [...tagsOf(sentence), ...relationsOf(sentence)]);
}

function phrases(answer) {
  if (!HAS.phrases(answer)) return lacking(answer, "trees");
  return perSentence(answer, (sentence) => (sentence.phrases ? phraseTree(sentence) : null), (sentence) => (sentence.phrases ?? []).map(([name]) => meant("phrase")(name)));
}

/** "parent 2" → how it is drawn, unless it is farther than the slider allows. */
function relationCell(name, distance, farthest) {
  if (name === "none") return null;
  if (name === "pair") return { value: 0.25, kind: "pair", text: inWords("kind", name) };
  const [kind, steps] = name.split(" ");
  if (Number(steps) > distance) return null;
  return { value: 1 - 0.75 * ((Number(steps) - 1) / Math.max(1, farthest)), kind, mark: steps, text: `${name}, ${inWords("kind", name)}` };
}

/** The trees whose relations an answer has. */
export const treesOf = (answer) => Object.keys(answer.relations.trees).filter((name) => answer.relations.trees[name].length);

function relations(answer, state) {
  const trees = treesOf(answer);
  if (!trees.length) return lacking(answer, "trees");
  const tree = trees.includes(state.tree) ? state.tree : trees[0];
  const [names, ids] = [answer.relations.names, answer.relations.trees[tree]];
  const farthest = Math.max(1, largest(ids.map((row) => row.map((id) => Number(names[id].split(" ")[1] ?? 1)))));
  const all = allWords(answer);
  const cell = (row, column) => relationCell(names[ids[row][column]], state.distance, farthest);
  const n = ids.flat().filter((id) => relationCell(names[id], state.distance, farthest)).length;
  const key = ["parent", "child", "sibling"].map((kind) => label("span", { class: `key ${kind}` }, kind, { parent: "the row stands above the column in the tree", child: "the row stands below the column in the tree", sibling: "the two stand in different branches" }[kind]));
  return element("figure", {},
    element("figcaption", { class: "muted small" }, `${n} pairs up to distance ${state.distance} `, key),
    matrix(all, all, cell, `Relations of the ${tree} tree up to distance ${state.distance}`));
}

function networks(answer, state, act) {
  const found = answer.networks;
  if (!found) return lacking(answer, "networks");
  const mean = found.names.map((_, one) => found.weights.reduce((sum, layer) => sum + layer[one], 0) / found.layers.length);
  const order = found.names.map((_, one) => one).filter((one) => found.occurs[one]).sort((x, y) => mean[y] - mean[x]);
  const strongest = Math.max(largest(found.weights), 2 / found.names.length);
  const row = (one) => element("tr", {},
    element("th", { scope: "row" }, label("button", { type: "button", class: "link", on: { click: () => act({ view: "attention", network: found.names[one], layer: found.layers.at(-1) }) } }, found.names[one], inWords("network", found.names[one]))),
    found.layers.map((_, layer) => element("td", { class: "heat number", style: { "--share": found.weights[layer][one] / strongest } }, found.weights[layer][one].toFixed(3))));
  const head = element("tr", {}, element("th", { scope: "col" }, "Sub-network"), found.layers.map((layer) => element("th", { scope: "col", class: "number" }, `layer ${layer}`)));
  const table = (chosen) => element("table", { class: "networks" }, element("thead", {}, head.cloneNode(true)), element("tbody", {}, chosen.map(row)));
  const rest = order.slice(STRONGEST);
  const nothing = found.names.length - order.length;
  return element("div", { class: "stack" },
    note(`Topical weight α, mean over pieces. ${nothing} sub-networks without a pair in this text are left out.`),
    scrolling("Topical weights", {}, table(order.slice(0, STRONGEST))),
    rest.length ? element("details", {}, element("summary", {}, `${rest.length} weaker ones`), scrolling("Weaker topical weights", {}, table(rest))) : null);
}

export const DRAW = { words, pieces, attention, dependencies, phrases, relations, networks };

/** Whether an answer has what a view shows; a view that no answer has gets no tab. */
export const HAS = {
  words: () => true, pieces: () => true,
  attention: (answer) => Boolean(answer.attention),
  dependencies: (answer) => answer.sentences.some((one) => one.governors),
  phrases: (answer) => answer.sentences.some((one) => one.phrases),
  relations: (answer) => treesOf(answer).length > 0,
  networks: (answer) => Boolean(answer.networks),
  rows: (answer) => Boolean(answer.classification),
};

/** One sentence that says what a view shows. */
export const SAYS = {
  words: () => "Each word with its part of speech, and the word on which it depends.",
  pieces: () => "What the model reads: pieces of words, and what it is told about each of them.",
  attention: (answer) => (answer.attention?.kind === "cross"
    ? "Each row is a piece of the translation; the stronger a square, the more it looks at that column’s piece of the source."
    : "Each row is a piece of the text; the stronger a square, the more it looks at that column’s piece."),
  dependencies: () => "The parser’s tree: each arrow leads from a word to one that depends on it.",
  phrases: () => "The parser’s phrases: words below, the phrases that they form above them.",
  relations: () => "What the word of each row is to the word of each column; the number counts steps in the tree.",
  networks: () => "How much each sub-network counts in each layer. Choose one to see its attention.",
  rows: () => "Many texts at once: one in each line.",
};

/** Views that show only the text: models with the same parser share one panel. */
export const OF_TEXT = { words: "sentences", dependencies: "sentences", phrases: "sentences", relations: "relations" };
