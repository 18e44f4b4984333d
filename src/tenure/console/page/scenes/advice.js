// Advice on a queue's design: what to change, to what value, and why. Pure; the figures are those of design.js.

import { duration, roundUp, short, whole } from "../format.js";
import { DAY_S, figures, percent } from "./design.js";

const LEASE_FACTOR = 3; // a lease is this many times the p99, so that slow is not taken for dead
const BUSY_MAX = 0.8; // above this share of busy workers, small bursts make long waits
const BUSY_GOAL = 0.7;
const HOARD_MS = 1_000; // a job that waits this long in the hands of a busy worker could have gone to an idle one
const DELIVERIES = { usual: 5, max: 20 };
const LEASE_MS = { min: 100, max: DAY_S * 1_000 };

/** Return what to keep and what to change: `[{id, good, says, why, set}]`; `set` holds the knobs to set, with their values. */
export function advice(knobs) {
  const found = figures(knobs);
  return [workers, lease, prefetch, retries, sync].map((check) => check(knobs, found));
}

const keep = (id, says, why) => ({ id, good: true, says, why, set: {} });
const change = (id, says, why, set = {}) => ({ id, good: false, says, why, set });

function workers({ arrivalPerS, workers: count }, { busy, offered, perWorker, capacity, backlog, growth, tries }) {
  if (!Number.isFinite(tries))
    return change("workers", "No number of workers is enough", "Every delivery fails and nothing limits the deliveries: the same jobs go round for ever.");
  const waits = backlog < 0.5 ? "hardly anything waits" : `about ${whole(backlog)} jobs wait, ${duration((backlog / offered) * 1_000)} each`;
  if (busy <= BUSY_MAX) {
    const spare = capacity - offered;
    const hour = offered ? `After an hour without workers the backlog is gone in ${duration(((arrivalPerS * tries * 3_600) / spare) * 1_000)}.` : "";
    return keep("workers", `${percent(busy)} busy: ${waits}`, `Arrivals are ${rate(offered)} with repeats, workers can do ${rate(capacity)}. ${hour}`.trim());
  }
  const wanted = Math.max(count + 1, Math.ceil(offered / (perWorker * BUSY_GOAL)));
  const says = busy >= 1 ? `${percent(busy)} busy: the backlog grows by ${whole(growth * 3_600)} jobs an hour` : `${percent(busy)} busy: ${waits}`;
  const why = `Workers can do ${rate(capacity)}, ${rate(offered)} come with repeats. ${wanted} workers are ${percent(offered / (perWorker * wanted))} busy and have room for bursts.`;
  return change("workers", says, why, { workers: wanted });
}

function lease({ leaseMs, p99Ms, prefetch: ahead }, { heldMs }) {
  const wanted = Math.min(Math.max(roundUp(LEASE_FACTOR * heldMs), LEASE_MS.min), LEASE_MS.max);
  const behind = ahead > 1 ? `, ${duration(heldMs)} with the ${ahead - 1} in hand before it` : "";
  const slow = `1 in 100 jobs takes longer than ${duration(p99Ms)}${behind}`;
  if (leaseMs >= LEASE_FACTOR * heldMs) {
    const times = short(leaseMs / heldMs);
    return keep("lease", `A lease of ${duration(leaseMs)} is ${times} times the p99`, `${slow}. A worker that dies in silence hides its jobs for up to ${duration(leaseMs)}.`);
  }
  const harm = leaseMs < heldMs ? "those run twice, and each run costs a delivery" : "a pause of the machine is enough to have them run twice";
  return change("lease", `A lease of ${duration(leaseMs)} is short`, `${slow}: ${harm}. Three times the p99 is ${whole(wanted)} ms; or extend while you work.`, { leaseMs: wanted });
}

function prefetch({ prefetch: ahead, processingMs }, { roundMs }) {
  const wanted = 1 + Math.ceil(roundMs / processingMs);
  const waitMs = (ahead - 1) * processingMs;
  if (ahead > wanted && waitMs >= HOARD_MS)
    return change("prefetch", `A prefetch of ${ahead} hoards`, `The last job in hand waits ${duration(waitMs)} for a busy worker while another may be idle. ${wanted} in hand hide the round trip of ${duration(roundMs)}.`, { prefetch: wanted });
  const idle = 1 - Math.min(1, (ahead * processingMs) / (processingMs + roundMs));
  if (idle > 0.1)
    return change("prefetch", `With a prefetch of ${ahead} workers idle ${percent(idle)} of the time`, `A job takes ${duration(processingMs)}, the way to the broker and back ${duration(roundMs)}. ${wanted} in hand keep a worker busy.`, { prefetch: wanted });
  return keep("prefetch", `A prefetch of ${ahead} is fair`, ahead > 1 ? `The last job in hand waits ${duration(waitMs)}.` : "Whoever is free gets the next job.");
}

function retries({ maxDeliveries: most, deadLetter, arrivalPerS }, { failed, tries, deadPerDay }) {
  const wanted = enough(arrivalPerS, failed);
  if (!most)
    return change("retries", "Nothing ends a job that always fails", `It comes back for ever and takes a worker each time. After ${wanted} deliveries it should go to a dead letter.`, { maxDeliveries: wanted, deadLetter: true });
  if (!deadLetter)
    return change("retries", `After ${most} deliveries a job is dropped`, "There is no dead letter to find it in. Name one.", { deadLetter: true });
  const share = `${percent(failed)} of deliveries fail, so a job needs ${tries.toFixed(2)} on average`;
  if (deadPerDay < 1) return keep("retries", "Chance alone does not fill the dead letter", `${share}; all ${most} fail for less than one job a day. What lies there is poison: look at it.`);
  const more = wanted > most ? `${wanted} deliveries would leave less than one a day` : "No limit helps: mend what fails";
  return change("retries", `The dead letter fills by ${short(deadPerDay)} jobs a day`, `${share}, and all ${most} fail for some. ${more}.`, wanted > most ? { maxDeliveries: wanted } : {});
}

/** Return how many deliveries leave less than one job a day to chance. */
function enough(arrivalPerS, failed) {
  const perDay = arrivalPerS * DAY_S;
  if (failed <= 0 || failed >= 1 || perDay <= 1) return DELIVERIES.usual;
  const count = Math.floor(Math.log(perDay) / -Math.log(failed)) + 1;
  return Math.min(Math.max(count, DELIVERIES.usual), DELIVERIES.max);
}

function sync({ durability, syncMs, arrivalPerS }, { callers }) {
  if (durability === "memory") return keep("sync", "Memory: no write waits", "A crash of the broker may lose what it answered. Right only for work that nobody misses after a restart.");
  if (durability === "disk") return keep("sync", "Disk: no write waits for a sync", "A crash of the broker loses nothing; a power loss may take the last 50 ms. Take fsync where the producer cannot ask again.");
  const alone = 1_000 / syncMs;
  const one = `A sync takes ${duration(syncMs)}: one caller that waits for each gets ${rate(alone)}`;
  if (callers === 1) return keep("sync", `Fsync: every write waits ${duration(syncMs)}`, `${one}, and ${rate(arrivalPerS)} come.`);
  return change("sync", `Fsync: one producer at a time is too slow`, `${one}, and ${rate(arrivalPerS)} come. A sync serves all who wait: let ${whole(callers)} produce at once, or put ${whole(callers)} records into each call.`);
}

/** 19.8/s, 404/s: finer than elsewhere, because arrivals are compared with capacity. */
function rate(value) {
  return `${value < 100 ? Number(value.toFixed(1)) : short(value)}/s`;
}
