// The lease and the work that it must cover, on one scale: mean, p99, three times the p99, and the end of the lease.

import { mark, s, setText } from "../dom.js";
import { duration } from "../format.js";

const WIDTH = 320;
const LEFT = 6;
const ROW = 22;
const NAMES = ["mean", "p99, in hand", "3 × p99"];

/** The drawing; `draw(knobs, figures)`. Its scale is logarithmic: a lease may be a thousand times the work. */
export function ruler() {
  const rows = NAMES.map((name, i) => row(name, i));
  const line = s("line", { class: "deadline", y1: 2, y2: NAMES.length * ROW + 4 });
  const label = s("text", { class: "deadline-label", y: NAMES.length * ROW + 18 });
  const element = s("svg", { class: "ruler", viewBox: `0 0 ${WIDTH} ${NAMES.length * ROW + 24}`, role: "img" }, ...rows.map((one) => one.element), line, label);

  function draw({ processingMs, leaseMs }, { heldMs }) {
    const values = [processingMs, heldMs, 3 * heldMs];
    const low = Math.log(Math.min(...values, leaseMs) / 3);
    const high = Math.log(Math.max(...values, leaseMs) * 1.15);
    const x = (ms) => LEFT + ((Math.log(ms) - low) / (high - low)) * (WIDTH - 2 * LEFT);
    rows.forEach((one, i) => one.draw(x(values[i]), values[i], values[i] <= leaseMs));
    const at = x(leaseMs);
    mark(line, "x1", at.toFixed(1));
    mark(line, "x2", at.toFixed(1));
    mark(label, "x", at.toFixed(1));
    mark(label, "text-anchor", at > WIDTH * 0.75 ? "end" : at < WIDTH * 0.25 ? "start" : "middle");
    setText(label, `the lease ends: ${duration(leaseMs)}`);
    mark(element, "aria-label", `Mean ${duration(processingMs)}, p99 in hand ${duration(heldMs)}, three times that ${duration(3 * heldMs)}; the lease is ${duration(leaseMs)}`);
  }
  return { element, draw };
}

function row(name, i) {
  const bar = s("rect", { x: LEFT, y: i * ROW + 4, height: ROW - 6, rx: 4 });
  const words = s("text", { x: LEFT + 6, y: i * ROW + 16 });
  return {
    element: s("g", {}, bar, words),
    draw(x, ms, within) {
      mark(bar, "width", Math.max(2, x - LEFT).toFixed(1));
      mark(bar, "class", within ? "span within" : "span beyond");
      setText(words, `${name} ${duration(ms)}`);
    },
  };
}
