// Warnings about a queue, as a list.

import { h, swap } from "../dom.js";

/** Warnings as a list; it is touched only where the words changed. */
export function drawAlarms(list, found) {
  const words = found.map(({ text }) => text).join("\n");
  if (list.dataset.words === words) return;
  list.dataset.words = words;
  swap(list, ...found.map(({ kind, text }) => h("li", { class: `alarm ${kind}` }, text)));
}
