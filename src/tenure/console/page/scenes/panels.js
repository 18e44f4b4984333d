// The panels of a scene, one per topic: a queue as the strip, a log with its readers, dead letters.

import { h, keyed, setText, swap } from "../dom.js";
import { hueOf } from "../ids.js";
import { nameOf } from "../widgets/cell.js";
import { jobPanel } from "../widgets/job.js";
import { letters } from "../widgets/letters.js";
import { parkedShelf } from "../widgets/parked.js";
import { strip } from "../widgets/strip.js";
import { workers } from "../widgets/workers.js";
import { Travels } from "./travels.js";

const CALM_ROWS = 60; // rows between two drawings above which nothing is animated
const STATES = { ready: "available", in_flight: "in flight", delayed: "delayed", parked: "parked" };

/** A queue: its strip in the middle, at its right the producer (where it `has` one) above the workers. */
export function queuePanel(label, { store, actors, producer: has }) {
  const lane = strip({ onOpen: (seq) => job.open(seq) });
  const job = jobPanel(store.topic, { actions: () => [], onClose: () => job.close(), now: () => store.now() });
  const off = (action, words) => h("button", { type: "button", disabled: true }, words); // in a scene the steps act
  const crew = workers({ onAct: () => {}, onOpen: (seq) => job.open(seq), button: off });
  const shelf = parkedShelf({ onOpen: (seq) => job.open(seq) });
  const graves = graveyard();
  const refusal = h("p", { class: "bad refusal", hidden: true });
  const counts = h("span", { class: "hint counts" });
  const status = h("p", { class: "bad", hidden: true });
  const head = h("div", { class: "row head" }, h("h2", {}, label), h("span", { class: "hint" }, "the head is on the left"), h("span", { class: "spring" }), counts);
  const producer = h("div", { class: "actor", hidden: !has }, "producer");
  const floor = h("div", { class: "floor" }, h("div", { class: "middle" }, lane.element, refusal, shelf.element, graves.element), h("div", { class: "crew" }, producer, crew.element));
  const element = h("section", { class: "card strip scene-queue", "aria-label": label }, head, status, floor, job.element);
  element.addEventListener("keydown", (event) => event.key === "Escape" && job.close());
  const travels = new Travels(floor, {
    cellOf: (seq) => lane.element.querySelector(`.cell[data-seq="${seq}"]`),
    workerOf: (node) => crew.element.querySelector(`[data-worker="${CSS.escape(node)}"]`),
    producer,
    graves: graves.element,
  });
  let drawn = 0;
  return {
    element,
    /** Show that the broker refused an ack: `{node, seq, words}`; null removes it. */
    refused(found) {
      refusal.hidden = found === null;
      setText(refusal, found?.words ?? "");
      if (found !== null) travels.refused(found.node, found.seq);
    },
    draw() {
      const { state } = store;
      status.hidden = store.status === "live" || store.status === "connecting";
      setText(status, store.status === "gone" ? "The scratch queue is not there any more: start over." : "The connection is lost; trying again …");
      if (state === null) return;
      const now = store.now();
      travels.beforeDraw(state);
      lane.draw(state, { now, calm: store.rows - drawn > CALM_ROWS, rate: store.rates.rate("produced", now) });
      drawn = store.rows;
      shelf.draw(state, now);
      crew.draw(state, actors, now);
      graves.draw(actors.graves);
      travels.afterDraw(actors);
      setText(counts, countWords(state.counts, actors.graves.length));
    },
    tick() {
      if (store.state === null) return;
      lane.tick(store.now());
      crew.draw(store.state, actors, store.now());
    },
    stop: () => lane.stop(),
  };
}

function countWords(counts, lost) {
  const words = Object.entries(STATES).map(([key, state]) => [counts[key], state]);
  return [...words, [lost, "lost"]].filter(([count]) => count).map(([count, state]) => `${count} ${state}`).join(" · ") || "empty";
}

/** Jobs that auto-ack deleted and no worker did: the broker has no trace of them. */
function graveyard() {
  const words = h("h3", {});
  const lane = h("div", { class: "lane flow", role: "list", "aria-label": "Lost jobs" });
  const element = h("div", { class: "graves", hidden: true }, words, lane);
  const known = new Map();
  const make = ({ seq }) => h("span", { class: "cell lost", role: "listitem", "aria-label": `Job ${seq}, lost`, "data-lost": seq }, h("span", { class: "mid", "aria-hidden": "true" }, "✕"), h("span", { class: "seq" }, nameOf(seq)));
  return {
    element,
    draw(graves) {
      element.hidden = graves.length === 0;
      setText(words, `${graves.length} lost: deleted by the broker, done by nobody`);
      keyed(lane, known, graves, { key: ({ seq }) => seq, make, update() {} });
    },
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
