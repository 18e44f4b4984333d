// Scene 11. One worker keeps the order, three do not; a queue for each key gives both.

import { box, cells, picture, text } from "./drawing.js";
import { doJobs } from "./work.js";

const STEPS = ["opened", "paid", "closed"];
const KEYS = ["ada", "ben"];

export default {
  lead: [
    "A queue hands jobs out in the order in which they came. That says nothing about the order in which they are done: with several workers a quick job overtakes a slow one.",
    "One worker keeps the order and is as fast as one worker. Most work needs no order at all. Where it does, it is mostly within something: one account, one order, one customer. Then give each its own queue.",
  ],
  drawing: () =>
    picture(
      "Three workers finish jobs two, three, one; below, a router sends each key to a queue with one worker",
      140,
      cells(10, 8, [["in_flight", "w1"], ["in_flight", "w2"], ["in_flight", "w3"]]),
      text(224, 22, "done: #2 #3 #1"),
      text(224, 38, "#1 was the long one"),
      cells(10, 60, [["ready", "a1"], ["ready", "a2"], ["ready", "a3"]]),
      box(150, 63, "one worker for a", { width: 130 }),
      cells(10, 100, [["ready", "b1"], ["ready", "b2"], ["ready", "b3"]]),
      box(150, 103, "one worker for b", { width: 130 }),
    ),
  topics: {
    jobs: { label: "One queue for all" },
    moves: { config: { type: "log" }, label: "What happened, tagged by account" },
    ada: { label: "Ada's queue" },
    ben: { label: "Ben's queue" },
  },
  steps: [
    {
      say: "Six jobs, one worker.",
      label: "Work alone",
      async run(world) {
        await world.produce([1, 2, 3, 4, 5, 6]);
        await world.see({ ready: 6 });
        const done = await doJobs(world, "w1", { jobMs: 60 });
        world.must(done.join() === "1,2,3,4,5,6", `done in the order ${done.join(", ")}`);
        await world.see({ ready: 0, in_flight: 0 });
        return `Done in the order ${done.join(", ")}, as they came. Each waited for all before it.`;
      },
    },
    {
      say: "Six more, three workers. The first job is a long one, and w1 has it.",
      label: "Work with three",
      async run(world) {
        await world.produce([1, 2, 3, 4, 5, 6]);
        const [long] = await world.claim("w1");
        await world.see({ ready: 5, in_flight: 1 });
        const done = [];
        const onDone = (job) => done.push(job.data);
        await Promise.all(["w2", "w3"].map((node) => doJobs(world, node, { jobMs: 120, onDone })));
        await world.ack("w1", long);
        done.push(long.data);
        world.must(done.length === 6 && done.at(-1) === 1, `done in the order ${done.join(", ")}`);
        await world.see({ ready: 0, in_flight: 0 });
        return `Done in the order ${done.join(", ")}. Faster, and the first came last. If 2 needed 1 to be done, this was wrong.`;
      },
    },
    {
      say: "Now the moves of two accounts, mixed. Two routers copy them: what is tagged ada to one queue, what is tagged ben to another.",
      label: "Split by account",
      async run(world) {
        for (const key of KEYS) {
          const router = { source: world.names.moves, dest: world.names[key], filter: ["tag", "Eq", key] };
          await world.call("PUT", `v0/routers/${encodeURIComponent(`${world.names.moves}.${key}`)}`, router);
        }
        for (const move of STEPS) for (const tag of KEYS) await world.produce([move], { on: "moves", tag });
        for (const key of KEYS) await world.see({ ready: STEPS.length }, { on: key });
        return "A router keeps the order of what it copies: each queue has the three moves of its account, first to last.";
      },
    },
    {
      say: "One worker for each queue, both at once.",
      label: "Work by account",
      async run(world) {
        const all = [];
        const work = (key) => doJobs(world, `for ${key}`, { on: key, jobMs: 150, onDone: (job) => all.push(`${key} ${job.data}`) });
        const found = await Promise.all(KEYS.map(work));
        for (const moves of found) world.must(moves.join() === STEPS.join(), `done in the order ${moves.join(", ")}`);
        for (const key of KEYS) await world.see({ ready: 0, in_flight: 0 }, { on: key });
        return `Done: ${all.join(", ")}. In order for each account, and at the same time for both.`;
      },
    },
  ],
  takeaway:
    "Ask what must stay in order, and within what. Nothing: any number of workers. Everything: one worker. Each key by itself: a queue and one worker for each, or for each group of keys. And a nack or an expiry breaks the order too.",
};
