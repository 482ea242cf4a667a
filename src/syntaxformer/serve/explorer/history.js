// The table of the last results, which only this tab keeps, and its export as CSV.

import { element, scrolling } from "./dom.js";
import { linkOf } from "./permalink.js";

const MOST = 50;
const COLUMNS = ["time", "model", "task", "text", "second_text", "result", "score", "seconds"];

let rows = JSON.parse(sessionStorage.getItem("results") ?? "[]");

/** The result and its score, as the CSV has them: a translation has none, a label its probability. */
function scored(answer) {
  const found = answer.classification;
  if (!found) return { result: answer.translation ?? "", score: "" };
  if (found.answer) return { result: found.answer.answer || "(no answer)", score: found.answer.score };
  const several = found.tags?.map((one) => `${one.word}/${one.entity}`) ?? found.labels
    ?? (found.scores && Object.entries(found.scores).map(([name, value]) => `${name} ${value.toFixed(3)}`));
  if (several) return { result: several.join(found.tags ? " " : ", "), score: "" };
  if (found.label === undefined) return { result: found.score.toFixed(4), score: found.score };
  return { result: found.label, score: found.probabilities?.[found.label] ?? "", isProbability: true };
}

const shown = ({ result, score, isProbability }) => (isProbability && score !== "" ? `${result} (${(100 * score).toFixed(1)} %)` : result);

/** The result in one line: a translation, a score, or a label with its probability. */
export const resultOf = (answer) => shown(scored(answer));

export function remember(state, request, answer, seconds) {
  const [text, second] = Array.isArray(request.text) ? request.text : [request.text, ""];
  const row = {
    time: new Date().toISOString(), model: answer.model, task: answer.task, text, second_text: second,
    ...scored(answer), seconds: seconds.toFixed(3), link: linkOf({ ...state, a: answer.model, b: "" }),
  };
  const same = (one) => ["model", "text", "second_text", "result"].every((name) => one[name] === row[name]);
  rows = [row, ...rows.filter((one) => !same(one))].slice(0, MOST);
  keep();
}

export function clearHistory() {
  rows = [];
  keep();
}

function keep() {
  sessionStorage.setItem("results", JSON.stringify(rows));
  showHistory();
}

export function showHistory() {
  const home = document.getElementById("history");
  document.getElementById("last").hidden = rows.length === 0;
  const titles = ["Time", "Model", "Text", "Result"];
  const head = element("tr", {}, titles.map((title) => element("th", { scope: "col" }, title)));
  home.replaceChildren(scrolling("Last results", {}, element("table", {}, element("thead", {}, head), element("tbody", {}, rows.map(line)))));
}

function line(row) {
  const text = row.second_text ? `${row.text} / ${row.second_text}` : row.text;
  return element("tr", {},
    element("td", { class: "muted" }, new Date(row.time).toLocaleTimeString()),
    element("td", {}, row.model),
    element("td", {}, element("a", { href: row.link, "data-inside": true }, text)),
    element("td", {}, shown(row)));
}

/** A CSV cell, quoted if necessary, which no spreadsheet takes for a formula. */
function cell(value) {
  let text = String(value);
  if (/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text))) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csv() {
  const lines = rows.map((row) => COLUMNS.map((name) => cell(row[name])).join(","));
  return `${[COLUMNS.join(","), ...lines].join("\r\n")}\r\n`;
}

export function saveCsv() {
  const url = URL.createObjectURL(new Blob(["\ufeff", csv()], { type: "text/csv;charset=utf-8" }));
  const link = element("a", { href: url, download: "syntaxformer-results.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
