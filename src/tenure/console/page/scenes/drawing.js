// Small drawings in the shapes of the strip: cells, boxes, arrows. A scene's drawing is shown where the text is.

import { s } from "../dom.js";

const CELL = 34;

/** A drawing 320 wide; `label` is what a screen reader says. */
export function picture(label, height, ...shapes) {
  return s("svg", { class: "drawing", viewBox: `0 0 320 ${height}`, role: "img", "aria-label": label }, ...shapes);
}

/** One cell: `kind` is ready, in_flight, delayed, parked, dead, gone or kept (a record of a log). */
export function cell(x, y, kind, words = "") {
  return s("g", { class: `d-cell ${kind}` }, s("rect", { x, y, width: CELL, height: CELL, rx: 6 }), text(x + CELL / 2, y + CELL / 2 + 4, words));
}

/** Cells side by side: `[["ready", "#1"], …]`. */
export function cells(x, y, list) {
  return list.map(([kind, words], i) => cell(x + i * (CELL + 6), y, kind, words));
}

/** Somebody: a producer, a worker, a reader. */
export function box(x, y, words, { width = 64, kind = "" } = {}) {
  return s("g", { class: `d-box ${kind}` }, s("rect", { x, y, width, height: 28, rx: 14 }), text(x + width / 2, y + 18, words));
}

/** An arrow with words at its middle. */
export function arrow(x1, y1, x2, y2, { words = "", kind = "" } = {}) {
  const turn = Math.atan2(y2 - y1, x2 - x1);
  const wing = (side) => `${x2 - 7 * Math.cos(turn + side)},${y2 - 7 * Math.sin(turn + side)}`;
  const line = s("line", { x1, y1, x2, y2 });
  const head = s("polygon", { points: `${x2},${y2} ${wing(0.45)} ${wing(-0.45)}` });
  return s("g", { class: `d-arrow ${kind}` }, line, head, words ? text((x1 + x2) / 2, (y1 + y2) / 2 - 6, words) : null);
}

export function text(x, y, words, kind = "") {
  return s("text", { x, y, class: kind }, words);
}
