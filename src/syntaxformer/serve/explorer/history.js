// The table of the last results, which only this tab keeps, and its export as CSV.

import { element } from "./dom.js";
import { linkOf } from "./permalink.js";

const MOST = 50;
const COLUMNS = ["time", "model", "task", "text", "second_text", "result", "score", "seconds"];

let rows = JSON.parse(sessionStorage.getItem("results") ?? "[]");

/** The result in one line: a translation, or a label with its probability. */
export function resultOf(answer) {
  const found = answer.classification;
  if (!found) return { result: answer.translation ?? "", score: "" };
  if (found.label === undefined) return { result: found.score.toFixed(4), score: found.score };
  return { result: found.label, score: found.probabilities?.[found.label] ?? "" };
}

export function remember(state, request, answer, seconds) {
  const [text, second] = Array.isArray(request.text) ? request.text : [request.text, ""];
  const row = {
    time: new Date().toISOString(), model: answer.model, task: answer.task, text, second_text: second,
    ...resultOf(answer), seconds: seconds.toFixed(3), link: linkOf({ ...state, a: answer.model, b: "" }),
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
  for (const id of ["export", "clear"]) document.getElementById(id).disabled = rows.length === 0;
  if (!rows.length) {
    home.replaceChildren(element("p", { class: "muted" }, "Nothing yet."));
    return;
  }
  const titles = ["Time", "Model", "Text", "Result", "Score"];
  const head = element("tr", {}, titles.map((title) => element("th", { scope: "col" }, title)));
  home.replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, rows.map(line))));
}

function line(row) {
  const text = row.second_text ? `${row.text} / ${row.second_text}` : row.text;
  const score = row.score === "" ? "" : Number(row.score).toFixed(3);
  return element("tr", {},
    element("td", { class: "muted" }, new Date(row.time).toLocaleTimeString()),
    element("td", {}, row.model),
    element("td", {}, element("a", { href: row.link }, text)),
    element("td", {}, row.result),
    element("td", { class: "number" }, score));
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
