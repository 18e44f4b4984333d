// Every queue at a glance: depths, ages, rates, the last minute as lines, and what deserves a warning.

import { call, topicPath } from "../api.js";
import { h, keyed, mark, say, swap } from "../dom.js";
import { duration, perSecond, short, whole } from "../format.js";
import { go, href } from "../router.js";
import { isScratch } from "../scratch.js";
import { obstacle } from "../session.js";
import { isTyping } from "../shell.js";
import { warnings } from "../warnings.js";
import { openDialog } from "../widgets/dialog.js";
import { sparkline } from "../widgets/sparkline.js";
import { tell } from "../widgets/toast.js";

const POLL_MS = 1_000;
const PAGE = 200;
const KEPT = 60;

/** One queue's last minute. */
class History {
  depth = [];
  ages = [];
  into = [];
  out = [];
  #last = null;

  add(topic, at) {
    const done = topic.head_seq - topic.count;
    if (this.#last !== null) {
      const seconds = Math.max((at - this.#last.at) / 1000, 0.1);
      this.#push(this.into, Math.max(0, topic.head_seq - this.#last.head) / seconds);
      this.#push(this.out, Math.max(0, done - this.#last.done) / seconds);
    }
    this.#push(this.depth, topic.queue.ready);
    this.#push(this.ages, topic.queue.oldest_ready_ms);
    this.#last = { at, head: topic.head_seq, done };
  }

  #push(list, value) {
    list.push(value);
    if (list.length > KEPT) list.shift();
  }
}

const recent = (values) => (values.length ? values.slice(-3).reduce((a, b) => a + b, 0) / Math.min(values.length, 3) : 0);

/** Show the list; returns how to leave. */
export function show(outlet) {
  const filter = h("input", { type: "search", placeholder: "Filter by prefix", "aria-label": "Filter queues by prefix" });
  const grid = h("div", { class: "queues", role: "list", "aria-label": "Queues" });
  const logs = h("div", { class: "logs" });
  const note = h("p", { class: "empty", hidden: true });
  const why = obstacle(["admin"]);
  const create = h("button", { class: "primary", disabled: why !== null, title: why ?? "", on: { click: createQueue } }, "New queue");
  outlet.append(h("div", { class: "row head" }, h("h1", {}, "Queues"), h("span", { class: "spring" }), filter, create), note, grid, logs);

  const cards = new Map();
  const histories = new Map();
  const stop = new AbortController();
  const look = async () => {
    try {
      const prefix = encodeURIComponent(filter.value.trim());
      const path = `v0/topics?meters=true&page_size=${PAGE}&prefix=${prefix}`;
      const answer = await call("GET", path, undefined, { signal: stop.signal });
      draw(answer);
    } catch (error) {
      if (!stop.signal.aborted) notice(note, `Not connected: ${error.message}. What is shown may be old.`);
    }
  };
  const draw = ({ topics: found, next_cursor: more }) => {
    const topics = found.filter(({ topic }) => !isScratch(topic) || isScratch(filter.value.trim())); // the course's own
    const queues = topics.filter((topic) => topic.queue);
    for (const name of histories.keys()) if (!queues.some((queue) => queue.topic === name)) histories.delete(name);
    for (const topic of queues) {
      if (!histories.has(topic.topic)) histories.set(topic.topic, new History());
      histories.get(topic.topic).add(topic, performance.now());
    }
    const empty = filter.value ? "No queue begins like that." : "There is no queue yet. Create one, or append to a topic of type queue.";
    notice(note, more ? `The first ${PAGE} topics are shown: filter for others.` : queues.length ? "" : empty);
    const update = (card, topic) => card.update(topic, histories.get(topic.topic));
    keyed(grid, cards, queues, { key: (topic) => topic.topic, make: queueCard, update });
    drawLogs(logs, topics.filter((topic) => !topic.queue));
  };
  const timer = setInterval(() => document.hidden || look(), POLL_MS);
  const keys = (event) => {
    if (event.key === "/" && !isTyping(event.target)) {
      event.preventDefault();
      filter.focus();
    }
  };
  filter.addEventListener("input", look);
  addEventListener("keydown", keys);
  look();
  return () => {
    clearInterval(timer);
    stop.abort();
    removeEventListener("keydown", keys);
  };
}

function notice(element, words) {
  element.hidden = !words;
  say(element, words);
}

function queueCard(topic) {
  const name = topic.topic;
  const figures = {
    ready: figure("available"),
    in_flight: figure("in flight"),
    delayed: figure("delayed"),
    dead_lettered: figure("dead letters"),
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
  const update = ({ queue, meters, config }, history) => {
    for (const key of ["ready", "in_flight", "delayed", "dead_lettered"]) figures[key].set(short(queue[key]), whole(queue[key]), queue[key]);
    figures.oldest.set(queue.ready ? duration(queue.oldest_ready_ms) : "–");
    depth.draw(history.depth);
    flow.draw(history.out);
    say(rates.into, perSecond(recent(history.into)));
    say(rates.out, perSecond(recent(history.out)));
    drawAlarms(alarms, warnings({ queue, meters, config, ages: history.ages }));
  };
  return { element, update };
}

/** Warnings as a list; it is touched only where the words changed. */
export function drawAlarms(list, found) {
  const words = found.map(({ text }) => text).join("\n");
  if (list.dataset.words === words) return;
  list.dataset.words = words;
  swap(list, ...found.map(({ kind, text }) => h("li", { class: `alarm ${kind}` }, text)));
}

function figure(label) {
  const value = h("b", {}, "0");
  const element = h("div", { class: "figure" }, value, h("span", {}, label));
  return {
    element,
    set(words, title = words, amount = 0) {
      say(value, words);
      mark(value, "title", title);
      mark(element, "data-some", amount > 0 ? "yes" : null);
    },
  };
}

function drawLogs(root, logs) {
  const words = JSON.stringify(logs.map(({ topic, count }) => [topic, count]));
  if (root.dataset.words === words) return;
  root.dataset.words = words;
  if (!logs.length) return swap(root);
  const rows = logs.map(({ topic, count, config }) =>
    h("tr", {}, h("th", { scope: "row" }, topic), h("td", {}, whole(count)), h("td", {}, config.durability)),
  );
  const head = h("tr", {}, ...["Log", "Records", "Durability"].map((word) => h("th", { scope: "col" }, word)));
  swap(root, h("h2", {}, "Logs"), h("div", { class: "card flush" }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows))));
}

