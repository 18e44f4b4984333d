// A line of the last minute, as small as a word.

import { mark, s } from "../dom.js";

const WIDTH = 96;
const HEIGHT = 26;

/** A sparkline; `draw(values)` sets its line, scaled to its own highest value. */
export function sparkline(label) {
  const area = s("path", { class: "spark-area" });
  const line = s("path", { class: "spark-line" });
  const box = `0 0 ${WIDTH} ${HEIGHT}`;
  const element = s("svg", { class: "spark", viewBox: box, role: "img", "aria-label": label, preserveAspectRatio: "none" }, area, line);
  return {
    element,
    draw(values) {
      const path = pathOf(values);
      mark(line, "d", path);
      mark(area, "d", path && `${path}L${WIDTH},${HEIGHT}L${startOf(values)},${HEIGHT}Z`);
    },
  };
}

const SAMPLES = 60;

function startOf(values) {
  return (WIDTH * Math.max(0, SAMPLES - values.length)) / (SAMPLES - 1);
}

function pathOf(values) {
  if (values.length < 2) return "";
  const most = Math.max(...values, 1);
  const step = WIDTH / (SAMPLES - 1);
  const y = (value) => (HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1);
  return values.map((value, i) => `${i ? "L" : "M"}${(startOf(values) + i * step).toFixed(1)},${y(value)}`).join("");
}
