// The page: its state, its requests to the service, and its layout.

import { NeedsKey, explain, models } from "./api.js";
import { answerCards, directionOf } from "./answers.js";
import { controlsOf } from "./controls.js";
import { element } from "./dom.js";
import { clearHistory, remember, saveCsv, showHistory } from "./history.js";
import { VIEWS, linkOf, readState } from "./permalink.js";
import { DRAW, OF_TEXT } from "./views.js";

const at = (id) => document.getElementById(id);
let state = readState(location.search);
let isFresh = !state.text && !state.b; // no link was followed: the first other model is shown too
let known = [];
let sides = [];
let running = null;

const modelOf = (name) => known.find((one) => one.name === name);
const chosen = () => [...new Set([state.a, state.b])].map(modelOf).filter(Boolean);

function requestOf(model) {
  const within = (value, n) => (value === null || !n ? value : Math.min(value, n - 1));
  return {
    text: model.n_texts === 2 ? [state.text, state.second] : state.text,
    model: model.name,
    layer: within(state.layer, model.n_layers),
    head: within(state.head, model.n_heads),
    network: model.networks ? state.network : null,
  };
}

async function run() {
  running?.abort();
  if (!state.text.trim() || !known.length) return; // asked before the models are known: start() asks again
  const own = (running = new AbortController());
  const before = new Map(sides.map((side) => [side.model.name, side.answer]));
  sides = chosen().map((model) => ({ model, answer: before.get(model.name) ?? null, error: null }));
  at("results").setAttribute("aria-busy", "true");
  at("status").textContent = "Working …";
  const asked = sides.map(async (side) => {
    const request = requestOf(side.model);
    const [direction, first] = [side.model, sides[0].model].map(directionOf);
    const error = side.model.n_texts === 2 && !state.second.trim() ? "This model compares two texts: write the second one above."
      : direction && first && direction !== first ? `This model translates ${direction}, the first one ${first}: choose two of one direction.` : null;
    if (error) {
      Object.assign(side, { answer: null, error });
      return 0;
    }
    try {
      const { answer, seconds } = await explain(request, own.signal);
      side.answer = answer;
      if (seconds && !own.signal.aborted) remember(state, request, answer, seconds);
      return seconds;
    } catch (error) {
      if (own.signal.aborted) return 0;
      if (error instanceof NeedsKey) at("key-field").hidden = false;
      Object.assign(side, { answer: null, error: error.message });
      return 0;
    }
  });
  const seconds = await Promise.all(asked);
  if (own.signal.aborted) return;
  const slowest = Math.max(...seconds);
  at("status").textContent = slowest ? `Answered in ${Math.round(1000 * slowest)} ms.` : "";
  at("results").removeAttribute("aria-busy");
  show();
}

/** Change the state of the view; with `asks`, send new requests to the models. */
function change(part, asks) {
  state = { ...state, ...part };
  history.replaceState(null, "", linkOf(state));
  syncForm();
  if (asks) run();
  else show();
}

const ASKS = ["layer", "head", "network"];
const act = (part) => change(part, Object.keys(part).some((name) => ASKS.includes(name)));

function show() {
  at("results").hidden = sides.length === 0;
  at("answers").replaceChildren(...answerCards(sides));
  showTabs();
  const focused = document.activeElement?.id;
  at("controls").replaceChildren(...controlsOf(state, sides, act));
  if (focused && at("controls").contains(at(focused))) at(focused).focus();
  at("view").replaceChildren(...panels());
  at("view").setAttribute("aria-label", VIEWS[state.view]);
}

function panels() {
  const answered = sides.filter((side) => side.answer);
  const part = OF_TEXT[state.view];
  const alike = part && answered.length === 2 && JSON.stringify(answered[0].answer[part]) === JSON.stringify(answered[1].answer[part]);
  const shown = alike ? [answered[0]] : answered;
  const title = (side) => (alike ? answered.map((one) => one.model.name).join(" and ") : side.model.name);
  return [element("div", { class: shown.length > 1 ? "sides" : "" }, shown.map((side) =>
    element("section", { class: "panel" },
      sides.length > 1 ? element("h3", {}, title(side)) : null,
      DRAW[state.view](side.answer, state, act))))];
}

function showTabs() {
  const tab = ([name, title]) => element("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-selected": String(name === state.view), "aria-controls": "view",
    tabindex: name === state.view ? "0" : "-1", on: { click: () => change({ view: name }, false) },
  }, title);
  const hadFocus = at("tabs").contains(document.activeElement);
  at("tabs").replaceChildren(...Object.entries(VIEWS).map(tab));
  const current = at(`tab-${state.view}`);
  if (hadFocus) current.focus();
  at("tabs").scrollLeft = Math.max(0, current.offsetLeft - at("tabs").offsetLeft - 40);
}

function tabKeys(event) {
  const names = Object.keys(VIEWS);
  const place = names.indexOf(state.view);
  const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: names.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  change({ view: names.at(next % names.length) }, false);
}

function syncForm(names = ["text", "second", "a", "b"]) {
  for (const name of names) if (at(name).value !== state[name]) at(name).value = state[name];
  at("second-field").hidden = !chosen().some((model) => model.n_texts === 2);
  document.title = state.text ? `${state.text.slice(0, 60)} – syntaxformer explorer` : "syntaxformer explorer";
}

function fillPickers() {
  const option = (model) => element("option", { value: model.name }, model.name);
  at("a").replaceChildren(...known.map(option));
  at("b").replaceChildren(element("option", { value: "" }, "no other"), ...known.map(option));
  if (!modelOf(state.a)) state.a = known[0]?.name ?? "";
  if (isFresh && !state.b) state.b = known.find((one) => one.name !== state.a && one.task === modelOf(state.a)?.task && directionOf(one) === directionOf(modelOf(state.a)))?.name ?? "";
  isFresh = false;
  if (state.b && !modelOf(state.b)) state.b = "";
}

async function start() {
  try {
    known = await models();
  } catch (error) {
    at("status").textContent = error.message;
    if (error instanceof NeedsKey) at("key-field").hidden = false;
    return;
  }
  fillPickers();
  syncForm(["a", "b"]); // what was typed meanwhile stays
  if (state.text) run();
}

function wire() {
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    change({ text: at("text").value, second: at("second").value }, true);
  });
  at("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); at("ask").requestSubmit(); }
  });
  for (const name of ["a", "b"]) {
    at(name).addEventListener("change", (event) => change({ [name]: event.target.value, text: at("text").value, second: at("second").value, network: null }, true));
  }
  at("use-key").addEventListener("click", () => {
    sessionStorage.setItem("key", at("key").value);
    at("key-field").hidden = true;
    at("status").textContent = "";
    start();
  });
  at("copy-link").addEventListener("click", async () => {
    const link = new URL(linkOf(state), location.href).href;
    await navigator.clipboard?.writeText(link).catch(() => {});
    at("status").textContent = `Link: ${link}`;
  });
  at("tabs").addEventListener("keydown", tabKeys);
  at("export").addEventListener("click", saveCsv);
  at("clear").addEventListener("click", clearHistory);
  addEventListener("popstate", () => { state = readState(location.search); syncForm(); run(); });
}

wire();
syncForm();
showHistory();
start();