/** A PUT replaces the config of a topic that is there already, which is not what "new" means. */
async function createOnly(topic, config) {
  const known = await call("GET", topicPath(topic, "?touch=false")).catch((error) => {
    if (error.status !== 404) throw error;
    return null;
  });
  if (known !== null) throw new Error(`${topic} is there already`);
  return call("PUT", topicPath(topic), config);
}

function createQueue() {
  const name = h("input", { id: "new-name", required: true, autocomplete: "off", spellcheck: "false" });
  const lease = h("input", { id: "new-lease", type: "number", min: "100", max: "86400000", value: "30000" });
  const most = h("input", { id: "new-most", type: "number", min: "0", value: "5" });
  const dead = h("input", { id: "new-dead", autocomplete: "off", spellcheck: "false", placeholder: "<name>.dead" });
  const body = h(
    "div",
    { class: "fields" },
    h("label", { for: "new-name" }, "Name"),
    name,
    h("label", { for: "new-lease" }, "Lease, ms"),
    lease,
    h("label", { for: "new-most" }, "Deliveries at most (0: no limit)"),
    most,
    h("label", { for: "new-dead" }, "Dead letters go to"),
    dead,
  );
  const run = async () => {
    const topic = name.value.trim();
    if (!topic) return false;
    const config = { type: "queue", lease_ms: Number(lease.value), max_deliveries: Number(most.value) };
    if (config.max_deliveries) config.dead_letter = dead.value.trim() || `${topic}.dead`;
    const done = await tell(() => createOnly(topic, config), `${topic} is there`);
    if (done) go("queue", topic);
    return done !== undefined;
  };
  openDialog({ title: "New queue", body, actions: [{ label: "Create", run }] });
  name.focus();
}
