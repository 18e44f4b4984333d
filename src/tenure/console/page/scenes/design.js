// Compute the figures of a queue's design from its knobs. Pure; advice.js interprets them.

import { whole } from "../format.js";

const ROUND_TRIP_MS = 2; // between a worker and a broker near it
export const DAY_S = 86_400;

/** The knobs of a workload, with their initial values. */
export const KNOBS = {
  arrivalPerS: 20,
  processingMs: 200,
  p99Ms: 800,
  workers: 4,
  prefetch: 1,
  leaseMs: 30_000,
  maxDeliveries: 5,
  failedShare: 0.01, // of deliveries, those that end without an ack
  deadLetter: true,
  durability: "disk",
  syncMs: 5,
};

/** Return the figures that follow from the knobs. Rates are per second. */
export function figures(knobs) {
  const { arrivalPerS, processingMs, workers, prefetch, maxDeliveries: most } = knobs;
  const failed = failing(knobs);
  const tries = failed >= 1 ? most || Infinity : (1 - (most ? failed ** most : 0)) / (1 - failed);
  const roundMs = ROUND_TRIP_MS + (knobs.durability === "fsync" ? knobs.syncMs : 0);
  const perWorker = 1_000 * Math.min(1 / processingMs, prefetch / (processingMs + roundMs));
  const capacity = workers * perWorker;
  const offered = arrivalPerS ? arrivalPerS * tries : 0;
  const busy = offered === 0 ? 0 : offered / capacity;
  return {
    failed,
    tries,
    roundMs,
    perWorker,
    capacity,
    offered,
    busy,
    backlog: busy < 1 ? (waitShare(workers, offered / perWorker) * busy) / (1 - busy) : Infinity,
    growth: busy > 1 ? arrivalPerS - capacity / tries : 0,
    heldMs: knobs.p99Ms + (prefetch - 1) * processingMs, // under the lease: the wait in a worker's hands, then the work
    deadPerDay: most ? arrivalPerS * failed ** most * DAY_S : 0,
    callers: knobs.durability === "fsync" ? Math.max(1, Math.ceil((arrivalPerS * knobs.syncMs) / 1_000)) : 1,
  };
}

/** The share of deliveries that fail: what was measured, and at least the 1 in 100 whose lease runs out first. */
function failing({ failedShare, leaseMs, p99Ms, prefetch, processingMs }) {
  const late = leaseMs < p99Ms + (prefetch - 1) * processingMs ? 0.01 : 0;
  return Math.min(1, Math.max(failedShare, late));
}

/** Erlang's C: the share of jobs that find all of `count` workers busy, where `load` of them are on average. */
export function waitShare(count, load) {
  if (load <= 0) return 0;
  if (load >= count) return 1;
  let blocked = 1; // Erlang's B by its recursion, which does not overflow
  for (let n = 1; n <= count; n++) blocked = (load * blocked) / (n + load * blocked);
  const busy = load / count;
  return blocked / (1 - busy * (1 - blocked));
}

export function percent(share) {
  const value = share * 100;
  if (value > 0 && value < 1) return `${Number(value.toPrecision(1))} %`;
  return `${whole(value)} %`;
}

/** Return the knobs from the broker's meters and config; unknown ones are left out. */
export function measured({ meters, config, queue, nodes, now, syncMs }) {
  const found = { leaseMs: config.lease_ms, maxDeliveries: config.max_deliveries, deadLetter: config.dead_letter !== null, durability: config.durability, prefetch: 1 };
  if (nodes) found.workers = nodes;
  if (syncMs) found.syncMs = tidy(syncMs);
  const { processing_ms: work, in_queue_ms: waited, claimed, released, expired, since } = meters;
  if (work.count) Object.assign(found, { processingMs: tidy(Math.max(work.sum / work.count, 0.1)), p99Ms: tidy(work.p99) });
  if (claimed) found.failedShare = Math.min(1, Number(((released + expired) / claimed).toFixed(4)));
  if (since !== null && now - since >= 1_000) found.arrivalPerS = tidy(((waited.count + queue.ready) * 1_000) / (now - since));
  return found;
}

/** Round a measurement to three digits. */
function tidy(value) {
  return value >= 100 ? Math.round(value) : Number(value.toPrecision(3));
}
