// The design canvas: knobs on the left, figures and advice on the right. Values are typed, or measured from a queue.

import { call, topicPath } from "../api.js";
import { h, setText, swap } from "../dom.js";
import { duration, perSecond, short, whole } from "../format.js";
import { isScratch } from "../scratch.js";
import { advice } from "./advice.js";
import { KNOBS, figures, measured, percent } from "./design.js";
import { ruler } from "./ruler.js";

const QUEUES_MAX = 200;

// name, label, unit, smallest, largest, step
const FIELDS = [
  ["arrivalPerS", "Arrivals", "a second", 0, 1_000_000, "any"],
  ["processingMs", "Processing, mean", "ms", 0.1, 86_400_000, "any"],
  ["p99Ms", "Processing, p99", "ms", 0.1, 86_400_000, "any"],
  ["workers", "Workers", "one job at a time each", 1, 10_000, 1],
  ["prefetch", "Prefetch", "jobs in hand", 1, 1_000, 1],
  ["leaseMs", "Lease", "ms", 100, 86_400_000, 1],
  ["failedShare", "Failed deliveries", "0 to 1", 0, 1, "any"],
  ["maxDeliveries", "Max deliveries", "0: no limit", 0, 1_000, 1],
  ["syncMs", "A sync of the disk", "ms", 0.01, 10_000, "any"],
];

/** The canvas; `fill(topic)` takes the measured values of a queue, `put(knobs)` sets knobs, `take()` reads them. */
export function knobBoard() {
  const inputs = new Map(FIELDS.map((field) => [field[0], input(field)]));
  const durability = h("select", { id: "knob-durability" }, ...["memory", "disk", "fsync"].map((name) => h("option", { value: name }, name)));
  const deadLetter = h("input", { type: "checkbox", id: "knob-deadLetter" });
  const source = h("select", { id: "knob-source" }, h("option", { value: "" }, "typed values"));
  const note = h("p", { class: "hint", role: "status" });
  const results = h("div", { class: "figures" });
  const drawing = ruler();
  const list = h("ul", { class: "advice", role: "list", "aria-label": "Advice" });
  const form = h(
    "form",
    { class: "knobs", "aria-label": "Knobs", on: { submit: (event) => event.preventDefault(), input: draw } },
    h("div", { class: "wide" }, h("label", { for: "knob-source" }, "Measured values of"), source, note),
    ...FIELDS.map(([name, label, unit]) => h("div", {}, h("label", { for: `knob-${name}` }, label, h("span", { class: "hint" }, ` ${unit}`)), inputs.get(name))),
    h("div", {}, h("label", { for: "knob-durability" }, "Durability"), durability),
    h("label", { class: "check wide" }, deadLetter, h("span", {}, "has a dead letter")),
  );
  const element = h("section", { class: "card canvas", "aria-label": "Design canvas" }, form, h("div", { class: "verdicts" }, results, drawing.element, list));
  source.addEventListener("change", () => fill(source.value));

  function put(knobs) {
    for (const [name, value] of Object.entries(knobs)) {
      if (inputs.has(name)) inputs.get(name).value = String(value);
    }
    if (knobs.durability !== undefined) durability.value = knobs.durability;
    if (knobs.deadLetter !== undefined) deadLetter.checked = knobs.deadLetter;
    draw();
  }

  /** Return the knobs; null while one of them is not a number within its bounds. */
  function take() {
    if (!form.checkValidity()) return null;
    const numbers = [...inputs].map(([name, field]) => [name, Number(field.value)]);
    return { ...Object.fromEntries(numbers), durability: durability.value, deadLetter: deadLetter.checked };
  }

  function draw() {
    const knobs = take();
    if (knobs === null) return swap(list, h("li", { class: "bad" }, "A value is missing, or out of its bounds."));
    const found = figures(knobs);
    swap(results, ...tiles(found));
    drawing.draw(knobs, found);
    swap(list, ...advice(knobs).map((one) => item(one, () => put(one.set))));
  }

  async function fill(topic, name = topic) {
    if (topic === "") return setText(note, "");
    try {
      const found = measured(await look(topic));
      if (source.value !== topic) source.append(h("option", { value: topic, selected: true }, name));
      put(found);
      setText(note, about(found));
    } catch (error) {
      setText(note, error.message);
    }
  }

  put(KNOBS);
  offer(source).catch((error) => setText(note, error.message));
  return { element, fill, put, take };
}

/** Describe what the measured values do and do not show. */
function about({ processingMs, workers }) {
  const typed = [processingMs === undefined && "nothing was acked yet: the processing time", workers === undefined && "nobody holds a job now: the number of workers"];
  const words = typed.filter(Boolean).map((words) => ` As typed, since ${words}.`).join("");
  return `Processing is claim to ack, the wait in a worker's hands included: so the prefetch counts as 1.${words}`;
}

function input([name, , , min, max, step]) {
  return h("input", { type: "number", id: `knob-${name}`, min, max, step, required: true, inputmode: "decimal" });
}

function tiles({ busy, capacity, backlog, growth, deadPerDay }) {
  const waiting = Number.isFinite(backlog) ? short(backlog < 0.05 ? 0 : backlog) : `+${short(growth * 3_600)}/h`;
  const rows = [
    ["busy", Number.isFinite(busy) ? percent(busy) : "∞"],
    ["can be done", perSecond(capacity)],
    ["waiting", waiting],
    ["given up a day", short(deadPerDay < 0.05 ? 0 : deadPerDay)],
  ];
  return rows.map(([label, value]) => h("div", { class: "figure", "data-some": value !== "0" }, h("b", { "data-figure": label }, value), h("span", {}, label)));
}

function item({ id, good, says, why, set }, apply) {
  const words = Object.entries(set).map(([name, value]) => `${label(name)} ${worth(name, value)}`);
  const button = words.length ? h("button", { type: "button", on: { click: apply } }, `Set ${words.join(", ")}`) : null;
  return h("li", { class: good ? "good" : "change", "data-advice": id }, h("b", {}, says), h("p", {}, why), button);
}

function label(name) {
  return { workers: "workers to", prefetch: "prefetch to", leaseMs: "the lease to", maxDeliveries: "max deliveries to", deadLetter: "a" }[name];
}

function worth(name, value) {
  if (name === "deadLetter") return "dead letter";
  return name === "leaseMs" ? duration(value) : whole(value);
}

async function offer(source) {
  const { topics } = await call("GET", `v0/topics?page_size=${QUEUES_MAX}`);
  source.append(...topics.filter(({ topic, type }) => type === "queue" && !isScratch(topic)).map(({ topic }) => h("option", { value: topic }, topic)));
}

/** Read what the broker knows of a queue. */
async function look(topic) {
  const [meters, strip, { metrics }] = await Promise.all([
    call("GET", topicPath(topic, "/meters")),
    call("GET", topicPath(topic, "/strip?head=1&tail=1&leases=100")),
    call("GET", "v0/metrics", undefined, { headers: { accept: "application/json" } }),
  ]);
  const parts = Object.fromEntries((metrics.tenure_fsync_ms ?? []).filter(({ part }) => part !== "bucket").map(({ part, value }) => [part, value]));
  const nodes = new Set(strip.leases.map(({ node }) => node)).size;
  return { meters, config: strip.config, queue: strip.queue, now: strip.now, nodes, syncMs: parts.count ? parts.sum / parts.count : 0 };
}
