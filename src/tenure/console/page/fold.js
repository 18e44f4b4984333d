// The state of a queue on the page, and the fold of one lifecycle row into it. Pure: no time, no network, no DOM.
//
// Known are the cells from the first live job up to `headEnd` and from `tailStart` on; everything between is only
// counted. `cells` is ascending by seq because jobs are only appended. Parked jobs are not in the line: some of them are in
// `parked`. `next` is the job that is claimed next where it is not in the head. Where a row does not contain enough,
// `unsure` is set and the owner reads the snapshot again.

const RUN_MAX = 400; // a longer run of new jobs is not drawn one by one: a snapshot is cheaper

/** Return the state of a `…/strip` answer. */
export function fromSnapshot(answer, { headMax, tailMax }) {
  const cells = new Map();
  for (const job of [...answer.head, ...answer.tail]) cells.set(job.$seq, cellOf(job));
  const whole = answer.count - answer.queue.parked === cells.size;
  const leases = new Map();
  for (const lease of answer.leases) leases.set(lease.lease_id, { ...lease, seqs: new Set(lease.seqs) });
  const { ready, suspects = 0, in_flight, delayed, parked, dead, dead_lettered } = answer.queue;
  return {
    topic: answer.topic,
    config: answer.config,
    cells,
    parked: new Map(answer.parked.map((job) => [job.$seq, cellOf(job)])),
    next: answer.next && cellOf(answer.next),
    leases,
    leasesPartial: answer.leases_count > answer.leases.length,
    counts: { ready, suspects, in_flight, delayed, parked, dead, dead_lettered },
    oldestReadyMs: answer.queue.oldest_ready_ms,
    headMax,
    tailMax,
    headEnd: whole ? Infinity : (answer.head.at(-1)?.$seq ?? 0),
    tailStart: whole ? Infinity : (answer.tail[0]?.$seq ?? answer.head_seq + 1),
    nextAt: answer.next_at,
    unsure: false,
  };
}

function cellOf(job) {
  return {
    seq: job.$seq,
    state: job.state,
    deliveries: job.deliveries,
    node: job.node ?? null,
    lease: job.lease_id ?? null,
    since: job.since ?? null,
    deadline: job.deadline ?? null,
    deliverAt: job.deliver_at ?? null,
    reason: job.reason ?? null,
    tries: job.tries ?? null,
    lost: job.lost ?? 0,
  };
}

/** Return whether a job waits apart from the others, because its worker was lost. */
export function isSuspect(cell) {
  return cell.state === "ready" && cell.lost > 0;
}

/** Return how many jobs are in the line. */
export function total(state) {
  const { ready, in_flight, delayed } = state.counts;
  return ready + in_flight + delayed;
}

/** Return the job that is claimed next: the first ready one of the head, or one after it; null where none is known. Suspects come last. */
export function nextJob(state) {
  let suspect = null;
  for (const cell of state.cells.values()) {
    if (cell.seq > state.headEnd) break;
    if (cell.state !== "ready") continue;
    if (!isSuspect(cell)) return cell;
    suspect ??= cell;
  }
  return state.next ?? suspect;
}

/** Apply one row, in place. */
export function fold(state, row) {
  const jobs = countOf(row.runs);
  FOLDS[row.event]?.(state, row, jobs);
  if (state.cells.size > 2 * (state.headMax + state.tailMax)) trim(state);
}

