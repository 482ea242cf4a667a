// A matrix of small squares with names on both sides. Arrow keys, mouse and finger read its cells.

import { drawn, element, widthOf } from "./dom.js";

const CELL = 24;
const FONT = "13px system-ui, sans-serif";
const NOTHING = 0.004;

/**
 * @param rows, columns  names
 * @param cellOf  (row, column) → {value 0 to 1, text, kind, mark}; null for an empty cell
  * @param label  name of the matrix
 */
export function matrix(rows, columns, cellOf, label) {
  const left = Math.ceil(Math.max(...rows.map((one) => widthOf(one, FONT)), 20)) + 10;
  const top = Math.ceil(Math.max(...columns.map((one) => widthOf(one, FONT)), 20)) + 10;
  const width = left + CELL * columns.length + 2;
  const height = top + CELL * rows.length + 2;
  const marks = [];
  rows.forEach((_, row) => columns.forEach((_, column) => marks.push(...square(cellOf(row, column), left + CELL * column, top + CELL * row))));
  const cursor = drawn("rect", { class: "cursor", width: CELL, height: CELL, visibility: "hidden" });
  const names = [
    ...rows.map((one, row) => drawn("text", { x: left - 6, y: top + CELL * row + 16, "text-anchor": "end", class: `row-${row}` }, one)),
    ...columns.map((one, column) => drawn("text", { transform: `translate(${left + CELL * column + 16} ${top - 6}) rotate(-90)`, class: `column-${column}` }, one)),
  ];
  const frame = drawn("rect", { class: "frame", x: left, y: top, width: CELL * columns.length, height: CELL * rows.length });
  const svg = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "matrix", "aria-hidden": "true" }, frame, marks, names, cursor);
  const output = element("output", { class: "reading muted", "aria-live": "polite" }, "Arrow keys, or a click, read single cells.");
  const place = { row: 0, column: 0 };
  const read = (row, column) => {
    place.row = Math.max(0, Math.min(rows.length - 1, row));
    place.column = Math.max(0, Math.min(columns.length - 1, column));
    const one = cellOf(place.row, place.column);
    output.textContent = `${rows[place.row]} → ${columns[place.column]}: ${one?.text ?? "nothing"}`;
    cursor.setAttribute("x", left + CELL * place.column);
    cursor.setAttribute("y", top + CELL * place.row);
    cursor.setAttribute("visibility", "visible");
  };
  const box = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `${label}. Arrow keys read its cells.` }, svg);
  box.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const isShown = cursor.getAttribute("visibility") === "visible";
    read(place.row + (isShown ? step[0] : 0), place.column + (isShown ? step[1] : 0));
  });
  const point = (event) => {
    const at = svg.getBoundingClientRect();
    const [row, column] = [Math.floor((event.clientY - at.top - top) / CELL), Math.floor((event.clientX - at.left - left) / CELL)];
    if (row >= 0 && column >= 0 && row < rows.length && column < columns.length) read(row, column);
  };
  svg.addEventListener("pointermove", point);
  svg.addEventListener("click", point);
  return element("div", { class: "matrix-box" }, box, output);
}

/** Cells with almost no weight are not drawn, because long texts have a hundred thousand cells. */
function square(cell, x, y) {
  if (!cell || cell.value < NOTHING) return [];
  const found = [drawn("rect", { x: x + 1, y: y + 1, width: CELL - 2, height: CELL - 2, rx: 3, class: `cell ${cell.kind ?? ""}`, "fill-opacity": Math.min(1, cell.value).toFixed(3) })];
  if (cell.mark) found.push(drawn("text", { x: x + CELL / 2, y: y + 16, "text-anchor": "middle", class: `mark ${cell.kind ?? ""}${cell.value > 0.55 ? " strong" : ""}` }, cell.mark));
  return found;
}
