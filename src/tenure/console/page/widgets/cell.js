// One job as a cell of the strip: bright where it can be had, dashed with its holder's badge where it is in flight.

import { h, mark, setText } from "../dom.js";
import { isSuspect } from "../fold.js";
import { duration } from "../format.js";
import { ring } from "./ring.js";

const WORDS = { ready: "available", in_flight: "in flight", delayed: "delayed", parked: "parked" };

const DIGITS_MAX = 10; // a longer seq shows its end
const DIGIT_PX = 8.5;

/** A cell; `draw(job, now)` and `tick(now)`. The job that is claimed next says so where `isNext`. */
export function cell() {
  const seq = h("span", { class: "seq" });
  const tries = h("span", { class: "tries", hidden: true });
  const mid = h("span", { class: "mid", "aria-hidden": "true" });
  const element = h("button", { type: "button", class: "cell", tabindex: "-1" }, mid, seq, tries);
  let holder = null;
  let job = null;

  const tick = (now) => {
    if (job.state === "in_flight") holder.draw(job, now);
    else if (job.state === "delayed") setText(mid, job.deliverAt === null ? "◷" : duration(Math.max(0, job.deliverAt - now)));
  };
  const draw = (found, now, { isNext = false } = {}) => {
    const was = job?.state;
    job = { ...found };
    mark(element, "data-seq", job.seq);
    mark(element, "data-state", job.state);
    mark(element, "data-node", job.node);
    setText(seq, nameOf(job.seq));
    tries.hidden = job.deliveries < 2;
    setText(tries, `×${job.deliveries}`);
    mark(element, "data-suspect", isSuspect(job) ? "yes" : null);
    mark(element, "data-next", isNext ? "yes" : null);
    if (job.state !== was && job.state === "in_flight") {
      holder ??= ring();
      mid.replaceChildren(holder.element);
    } else if (job.state === "parked" || job.state === "ready") {
      setText(mid, job.state === "parked" ? "❚❚" : isNext ? "next" : isSuspect(job) ? "?" : "");
    }
    mark(element, "aria-label", labelOf(job, isNext));
    tick(now);
  };
  return { element, draw, tick };
}

/** A seq as a cell shows it: whole, up to ten digits. */
export function nameOf(seq) {
  const digits = String(seq);
  if (digits.length < 5) return `#${digits}`;
  return digits.length <= DIGITS_MAX ? digits : `…${digits.slice(1 - DIGITS_MAX)}`;
}

/** How wide cells are so that the longest of these seqs fits, in pixels. */
export function cellWidth(seqs) {
  const longest = Math.max(1, ...seqs.map((seq) => nameOf(seq).length));
  return Math.max(54, Math.ceil(longest * DIGIT_PX) + 8);
}

/** What a screen reader says of a job. */
function labelOf(job, isNext) {
  const held = job.state === "in_flight" ? `, held by ${job.node}` : "";
  const tries = job.deliveries > 1 ? `, delivered ${job.deliveries} times` : "";
  const lost = job.lost ? `, its worker was lost ${job.lost === 1 ? "once" : `${job.lost} times`}` : "";
  const state = isSuspect(job) ? "a suspect" : WORDS[job.state];
  return `Job ${job.seq}, ${state}${held}${tries}${lost}${isNext ? ", next in line" : ""}`;
}
