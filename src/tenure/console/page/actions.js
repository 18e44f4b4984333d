// The actions on a queue, with the scopes that each needs, so that every control shows the same reason.

import { call, topicPath } from "./api.js";
import { obstacle } from "./session.js";

const REDRIVE_MAX = 1_000; // in one request

const NEEDS = {
  produce: ["write"],
  claim: ["read", "write"],
  ack: ["write"],
  nack: ["write"],
  extend: ["write"],
  redrive: ["admin"],
  remove: ["delete"],
};

/** Return why an action on a topic would be refused; null where it would not. */
export function whyNot(action, topic) {
  return obstacle(NEEDS[action], topic);
}

/** Return the attributes of the button of an action: disabled, with the reason as its title, where the key does not allow it. */
export function guarded(action, topic, title = "") {
  const why = whyNot(action, topic);
  return { disabled: why !== null, title: why ?? title, "data-action": action };
}

export function produce(topic, records) {
  return call("POST", topicPath(topic, "?return_seqs=false"), `{"create":false,"records":[${records.join(",")}]}`);
}

/** Settle everything under some leases, or one job: `what` is `{lease_id}` or `{seqs, lease_ids}`. */
export function ack(topic, node, what) {
  return call("POST", topicPath(topic, "/ack"), { node, ...what });
}

export function nack(topic, node, what, { delayMs, reason, dead = false } = {}) {
  const body = { node, ...what, dead };
  if (delayMs !== undefined) body.delay_ms = delayMs;
  if (reason) body.reason = reason;
  return call("POST", topicPath(topic, "/nack"), body);
}

export function extend(topic, node, what, leaseMs) {
  return call("POST", topicPath(topic, "/extend"), { node, ...what, lease_ms: leaseMs });
}

/** Redrive dead letters (or parked jobs). */
export function redrive(topic, seqs) {
  return call("POST", topicPath(topic, "/redrive"), { seqs });
}

/** Return where the oldest dead letters would go, as `[[topic, count], …]`: those of one request. */
export async function destinationsOf(topic) {
  const { destinations } = await call("POST", topicPath(topic, "/redrive"), { limit: REDRIVE_MAX, dry_run: true });
  return Object.entries(destinations);
}

/** Redrive `count` dead letters (or parked jobs), the oldest first, a thousand at a time. */
export async function redriveAll(topic, count) {
  const done = { redriven: 0, to: "" };
  while (done.redriven < count) {
    const answer = await call("POST", topicPath(topic, "/redrive"), { limit: Math.min(count - done.redriven, REDRIVE_MAX) });
    if (!answer.redriven) break;
    done.redriven += answer.redriven;
    done.to ||= answer.to;
  }
  return done;
}

export function remove(topic, seqs) {
  return call("POST", topicPath(topic, "/delete"), { seqs });
}
