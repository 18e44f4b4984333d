// The code pane of a scene: short listings in which the current line is marked while the scene plays.

import { h, mark } from "../dom.js";

/** The pane; `at(name, line)` marks a line (from 1) of a listing and no other, `clear()` none. */
export function codePane(listings) {
  const lines = new Map(listings.map(({ name, code }) => [name, code.map(lineOf)]));
  const figures = listings.map(({ name, about }) =>
    h("figure", { class: "listing", "data-listing": name }, h("figcaption", {}, h("b", {}, name), h("span", { class: "hint" }, about)), h("ol", { class: "code", tabindex: "0", "aria-label": `Code of ${name}` }, ...lines.get(name))),
  );
  const element = h("section", { class: "card listings", "aria-label": "The code" }, ...figures);
  const clear = () => element.querySelectorAll("[aria-current]").forEach((line) => mark(line, "aria-current", null));
  return {
    element,
    clear,
    at(name, line) {
      clear();
      mark(lines.get(name)[line - 1], "aria-current", "step");
    },
  };
}

/** One line; the text after a # is a comment. */
function lineOf(words) {
  const at = words.indexOf("#");
  const code = at < 0 ? words : words.slice(0, at);
  return h("li", {}, h("code", {}, code, at < 0 ? null : h("span", { class: "comment" }, words.slice(at))));
}
