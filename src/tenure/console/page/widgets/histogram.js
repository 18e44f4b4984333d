// A histogram of the broker, drawn as bars from the first bucket in use to the last.

import { h, mark, s, setText, swap } from "../dom.js";
import { whole } from "../format.js";

const WIDTH = 280;
const HEIGHT = 96;
const LABEL = 44; // the room of a label

/** The plot; `draw(histogram)` takes `{bounds, counts, count, p50, p90, p99}`. `unit` writes a bound. */
export function histogram(title, unit) {
  const bars = s("g");
  const axis = s("g", { class: "axis" });
  const svg = s("svg", { class: "bars", viewBox: `0 0 ${WIDTH} ${HEIGHT + 16}`, role: "img", "aria-label": title }, bars, axis);
  const figures = h("p", { class: "hint quantiles" }, "Nothing measured yet.");
  const element = h("figure", { class: "plot" }, h("figcaption", {}, title), svg, figures);
  let drawn = "";

  function draw(found) {
    const words = JSON.stringify(found.counts);
    if (words === drawn) return;
    drawn = words;
    const used = usedBuckets(found);
    mark(svg, "hidden", found.count ? null : "hidden");
    mark(svg, "aria-label", found.count ? `${title}: p50 ${unit(found.p50)}, p99 ${unit(found.p99)}` : `${title}: nothing yet`);
    swap(bars, ...used.map((bucket, i) => bar(bucket, i, used, unit)));
    swap(axis, ...labels(used, unit));
    setText(figures, found.count ? `p50 ${unit(found.p50)} · p90 ${unit(found.p90)} · p99 ${unit(found.p99)} · ${whole(found.count)} jobs` : "Nothing measured yet.");
  }
  return { element, draw };
}

function usedBuckets({ bounds, counts }) {
  const buckets = counts.map((count, i) => ({ count, above: bounds[i - 1] ?? 0, upTo: bounds[i] ?? null }));
  const first = buckets.findIndex(({ count }) => count > 0);
  if (first < 0) return [];
  const last = buckets.findLastIndex(({ count }) => count > 0);
  return buckets.slice(Math.max(0, first - 1), last + 2);
}

function bar({ count, above, upTo }, i, used, unit) {
  const width = WIDTH / used.length;
  const most = Math.max(...used.map((bucket) => bucket.count));
  const tall = count ? Math.max(2, (count / most) * HEIGHT) : 0;
  const reach = upTo === null ? `above ${unit(above)}` : `up to ${unit(upTo)}`;
  const box = { x: i * width + 1, y: HEIGHT - tall, width: Math.max(1, width - 2), height: tall, rx: 2 };
  return s("rect", box, s("title", {}, `${reach}: ${whole(count)}`));
}

function labels(used, unit) {
  const width = WIDTH / used.length;
  const every = Math.ceil(used.length / 5);
  return used
    .map(({ upTo }, i) => (i % every === 0 && upTo !== null ? s("text", { x: Math.min(Math.max((i + 0.5) * width, LABEL / 2), WIDTH - LABEL / 2), y: HEIGHT + 12 }, `≤${unit(upTo)}`) : null))
    .filter(Boolean);
}