const FOLDS = {
  produced(state, row, jobs) {
    state.counts[row.deliver_at ? "delayed" : "ready"] += jobs;
    if (row.deliver_at && jobs > 1) state.unsure = true; // some may not be delayed, or for longer
    if (jobs > RUN_MAX) {
      state.unsure = true;
      forget(state, row.runs[0]);
      return;
    }
    each(row.runs, (seq) => state.cells.set(seq, freshCell(seq, row)));
    if (!row.deliver_at) noteBeyond(state, row.runs[0]);
  },

  claimed(state, row, jobs) {
    state.counts.ready -= jobs;
    state.counts.in_flight += jobs;
    const seqs = new Set();
    each(row.runs, (seq) => seqs.size < 16 && seqs.add(seq), 16);
    const { lease_id, node, deadline, ts } = row;
    state.leases.set(lease_id, { lease_id, node, since: ts, deadline, held: jobs, seqs });
    if (state.next !== null && covers(row.runs, state.next.seq)) {
      state.next = null;
      if (state.counts.ready > 0 && nextJob(state) === null) state.unsure = true;
    }
    let seen = 0;
    known(state, row.runs, (cell) => {
      seen += 1;
      if (isSuspect(cell)) state.counts.suspects -= 1;
      if (cell.state === "delayed") {
        state.counts.delayed -= 1; // it had become due, for which there is no row
        state.counts.ready += 1;
      }
      const deliveries = row.deliveries ?? cell.deliveries + 1;
      const tries = cell.tries === null ? null : cell.tries + 1;
      Object.assign(cell, { state: "in_flight", node, lease: lease_id, since: ts, deadline, deliveries, tries, deliverAt: null });
    });
    if (state.counts.suspects > 0 && seen < jobs) state.unsure = true; // suspects may be among those that are not known
    sooner(state, deadline);
  },

  extended(state, row) {
    const lease = state.leases.get(row.lease_id);
    if (lease !== undefined) lease.deadline = row.deadline;
    known(state, row.runs, (cell) => (cell.deadline = row.deadline));
    sooner(state, row.deadline);
  },

  released(state, row, jobs) {
    if (mayBeSuspects(state, row.runs, jobs)) state.unsure = true; // a nack clears them, a lost connection does not
    letGo(state, row, jobs);
    const to = row.deliver_at ? "delayed" : "ready";
    state.counts[to] += jobs;
    if (row.deliver_at && jobs > 1) state.unsure = true;
    back(state, row, { state: to, deliverAt: row.deliver_at ?? null, reason: row.reason ?? null });
    if (row.deliver_at) sooner(state, row.deliver_at);
  },

  begun() {}, // its holder runs it; only its loss is counted in another way

  returned(state, row, jobs) {
    if (mayBeSuspects(state, row.runs, jobs)) state.unsure = true;
    letGo(state, row, jobs);
    const to = row.deliver_at ? "delayed" : "ready";
    state.counts[to] += jobs;
    known(state, row.runs, (cell) => (cell.tries = Math.max(0, (cell.tries ?? cell.deliveries) - 1)));
    back(state, row, { state: to, deliverAt: row.deliver_at ?? null, reason: row.reason ?? null });
    if (row.deliver_at) sooner(state, row.deliver_at);
  },

  lost(state, row, jobs) {
    state.unsure = true; // one that was begun comes back later, which the row does not say
    letGo(state, row, jobs);
    state.counts.ready += jobs;
    state.counts.suspects += jobs;
    known(state, row.runs, (cell) => (cell.lost += 1));
    back(state, row, { state: "ready", deliverAt: null, reason: row.reason ?? null });
  },

  expired(state, row, jobs) {
    if (mayBeSuspects(state, row.runs, jobs)) state.unsure = true;
    letGo(state, row, jobs);
    if (state.config.retry_backoff) state.unsure = true; // they come back later, each at its own time
    state.counts.ready += jobs;
    back(state, row, { state: "ready", deliverAt: null, reason: null });
  },

  acked(state, row, jobs) {
    letGo(state, row, jobs);
    drop(state, row.runs);
  },

  dead_lettered(state, row, jobs) {
    // From a lease or from the ready ones, gone or parked: the row alone does not always show which.
    state.unsure = true;
    state.counts.dead_lettered += jobs;
    if (state.config.dlq_strategy !== "skip" || state.config.dead_letter) state.counts.dead += jobs;
    if (row.lease_id) letGo(state, row, jobs);
    else state.counts.ready = Math.max(0, state.counts.ready - jobs);
    if (state.config.dlq_strategy !== "skip") state.counts.parked += jobs;
    drop(state, row.runs);
  },

  redriven(state, row, jobs) {
    state.unsure = true;
    if (row.dest !== state.topic) {
      drop(state, row.runs);
      return;
    }
    state.counts.parked -= jobs;
    state.counts.dead -= jobs;
    state.counts.ready += jobs;
    each(row.runs, (seq) => state.parked.delete(seq), RUN_MAX);
  },
};

