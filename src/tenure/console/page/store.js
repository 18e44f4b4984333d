// The state of one queue: a snapshot, the events folded over it, and when to read the snapshot again. See docs/design/console.md.

import { ApiError, call, topicPath } from "./api.js";
import { fold, fromSnapshot, isLow } from "./fold.js";
import { Rates } from "./rates.js";
import { frames } from "./sse.js";

const LOOK_MS_MIN = 200; // between two snapshots that were requested
const VERIFY_MS = 2_000; // deletes and evictions have no rows: the longest time that they go unseen
const KEPT_MAX = 50_000; // rows kept while a snapshot is being read
const RETRY_MS = [250, 500, 1_000, 2_000, 4_000];

export class QueueStore {
  /** `onChange` is called whenever there is something new to draw, `onRow` for every row that was folded. */
  constructor(topic, { headMax = 72, tailMax = 12, onChange = () => {}, onRow = () => {} } = {}) {
    this.topic = topic;
    this.state = null;
    this.status = "connecting"; // live, lost, standby, gone, refused
    this.error = null;
    this.rates = new Rates();
    this.skewMs = 0; // the server's clock minus ours
    this.looks = 0;
    this.rows = 0;
    this.headMax = headMax;
    this.tailMax = tailMax;
    this.#onChange = onChange;
    this.#onRow = onRow;
  }

  #onChange;
  #onRow;
  #stop = new AbortController();
  #position = { life: "", number: -1 };
  #kept = null;
  #looking = null;
  #again = false;
  #lookedAt = 0;
  #timers = { look: 0, time: 0, verify: 0 };
  #listening = null;
  #ended = null; // the error of a snapshot that ends the stream

  now() {
    return Date.now() + this.skewMs;
  }

  start() {
    this.#timers.verify = setInterval(() => document.hidden || this.look(), VERIFY_MS);
    this.#follow();
    return this;
  }

  stop() {
    this.#stop.abort();
    clearInterval(this.#timers.verify);
    clearTimeout(this.#timers.look);
    clearTimeout(this.#timers.time);
  }

  /** Read the snapshot again soon; requests that come together are one read. */
  look() {
    if (this.#stop.signal.aborted || this.#timers.look || this.status === "gone") return;
    const wait = Math.max(0, this.#lookedAt + LOOK_MS_MIN - performance.now());
    this.#timers.look = setTimeout(() => {
      this.#timers.look = 0;
      this.#lookNow().catch((error) => this.#missed(error));
    }, wait);
  }

  /** Handle a failed snapshot. Where the queue is gone or refused, or the server leads no more, end the stream, which may not notice for a while. */
  #missed(error) {
    if (!isGone(error) && !isRefusal(error) && !isStandby(error)) return; // the stream reports when the server is away
    this.#ended = error;
    this.#listening?.abort();
  }

  /** Read the snapshot, and fold the rows over it that arrived during the read. */
  async #lookNow() {
    if (this.#looking) {
      this.#again = true;
      return this.#looking;
    }
    this.#looking = this.#read();
    try {
      await this.#looking;
    } finally {
      this.#looking = null;
      this.#kept = null;
      if (this.#again) {
        this.#again = false;
        this.look();
      }
    }
  }

  async #read() {
    this.#kept = [];
    this.#lookedAt = performance.now();
    const query = `?head=${this.headMax}&tail=${this.tailMax}&leases=60`;
    const answer = await call("GET", topicPath(this.topic, `/strip${query}`), undefined, { signal: this.#stop.signal });
    const position = parseId(answer.event_id);
    const kept = this.#kept;
    this.looks += 1;
    this.skewMs = answer.now - Date.now();
    const same = position.life === this.#position.life;
    this.state = fromSnapshot(answer, this);
    if (same) for (const { number, row } of kept) if (number > position.number) fold(this.state, row);
    if (!same || position.number > this.#position.number) this.#position = position;
    this.#settle();
  }

  async #follow() {
    for (let failures = 0; !this.#stop.signal.aborted; ) {
      try {
        await this.#lookNow();
        this.#become("live");
        failures = 0;
        await this.#listen();
      } catch (raised) {
        const error = this.#ended ?? raised;
        this.#ended = null;
        if (this.#stop.signal.aborted || this.#refused(error)) return;
        failures += 1;
        this.#become(isGone(error) ? "gone" : isStandby(error) ? "standby" : "lost", error);
      }
      if (this.#stop.signal.aborted) return;
      if (this.status === "live") this.#become("lost");
      const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
      await new Promise((resume) => setTimeout(resume, wait * (1 + Math.random()))); // jitter, so that pages do not reconnect at the same moment
    }
  }

  /** Return whether a retry is useless. */
  #refused(error) {
    if (!(error instanceof ApiError)) console.error(error); // a bug of the page: log it, and go on
    if (!isRefusal(error)) return false;
    this.#become("refused", error);
    return true;
  }

  async #listen() {
    const { life, number } = this.#position;
    this.#listening = new AbortController();
    const signal = AbortSignal.any([this.#stop.signal, this.#listening.signal]);
    const options = { lastId: `${life}-${number}`, signal };
    for await (const batch of frames(topicPath(this.topic, "/events"), options)) {
      for (const frame of batch) this.#take(frame);
      if (batch.length) this.#settle();
    }
  }

  #take(frame) {
    if (frame.event === "error") {
      const said = JSON.parse(frame.data);
      throw new ApiError(said.code, said.error, said.message);
    }
    if (frame.id === null) return;
    const { life, number } = parseId(frame.id);
    if (frame.event === "gap") {
      this.#position = { life, number };
      this.state.unsure = true;
      return;
    }
    if (life === this.#position.life && number <= this.#position.number) return; // the snapshot has it already
    this.#position = { life, number };
    const row = JSON.parse(frame.data);
    this.rows += 1;
    if (this.#kept) {
      if (this.#kept.length < KEPT_MAX) this.#kept.push({ number, row });
      else this.#again = true;
    }
    fold(this.state, row);
    const jobs = row.runs.reduce((sum, value, i) => (i % 2 ? sum + value : sum), 0);
    this.rates.add(row.event, jobs, this.now());
    this.#onRow(row, jobs);
  }

  /** After a change: draw, and schedule the next snapshot. */
  #settle() {
    if (this.state.unsure || isLow(this.state)) this.look();
    clearTimeout(this.#timers.time);
    if (this.state.nextAt !== null) {
      const wait = Math.max(this.state.nextAt - this.now() + 15, 15);
      this.#timers.time = setTimeout(() => this.look(), Math.min(wait, 2 ** 30));
    }
    this.#onChange();
  }

  #become(status, error = null) {
    if (this.status === status) return;
    this.status = status;
    this.error = error;
    this.#onChange();
  }
}

function isGone(error) {
  return error.status === 404;
}

function isStandby(error) {
  return error.status === 421;
}

/** Return whether the same request would be refused again. */
function isRefusal({ status }) {
  return status >= 400 && status < 500 && ![404, 408, 421, 429].includes(status);
}

function parseId(id) {
  const dash = id.lastIndexOf("-");
  return { life: id.slice(0, dash), number: Number(id.slice(dash + 1)) };
}
