// A line of the last minute, as small as a word.

import { mark, s } from "../dom.js";

const WIDTH = 96;
const HEIGHT = 26;
const MINUTE_S = 60;

/** A sparkline; `draw(values, seconds)` sets its line, a value every so many seconds, scaled to its own highest value. */
export function sparkline(label) {
  const area = s("path", { class: "spark-area" });
  const line = s("path", { class: "spark-line" });
  const box = `0 0 ${WIDTH} ${HEIGHT}`;
  const element = s("svg", { class: "spark", viewBox: box, role: "img", "aria-label": label, preserveAspectRatio: "none" }, area, line);
  return {
    element,
    draw(values, seconds) {
      const step = (WIDTH * seconds) / MINUTE_S;
      const start = WIDTH - (values.length - 1) * step;
      const path = pathOf(values, start, step);
      mark(line, "d", path);
      mark(area, "d", path && `${path}L${WIDTH},${HEIGHT}L${start.toFixed(1)},${HEIGHT}Z`);
    },
  };
}

function pathOf(values, start, step) {
  if (values.length < 2) return "";
  const most = Math.max(...values, 1);
  const y = (value) => (HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1);
  return values.map((value, i) => `${i ? "L" : "M"}${(start + i * step).toFixed(1)},${y(value)}`).join("");
}
