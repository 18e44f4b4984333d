// What can be done to a queue, with what each deed needs. One place, so that every control says the same reason.

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

/** Why a deed on a topic would be refused; null where it would not. */
export function whyNot(deed, topic) {
  return obstacle(NEEDS[deed], topic);
}

/** Attributes for the button of a deed: off, with the reason as its title, where the key does not allow it. */
export function guarded(deed, topic, title = "") {
  const why = whyNot(deed, topic);
  return { disabled: why !== null, title: why ?? title, "data-deed": deed };
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

/** Put dead letters (or parked jobs) back to work. */
export function redrive(topic, seqs) {
  return call("POST", topicPath(topic, "/redrive"), { seqs });
}

/** Put `count` dead letters (or parked jobs) back to work, the oldest first, a thousand at a time. */
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
