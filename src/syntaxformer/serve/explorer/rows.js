// The view "Rows" of classifiers: many texts at once, with the answer of each chosen model beside them.

import { NeedsKey, classify } from "./api.js";
import { element, scrolling } from "./dom.js";
import { resultOf } from "./history.js";
import { linkOf } from "./permalink.js";

const LINES = 6;
let typed = null; // what was written, and the answers to it, outlive a change of the view
let last = { key: "", rows: [], answers: [], error: "" };

/** The texts of a field: one a line; with a tab between them for models of pairs. */
function rowsOf(content, models) {
  const isPair = models.some((model) => model.n_texts === 2);
  const rows = content.split("\n").filter((line) => line.trim()).map((line) => (isPair ? line.split("\t").slice(0, 2) : line));
  const alone = isPair ? rows.findIndex((row) => row.length < 2 || !row.every((part) => part.trim())) : -1;
  if (alone >= 0) throw new Error(`Row ${alone + 1}: expected two texts with a tab between them, got one. Write the second text.`);
  return rows;
}

async function answer(content, models, again) {
  const key = JSON.stringify([content, models.map((model) => model.name)]);
  if (key === last.key) return;
  last = { key, rows: [], answers: [], error: "" };
  try {
    last.rows = rowsOf(content, models);
    if (last.rows.length) last.answers = await Promise.all(models.map((model) => classify(model.name, last.rows)));
  } catch (error) {
    last = { ...last, key: "", error: error.message }; // so that the same rows can be asked again
    if (error instanceof NeedsKey) document.getElementById("key-field").hidden = false;
  }
  again();
}

/** Whether two answers differ: labels, or what the page shows of other answers. */
const differ = (...two) => { const [one, other] = two.map((found) => found.label ?? resultOf({ classification: found })); return one !== other; };

/** How many rows got each label, and on how many the models differ. */
function summary(models) {
  const n = last.rows.length;
  const counts = models.map((model, side) => {
    const found = new Map();
    for (const one of last.answers[side]) if (one.label) found.set(one.label, (found.get(one.label) ?? 0) + 1);
    const listed = [...found].sort((x, y) => y[1] - x[1]).map(([name, times]) => `“${name}” ${times}×`).join(", ");
    return listed ? `${models.length > 1 ? `${model.name}: ` : ""}${listed}` : "";
  }).filter(Boolean);
  const n_differ = last.rows.filter((_, row) => last.answers.length > 1 && differ(last.answers[0][row], last.answers[1][row])).length;
  return [`${n} ${n === 1 ? "row" : "rows"}`, ...counts, last.answers.length > 1 ? `they differ on ${n_differ}` : ""].filter(Boolean).join("; ");
}

function table(state, models) {
  const head = ["", "Text", ...models.map((model) => model.name)].map((name) => element("th", { scope: "col" }, name));
  const line = (row, place) => {
    const [text, second] = Array.isArray(row) ? row : [row, ""];
    const found = last.answers.map((answers) => answers[place]);
    const isMarked = found.length > 1 && differ(...found);
    return element("tr", {},
      element("td", { class: "muted number" }, String(place + 1)),
      element("td", {}, element("a", { href: linkOf({ ...state, text, second, view: "words" }), "data-inside": true }, second ? `${text} / ${second}` : text)),
      found.map((one) => element("td", {}, isMarked ? element("mark", {}, resultOf({ classification: one })) : resultOf({ classification: one }))));
  };
  return scrolling("Answers to the rows", {}, element("table", { class: "rows" }, element("thead", {}, element("tr", {}, head)), element("tbody", {}, last.rows.map(line))));
}

/** The view for the chosen models; `again` draws the page anew when answers are there. */
export function rowsPanel(state, chosen, again) {
  const models = chosen.filter((model) => model.task === "classification");
  const start = state.second ? `${state.text}\t${state.second}` : state.text;
  const field = element("textarea", { id: "rows", rows: LINES, "aria-describedby": "rows-help" });
  field.value = typed ?? start;
  field.addEventListener("input", () => { typed = field.value; });
  const ask = element("button", { type: "button", class: "main", on: { click: () => { ask.disabled = true; answer(field.value, models, again).then(() => { ask.disabled = false; }); } } }, "Classify rows");
  const isPair = models.some((model) => model.n_texts === 2);
  const help = isPair ? "Two texts in each line, with a tab between them, as a table is copied." : "One text in each line. A click on an answered text looks inside.";
  const isCurrent = last.answers.length > 0 && last.key === JSON.stringify([field.value, models.map((model) => model.name)]);
  return element("div", { class: "stack" },
    element("div", { class: "field" }, element("label", { for: "rows" }, "Rows"), field, element("p", { class: "muted small", id: "rows-help" }, help)),
    element("div", {}, ask),
    last.error ? element("p", { class: "error", role: "alert" }, last.error) : null,
    isCurrent ? element("p", { class: "muted", role: "status" }, `${summary(models)}.`) : null,
    isCurrent ? table(state, models) : null);
}
