// Which chip flies where when a lifecycle row comes: the rows are heard, then drawn, and a chip needs a place from before
// the drawing and one from after it.

import { flights } from "./flights.js";

const ROWS_MAX = 6; // in one drawing; above that nothing is seen to travel
const JOBS_MAX = 4; // of one row

/** Travels over a panel; `cellOf(seq)`, `workerOf(node)`, `producer` and `graves` are elements of it. */
export class Travels {
  #rows = [];
  #departures = [];
  #workers = new Map(); // node → where its card was last: a worker that crashed is drawn no longer
  #lost = 0;

  constructor(panel, { cellOf, workerOf, producer, graves }) {
    this.flights = flights(panel);
    Object.assign(this, { cellOf, workerOf, producer, graves });
  }

  heard(row) {
    if (this.#rows.length <= ROWS_MAX) this.#rows.push(row);
  }

  /** Keep the places that the drawing may take away. */
  beforeDraw() {
    const rows = this.#rows.length > ROWS_MAX ? [] : this.#rows;
    this.#rows = [];
    const handed = new Set(rows.filter((row) => row.event === "claimed").flatMap(seqsOf));
    this.#departures = rows.flatMap((row) => seqsOf(row).map((seq) => ({ row, seq, cell: this.#cell(seq), worker: this.#worker(row.node) })));
    // With auto-ack the broker deletes a job as it hands it out: no worker sent that ack.
    this.#departures = this.#departures.filter(({ row, seq }) => row.event !== "acked" || !handed.has(seq));
  }

  afterDraw(lost) {
    for (const { row, seq, cell, worker } of this.#departures) {
      const words = `#${seq}`;
      const after = { cell: this.#cell(seq), worker: this.#worker(row.node) };
      if (row.event === "produced") this.#fly(this.flights.place(this.producer), after.cell, { words, kind: "job" });
      else if (row.event === "claimed") this.#fly(cell ?? after.cell, after.worker, { words, kind: "job" });
      else if (row.event === "acked") this.#fly(worker, cell, { words: `ack ${words}`, kind: "good" });
      else if (row.event === "released") this.#fly(worker, after.cell, { words, kind: "bad" });
    }
    this.#departures = [];
    for (const { seq, node } of lost.slice(this.#lost)) this.#fly(this.#worker(node), this.flights.place(this.graves), { words: `#${seq}`, kind: "bad" });
    this.#lost = lost.length;
  }

  /** An ack that the broker turns down goes there and comes back. */
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

function seqsOf({ runs }) {
  const seqs = [];
  for (let i = 0; i < runs.length; i += 2) for (let seq = runs[i]; seq < runs[i] + runs[i + 1] && seqs.length < JOBS_MAX; seq++) seqs.push(seq);
  return seqs;
}
