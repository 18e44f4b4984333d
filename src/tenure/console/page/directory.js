// List the topics that the key can see, page by page, and sort them.

import { call } from "./api.js";

export const LISTED_MAX = 10_000; // topics in memory at once: a search finds the others
const PAGE = 200;

/** Walk the topics whose name contains a text; `{topics, more}`, `more` where there are too many. Raises ApiError. */
export async function walk(contains, { signal }) {
  const topics = [];
  let cursor = "";
  do {
    const path = `v0/topics?meters=true&page_size=${PAGE}&contains=${encodeURIComponent(contains)}${cursor && `&cursor=${cursor}`}`;
    const page = await call("GET", path, undefined, { signal });
    topics.push(...page.topics);
    cursor = page.next_cursor ?? "";
  } while (cursor && topics.length < LISTED_MAX);
  return { topics, more: cursor !== "" };
}

/** The orders of queues: the largest first, except for names. */
export const ORDERS = {
  name: { label: "name", of: null },
  ready: { label: "available", of: ({ queue }) => queue.ready },
  oldest: { label: "oldest waits", of: ({ queue }) => (queue.ready ? queue.oldest_ready_ms : -1) },
  in_flight: { label: "in flight", of: ({ queue }) => queue.in_flight },
  dead: { label: "dead jobs", of: ({ queue }) => queue.dead },
  parked: { label: "parked", of: ({ queue }) => queue.parked },
};

/** Return queues in an order, equal ones by name. Pure. */
export function sorted(queues, order) {
  const { of } = ORDERS[order];
  const byName = (one, other) => (one.topic < other.topic ? -1 : one.topic > other.topic ? 1 : 0);
  return queues.toSorted(of === null ? byName : (one, other) => of(other) - of(one) || byName(one, other));
}
