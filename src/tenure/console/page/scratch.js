// Scratch topics, which a scene of the course creates and removes.
//
// A topic does not expire, so its name contains the time: the next visit of the course removes the topics of a tab that
// died. Until then they are small: records are held in memory and evicted after ten minutes.

import { ask, call, topicPath } from "./api.js";
import { obstacle } from "./session.js";

const PREFIX = "scratch.";
const NEEDED = ["read", "write", "admin", "delete"];
const CHEAP = { type: "queue", durability: "memory", lease_ms: 300_000, ttl_ms: 600_000 }; // a slow reader loses no lease
const ABANDONED_MS = 3_600_000;
const NAME = /^scratch\.[a-z-]+\.[a-z]+\.([0-9a-z]{8,9})-[0-9a-z]{6}$/;

/** Return whether a topic belongs to a scene. */
export function isScratch(topic) {
  return topic.startsWith(PREFIX);
}

/** Return why this key cannot play a scene; null where it can. */
export function whyNoScratch() {
  return obstacle(NEEDED, PREFIX);
}

/** Return fresh names for the topics of a scene: `{jobs: "scratch.ack.jobs.<time>-<random>"}`. */
export function namesFor(scene, keys) {
  const random = Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => (byte % 36).toString(36)).join("");
  const end = `${Date.now().toString(36)}-${random}`;
  return Object.fromEntries(keys.map((key) => [key, `${PREFIX}${scene}.${key}.${end}`]));
}

/** Create the topics of a scene. */
export async function create(names, topics) {
  for (const [key, { config }] of Object.entries(topics)) await configure(names, key, config);
}

/** Create a topic, or replace its config; a `dead_letter` that is a key of the scene becomes the name of that topic. */
export function configure(names, key, config = {}) {
  const dead = config.dead_letter ? { dead_letter: names[config.dead_letter] } : {};
  return call("PUT", topicPath(names[key]), { ...CHEAP, ...config, ...dead });
}

/** Remove topics; missing ones are no error. Works while the page is being left. */
export function remove(names) {
  const gone = Object.values(names).map((name) =>
    ask("DELETE", topicPath(name), { keepalive: true }).catch((error) => {
      if (error.status !== 404) throw error;
    }),
  );
  return Promise.allSettled(gone);
}

/** Remove the topics of tabs that died. */
export async function sweep() {
  const { topics } = await call("GET", `v0/topics?page_size=200&prefix=${PREFIX}`);
  const old = topics.map(({ topic }) => topic).filter((topic) => isAbandoned(topic, Date.now()));
  await remove(old);
}

/** Return whether a name is that of a scene begun over an hour ago. Pure. */
export function isAbandoned(topic, now) {
  const found = NAME.exec(topic);
  return found !== null && now - parseInt(found[1], 36) > ABANDONED_MS;
}
