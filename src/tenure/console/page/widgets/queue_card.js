// One queue in the list: its depths, its age, its rates, the last minute as lines, and what deserves a warning.

import { h, mark, setText } from "../dom.js";
import { duration, perSecond, short, whole } from "../format.js";
import { href } from "../router.js";
import { warnings } from "../warnings.js";
import { drawAlarms } from "./alarms.js";
import { sparkline } from "./sparkline.js";

const KEPT_MS = 60_000;
const KEPT_MAX = 120;

/** The last minute of one queue, a sample at every read. */
class History {
  times = [];
  depth = [];
  ages = [];
  into = [];
  out = [];
  #last = null;

  add(topic, at) {
    const done = topic.head_seq - topic.count;
    if (this.#last !== null) {
      const seconds = Math.max((at - this.#last.at) / 1000, 0.1);
      this.into.push(Math.max(0, topic.head_seq - this.#last.head) / seconds);
      this.out.push(Math.max(0, done - this.#last.done) / seconds);
    }
    this.times.push(at);
    this.depth.push(topic.queue.ready);
    this.ages.push(topic.queue.oldest_ready_ms);
    this.#last = { at, head: topic.head_seq, done };
    while (at - this.times[0] > KEPT_MS || this.times.length > KEPT_MAX) for (const list of [this.times, this.depth, this.ages, this.into, this.out]) list.shift();
  }

  /** How far two samples are apart. */
  get seconds() {
    return this.times.length < 2 ? 1 : (this.times.at(-1) - this.times[0]) / (this.times.length - 1) / 1000;
  }
}

const recent = (values) => (values.length ? values.slice(-3).reduce((a, b) => a + b, 0) / Math.min(values.length, 3) : 0);

/** A card; `update(topic, at)` takes what the list says of the queue. */
export function queueCard(topic) {
  const name = topic.topic;
  const figures = {
    ready: figure("available"),
    in_flight: figure("in flight"),
    delayed: figure("delayed"),
    dead: figure("dead"),
    suspects: figure("suspects"),
    oldest: figure("oldest waits"),
  };
  const depth = sparkline(`Depth of ${name} over the last minute`);
  const flow = sparkline(`Jobs done in ${name} over the last minute`);
  const rates = { into: h("b", {}, "0/s"), out: h("b", {}, "0/s") };
  const alarms = h("ul", { class: "alarms", role: "list", "aria-label": "Warnings" });
  const element = h(
    "article",
    { class: "card queue", role: "listitem", "data-queue": name },
    h("h2", {}, h("a", { href: href("queue", name) }, name)),
    h("div", { class: "figures" }, ...Object.values(figures).map((one) => one.element)),
    h(
      "div",
      { class: "sparks" },
      h("div", {}, depth.element, h("span", { class: "hint" }, "depth")),
      h("div", {}, flow.element, h("span", { class: "hint" }, "in ", rates.into, " · done ", rates.out)),
    ),
    alarms,
  );
  const history = new History();
  const update = (found, at) => {
    const { queue, meters, config } = found;
    history.add(found, at);
    figures.suspects.element.hidden = !queue.suspects;
    for (const key of ["ready", "suspects", "in_flight", "delayed", "dead"]) figures[key].set(short(queue[key]), whole(queue[key]), queue[key]);
    figures.oldest.set(queue.ready ? duration(queue.oldest_ready_ms) : "–");
    depth.draw(history.depth, history.seconds);
    flow.draw(history.out, history.seconds);
    setText(rates.into, perSecond(recent(history.into)));
    setText(rates.out, perSecond(recent(history.out)));
    drawAlarms(alarms, warnings({ queue, meters, config, ages: history.ages }));
  };
  return { element, update };
}

function figure(label) {
  const value = h("b", {}, "0");
  const element = h("div", { class: "figure" }, value, h("span", {}, label));
  return {
    element,
    set(words, title = words, amount = 0) {
      setText(value, words);
      mark(value, "title", title);
      mark(element, "data-some", amount > 0 ? "yes" : null);
    },
  };
}
