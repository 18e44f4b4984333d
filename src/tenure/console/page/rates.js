// Counts by second, for rates and sparklines. Pure: the caller passes the time.

/** The last `seconds` seconds of several counters. */
export class Rates {
  #seconds;
  #buckets = new Map();

  constructor(seconds = 60) {
    this.#seconds = seconds;
  }

  add(name, count, nowMs) {
    const second = Math.floor(nowMs / 1000);
    let bucket = this.#buckets.get(second);
    if (bucket === undefined) {
      this.#buckets.set(second, (bucket = {}));
      for (const old of this.#buckets.keys()) if (old <= second - this.#seconds) this.#buckets.delete(old);
    }
    bucket[name] = (bucket[name] ?? 0) + count;
  }

  /** One number per second, oldest first; the second that is still running is left out. */
  series(name, nowMs) {
    const second = Math.floor(nowMs / 1000);
    return Array.from({ length: this.#seconds }, (_, i) => this.#buckets.get(second - this.#seconds + i)?.[name] ?? 0);
  }

  /** Per second, over the last few whole seconds. */
  rate(name, nowMs, over = 5) {
    const series = this.series(name, nowMs).slice(-over);
    return series.reduce((sum, count) => sum + count, 0) / over;
  }
}
