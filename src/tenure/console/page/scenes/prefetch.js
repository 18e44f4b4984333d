// Scene 10. How many jobs a worker holds: with ten in hand one worker hoards what another could do.

import { duration } from "../format.js";
import { box, cells, picture, text } from "./drawing.js";
import { doJobs, timed } from "./work.js";

const JOBS = 8;
const SLOW_MS = 250;
const FAST_MS = 40;

export default {
  lead: [
    "A worker may take several jobs at a time, so that the next one is there when it is done with the first. That is prefetch, and it saves the way to the broker and back.",
    "But what one worker has in hand, nobody else can take. The slower the jobs, the less there is to save, and the more it hurts. Here two workers, one slow and one fast, meet the same eight jobs twice.",
  ],
  drawing: () =>
    picture(
      "Above, one worker holds all the jobs and the other none; below, each holds one and the rest can be taken",
      140,
      cells(14, 12, [["in_flight", "w1"], ["in_flight", "w1"], ["in_flight", "w1"], ["in_flight", "w1"]]),
      box(190, 14, "w1 busy", { width: 66 }),
      box(262, 14, "w2 idle", { width: 52, kind: "dead" }),
      text(14, 66, "prefetch 10", "start"),
      cells(14, 82, [["in_flight", "w1"], ["in_flight", "w2"], ["ready", "#3"], ["ready", "#4"]]),
      box(190, 84, "w1", { width: 52 }),
      box(248, 84, "w2", { width: 52 }),
      text(14, 134, "prefetch 1", "start"),
    ),
  topics: {
    hoard: { label: "Prefetch 10" },
    fair: { label: "Prefetch 1" },
  },
  steps: [
    {
      say: "The same eight jobs go into two queues.",
      label: "Produce",
      async run(world) {
        const jobs = Array.from({ length: JOBS }, (_, i) => `page ${i + 1}`);
        await world.produce(jobs, { on: "hoard" });
        await world.produce(jobs, { on: "fair" });
        await world.see({ ready: JOBS }, { on: "hoard" });
        await world.see({ ready: JOBS }, { on: "fair" });
        return "Eight and eight.";
      },
    },
    {
      say: "In the first queue workers take up to ten at a time. w1 asks first, then w2.",
      label: "Take ten at a time",
      async run(world) {
        const mine = await world.claim("w1", { on: "hoard", max: 10 });
        const theirs = await world.claim("w2", { on: "hoard", max: 10 });
        world.must(mine.length === JOBS && theirs.length === 0, `w1 got ${mine.length} and w2 ${theirs.length}`);
        world.kept.mine = mine;
        await world.see({ ready: 0, in_flight: JOBS }, { on: "hoard" });
        return "w1 got all eight and can work on one. w2 got nothing, and has nothing to do.";
      },
    },
    {
      say: "w1 is the slow one: a quarter of a second for each job.",
      label: "Let w1 work",
      async run(world) {
        const [ms] = await timed(async () => {
          for (const job of world.kept.mine) {
            await world.pause(SLOW_MS);
            await world.ack("w1", job, { on: "hoard" });
          }
        });
        world.kept.hoardMs = ms;
        await world.see({ ready: 0, in_flight: 0 }, { on: "hoard" });
        return `Done after ${duration(ms)}. All the while w2, which is six times as fast, looked on. Had w1 died, all of what it held would have waited for the lease.`;
      },
    },
    {
      say: "In the second queue each takes one job, does it, and comes again.",
      label: "Take one at a time",
      async run(world) {
        const [ms, [slow, fast]] = await timed(() =>
          Promise.all([doJobs(world, "w1", { on: "fair", jobMs: SLOW_MS }), doJobs(world, "w2", { on: "fair", jobMs: FAST_MS })]),
        );
        world.must(slow.length + fast.length === JOBS && fast.length > 0, `w1 did ${slow.length}, w2 ${fast.length}`);
        await world.see({ ready: 0, in_flight: 0 }, { on: "fair" });
        return `Done after ${duration(ms)} instead of ${duration(world.kept.hoardMs)}: w1 did ${slow.length}, w2 did ${fast.length}. Nobody planned that; whoever was free came.`;
      },
    },
  ],
  takeaway:
    "Hold as many jobs as hide the round trip, and no more: one where a job takes long, a few where it takes a millisecond. And count what is in hand when you choose the lease: it runs for all of them.",
};
