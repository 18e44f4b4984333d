// The parked jobs of a queue: the first of them as cells, their number, and the button that redrives them.

import { h, keyed, setText } from "../dom.js";
import { whole } from "../format.js";
import { cell, cellWidth } from "./cell.js";

/** The shelf; `draw(state, now)`. `onOpen(seq)` opens a job; `button` redrives all of them, where the key allows it. */
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
      setText(words, `${whole(count)} parked`);
      lane.style.setProperty("--cell", `${cellWidth([...state.parked.keys()])}px`);
      keyed(lane, cells, [...state.parked.values()], { key: (job) => job.seq, make: shelved, update: (entry, job) => entry.draw(job, now) });
      const rest = count - state.parked.size;
      if (rest > 0) lane.append(more);
      else more.remove();
      setText(more, `${whole(rest)} more`);
    },
  };
}

/** A cell that is reached by Tab: there is no line to walk along. */
function shelved() {
  const found = cell();
  found.element.tabIndex = 0;
  return found;
}
