// The meters of a queue in a table: the value now, what it is for, and when it first warned.

import { h, mark, setText } from "../dom.js";
import { duration, whole } from "../format.js";
import { percent } from "./design.js";

// The source of each meter, and the limit of its alarm. The limits suit a scene of a few seconds.
const METERS = [
  { key: "depth", label: "Depth", tells: "how much waits", read: ({ queue }) => queue.ready, show: whole, limit: 30 },
  { key: "oldest", label: "Oldest age", tells: "how long the head has waited: stands still, or moves", read: ({ queue }) => queue.oldest_ready_ms, show: duration, limit: 1_500 },
  { key: "in_flight", label: "In flight", tells: "what workers hold; more than they can do at once is stuck", read: ({ queue }) => queue.in_flight, show: whole, limit: 10 },
  { key: "again", label: "Redelivered", tells: "the share of deliveries that ended without an ack", read: ({ meters }) => again(meters), show: percent, limit: 0.1 },
  { key: "p99", label: "Processing, p99", tells: "how slow the slow jobs are; three times that is the lease", read: ({ meters }) => meters.processing_ms.p99 ?? 0, show: duration, limit: 2_000 },
];

/** Return the share of deliveries that ended without an ack. */
export function again({ claimed, released, expired }) {
  return claimed ? (released + expired) / claimed : 0;
}

/** The table; `take({queue, meters}, when)` shows a sample and returns the keys of the meters that warn; `when` labels it. */
export function gauges() {
  const rows = METERS.map((meter) => row(meter));
  const head = ["", "now", "warns above", "warned"].map((words) => h("th", { scope: "col" }, words));
  const element = h(
    "section",
    { class: "card gauges", "aria-label": "Meters" },
    h("div", { class: "row head" }, h("h2", {}, "The meters")),
    h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows.map((one) => one.element))),
  );
  return { element, take: (look, when) => rows.filter((one) => one.draw(look, when)).map((one) => one.key) };
}

function row({ key, label, tells, read, show, limit }) {
  const value = h("td", { class: "value" }, "–");
  const warned = h("td", { class: "warned" }, "–");
  const name = h("th", { scope: "row" }, label, h("span", { class: "hint" }, tells));
  const element = h("tr", { "data-meter": key }, name, value, h("td", {}, show(limit)), warned);
  let first = null;
  return {
    key,
    element,
    draw(look, when) {
      const found = read(look);
      const loud = found > limit;
      if (loud) first ??= when;
      setText(value, show(found));
      mark(element, "data-loud", loud ? "yes" : null);
      setText(warned, first ?? "–");
      return loud;
    },
  };
}