function freshCell(seq, row) {
  const state = row.deliver_at ? "delayed" : "ready";
  const none = { deliveries: 0, node: null, lease: null, since: null, deadline: null, reason: null, tries: null, lost: 0 };
  return { seq, state, deliverAt: row.deliver_at ?? null, ...none };
}

/** Remove jobs from their lease. Where they left several leases at once, only the next snapshot shows which. */
function letGo(state, row, jobs) {
  state.counts.in_flight -= jobs;
  const lease = state.leases.get(row.lease_id);
  if (lease === undefined) {
    if (!state.leasesPartial || !row.lease_id) state.unsure = true;
    return;
  }
  lease.held -= jobs;
  if (lease.held <= 0) state.leases.delete(row.lease_id);
  else each(row.runs, (seq) => lease.seqs.delete(seq), RUN_MAX);
}

/** Return whether a worker was lost with one of these jobs before, as far as is known. */
function mayBeSuspects(state, runs, jobs) {
  let [seen, found] = [0, false];
  known(state, runs, (cell) => {
    seen += 1;
    found ||= cell.lost > 0;
  });
  return found || (state.counts.suspects > 0 && seen < jobs);
}

/** Note that a job after the head can be claimed now: where it may be the next one, only a snapshot shows it. */
function noteBeyond(state, seq) {
  if (seq > state.headEnd && (state.next === null ? nextJob(state) === null : seq < state.next.seq)) state.unsure = true;
}

function back(state, row, change) {
  const none = { node: null, lease: null, since: null, deadline: null };
  if (change.state === "ready") noteBeyond(state, row.runs[0]);
  known(state, row.runs, (cell) => Object.assign(cell, none, row.deliveries ? { deliveries: row.deliveries } : {}, change));
}

function drop(state, runs) {
  known(state, runs, (cell) => state.cells.delete(cell.seq));
}

/** Note the next time at which the state changes without a row. */
function sooner(state, at) {
  if (state.nextAt === null || at < state.nextAt) state.nextAt = at;
}

/** Call `act` for the cells of these runs that are known, at the cost of the smaller of both. */
function known(state, runs, act) {
  for (let i = 0; i < runs.length; i += 2) {
    const [first, count] = [runs[i], runs[i + 1]];
    if (count <= state.cells.size) {
      for (let seq = first; seq < first + count; seq++) {
        const cell = state.cells.get(seq);
        if (cell !== undefined) act(cell);
      }
    } else {
      for (const cell of [...state.cells.values()]) if (cell.seq >= first && cell.seq < first + count) act(cell);
    }
  }
}

/** Return whether a seq is in these runs. */
export function covers(runs, seq) {
  for (let i = 0; i < runs.length; i += 2) if (seq >= runs[i] && seq < runs[i] + runs[i + 1]) return true;
  return false;
}

function each(runs, act, most = Infinity) {
  let done = 0;
  for (let i = 0; i < runs.length; i += 2)
    for (let seq = runs[i]; seq < runs[i] + runs[i + 1] && done < most; seq++, done++) act(seq);
}

function countOf(runs) {
  let jobs = 0;
  for (let i = 1; i < runs.length; i += 2) jobs += runs[i];
  return jobs;
}

/** Return whether the head has run low while more jobs wait after it. */
export function isLow(state) {
  return state.headEnd !== Infinity && headCount(state) < state.headMax / 2;
}

/** Return how many cells are known at the head. */
function headCount(state) {
  if (state.headEnd === Infinity) return state.cells.size;
  let count = 0;
  for (const seq of state.cells.keys()) {
    if (seq > state.headEnd) break;
    count++;
  }
  return count;
}

/** Drop cells of the middle, which is then only counted. */
function trim(state) {
  const seqs = [...state.cells.keys()];
  const head = state.headEnd === Infinity ? state.headMax : Math.min(headCount(state), state.headMax);
  state.headEnd = head ? seqs[head - 1] : 0;
  state.tailStart = seqs[seqs.length - state.tailMax];
  for (const seq of seqs.slice(head, seqs.length - state.tailMax)) state.cells.delete(seq);
}

/** Forget every cell from this seq on. */
function forget(state, seq) {
  if (state.headEnd === Infinity) state.headEnd = seq - 1;
  state.tailStart = Infinity;
  for (const known of [...state.cells.keys()]) if (known > state.headEnd) state.cells.delete(known);
}
