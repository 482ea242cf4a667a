// The settings of a view: layer, head and sub-network of attention, tree and distance of relations.

import { element } from "./dom.js";
import { treesOf } from "./views.js";

function field(id, label, control) {
  return element("div", { class: "field" }, element("label", { for: id }, label), control);
}

function select(id, label, options, chosen, act) {
  const one = ([value, title]) => element("option", { value, selected: value === chosen }, title);
  return field(id, label, element("select", { id, on: { change: (event) => act(event.target.value) } }, options.map(one)));
}

function slider(id, label, lowest, highest, value, act) {
  const output = element("output", { for: id, class: "number" }, String(value));
  const input = element("input", {
    id, type: "range", min: lowest, max: highest, step: 1, value,
    on: {
      input: (event) => { output.textContent = event.target.value; },
      change: (event) => act(Number(event.target.value)),
    },
  });
  return field(id, label, element("span", { class: "slider" }, input, output));
}

function attention(state, sides, act) {
  const shown = sides.map((side) => side.answer?.attention).filter(Boolean);
  if (!shown.length) return [];
  const last = Math.max(...shown.map((one) => one.n_layers)) - 1;
  const heads = Math.max(...shown.map((one) => one.n_heads));
  const layer = state.layer < 0 ? last : Math.min(state.layer, last);
  const choices = [["", "mean"], ...Array.from({ length: heads }, (_, one) => [String(one), `head ${one}`])];
  const networks = sides.flatMap((side) => {
    const found = side.answer?.networks;
    return found ? found.names.filter((_, one) => found.occurs[one]) : [];
  });
  return [
    last ? slider("layer", "Layer", 0, last, layer, (value) => act({ layer: value })) : null,
    heads < 2 ? null : select("head", "Head", choices, state.head === null ? "" : String(state.head), (value) => act({ head: value === "" ? null : Number(value) })),
    networks.length ? select("network", "Sub-network", [["", "all together"], ...[...new Set(networks)].map((one) => [one, one])], state.network ?? "", (value) => act({ network: value || null, layer: shown[0].kind === "cross" ? -1 : state.layer })) : null,
  ].filter(Boolean);
}

function relations(state, sides, act) {
  const highest = Math.max(1, ...sides.map((side) => side.answer?.relations.max_distance ?? 1));
  const trees = [...new Set(sides.flatMap((side) => (side.answer ? treesOf(side.answer) : [])))];
  return [
    trees.length < 2 ? null : select("tree", "Tree", trees.map((tree) => [tree, tree]), state.tree, (tree) => act({ tree })),
    slider("distance", "Distance up to", 1, highest, Math.min(state.distance, highest), (distance) => act({ distance })),
  ].filter(Boolean);
}

const CONTROLS = { attention, relations };

export function controlsOf(view, state, sides, act) {
  return CONTROLS[view]?.(state, sides, act) ?? [];
}
