// Scene 3. Jobs join at the tail and are handed out from the head; what is not due is passed over.

import { arrow, cells, picture, text } from "./drawing.js";

export default {
  lead: [
    "A queue has two ends. Producers append at the tail, on the right; workers take from the head, on the left. Every job gets a number, its seq, when it joins, and the number never changes.",
    "First in, first out: first handed out, that is. What is held, or not yet due, is passed over and does not block those behind it.",
  ],
  drawing: () =>
    picture(
      "Jobs enter at the tail on the right and leave from the head on the left",
      110,
      cells(72, 38, [["in_flight", "w1"], ["ready", "#2"], ["ready", "#3"], ["ready", "#4"]]),
      arrow(66, 55, 22, 55, { kind: "good" }),
      arrow(300, 55, 236, 55),
      text(42, 30, "head: out"),
      text(272, 30, "tail: in"),
      text(150, 96, "the oldest is next"),
    ),
  topics: { jobs: { label: "The queue" } },
  steps: [
    {
      say: "Three jobs are appended, one after the other.",
      label: "Produce A, B, C",
      async run(world) {
        for (const name of ["A", "B", "C"]) {
          await world.produce([name]);
          await world.pause(250);
        }
        await world.see({ ready: 3 });
        return "A is #1, B is #2, C is #3. Each joined behind the one before.";
      },
    },
    {
      say: "A worker takes one.",
      label: "Claim as w1",
      async run(world) {
        const [job] = await world.claim("w1");
        world.must(job?.data === "A", `w1 got ${job?.data}`);
        world.kept.first = job;
        await world.see({ ready: 2, in_flight: 1 });
        return "w1 got A, from the head. The head is B now: the next worker gets that.";
      },
    },
    {
      say: "Another job comes while A is being worked on.",
      label: "Produce D",
      async run(world) {
        const [seq] = await world.produce(["D"]);
        await world.see({ ready: 3, in_flight: 1 });
        return `D is #${seq}, at the tail. Producers and workers never meet: they work at different ends.`;
      },
    },
    {
      say: "A second worker takes one, and is quicker than the first.",
      label: "Claim and ack as w2",
      async run(world) {
        const [job] = await world.claim("w2");
        world.must(job?.data === "B", `w2 got ${job?.data}`);
        await world.pause(500);
        await world.ack("w2", job);
        await world.see({ ready: 2, in_flight: 1 });
        return "B is done before A. Jobs are handed out in order; when they are done depends on the workers.";
      },
    },
    {
      say: "E is appended with a delay of three seconds, and then F without one.",
      label: "Produce E for later, and F",
      async run(world) {
        await world.produce(["E"], { delay_ms: 3_000 });
        await world.produce(["F"]);
        const jobs = await world.claim("w2", { max: 3 });
        const got = jobs.map((job) => job.data).join(", ");
        world.must(got === "C, D, F", `w2 got ${got}`);
        world.kept.more = jobs;
        await world.see({ in_flight: 4, delayed: 1 });
        return "w2 asked for three and got C, D and F. E is amber, not due yet, and was passed over.";
      },
    },
    {
      say: "Time passes by itself, and everybody finishes.",
      label: "Wait for E, and finish",
      async run(world) {
        await world.ack("w1", world.kept.first);
        await world.ack("w2", world.kept.more);
        await world.see({ ready: 1, in_flight: 0, delayed: 0 });
        const [job] = await world.claim("w1");
        world.must(job?.data === "E", `w1 got ${job?.data}`);
        await world.ack("w1", job);
        await world.see({ ready: 0, in_flight: 0 });
        return "E came due, was at the head at once, and is done. The queue is empty.";
      },
    },
  ],
  takeaway: "The oldest job that can be had is the next. Order is a matter of handing out, not of finishing.",
};
