// The list of workers: the jobs and deadlines of each, and the actions of this page for them.

import { h, keyed, mark, setText } from "../dom.js";
import { duration, whole } from "../format.js";
import { ring } from "./ring.js";

const CARDS_MAX = 40;
const CHIPS_MAX = 12;
const BY_NAME = new Intl.Collator("en-US", { numeric: true });

/** The stack; `draw(state, actors, now)`. `onAct(action, worker)` and `onOpen(seq)` are called on clicks. */
export function workers({ onAct, onOpen, button }) {
  const list = h("div", { class: "workers", role: "list", "aria-label": "Workers" });
  const note = h("p", { class: "empty" }, "Nobody holds a job.");
  const element = h("div", {}, list, note);
  const cards = new Map();

  function draw(state, actors, now) {
    const found = collect(state, actors);
    note.hidden = found.length > 0 && !state.leasesPartial;
    setText(note, found.length ? "More leases are live than are shown here." : "Nobody holds a job.");
    keyed(list, cards, found.slice(0, CARDS_MAX), {
      key: (worker) => worker.node,
      make: (worker) => card(worker, { onAct, onOpen, button }),
      update: (entry, worker) => entry.draw(worker, now),
    });
  }
  return { element, draw };
}

/** Workers with what they hold, and the page's own that are idle. */
function collect(state, actors) {
  const byNode = new Map();
  const of = (node) => {
    if (!byNode.has(node)) byNode.set(node, { node, held: 0, leases: [], seqs: [], since: Infinity, deadline: Infinity });
    return byNode.get(node);
  };
  for (const lease of state.leases.values()) {
    const worker = of(lease.node);
    worker.held += lease.held;
    worker.leases.push(lease.lease_id);
    for (const seq of lease.seqs) if (worker.seqs.length < CHIPS_MAX) worker.seqs.push(seq);
    if (lease.deadline < worker.deadline) Object.assign(worker, { deadline: lease.deadline, since: lease.since });
  }
  for (const node of actors.names) of(node);
  for (const worker of byNode.values()) {
    worker.own = actors.isOwn(worker.node);
    worker.stream = actors.streams.get(worker.node) ?? null;
    worker.lost = actors.lost.get(worker.node) ?? [];
  }
  return [...byNode.values()].sort((one, other) => BY_NAME.compare(one.node, other.node)); // so that cards stay in place
}

function card(worker, { onAct, onOpen, button }) {
  let now = worker;
  const dial = ring();
  const name = h("b", { class: "name" }, worker.node);
  const state = h("span", { class: "hint" });
  const chips = chipsOf(onOpen);
  const lost = h("p", { class: "bad", hidden: true });
  const act = (action) => () => onAct(action, now);
  const row = h(
    "div",
    { class: "row tight" },
    button("ack", "Ack", act("ack")),
    button("nack", "Nack", act("nack")),
    button("extend", "Extend", act("extend")),
    button("claim", "Crash", act("crash"), "danger quiet"),
    button("claim", "Finish", act("finish"), "quiet"),
    h("button", { type: "button", class: "quiet", "data-action": "dismiss", on: { click: act("dismiss") } }, "Dismiss"),
  );
  const buttons = Object.fromEntries([...row.children].map((one) => [one.textContent.toLowerCase(), one]));
  for (const one of row.children) one.setAttribute("aria-label", `${one.textContent} for ${worker.node}`); // many have the same words
  const element = h("div", { class: "worker", role: "listitem", "aria-label": worker.node, "data-worker": worker.node }, h("div", { class: "row" }, dial.element, h("div", {}, name, state)), chips.element, lost, row);
  const draw = (found, at) => {
    now = found;
    const left = found.held ? `, ${duration(Math.max(0, found.deadline - at))} left` : "";
    setText(state, found.held ? `holds ${whole(found.held)}${left}` : found.stream ? "waits for jobs" : "idle");
    dial.draw(found.held ? found : { node: found.node, since: 0, deadline: 0 }, at);
    mark(element, "data-held", found.held);
    chips.draw(found);
    lost.hidden = found.lost.length === 0;
    setText(lost, `Got ${names(found.lost)} with auto-ack: the broker has deleted it already.`);
    for (const action of ["ack", "nack", "extend"]) buttons[action].hidden = found.held === 0;
    buttons.crash.hidden = !found.stream && !found.lost.length;
    buttons.finish.hidden = !found.lost.length;
    buttons.dismiss.hidden = !found.own || found.held > 0 || found.stream !== null || found.lost.length > 0;
  };
  return { element, draw };
}

export function names(seqs) {
  const some = seqs.slice(0, 5).map((seq) => `#${seq}`).join(", ");
  return seqs.length > 5 ? `${some} and ${seqs.length - 5} more` : some;
}

/** The jobs that a worker holds, to be opened. Buttons are reused: in a burst they change all the time. */
function chipsOf(onOpen) {
  const more = h("span", { class: "hint" });
  const element = h("div", { class: "chips" }, more);
  const buttons = [];
  const add = () => {
    const button = h("button", { type: "button", class: "chip", on: { click: () => onOpen(Number(button.dataset.seq)) } });
    more.before(button);
    buttons.push(button);
  };
  const draw = ({ seqs, held }) => {
    while (buttons.length < seqs.length) add();
    buttons.forEach((button, i) => {
      button.hidden = i >= seqs.length;
      if (button.hidden) return;
      mark(button, "data-seq", seqs[i]);
      setText(button, `#${seqs[i]}`);
    });
    element.hidden = held === 0;
    more.hidden = held <= seqs.length;
    setText(more, `and ${whole(held - seqs.length)} more`);
  };
  return { element, draw };
}
