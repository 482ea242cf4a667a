// A matrix of small squares with names on both sides. Arrow keys, mouse and finger read its cells.

import { drawn, element, scrolling, widthOf } from "./dom.js";

const CELL = 24;
const FONT = "13px system-ui, sans-serif";
const NOTHING = 0.004;

const widest = (names) => Math.ceil(Math.max(...names.map((one) => widthOf(one, FONT)), 20)) + 10;
const sheet = (width, height, kind, ...children) =>
  drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: `matrix ${kind}`, "aria-hidden": "true" }, ...children);

/**
 * @param rows, columns  names
 * @param cellOf  (row, column) → {value 0 to 1, text, kind, mark}; null for an empty cell
 * @param label  name of the matrix
 */
export function matrix(rows, columns, cellOf, label) {
  const top = widest(columns);
  const left = widest(rows);
  const [width, height] = [CELL * columns.length + 2, top + CELL * rows.length + 2];
  const marks = [];
  rows.forEach((_, row) => columns.forEach((_, column) => marks.push(...square(cellOf(row, column), CELL * column, top + CELL * row))));
  const cursor = drawn("rect", { class: "cursor", width: CELL, height: CELL, visibility: "hidden" });
  // The names of rows are a drawing of their own, which stays in place while the cells scroll.
  const names = sheet(left, height, "names", rows.map((one, row) => drawn("text", { x: left - 6, y: top + CELL * row + 16, "text-anchor": "end" }, one)));
  const above = columns.map((one, column) => drawn("text", { transform: `translate(${CELL * column + 16} ${top - 6}) rotate(-90)` }, one));
  const frame = drawn("rect", { class: "frame", x: 0.5, y: top, width: CELL * columns.length, height: CELL * rows.length });
  const cells = sheet(width, height, "cells", frame, marks, above, cursor);
  const output = element("output", { class: "reading muted", "aria-live": "polite" }, "Arrow keys, or a click, read single cells.");
  const place = { row: 0, column: 0 };
  const read = (row, column) => {
    place.row = Math.max(0, Math.min(rows.length - 1, row));
    place.column = Math.max(0, Math.min(columns.length - 1, column));
    const one = cellOf(place.row, place.column);
    output.textContent = `${rows[place.row]} → ${columns[place.column]}: ${one?.text ?? "nothing"}`;
    cursor.setAttribute("x", CELL * place.column);
    cursor.setAttribute("y", top + CELL * place.row);
    cursor.setAttribute("visibility", "visible");
  };
  const outer = scrolling(`${label}. Arrow keys read its cells.`, { tabindex: "0", role: "group" }, names, cells);
  const box = outer.querySelector(".scroll");
  box.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const isShown = cursor.getAttribute("visibility") === "visible";
    read(place.row + (isShown ? step[0] : 0), place.column + (isShown ? step[1] : 0));
    keepInSight(box, left, CELL * place.column);
  });
  const point = (event) => {
    const at = cells.getBoundingClientRect();
    const [row, column] = [Math.floor((event.clientY - at.top - top) / CELL), Math.floor((event.clientX - at.left) / CELL)];
    if (row >= 0 && column >= 0 && row < rows.length && column < columns.length) read(row, column);
  };
  cells.addEventListener("pointermove", point);
  cells.addEventListener("click", point);
  return element("div", { class: "matrix-box" }, outer, output);
}

/** Scrolls a box so that the cell at `x` is beside the names, which cover the first `left` pixels. */
function keepInSight(box, left, x) {
  const shown = box.clientWidth - left - CELL;
  if (x < box.scrollLeft) box.scrollLeft = x;
  else if (x > box.scrollLeft + shown) box.scrollLeft = x - shown;
}

/** Cells with almost no weight are not drawn, because long texts have a hundred thousand cells. */
function square(cell, x, y) {
  if (!cell || cell.value < NOTHING) return [];
  const found = [drawn("rect", { x: x + 1, y: y + 1, width: CELL - 2, height: CELL - 2, rx: 3, class: `cell ${cell.kind ?? ""}`, "fill-opacity": Math.min(1, cell.value).toFixed(3) })];
  if (cell.mark) found.push(drawn("text", { x: x + CELL / 2, y: y + 16, "text-anchor": "middle", class: `mark ${cell.kind ?? ""}${cell.value > 0.55 ? " strong" : ""}` }, cell.mark));
  return found;
}
