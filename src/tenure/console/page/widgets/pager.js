// One page of many: where it stands, and the way to its neighbours.

import { h, setText } from "../dom.js";
import { whole } from "../format.js";

/** The pager; `draw(count)` returns the first and the end of the page to show. `onTurn` is called when it was turned. */
export function pager({ size, noun, onTurn }) {
  let page = 0;
  const turn = (by) => () => {
    page += by;
    onTurn();
  };
  const before = h("button", { type: "button", "aria-label": "Previous page", on: { click: turn(-1) } }, "◂");
  const after = h("button", { type: "button", "aria-label": "Next page", on: { click: turn(1) } }, "▸");
  const place = h("span", { class: "hint", role: "status" });
  const element = h("nav", { class: "row pager", "aria-label": `Pages of ${noun}` }, before, place, after);
  return {
    element,
    toFirst: () => (page = 0),
    draw(count) {
      page = Math.max(0, Math.min(page, Math.ceil(count / size) - 1));
      const first = page * size;
      const end = Math.min(first + size, count);
      element.hidden = count <= size;
      before.disabled = page === 0;
      after.disabled = end === count;
      setText(place, `${whole(first + 1)}–${whole(end)} of ${whole(count)} ${noun}`);
      return [first, end];
    },
  };
}
