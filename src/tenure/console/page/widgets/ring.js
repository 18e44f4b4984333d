// A ring that empties towards a deadline, with a worker's badge in it.

import { mark, s, setText } from "../dom.js";
import { badgeOf, hueOf } from "../ids.js";

/** The ring; `draw(holder, now)` takes `{node, since, deadline}`. */
export function ring() {
  const track = s("circle", { class: "ring-track", cx: 16, cy: 16, r: 13 });
  const left = s("circle", { class: "ring-left", cx: 16, cy: 16, r: 13, pathLength: 100, "stroke-dasharray": "100 100" });
  const badge = s("text", { class: "ring-badge", x: 16, y: 20 });
  const element = s("svg", { class: "ring", viewBox: "0 0 32 32", "aria-hidden": "true" }, track, left, badge);
  return {
    element,
    draw({ node, since, deadline }, now) {
      mark(element, "class", `ring ${hueOf(node)}`);
      setText(badge, badgeOf(node));
      const share = deadline > since ? (deadline - now) / (deadline - since) : 0;
      mark(left, "stroke-dashoffset", (100 - 100 * Math.min(1, Math.max(0, share))).toFixed(1));
      mark(element, "data-late", share < 0.2 ? "yes" : null);
    },
  };
}
