// The servers that share this one's home, as it reports them: read again and again, for the banner and the view of members.

import { call } from "./api.js";

const LOOK_MS = 1_000;
const LOOK_ALONE_MS = 10_000; // a server without a home gets one by a restart only
const ANSWER_MS_MAX = 5_000; // a server that is stopped takes the request and never answers

export class ClusterWatch {
  known = null; // the last answer
  error = null; // why there is no newer one

  #listeners = new Set();
  #timer = 0;
  #isLooking = false;

  start() {
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
    return this.look();
  }

  /** Call a listener with every answer or failure from now on, and with the last one at once; returns how to stop it. */
  subscribe(listener) {
    this.#listeners.add(listener);
    if (this.known !== null || this.error !== null) listener(this);
    return () => this.#listeners.delete(listener);
  }

  async look() {
    if (this.#isLooking) return;
    clearTimeout(this.#timer);
    this.#isLooking = true;
    try {
      this.known = await call("GET", "v0/cluster", undefined, { signal: AbortSignal.timeout(ANSWER_MS_MAX) });
      this.error = null;
    } catch (error) {
      this.error = error;
    } finally {
      this.#isLooking = false;
    }
    for (const listener of this.#listeners) listener(this);
    const wait = this.error === null && this.known.role === "alone" ? LOOK_ALONE_MS : LOOK_MS;
    this.#timer = setTimeout(() => document.hidden || this.look(), wait);
  }
}

export const cluster = new ClusterWatch();

/** Return every server of an answer once: this one first, then the others by their address. Pure. */
export function servers(known) {
  const { role, url, epoch, number } = known;
  const found = known.members.filter((member) => member.url !== url);
  const own = known.members.find((member) => member.url === url);
  const here = { url, role, epoch, number, version: own?.version ?? "", age_ms: 0, isHere: true };
  return [here, ...found.toSorted((one, other) => (one.url < other.url ? -1 : 1))];
}

/** Return the address of a server without a slash at its end; null for what no link may lead to. Pure. */
export function addressOf(url) {
  if (!URL.canParse(url)) return null;
  const { protocol } = new URL(url);
  return protocol === "http:" || protocol === "https:" ? url.replace(/\/+$/, "") : null;
}
