// The strip: head on the left, tail on the right, as many cells as there is room for, and the rest as a number. The job
// that is claimed next is always on it, however many are in flight before it.
//
// Cells are placed by index with a transform, so a job that moves up moves without layout being read.

import { nextJob, total } from "../fold.js";
import { h, mark, setText } from "../dom.js";
import { perSecond, whole } from "../format.js";
import { cell, cellWidth } from "./cell.js";

const BETWEEN = 8; // pixels from a cell to the next
const HEIGHT = 62;
const ROWS_MAX = 4;
const GAP_SLOTS = 2;
const PRODUCER_SLOTS = 2;
const LEAVE_MS = 260;

/** The strip; `draw(state, {now, calm, rate})`, `tick(now)`. `onOpen(seq)` is called when a cell is opened. */
export function strip({ onOpen }) {
  const lane = h("div", { class: "lane", role: "group", "aria-label": "Jobs, the next one first" });
  const gap = h("div", { class: "slot gap", hidden: true });
  const leap = h("div", { class: "slot leap", hidden: true, title: "In flight or delayed" }, "⋯");
  const producer = h("div", { class: "slot producer" }, h("span", { "aria-hidden": "true" }, "◂ "), "producers", h("b", {}, ""));
  const empty = h("p", { class: "empty in-lane" }, "Nothing is queued.");
  lane.append(gap, leap, producer, empty);
  const cells = new Map();
  let room = 616;
  let pitch = HEIGHT;
  let columns = 10;
  let last = null;

  const redraw = () => last && draw(...last);
  const observer = new ResizeObserver(([entry]) => {
    room = entry.contentRect.width;
    if (columnsOf(room, pitch) !== columns) redraw();
  });
  observer.observe(lane);

  lane.addEventListener("click", (event) => {
    const found = event.target.closest(".cell");
    if (found) onOpen(Number(found.dataset.seq));
  });
  lane.addEventListener("keydown", (event) => walk(lane, event));

  function draw(state, options) {
    last = [state, options];
    const { now, calm, rate } = options;
    fit(state);
    const items = choose(state, columns);
    lane.classList.toggle("moving", !calm);
    const focused = seqOf(document.activeElement);
    if (calm) handOver([...items.head, ...items.beyond, ...items.tail]);
    let slot = 0;
    let before = null;
    const seen = new Set();
    for (const job of items.head) before = place(job, slot++, before);
    leap.hidden = items.beyond.length === 0;
    if (items.beyond.length) put(leap, slot++);
    for (const job of items.beyond) before = place(job, slot++, before);
    gap.hidden = items.hidden === 0;
    if (items.hidden) {
      if (columns - (slot % columns) < GAP_SLOTS) slot += columns - (slot % columns);
      put(gap, slot);
      setText(gap, `${whole(items.hidden)} more`);
      slot += GAP_SLOTS;
    }
    for (const job of items.tail) before = place(job, slot++, before);
    if (columns - (slot % columns) < PRODUCER_SLOTS) slot += columns - (slot % columns);
    put(producer, slot);
    setText(producer.lastChild, rate ? perSecond(rate) : "");
    mark(producer, "data-busy", rate ? "yes" : null);
    empty.hidden = total(state) > 0;
    for (const [seq, found] of cells) if (!seen.has(seq)) leave(seq, found);
    lane.style.height = `${(Math.floor((slot + PRODUCER_SLOTS - 1) / columns) + 1) * HEIGHT}px`;
    if (focused !== null) focus(focused);
    keepFocusable(lane);

    function place(job, at, neighbour) {
      seen.add(job.seq);
      let found = cells.get(job.seq);
      const isNew = found === undefined;
      if (isNew) {
        cells.set(job.seq, (found = cell()));
        if (!calm) found.element.classList.add("enter");
      }
      const follower = neighbour === null ? lane.firstChild : neighbour.nextSibling;
      if (isNew) lane.insertBefore(found.element, follower);
      found.draw(job, now, { isNext: job.seq === items.next });
      put(found.element, at);
      if (isNew && !calm) requestAnimationFrame(() => found.element.classList.remove("enter"));
      return found.element;
    }
  }

  /** Make the cells as wide as the longest seq needs. */
  function fit(state) {
    const width = cellWidth([...state.cells.keys()].slice(-1));
    pitch = width + BETWEEN;
    columns = columnsOf(room, pitch);
    lane.style.setProperty("--cell", `${width}px`);
  }

  function put(element, slot) {
    const at = `translate(${(slot % columns) * pitch}px, ${Math.floor(slot / columns) * HEIGHT}px)`;
    if (element.style.transform !== at) element.style.transform = at;
  }

  /** In a burst nothing is animated: the cells stay in place and show other jobs, which costs far less. */
  function handOver(jobs) {
    const spare = [...cells].sort(([one], [other]) => one - other).map(([, found]) => found);
    cells.clear();
    for (const found of spare.splice(jobs.length)) found.element.remove();
    spare.forEach((found, i) => cells.set(jobs[i].seq, found));
  }

  function leave(seq, found) {
    cells.delete(seq);
    found.element.classList.add("leave");
    for (const name of ["data-seq", "data-next"]) found.element.removeAttribute(name);
    setTimeout(() => found.element.remove(), LEAVE_MS);
  }

  function seqOf(element) {
    return lane.contains(element) && element.dataset.seq ? Number(element.dataset.seq) : null;
  }

  /** Put the focus on a job; where it is gone, on the one that took its place. */
  function focus(seq) {
    const near = [...cells.keys()].filter((known) => known >= seq);
    const found = cells.get(near.length ? Math.min(...near) : Math.max(...cells.keys()))?.element;
    if (found === undefined || found === document.activeElement) return;
    for (const other of lane.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    found.tabIndex = 0;
    found.focus({ preventScroll: true });
  }

  return {
    element: lane,
    draw,
    focus,
    tick: (now) => cells.forEach((found) => found.tick(now)),
    stop: () => observer.disconnect(),
  };
}

function columnsOf(room, pitch) {
  return Math.max(3, Math.floor((room + BETWEEN) / pitch));
}

/** Return which jobs are drawn, and how many are not. `beyond` holds the next job where it is after the drawn head. */
function choose(state, columns) {
  const jobs = [...state.cells.values()];
  const everything = total(state);
  const next = nextJob(state);
  const at = { next: next?.seq ?? null, beyond: [] };
  if (everything <= jobs.length && jobs.length <= columns * ROWS_MAX - PRODUCER_SLOTS) return { ...at, head: jobs, tail: [], hidden: 0 };
  const known = jobs.filter((job) => job.seq <= state.headEnd).length;
  let head = Math.min(known, columns * (ROWS_MAX - 1)); // the last row has the number, the tail and the producers
  const tail = Math.max(0, Math.min(state.tailMax, columns - GAP_SLOTS - PRODUCER_SLOTS, jobs.length - head));
  const ends = tail > 0 ? jobs.slice(-tail) : [];
  if (next !== null && !jobs.slice(0, head).includes(next) && !ends.some((job) => job.seq === next.seq)) {
    at.beyond = [next];
    head = Math.min(head, columns * (ROWS_MAX - 1) - 2); // the leap and the next job end the last row of the head
  }
  const hidden = Math.max(0, everything - head - at.beyond.length - ends.length);
  return { ...at, head: jobs.slice(0, head), tail: ends, hidden };
}

/** One cell is reached by Tab, the others by the arrows. */
function keepFocusable(lane) {
  if (lane.querySelector('.cell[tabindex="0"]:not(.leave)') === null) {
    const first = lane.querySelector(".cell:not(.leave)");
    if (first) first.tabIndex = 0;
  }
}

function walk(lane, event) {
  const cells = [...lane.querySelectorAll(".cell:not(.leave)")];
  const at = cells.indexOf(document.activeElement);
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: cells.length - 1 }[event.key];
  if (at < 0 || to === undefined || cells[to] === undefined) return;
  event.preventDefault();
  cells[at].tabIndex = -1;
  cells[to].tabIndex = 0;
  cells[to].focus();
}
