// `World`: the actions of a scene on its scratch topics, and its checks. Every action is a call to the broker.

import { Actors } from "../actors.js";
import { call, topicPath } from "../api.js";
import * as actions from "../actions.js";
import { configure } from "../scratch.js";

const POLL_MS = 80;
const PATIENCE_MS = 8_000;
const LINE_MS = 320;
const STILL = matchMedia("(prefers-reduced-motion: reduce)");

/** The broker did not do what the scene promised. */
export class Unmet extends Error {}

export class World {
  /** `names`: key → topic; `stores`: key → the QueueStore that the strip of that queue is drawn from. */
  constructor({ names, stores, onChange, onLine, onRefused, signal }) {
    this.names = names;
    this.stores = stores;
    this.signal = signal;
    this.main = Object.keys(names)[0]; // the topic of an action that names none
    this.readers = {}; // name → the seq up to which it has read: drawn under a log
    this.kept = {}; // for a scene's own notes from one step to the next
    this.onLine = onLine;
    this.onRefused = onRefused;
    const onEnd = (node, error) => (this.streamError = `${node}: ${error.message}`);
    this.actors = Object.fromEntries(Object.entries(names).map(([key, name]) => [key, new Actors(name, { onChange, onEnd })]));
  }

  // Actions. `on` is the key of a topic; a job is what claim returned: `{$seq, lease_id, deadline, deliveries, data}`.

  /** Append payloads (any JSON); returns their seqs. `fields` go into every record: `{tag, delay_ms, …}`. */
  async produce(payloads, { on = this.main, ...fields } = {}) {
    const records = payloads.map((data) => ({ data, ...fields }));
    return (await this.call("POST", topicPath(this.names[on]), { create: false, records })).seqs;
  }

  /** Claim once as a named worker; returns the jobs. */
  async claim(node, { on = this.main, max = 1, leaseMs, autoAck } = {}) {
    return (await this.actors[on].claim(node, { max, leaseMs, autoAck })).claimed;
  }

  /** `{acked, …}`, and so for the other two. Their leases are named, so a lease that was lost settles nothing. */
  ack(node, jobs, { on = this.main } = {}) {
    return actions.ack(this.names[on], node, leased(jobs));
  }

  /** Ack jobs that another worker holds, strictly. Shows how the broker refuses it, and returns the error. */
  async ackOfAnother(node, job, { on = this.main } = {}) {
    const strict = { seqs: [job.$seq], strict: true };
    const error = await actions.ack(this.names[on], node, strict).then(() => null, (raised) => raised);
    if (error !== null) this.onRefused(on, { node, seq: job.$seq, words: `✕ ${node}: ack #${job.$seq} → ${error.status} ${error.code}` });
    return error;
  }

  /** Remove the picture of a refusal. */
  forgetRefusal({ on = this.main } = {}) {
    this.onRefused(on, null);
  }

  nack(node, jobs, { on = this.main, ...options } = {}) {
    return actions.nack(this.names[on], node, leased(jobs), options);
  }

  extend(node, jobs, leaseMs, { on = this.main } = {}) {
    return actions.extend(this.names[on], node, leased(jobs), leaseMs);
  }

  /** Open a work stream. A browser keeps six connections to a server and each strip has one: two streams at most. */
  work(node, { on = this.main, max = 1, ackAfterMs = 0 } = {}) {
    this.actors[on].start(node, { max, ackAfterMs });
  }

  /** Cut a worker's stream, as a crash would. Returns the seqs that it had got with auto-ack and that are lost now. */
  crash(node, { on = this.main } = {}) {
    const lost = this.actors[on].crash(node);
    this.actors[on].dismiss(node);
    return lost;
  }

  /** Dismiss workers of the page that hold nothing, so that they are not drawn any more. */
  dismiss(...nodes) {
    for (const actors of Object.values(this.actors)) nodes.forEach((node) => actors.dismiss(node));
  }

  /** Replace a topic's config. */
  configure(config, { on = this.main } = {}) {
    return configure(this.names, on, config);
  }

  redrive(on, seqs) {
    return actions.redrive(this.names[on], seqs);
  }

  /** Copy what is appended to one topic to another; goes away with either. */
  route(from, to) {
    const router = { source: this.names[from], dest: this.names[to] };
    return this.call("PUT", `v0/routers/${encodeURIComponent(`${router.source}.${to}`)}`, router);
  }

  // Reads, from the broker and not from the page

  /** Return the records after a seq; reading does not remove them. */
  async read(on, { from = 0, limit = 100 } = {}) {
    return (await this.call("POST", topicPath(this.names[on], "/diff"), { from_seq: from, limit, include_tags: true })).records;
  }

  /** `{count, config, queue: {ready, in_flight, delayed, parked, dead_lettered, oldest_ready_ms}, …}` */
  about(on = this.main) {
    return this.call("GET", topicPath(this.names[on], "?touch=false"));
  }

  async counts(on = this.main) {
    return (await this.about(on)).queue;
  }

  job(seq, { on = this.main } = {}) {
    return this.call("GET", topicPath(this.names[on], `/jobs/${seq}`));
  }

  meters(on = this.main) {
    return this.call("GET", topicPath(this.names[on], "/meters"));
  }

  async call(method, path, body) {
    return call(method, path, body, { signal: this.signal });
  }

  // The code pane

  /** Mark lines of a listing one after the other, with time to see each; the last one stays marked. */
  async line(name, ...lines) {
    for (const line of lines) {
      this.onLine(name, line);
      if (!STILL.matches) await this.pause(LINE_MS);
    }
  }

  // Checks

  /** Stop the scene with a message unless the condition holds. */
  must(condition, words) {
    if (!condition) throw new Unmet(words);
  }

  /** Wait until a read returns a value; `words` name what is waited for. */
  async until(words, look, { ms = PATIENCE_MS } = {}) {
    const end = performance.now() + ms;
    for (;;) {
      const found = await look();
      if (found) return found;
      this.must(performance.now() < end, `${words}: it has not come to that${this.streamError ? ` (${this.streamError})` : ""}`);
      await this.pause(POLL_MS);
    }
  }

  /** Wait until both the broker and the strip count so: `see({ready: 2, in_flight: 1})`. Returns the broker's counts. */
  see(wanted, { on = this.main, ms = PATIENCE_MS } = {}) {
    const agree = (counts) => counts && Object.entries(wanted).every(([state, count]) => counts[state] === count);
    const words = Object.entries(wanted).map(([state, count]) => `${count} ${state.replace("_", " ")}`).join(", ");
    const look = async () => {
      const counts = await this.counts(on);
      if (!agree(counts)) return null;
      if (agree(this.stores[on]?.state?.counts)) return counts;
      this.stores[on]?.look();
      return null;
    };
    return this.until(`Waiting for ${words}`, look, { ms });
  }

  /** Pause for the viewer. Never decides anything. */
  pause(ms) {
    this.signal.throwIfAborted();
    return new Promise((resume) => setTimeout(resume, ms));
  }

  stop() {
    for (const actors of Object.values(this.actors)) actors.stop();
  }
}

function leased(jobs) {
  const list = Array.isArray(jobs) ? jobs : [jobs];
  return { seqs: list.map((job) => job.$seq), lease_ids: list.map((job) => job.lease_id) };
}
