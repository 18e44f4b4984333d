// Animate jobs between two drawings of a queue: from the producer to the strip and on to a worker, acks and jobs back. The
// changes are computed from the cells, which are right whether they come from rows or from a snapshot.

import { flights } from "./flights.js";

const CELLS_MAX = 60; // a longer strip is not followed cell by cell
const CHANGES_MAX = 6; // at once; above that nothing is animated

/** Travels over a panel; `cellOf(seq)` and `workerOf(node)` find elements of it, `producer` and `graves` are two. */
export class Travels {
  #before = null; // seq → {state, node, lease}, as drawn last; null before the first drawing
  #dead = 0;
  #changes = [];
  #workers = new Map(); // node → where its card was last: a worker that crashed is drawn no longer
  #vanished = new Map(); // seq → the place of a job that left while no worker held it
  #handed = new Set(); // `node seq` of what was handed out with auto-ack
  #lost = 0;

  constructor(panel, { cellOf, workerOf, producer, graves }) {
    this.flights = flights(panel);
    Object.assign(this, { cellOf, workerOf, producer, graves });
  }

  /** Record the places of elements that the drawing will remove. */
  beforeDraw(state) {
    const now = state.cells.size > CELLS_MAX ? null : new Map([...state.cells.values()].map(({ seq, state: at, node, lease }) => [seq, { state: at, node, lease }]));
    const found = now === null || this.#before === null ? [] : changes(this.#before, now);
    const buried = state.counts.dead_lettered !== this.#dead;
    this.#changes = (found.length > CHANGES_MAX ? [] : found).map((change) => ({ ...change, cell: this.#cell(change.seq), buried }));
    for (const { node } of this.#before?.values() ?? []) this.#worker(node);
    this.#before = now;
    this.#dead = state.counts.dead_lettered;
  }

  afterDraw(actors) {
    for (const { seq, from, to, cell, buried } of this.#changes) {
      const words = `#${seq}`;
      if (from === null) this.#fly(this.flights.place(this.producer), this.#cell(seq), { words, kind: "job" });
      else if (to?.state === "in_flight") this.#fly(cell ?? this.#cell(seq), this.#worker(to.node), { words, kind: "job" });
      else if (to !== null) this.#fly(this.#worker(from.node), this.#cell(seq), { words, kind: "bad" });
      else if (from.state !== "in_flight") this.#vanished.set(seq, cell);
      else if (!buried) this.#fly(this.#worker(from.node), cell, { words: `ack ${words}`, kind: "good" });
    }
    this.#changes = [];
    this.#handOut(actors.lost);
    for (const { seq, node } of actors.graves.slice(this.#lost)) this.#fly(this.#worker(node), this.flights.place(this.graves), { words: `#${seq}`, kind: "bad" });
    this.#lost = actors.graves.length;
  }

  /** With auto-ack a job leaves the queue as it is handed out: the page's own workers know what they got. */
  #handOut(lost) {
    for (const [node, seqs] of lost)
      for (const seq of seqs) {
        if (this.#handed.has(`${node} ${seq}`) || !this.#vanished.has(seq)) continue;
        this.#handed.add(`${node} ${seq}`);
        this.#fly(this.#vanished.get(seq), this.#worker(node), { words: `#${seq}`, kind: "job" });
      }
  }

  /** Animate an ack that the broker refuses: there and back. */
  refused(node, seq) {
    this.#fly(this.#worker(node), this.#cell(seq), { words: `ack #${seq}`, kind: "bad", turns: true });
  }

  #fly(from, to, options) {
    this.flights.fly(from, to, options);
  }

  #cell(seq) {
    return this.flights.place(this.cellOf(seq));
  }

  #worker(node) {
    if (!node) return null;
    const place = this.flights.place(this.workerOf(node)) ?? this.#workers.get(node) ?? null;
    if (place !== null) this.#workers.set(node, place);
    return place;
  }
}

/** Return the changes: `{seq, from, to}`, either null where there was or is no such job. */
function changes(before, now) {
  const found = [];
  for (const [seq, from] of before) {
    const to = now.get(seq) ?? null;
    if (to === null || (to.lease !== from.lease && (from.lease !== null || to.lease !== null))) found.push({ seq, from, to });
  }
  for (const [seq, to] of now) if (!before.has(seq)) found.push({ seq, from: null, to });
  return found;
}
