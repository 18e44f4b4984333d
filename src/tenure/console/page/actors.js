// The workers that this page simulates: single claims, or a work stream that can be cut like a crash.

import { call, topicPath } from "./api.js";
import { frames } from "./sse.js";

export const STREAMS_MAX = 3; // a browser opens six connections to one server; the page needs its own

const GRAVES_MAX = 100;

export class Actors {
  /** `onChange` is called when an actor is added, removed or gets jobs; `onEnd` when a stream ended by itself. */
  constructor(topic, { onChange = () => {}, onEnd = () => {} } = {}) {
    this.topic = topic;
    this.names = new Set(); // nodes that this page claimed as
    this.streams = new Map(); // node → {controller, max, ackAfterMs}
    this.lost = new Map(); // node → seqs that it got with auto-ack and has not finished
    this.graves = []; // {seq, node} of auto-acked jobs whose worker crashed
    this.#onChange = onChange;
    this.#onEnd = onEnd;
  }

  #onChange;
  #onEnd;

  isOwn(node) {
    return this.names.has(node);
  }

  /** Claim once as a named worker; returns the answer. With auto-ack the broker deletes as it hands out.
   * The worker is this page's from the call on: the row of the claim may be drawn before its answer is here. */
  async claim(node, { max = 1, leaseMs = null, autoAck = false } = {}) {
    const body = { node, max, auto_ack: autoAck };
    if (leaseMs) body.lease_ms = leaseMs;
    const isNew = !this.names.has(node);
    this.names.add(node);
    let answer;
    try {
      answer = await call("POST", topicPath(this.topic, "/claim"), body);
    } catch (error) {
      if (isNew && !this.streams.has(node)) this.names.delete(node);
      throw error;
    }
    if (autoAck && answer.claimed.length) {
      this.lost.set(node, [...(this.lost.get(node) ?? []), ...answer.claimed.map((job) => job.$seq)]);
    }
    this.#onChange();
    return answer;
  }

  /** Open a work stream: jobs are pushed to it, and go back the moment it is cut. */
  start(node, { max = 1, ackAfterMs = 0 } = {}) {
    if (this.streams.has(node)) throw new Error(`${node} is at work already`);
    if (this.streams.size >= STREAMS_MAX) throw new Error(`at most ${STREAMS_MAX} workers of this page can hold a stream`);
    const controller = new AbortController();
    this.names.add(node);
    this.streams.set(node, { controller, max, ackAfterMs });
    this.#run(node, { controller, max, ackAfterMs });
    this.#onChange();
  }

  async #run(node, { controller, max, ackAfterMs }) {
    const query = `?node=${encodeURIComponent(node)}&max=${max}`;
    try {
      for await (const batch of frames(topicPath(this.topic, `/work${query}`), { signal: controller.signal })) {
        for (const frame of batch) {
          if (frame.event === "job" && ackAfterMs) this.#ackLater(node, JSON.parse(frame.data), { controller, ackAfterMs });
        }
      }
    } catch (error) {
      if (!controller.signal.aborted) this.#onEnd(node, error);
    } finally {
      if (this.streams.get(node)?.controller === controller) this.streams.delete(node);
      this.#onChange();
    }
  }

  #ackLater(node, job, { controller, ackAfterMs }) {
    setTimeout(() => {
      if (controller.signal.aborted) return;
      const body = { node, seqs: [job.$seq], lease_ids: [job.lease_id] };
      call("POST", topicPath(this.topic, "/ack"), body).catch((error) => this.#onEnd(node, error));
    }, ackAfterMs);
  }

  /** Cut a worker off. Its stream's jobs go back at once; returns the seqs of auto-acked jobs, which are lost. */
  crash(node) {
    this.streams.get(node)?.controller.abort();
    this.streams.delete(node);
    const gone = this.lost.get(node) ?? [];
    this.lost.delete(node);
    this.graves = [...this.graves, ...gone.map((seq) => ({ seq, node }))].slice(-GRAVES_MAX);
    this.#onChange();
    return gone;
  }

  /** Mark the auto-acked jobs of a worker as done. */
  finish(node) {
    this.lost.delete(node);
    this.#onChange();
  }

  /** Forget a worker that holds nothing. */
  dismiss(node) {
    this.crash(node);
    this.names.delete(node);
    this.#onChange();
  }

  stop() {
    for (const { controller } of this.streams.values()) controller.abort();
    this.streams.clear();
  }
}
