// The views: each turns one answer of /v1/explain into an element, and gives the reason for absent parts.

import { element } from "./dom.js";
import { matrix } from "./matrix.js";
import { arcs, phraseTree } from "./trees.js";

const STRONGEST = 16;

const note = (text) => element("p", { class: "muted" }, text);
const lacking = (answer, what) => note(answer.missing?.[what] ?? "Not there.");
const perSentence = (answer, draw) => element("div", { class: "stack" }, answer.sentences.map(draw));
const allWords = (answer) => answer.sentences.flatMap((one) => one.words);

function words(answer) {
  const draw = (sentence) => element("ol", { class: "words" }, sentence.words.map((word, place) => {
    const governor = sentence.governors?.[place];
    const relation = governor === undefined ? null
      : governor < 0 ? "root" : `${sentence.deprels?.[place] ?? ""} of ${sentence.words[governor]}`;
    return element("li", {},
      element("span", { class: "word" }, word),
      sentence.upos ? element("span", { class: "tag" }, sentence.upos[place]) : null,
      relation ? element("span", { class: "relation" }, relation) : null);
  }));
  const why = answer.missing?.trees;
  return element("div", {}, perSentence(answer, draw), why ? note(why) : null);
}

function pieces(answer) {
  const { texts, words: owners, factors } = answer.pieces;
  const names = Object.keys(factors);
  const all = allWords(answer);
  const head = ["Piece", "Word", ...names].map((name) => element("th", { scope: "col" }, name));
  const rows = texts.map((text, place) => element("tr", {},
    element("th", { scope: "row", class: "piece" }, text),
    element("td", {}, owners[place] < 0 ? "" : all[owners[place]]),
    names.map((name) => {
      const value = factors[name][place];
      return element("td", value === "<none>" ? { class: "muted" } : {}, value === "<none>" ? "–" : value);
    })));
  const table = element("table", { class: "pieces" }, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows));
  const plain = names.length ? null : note("This model reads pieces alone, without factors.");
  return element("div", {}, plain, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Pieces" }, table));
}

/** A piece without its tokenizer's mark for a space. */
const readable = (piece) => piece.replace(/^[▁Ġ]+(?=.)/u, "");

function attention(answer) {
  const found = answer.attention;
  if (!found) return lacking(answer, "attention");
  const strongest = Math.max(...found.weights.flat());
  const cell = (row, column) => {
    const weight = found.weights[row][column];
    return { value: weight / strongest, text: weight.toFixed(3) };
  };
  const head = found.head === undefined ? `mean of ${found.n_heads} heads` : `head ${found.head}`;
  const what = found.network ?? (found.kind === "cross" ? "translation → source" : "piece → piece");
  const title = `${what}, layer ${found.layer}, ${head}`;
  return element("figure", {}, element("figcaption", { class: "muted small" }, `${title}; darkest ${strongest.toFixed(2)}`), matrix(found.rows.map(readable), found.columns.map(readable), cell, title));
}

function dependencies(answer) {
  if (!answer.sentences[0].governors) return lacking(answer, "trees");
  return perSentence(answer, (sentence) => (sentence.governors ? arcs(sentence) : null));
}

function phrases(answer) {
  if (!answer.sentences[0].phrases) return lacking(answer, "trees");
  return perSentence(answer, (sentence) => (sentence.phrases ? phraseTree(sentence) : null));
}

/** "parent 2" → how it is drawn, unless it is farther than the slider allows. */
function relationCell(name, distance, farthest) {
  if (name === "none") return null;
  if (name === "pair") return { value: 0.25, kind: "pair", text: "other sentence" };
  const [kind, steps] = name.split(" ");
  if (Number(steps) > distance) return null;
  return { value: 1 - 0.75 * ((Number(steps) - 1) / Math.max(1, farthest)), kind, mark: steps, text: name };
}

function relations(answer, state) {
  const { names, trees } = answer.relations;
  const ids = trees[state.tree];
  if (!ids || !ids.length) return lacking(answer, "trees");
  const farthest = Math.max(1, ...ids.flat().map((id) => Number(names[id].split(" ")[1] ?? 1)));
  const all = allWords(answer);
  const cell = (row, column) => relationCell(names[ids[row][column]], state.distance, farthest);
  const n = ids.flat().filter((id) => relationCell(names[id], state.distance, farthest)).length;
  const key = ["parent", "child", "sibling"].map((kind) => element("span", { class: `key ${kind}` }, kind));
  return element("figure", {},
    element("figcaption", { class: "muted small" }, `What the row is to the column, ${n} pairs up to distance ${state.distance} `, key),
    matrix(all, all, cell, `Relations of the ${state.tree} tree up to distance ${state.distance}`));
}

function networks(answer, state, act) {
  const found = answer.networks;
  if (!found) return lacking(answer, "networks");
  const mean = found.names.map((_, one) => found.weights.reduce((sum, layer) => sum + layer[one], 0) / found.layers.length);
  const order = found.names.map((_, one) => one).filter((one) => found.occurs[one]).sort((x, y) => mean[y] - mean[x]);
  const strongest = Math.max(...found.weights.flat());
  const row = (one) => element("tr", {},
    element("th", { scope: "row" }, element("button", { type: "button", class: "link", title: "Show its attention", on: { click: () => act({ view: "attention", network: found.names[one] }) } }, found.names[one])),
    found.layers.map((_, layer) => element("td", { class: "heat number", style: { "--share": found.weights[layer][one] / strongest } }, found.weights[layer][one].toFixed(3))));
  const head = element("tr", {}, element("th", { scope: "col" }, "Sub-network"), found.layers.map((layer) => element("th", { scope: "col", class: "number" }, `layer ${layer}`)));
  const table = (chosen) => element("table", { class: "networks" }, element("thead", {}, head.cloneNode(true)), element("tbody", {}, chosen.map(row)));
  const rest = order.slice(STRONGEST);
  const nothing = found.names.length - order.length;
  return element("div", { class: "stack" },
    note(`Topical weight α, mean over pieces. ${nothing} sub-networks without a pair in this text are left out.`),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Topical weights" }, table(order.slice(0, STRONGEST))),
    rest.length ? element("details", {}, element("summary", {}, `${rest.length} weaker ones`), element("div", { class: "scroll" }, table(rest))) : null);
}

export const DRAW = { words, pieces, attention, dependencies, phrases, relations, networks };

/** Views that show only the text: models with the same parser share one panel. */
export const OF_TEXT = { words: "sentences", dependencies: "sentences", phrases: "sentences", relations: "relations" };
