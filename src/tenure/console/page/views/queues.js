// The view of all queues: searched, sorted, a page at a time.

import { LISTED_MAX, ORDERS, sorted, walk } from "../directory.js";
import { h, keyed, setText, swap } from "../dom.js";
import { whole } from "../format.js";
import { isScratch } from "../scratch.js";
import { obstacle } from "../session.js";
import { isTyping } from "../shell.js";
import { createQueue } from "../widgets/new_queue.js";
import { pager } from "../widgets/pager.js";
import { queueCard } from "../widgets/queue_card.js";

const LOOK_MS_MIN = 1_000;
const REST = 20; // a walk that took 100 ms is followed by at least 2 s without one: a long list costs the server no more
const CARDS = 48;
const LOGS_MAX = 100;
const STANDBY = "A standby shows no queues: the leader does. What is shown may be old.";

/** Show the list; returns a function that leaves it. */
export function show(outlet) {
  const view = new QueuesView();
  outlet.append(view.element);
  view.start();
  return () => view.stop();
}

class QueuesView {
  #walk = new AbortController();
  #timer = 0;
  #cards = new Map();
  #shown = []; // names on the page, in their order
  #found = null;

  constructor() {
    const again = () => this.turn();
    this.search = h("input", { type: "search", placeholder: "Search by any part of the name", "aria-label": "Search queues", on: { input: () => this.begin() } });
    const orders = Object.entries(ORDERS).map(([key, { label }]) => h("option", { value: key }, label));
    this.order = h("select", { "aria-label": "Sort by", on: { change: () => this.begin() } }, ...orders);
    this.note = h("p", { class: "empty", role: "status", hidden: true });
    this.grid = h("div", { class: "queues", role: "list", "aria-label": "Queues" });
    this.pages = pager({ size: CARDS, noun: "queues", onTurn: again });
    this.logs = h("div", { class: "logs" });
    const why = obstacle(["admin"]);
    const create = h("button", { class: "primary", disabled: why !== null, title: why ?? "", on: { click: createQueue } }, "New queue");
    const sort = h("label", { class: "row tight sort" }, h("span", { class: "hint" }, "Sort by"), this.order);
    const head = h("div", { class: "row head" }, h("h1", {}, "Queues"), h("span", { class: "spring" }), this.search, sort, create);
    this.element = h("div", {}, head, this.note, this.grid, this.pages.element, this.logs);
  }

  start() {
    addEventListener("keydown", this.key);
    this.look();
  }

  stop() {
    this.#walk.abort();
    clearTimeout(this.#timer);
    removeEventListener("keydown", this.key);
  }

  key = (event) => {
    if (event.key !== "/" || isTyping(event.target)) return;
    event.preventDefault();
    this.search.focus();
  };

  /** After another search or order: begin at the first page. */
  begin() {
    this.pages.toFirst();
    this.#shown = [];
    this.look();
  }

  turn() {
    this.#shown = [];
    this.draw(performance.now());
    this.element.scrollIntoView({ block: "start" });
  }

  /** Walk the list, and again after a while; a walk still under way is cancelled by a new one. */
  async look() {
    clearTimeout(this.#timer);
    this.#walk.abort();
    const walking = (this.#walk = new AbortController());
    const started = performance.now();
    try {
      if (!document.hidden || this.#found === null) {
        this.#found = await walk(this.search.value.trim(), { signal: walking.signal });
        this.draw(performance.now());
      }
    } catch (error) {
      if (!walking.signal.aborted) this.showNote(error.status === 421 ? STANDBY : `Not connected: ${error.message}. What is shown may be old.`);
    }
    if (walking.signal.aborted) return;
    const wait = Math.max(LOOK_MS_MIN, REST * (performance.now() - started));
    this.#timer = setTimeout(() => this.look(), wait);
  }

  draw(at) {
    if (this.#found === null) return;
    const text = this.search.value.trim();
    const topics = this.#found.topics.filter(({ topic }) => !isScratch(topic) || isScratch(text)); // the course's own
    const queues = sorted(topics.filter((topic) => topic.queue), this.order.value);
    const [first, end] = this.pages.draw(queues.length);
    const page = this.steady(queues, queues.slice(first, end));
    keyed(this.grid, this.#cards, page, { key: ({ topic }) => topic, make: queueCard, update: (card, topic) => card.update(topic, at) });
    drawLogs(this.logs, topics.filter((topic) => !topic.queue));
    const none = text ? "No queue has that in its name." : "There is no queue yet. Create one, or append to a topic of type queue.";
    const many = `There are more than ${whole(LISTED_MAX)} topics, and these are the first of them by name: search for others.`;
    this.showNote(this.#found.more ? many : queues.length ? "" : none);
  }

  /** Return the page to show; cards do not move while one of them has the focus. */
  steady(queues, page) {
    const held = this.grid.contains(document.activeElement) || this.grid.matches(":hover");
    const byName = held ? new Map(queues.map((queue) => [queue.topic, queue])) : null;
    const kept = held ? this.#shown.map((name) => byName.get(name)).filter(Boolean) : [];
    const found = held && kept.length === page.length ? kept : page;
    this.#shown = found.map(({ topic }) => topic);
    return found;
  }

  showNote(words) {
    this.note.hidden = !words;
    setText(this.note, words);
  }
}

function drawLogs(root, logs) {
  const words = JSON.stringify(logs.map(({ topic, count }) => [topic, count]));
  if (root.dataset.words === words) return;
  root.dataset.words = words;
  if (!logs.length) return swap(root);
  const rows = logs
    .slice(0, LOGS_MAX)
    .map(({ topic, count, config }) => h("tr", {}, h("th", { scope: "row" }, topic), h("td", {}, whole(count)), h("td", {}, config.durability)));
  const head = h("tr", {}, ...["Log", "Records", "Durability"].map((word) => h("th", { scope: "col" }, word)));
  const rest = logs.length - rows.length;
  const more = rest > 0 ? h("p", { class: "hint" }, `${whole(rest)} more logs: search for them.`) : null;
  swap(root, h("h2", {}, "Logs"), h("div", { class: "card flush" }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows))), more);
}
