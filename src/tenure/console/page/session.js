// The scopes of the key in use. The server decides; this only predicts what it would refuse, and why.

import { call } from "./api.js";

let known = { keys: false, scopes: [], prefixes: null };

/** Ask the server what the key may do; raises ApiError (401 where a key is needed). */
export async function refresh() {
  known = await call("GET", "v0/key");
  return known;
}

export function current() {
  return known;
}

/** Return why these scopes on this topic would be refused; null where they would not. */
export function obstacle(scopes, topic = null) {
  const missing = scopes.filter((scope) => !known.scopes.includes(scope));
  if (missing.length) return `This key lacks the scope ${missing.join(" and ")}.`;
  if (topic !== null && known.prefixes !== null && !known.prefixes.some((prefix) => topic.startsWith(prefix)))
    return `This key does not reach ${topic}.`;
  return null;
}
