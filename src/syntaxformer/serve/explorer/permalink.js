// Writes the state to the page's address: text, models, view and settings.

export const VIEWS = {
  words: "Words", pieces: "Pieces", attention: "Attention", dependencies: "Dependencies",
  phrases: "Phrases", relations: "Relations", networks: "Sub-networks", rows: "Rows",
};

const START = {
  text: "", second: "", a: "", b: "", view: "words", layer: -1, head: null, network: null, tree: "dependency",
  distance: 15,
};
const NUMBERS = { layer: [-1, 999], head: [0, 999], distance: [1, 84] };

function number(name, text) {
  const [lowest, highest] = NUMBERS[name];
  const value = Number(text);
  return /^-?\d+$/.test(text) && value >= lowest && value <= highest ? value : START[name];
}

export function readState(search) {
  const given = new URLSearchParams(search);
  const state = { ...START };
  for (const name of Object.keys(START)) {
    if (given.has(name)) state[name] = name in NUMBERS ? number(name, given.get(name)) : given.get(name);
  }
  if (!(state.view in VIEWS)) state.view = START.view;
  if (!["dependency", "constituency"].includes(state.tree)) state.tree = START.tree;
  return state;
}

/** The address of a state; default values are left out. */
export function linkOf(state) {
  const query = new URLSearchParams();
  for (const [name, start] of Object.entries(START)) {
    const value = state[name];
    if (value !== start && value !== null && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return `${location.pathname}${text ? `?${text}` : ""}`;
}
