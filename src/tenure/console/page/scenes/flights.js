// Animated chips in a scene: jobs from the producer to the strip and on to a worker, acks and lost jobs back. A chip flies
// over the drawing and has no meaning by itself; with reduced motion there are none.

import { h } from "../dom.js";

const FLIGHT_MS = 700;
const AT_ONCE = 8;
const STILL = matchMedia("(prefers-reduced-motion: reduce)");

/** The layer above a panel; `from(element)` keeps a place, `fly(from, to, {words, kind, turns})` sends a chip. */
export function flights(panel) {
  const layer = h("div", { class: "flights", "aria-hidden": "true" });
  panel.append(layer);

  /** Return the middle of an element, relative to the panel; null where it is not drawn. */
  function place(element) {
    if (STILL.matches || !element?.isConnected) return null;
    const [one, ground] = [element.getBoundingClientRect(), layer.getBoundingClientRect()];
    return one.width ? { x: one.x + one.width / 2 - ground.x, y: one.y + one.height / 2 - ground.y } : null;
  }

  /** Send a chip; where it `turns` it is refused on arrival and comes back. */
  function fly(from, to, { words, kind = "", turns = false }) {
    if (from === null || to === null || layer.childElementCount >= AT_ONCE) return;
    const chip = h("span", { class: `flying ${kind}` }, words);
    layer.append(chip);
    const at = ({ x, y }) => `translate(${x}px, ${y}px) translate(-50%, -50%)`;
    const path = turns ? [{ transform: at(from) }, { transform: at(to), offset: 0.5 }, { transform: at(to), offset: 0.6 }, { transform: at(from) }] : [{ transform: at(from) }, { transform: at(to) }];
    const flight = chip.animate(path, { duration: turns ? 2 * FLIGHT_MS : FLIGHT_MS, easing: "ease-in-out", fill: "forwards" });
    flight.finished.then(() => chip.remove(), () => chip.remove());
  }

  return { place, fly };
}
