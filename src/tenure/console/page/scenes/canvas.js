// Scene 14. The knobs of a workload against what was measured, first of a scratch queue, then of yours.

import { duration } from "../format.js";
import { s } from "../dom.js";
import { topicPath } from "../api.js";
import { advice } from "./advice.js";
import { picture, text } from "./drawing.js";
import { knobBoard } from "./knobs.js";
import { doJobs } from "./work.js";

const JOBS = 10;
const JOB_MS = 150;

export default {
  lead: [
    "Every queue is a handful of numbers: how much comes, how long a job takes, how many work, how long a lease is, how often a job is tried. They depend on each other, and most queues that fail at night fail by arithmetic.",
    "The canvas does the arithmetic. Its values are yours to type, or are taken from a queue of this broker as it was measured. It says what to change, to what value, and why. First we measure a queue whose lease is too short.",
  ],
  drawing: () =>
    picture(
      "Three knobs on their tracks, and two bars against a line: one stays below it",
      124,
      ...[0, 1, 2].map(track),
      s("rect", { class: "d-bar", x: 206, y: 46, width: 30, height: 54, rx: 4 }),
      s("rect", { class: "d-bar bad", x: 250, y: 18, width: 30, height: 82, rx: 4 }),
      s("line", { class: "d-limit", x1: 196, x2: 292, y1: 36, y2: 36 }),
      text(243, 116, "measured"),
      text(90, 116, "chosen"),
    ),
  topics: {
    work: { config: { lease_ms: 300 }, label: "A queue to measure" },
    dead: { config: { type: "log" }, show: "none" },
  },
  aside(world) {
    const board = knobBoard();
    if (world !== null) world.kept.board = board;
    return { element: board.element };
  },
  steps: [
    {
      say: "Ten jobs of about 150 ms each, and two workers. The queue's lease is 300 ms, and nothing limits its deliveries.",
      label: "Do some work",
      async run(world) {
        await world.produce(Array.from({ length: JOBS }, (_, i) => `job ${i + 1}`));
        await Promise.all(["w1", "w2"].map((node) => doJobs(world, node, { jobMs: JOB_MS, leaseMs: 60_000 })));
        await world.see({ ready: 0, in_flight: 0 });
        const { processing_ms: work } = await world.meters();
        return `Done. The broker has measured it: p50 ${duration(work.p50)}, p99 ${duration(work.p99)} from claim to ack.`;
      },
    },
    {
      say: "Take these values into the canvas.",
      label: "Take what was measured",
      async run(world) {
        const { board } = world.kept;
        await board.fill(world.names.work, "the queue of this scene");
        const faults = advice(board.take()).filter(({ id, good }) => !good && ["lease", "retries"].includes(id));
        world.must(faults.length === 2, "the canvas finds nothing to change");
        return `${faults.map(({ says }) => says).join(". ")}. Each has its reason below, and the value to set.`;
      },
    },
    {
      say: "Follow the advice: set the lease, a limit of deliveries and a dead letter, on the canvas and on the queue.",
      label: "Follow the advice",
      async run(world) {
        const { board } = world.kept;
        for (const { id, set } of advice(board.take())) if (["lease", "retries"].includes(id)) board.put(set);
        const { leaseMs, maxDeliveries } = board.take();
        const wanted = { lease_ms: leaseMs, max_deliveries: maxDeliveries, dead_letter: world.names.dead };
        const { config: now } = await world.call("PATCH", topicPath(world.names.work), wanted);
        world.must(now.lease_ms === leaseMs && now.max_deliveries === maxDeliveries, "the queue did not take it");
        const left = advice(board.take()).filter(({ id, good }) => !good && ["lease", "retries"].includes(id));
        world.must(left.length === 0, "the canvas is not content yet");
        return `The queue now has lease_ms ${leaseMs} and max_deliveries ${maxDeliveries}, and a dead letter. Now choose a queue of yours above the knobs, or type what you expect.`;
      },
    },
  ],
  takeaway: "Measure first, then choose: a lease of three times the p99, workers that are busy four fifths of the time at most, a limit on deliveries, and a durability that fits what a lost job costs.",
};

function track(i) {
  const y = 22 + i * 32;
  return s("g", { class: "d-knob" }, s("line", { x1: 20, x2: 160, y1: y, y2: y }), s("circle", { cx: [60, 124, 92][i], cy: y, r: 9 }));
}
