// One job as a cell of the strip: bright where it can be had, dashed with its holder's badge where it is in flight.

import { h, mark, say } from "../dom.js";
import { duration } from "../format.js";
import { ring } from "./ring.js";

const WORDS = { ready: "available", in_flight: "in flight", delayed: "delayed", parked: "parked" };

/** A cell; `draw(job, now)` and `tick(now)`. */
export function cell() {
  const seq = h("span", { class: "seq" });
  const tries = h("span", { class: "tries", hidden: true });
  const mid = h("span", { class: "mid", "aria-hidden": "true" });
  const element = h("button", { type: "button", class: "cell", tabindex: "-1" }, mid, seq, tries);
  let holder = null;
  let job = null;

  const tick = (now) => {
    if (job.state === "in_flight") holder.draw(job, now);
    else if (job.state === "delayed") say(mid, job.deliverAt === null ? "◷" : duration(Math.max(0, job.deliverAt - now)));
  };
  const draw = (found, now) => {
    const was = job?.state;
    job = { ...found };
    mark(element, "data-seq", job.seq);
    mark(element, "data-state", job.state);
    mark(element, "data-node", job.node);
    say(seq, nameOf(job.seq));
    tries.hidden = job.deliveries < 2;
    say(tries, `×${job.deliveries}`);
    if (job.state !== was) {
      if (job.state === "in_flight") {
        holder ??= ring();
        mid.replaceChildren(holder.element);
      } else {
        say(mid, job.state === "parked" ? "❚❚" : "");
      }
    }
    mark(element, "aria-label", labelOf(job));
    tick(now);
  };
  return { element, draw, tick };
}

/** A seq in the room of a cell; of a long one the end, which is what tells neighbours apart. */
function nameOf(seq) {
  const digits = String(seq);
  if (digits.length < 5) return `#${digits}`;
  return digits.length < 8 ? digits : `…${digits.slice(-6)}`;
}

/** What a screen reader says of a job. */
function labelOf(job) {
  const held = job.state === "in_flight" ? `, held by ${job.node}` : "";
  const tries = job.deliveries > 1 ? `, delivered ${job.deliveries} times` : "";
  return `Job ${job.seq}, ${WORDS[job.state]}${held}${tries}`;
}
