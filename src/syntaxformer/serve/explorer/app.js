// The page: its state, its requests to the service, and its layout.

import { NeedsKey, explain, models } from "./api.js";
import { answerCards, directionOf } from "./answers.js";
import { controlsOf } from "./controls.js";
import { element } from "./dom.js";
import { clearHistory, remember, saveCsv, showHistory } from "./history.js";
import { VIEWS, linkOf, readState } from "./permalink.js";
import { rowsPanel } from "./rows.js";
import { examplesFor, leadOf, placeholderOf } from "./start.js";
import { wireTips } from "./tips.js";
import { DRAW, HAS, OF_TEXT, SAYS } from "./views.js";

const at = (id) => document.getElementById(id);
let state = readState(location.search);
const isBare = () => !state.text && !state.b; // an address that names no text and no second model
let isFresh = isBare();
let known = [];
let sides = [];
let running = null;

const modelOf = (name) => known.find((one) => one.name === name);
const chosen = () => [...new Set([state.a, state.b])].map(modelOf).filter(Boolean);
const answered = () => sides.filter((side) => side.answer);
/** The views that some answer fills: the others get no tab. */
const views = () => Object.keys(VIEWS).filter((view) => answered().some((side) => HAS[view](side.answer)));
/** The view that is shown: that of the address, unless no answer fills it. */
const shownView = () => (views().includes(state.view) ? state.view : "words");

function requestOf(model) {
  const within = (value, n) => (value === null || !n ? value : Math.min(value, n - 1));
  return {
    text: model.n_texts === 2 ? [state.text, state.second] : state.text,
    model: model.name,
    layer: model.networks && state.network ? state.layer : within(state.layer, model.n_layers), // a translator's are its encoder's
    head: within(state.head, model.n_heads),
    network: model.networks ? state.network : null,
  };
}

async function run() {
  running?.abort();
  if (!known.length) return; // asked before the models are known: start() asks again
  if (!state.text.trim()) return showStart();
  const own = (running = new AbortController());
  const before = new Map(sides.map((side) => [side.model.name, side.answer]));
  sides = chosen().map((model) => ({ model, answer: before.get(model.name) ?? null, error: null }));
  at("start").hidden = at("lead").hidden = true;
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
  at("status").textContent = slowest ? `Answered in ${slowest < 1 ? `${Math.round(1000 * slowest)} ms` : `${slowest.toFixed(1)} s`}.` : "";
  at("results").removeAttribute("aria-busy");
  show();
}

/** What is stepped through by Back: texts, models and views. Sliders and choices within a view are not. */
const STEPS = ["text", "second", "a", "b", "view"];

/** Change the state of the view; with `asks`, send new requests to the models. */
function change(part, asks) {
  const isStep = STEPS.some((name) => name in part && part[name] !== state[name]);
  state = { ...state, ...part };
  history[isStep ? "pushState" : "replaceState"](null, "", linkOf(state));
  syncForm();
  if (asks) run();
  else show();
}

const ASKS = ["layer", "head", "network"];
const act = (part) => change(part, Object.keys(part).some((name) => ASKS.includes(name)));

/** Read the address, after Back or a link of this page, and show what it names. */
function follow() {
  state = readState(location.search);
  isFresh = isBare();
  chooseModels();
  syncForm();
  run();
}

function followLink(event) {
  const link = event.target.closest?.("a[data-inside]");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  follow();
  scrollTo({ top: 0 });
}

/** The page before anything is asked. */
function showStart() {
  sides = [];
  at("status").textContent = "";
  at("results").removeAttribute("aria-busy");
  show();
}

function show() {
  at("results").hidden = sides.length === 0;
  at("start").hidden = at("lead").hidden = sides.length > 0 || !known.length;
  if (!at("start").hidden) {
    at("lead").textContent = leadOf(chosen()[0]);
    at("start").replaceChildren(...examplesFor(state, chosen()[0]));
  }
  at("views").hidden = answered().length === 0;
  at("answers").replaceChildren(...answerCards(sides));
  showTabs();
  const focused = document.activeElement?.id;
  const view = shownView();
  at("controls").replaceChildren(...controlsOf(view, state, sides, act));
  if (focused && at("controls").contains(at(focused))) at(focused).focus();
  at("view").replaceChildren(...panels(view));
  at("view").setAttribute("aria-labelledby", `tab-${view}`);
}

function panels(view) {
  const found = answered();
  if (!found.length) return [];
  at("says").textContent = SAYS[view](found.find((side) => HAS[view](side.answer))?.answer ?? found[0].answer);
  if (view === "rows") return [rowsPanel(state, chosen(), show)];
  const part = OF_TEXT[view];
  const alike = part && found.length === 2 && JSON.stringify(found[0].answer[part]) === JSON.stringify(found[1].answer[part]);
  const shown = alike ? [found[0]] : found;
  const title = (side) => (alike ? found.map((one) => one.model.name).join(" and ") : side.model.name);
  return [element("div", { class: shown.length > 1 ? "sides" : "" }, shown.map((side) =>
    element("section", { class: "panel" },
      sides.length > 1 ? element("h3", {}, title(side)) : null,
      DRAW[view](side.answer, state, act))))];
}

function showTabs() {
  const view = shownView();
  const tab = (name) => element("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-selected": String(name === view), "aria-controls": "view",
    tabindex: name === view ? "0" : "-1", on: { click: () => change({ view: name }, false) },
  }, VIEWS[name]);
  const hadFocus = at("tabs").contains(document.activeElement);
  at("tabs").replaceChildren(...views().map(tab));
  if (hadFocus) at(`tab-${view}`)?.focus();
}

function tabKeys(event) {
  const names = views();
  const place = names.indexOf(shownView());
  const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: names.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  change({ view: names.at(next % names.length) }, false);
}

function syncForm(names = ["text", "second", "a", "b"]) {
  for (const name of names) if (at(name).value !== state[name]) at(name).value = state[name];
  at("second-field").hidden = !chosen().some((model) => model.n_texts === 2);
  const example = chosen()[0] && placeholderOf(chosen()[0]);
  if (example) at("text").placeholder = example;
  document.title = state.text ? `${state.text.slice(0, 60)} – syntaxformer explorer` : "syntaxformer explorer";
}

function fillPickers() {
  const option = (model) => element("option", { value: model.name }, model.name);
  at("a").replaceChildren(...known.map(option));
  at("b").replaceChildren(element("option", { value: "" }, "no other"), ...known.map(option));
  chooseModels();
}

/** Fill in the models that the address does not name: the first one, and where it names none, the first that fits beside it. */
function chooseModels() {
  if (!modelOf(state.a)) state.a = known[0]?.name ?? "";
  if (isFresh && !state.b) state.b = known.find((one) => one.name !== state.a && one.task === modelOf(state.a)?.task && directionOf(one) === directionOf(modelOf(state.a)))?.name ?? "";
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
  if (state.text) history.replaceState(null, "", linkOf(state));
  run();
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
  addEventListener("popstate", follow);
  addEventListener("click", followLink);
  wireTips();
}

wire();
syncForm();
showHistory();
start();
