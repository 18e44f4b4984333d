// The parked jobs of a queue, beside the line: the first of them as cells, all of them as a number, and the way back.

import { h, keyed, say } from "../dom.js";
import { whole } from "../format.js";
import { cell, cellWidth } from "./cell.js";

/** The shelf; `draw(state, now)`. `onOpen(seq)` opens a job; `button` puts all of them back, where the page may. */
export function parkedShelf({ onOpen, button = null }) {
  const words = h("h3", {});
  const lane = h("div", { class: "lane flow", role: "group", "aria-label": "Parked jobs" });
  const more = h("span", { class: "slot gap" });
  const element = h("div", { class: "parked-shelf", hidden: true }, h("div", { class: "row" }, words, h("span", { class: "spring" }), button), lane);
  const cells = new Map();
  lane.addEventListener("click", (event) => {
    const found = event.target.closest(".cell");
    if (found) onOpen(Number(found.dataset.seq));
  });
  return {
    element,
    draw(state, now) {
      const count = state.counts.parked;
      element.hidden = count === 0;
      say(words, `${whole(count)} parked`);
      lane.style.setProperty("--cell", `${cellWidth([...state.parked.keys()])}px`);
      keyed(lane, cells, [...state.parked.values()], { key: (job) => job.seq, make: shelved, update: (entry, job) => entry.draw(job, now) });
      const rest = count - state.parked.size;
      if (rest > 0) lane.append(more);
      else more.remove();
      say(more, `${whole(rest)} more`);
    },
  };
}

/** A cell that is reached by Tab: there is no line to walk along. */
function shelved() {
  const found = cell();
  found.element.tabIndex = 0;
  return found;
}
