// A topic of a scene as it is drawn: a queue as the strip, a log with its readers, dead letters.

import { h, say, swap } from "../dom.js";
import { hueOf } from "../ids.js";
import { jobPanel } from "../widgets/job.js";
import { letters } from "../widgets/letters.js";
import { parkedShelf } from "../widgets/parked.js";
import { strip } from "../widgets/strip.js";
import { workers } from "../widgets/workers.js";

const CALM_ROWS = 60; // rows between two drawings above which nothing is animated
const STATES = { ready: "available", in_flight: "in flight", delayed: "delayed", parked: "parked" };

/** A queue: its strip, its counts, who works on it. `draw()`, `tick()`, `stop()`. */
export function queuePanel(label, { store, actors }) {
  const lane = strip({ onOpen: (seq) => job.open(seq) });
  const job = jobPanel(store.topic, { actions: () => [], onClose: () => job.close(), now: () => store.now() });
  const off = (deed, words) => h("button", { type: "button", disabled: true }, words); // in a scene the steps act
  const crew = workers({ onAct: () => {}, onOpen: (seq) => job.open(seq), button: off });
  const shelf = parkedShelf({ onOpen: (seq) => job.open(seq) });
  const counts = h("span", { class: "hint counts" });
  const status = h("p", { class: "bad", hidden: true });
  const head = h("div", { class: "row head" }, h("h2", {}, label), h("span", { class: "hint" }, "the head is on the left"), h("span", { class: "spring" }), counts);
  const element = h("section", { class: "card strip scene-queue", "aria-label": label }, head, status, lane.element, shelf.element, crew.element, job.element);
  element.addEventListener("keydown", (event) => event.key === "Escape" && job.close());
  let drawn = 0;
  return {
    element,
    draw() {
      const { state } = store;
      status.hidden = store.status === "live" || store.status === "connecting";
      say(status, store.status === "gone" ? "The scratch queue is not there any more: start over." : "The connection is lost; trying again …");
      if (state === null) return;
      const now = store.now();
      lane.draw(state, { now, calm: store.rows - drawn > CALM_ROWS, rate: store.rates.rate("produced", now) });
      drawn = store.rows;
      shelf.draw(state, now);
      crew.draw(state, actors, now);
      say(counts, Object.entries(STATES).map(([key, words]) => `${state.counts[key]} ${words}`).filter((words) => !words.startsWith("0 ")).join(" · ") || "empty");
    },
    tick() {
      if (store.state === null) return;
      lane.tick(store.now());
      crew.draw(store.state, actors, store.now());
    },
    stop: () => lane.stop(),
  };
}

/** A log: its records, which stay, and how far each reader is (name → seq). `reread()` looks again. */
export function logPanel(label, { read, readers }) {
  const lane = h("div", { class: "lane flow log", role: "list", "aria-label": label });
  const element = h("section", { class: "card", "aria-label": label }, h("div", { class: "row head" }, h("h2", {}, label)), lane);
  return {
    element,
    async reread() {
      const records = await read();
      const none = h("p", { class: "empty" }, "Nothing has been appended.");
      swap(lane, ...(records.length ? records.map((record) => recordCell(record, readers)) : [none]));
    },
    draw() {},
    tick() {},
    stop() {},
  };
}

function recordCell({ $seq: seq }, readers) {
  const here = Object.entries(readers).filter(([, at]) => at === seq);
  const marks = here.map(([name]) => h("span", { class: `reader ${hueOf(name)}` }, `▴ ${name}`));
  const label = `Record ${seq}${here.length ? `, read up to here by ${here.map(([name]) => name).join(" and ")}` : ""}`;
  return h("div", { class: "record", role: "listitem", "aria-label": label, "data-record": seq }, h("span", { class: "cell kept" }, h("span", { class: "seq" }, `#${seq}`)), ...marks);
}

/** Dead letters; read again when `draw()` finds that their number changed. */
export function lettersPanel(name, { source }) {
  const panel = letters(source.topic);
  let known = -1;
  return {
    element: panel.element,
    draw() {
      const count = source.state?.counts.dead_lettered ?? 0;
      if (count === known) return;
      known = count;
      panel.load(name);
    },
    reread: () => panel.load(name),
    tick() {},
    stop() {},
  };
}
