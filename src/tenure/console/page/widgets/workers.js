// Workers, stacked: who holds what and until when, and what this page may do in their place.

import { h, keyed, mark, say, swap } from "../dom.js";
import { duration, whole } from "../format.js";
import { ring } from "./ring.js";

const CARDS_MAX = 40;
const CHIPS_MAX = 12;

/** The stack; `draw(state, actors, now)`. `onAct(deed, worker)` and `onOpen(seq)` are called on clicks. `byName` keeps everybody in place. */
export function workers({ onAct, onOpen, button, byName = false }) {
  const list = h("div", { class: "workers", role: "list", "aria-label": "Workers" });
  const note = h("p", { class: "empty" }, "Nobody holds a job.");
  const element = h("div", {}, list, note);
  const cards = new Map();

  function draw(state, actors, now) {
    const found = collect(state, actors);
    if (byName) found.sort((one, other) => (one.node < other.node ? -1 : 1));
    note.hidden = found.length > 0 && !state.leasesPartial;
    say(note, found.length ? "More leases are live than are shown here." : "Nobody holds a job.");
    keyed(list, cards, found.slice(0, CARDS_MAX), {
      key: (worker) => worker.node,
      make: (worker) => card(worker, { onAct, onOpen, button }),
      update: (entry, worker) => entry.draw(worker, now),
    });
  }
  return { element, draw };
}

/** Workers with what they hold: holders first, then the page's own that are idle. */
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
  return [...byNode.values()];
}

function card(worker, { onAct, onOpen, button }) {
  let now = worker;
  const dial = ring();
  const name = h("b", { class: "name" }, worker.node);
  const state = h("span", { class: "hint" });
  const chips = h("div", { class: "chips" });
  const lost = h("p", { class: "bad", hidden: true });
  const act = (deed) => () => onAct(deed, now);
  const row = h(
    "div",
    { class: "row tight" },
    button("ack", "Ack", act("ack")),
    button("nack", "Nack", act("nack")),
    button("extend", "Extend", act("extend")),
    button("claim", "Crash", act("crash"), "danger quiet"),
    button("claim", "Finish", act("finish"), "quiet"),
    h("button", { type: "button", class: "quiet", "data-deed": "dismiss", on: { click: act("dismiss") } }, "Dismiss"),
  );
  const buttons = Object.fromEntries([...row.children].map((one) => [one.textContent.toLowerCase(), one]));
  const element = h("div", { class: "worker", role: "listitem", "data-worker": worker.node }, h("div", { class: "row" }, dial.element, h("div", {}, name, state)), chips, lost, row);
  const draw = (found, at) => {
    now = found;
    const left = found.held ? `, ${duration(Math.max(0, found.deadline - at))} left` : "";
    say(state, found.held ? `holds ${whole(found.held)}${left}` : found.stream ? "waits for jobs" : "idle");
    dial.draw(found.held ? found : { node: found.node, since: 0, deadline: 0 }, at);
    mark(element, "data-held", found.held);
    drawChips(chips, found, onOpen);
    lost.hidden = found.lost.length === 0;
    say(lost, `Got ${names(found.lost)} with auto-ack: the broker has deleted it already.`);
    for (const deed of ["ack", "nack", "extend"]) buttons[deed].hidden = found.held === 0;
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

function drawChips(root, { seqs, held }, onOpen) {
  const words = `${seqs.join()}/${held}`;
  if (root.dataset.words === words) return;
  root.dataset.words = words;
  const chips = seqs.map((seq) => h("button", { type: "button", class: "chip", on: { click: () => onOpen(seq) } }, `#${seq}`));
  const rest = held - seqs.length;
  swap(root, ...chips, rest > 0 ? h("span", { class: "hint" }, `and ${whole(rest)} more`) : null);
}
