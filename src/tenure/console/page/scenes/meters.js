// Scene 13. A small burst, five meters, and which of them would have raised an alarm.

import { duration, whole } from "../format.js";
import { percent } from "./design.js";
import { picture, text } from "./drawing.js";
import { again, gauges } from "./gauges.js";
import { doJobs } from "./work.js";
import { s } from "../dom.js";

const CALM_JOBS = 12;
const STORM_JOBS = 40;
const STUCK_JOBS = 30;
const AGE_MS = 1_600;
const LAST_SIGN_MS = 1_500;

export default {
  lead: [
    "A queue hides trouble: producers go on as if nothing were wrong, and the work waits in silence. So somebody has to look, and five numbers are enough.",
    "Each is blind to something. Here comes a storm in three acts: the workers stop, one takes too much and falls silent, a job fails again and again. Watch which meter sees which.",
  ],
  drawing: () =>
    picture(
      "A line that climbs over a threshold: the age of the oldest job rises while the depth stays the same",
      130,
      s("line", { class: "d-limit", x1: 16, x2: 304, y1: 52, y2: 52 }),
      s("polyline", { class: "d-line", points: "16,104 90,100 150,92 214,60 258,32 304,14" }),
      s("polyline", { class: "d-line soft", points: "16,84 60,88 110,80 170,86 230,82 304,84" }),
      text(20, 44, "wake somebody", "start"),
      text(250, 24, "age", "start"),
      text(262, 100, "depth", "start"),
    ),
  topics: { storm: { label: "The queue" } },
  aside(world) {
    const board = gauges();
    if (world !== null) world.kept.board = board;
    return { element: board.element };
  },
  steps: [
    {
      say: "First the calm: twelve jobs, two workers.",
      label: "A calm day",
      async run(world) {
        await world.produce(jobs(CALM_JOBS));
        await Promise.all(["w1", "w2"].map((node) => doJobs(world, node, { jobMs: 30 })));
        await world.see({ ready: 0, in_flight: 0 });
        const { meters } = await look(world, "on a calm day");
        world.kept.p99 = meters.processing_ms.p99;
        return `All quiet. 99 of 100 jobs took less than ${duration(meters.processing_ms.p99)} from claim to ack.`;
      },
    },
    {
      say: "Act one. The workers are gone, perhaps a deploy went wrong. Jobs keep coming.",
      label: "Stop the workers",
      async run(world) {
        await world.produce(jobs(STORM_JOBS));
        await world.see({ ready: STORM_JOBS });
        await world.until("the head to get old", async () => (await world.counts()).oldest_ready_ms > AGE_MS);
        const { queue, meters, loud } = await look(world, "when the workers stopped");
        world.must(loud.includes("depth") && loud.includes("oldest"), `loud were ${loud.join(", ")}`);
        world.must(meters.processing_ms.p99 === world.kept.p99, "the p99 has moved");
        return `Depth ${whole(queue.ready)}, and the oldest job is ${duration(queue.oldest_ready_ms)} old. Depth alone could be a burst that somebody is working on; an age that only rises means that nobody is. The p99 has not moved: it counts finished jobs.`;
      },
    },
    {
      say: "Act two. A worker comes, takes thirty jobs, and falls silent.",
      label: "Take too much",
      async run(world) {
        const held = await world.claim("greedy", { max: STUCK_JOBS });
        world.must(held.length === STUCK_JOBS, `it got ${held.length}`);
        world.kept.held = held;
        await world.see({ ready: STORM_JOBS - STUCK_JOBS, in_flight: STUCK_JOBS });
        const { queue, loud } = await look(world, "when one took too much");
        world.must(loud.includes("in_flight") && !loud.includes("depth"), `loud were ${loud.join(", ")}`);
        return `Depth fell to ${whole(queue.ready)} and is silent now: it looks like progress. In flight tells: ${whole(queue.in_flight)} in the hands of one worker, and none of them acked.`;
      },
    },
    {
      say: "Its leases run out. Then one job fails three times in a row.",
      label: "Act three",
      async run(world) {
        await world.extend("greedy", world.kept.held, LAST_SIGN_MS);
        await world.see({ ready: STORM_JOBS, in_flight: 0 });
        for (let i = 0; i < 3; i++) await world.nack("w1", await world.claim("w1"), { reason: "cannot be read" });
        await world.see({ ready: STORM_JOBS, in_flight: 0 });
        const { meters, loud } = await look(world, "when jobs came back");
        world.must(loud.includes("again"), `loud were ${loud.join(", ")}`);
        const worst = meters.worst ? ` Job #${meters.worst.seq} alone had ${meters.worst.deliveries}.` : "";
        return `Depth is what it was, but ${percent(again(meters))} of all deliveries ended without an ack.${worst} Work is being done twice, or never.`;
      },
    },
    {
      say: "The workers are back.",
      label: "Clear up",
      async run(world) {
        await Promise.all(["w1", "w2"].map((node) => doJobs(world, node, { max: 5, jobMs: 5 })));
        await world.see({ ready: 0, in_flight: 0 });
        const { meters } = await look(world, "at the end");
        return `Empty again. Only now the time in queue says it: 1 in 100 jobs waited ${duration(meters.in_queue_ms.p99)} or more. It is a number for the report, not for the alarm.`;
      },
    },
  ],
  takeaway:
    "Wake somebody for the age of the oldest job; it is what your users feel. Look at in flight and redeliveries when you want to know why, at depth to plan workers, and at the p99 to choose the lease.",
};

function jobs(count) {
  return Array.from({ length: count }, (_, i) => `job ${i + 1}`);
}

/** Read all meters at once, show them, and return those that warn. */
async function look(world, when) {
  const found = { queue: await world.counts(), meters: await world.meters() };
  return { ...found, loud: world.kept.board.take(found, when) };
}
