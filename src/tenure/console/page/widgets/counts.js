// The counts of a queue as large figures, in the colours of the strip.

import { h, mark, setText } from "../dom.js";
import { duration, perSecond, whole } from "../format.js";

const FIGURES = [
  ["ready", "available"],
  ["suspects", "suspects"],
  ["in_flight", "in flight"],
  ["delayed", "delayed"],
  ["parked", "parked"],
  ["dead", "dead"],
];

/** The figures; `draw(state, rates, now)`. */
export function counts() {
  const values = {};
  const tile = (key, label) => {
    values[key] = h("b", { "data-count": key }, "0");
    return h("div", { class: `tile ${key}` }, values[key], h("span", {}, label));
  };
  const element = h("div", { class: "tiles" }, ...FIGURES.map(([key, label]) => tile(key, label)), tile("oldest", "oldest waits"), tile("into", "in"), tile("done", "done"));
  const { parentElement: suspects } = values.suspects;
  suspects.title = "Of the available ones, those whose worker was lost: they wait apart";
  return {
    element,
    draw(state, rates, now) {
      suspects.hidden = state.counts.suspects === 0;
      for (const [key] of FIGURES) {
        setText(values[key], whole(state.counts[key]));
        mark(values[key], "data-none", state.counts[key] ? null : "yes");
      }
      setText(values.oldest, state.counts.ready ? duration(state.oldestReadyMs) : "–");
      setText(values.into, perSecond(rates.rate("produced", now)));
      setText(values.done, perSecond(rates.rate("acked", now)));
    },
  };
}
