// Scene 9. A worker that dies in silence: the lease runs out. A slow one extends. A late ack is skipped.

import { duration } from "../format.js";
import { arrow, box, cells, picture, text } from "./drawing.js";

const LAST_SIGN_MS = 2_000;
const FIRST_LEASE_MS = 2_500;
const LONG_LEASE_MS = 300_000; // a reader may be slow
const ATTEMPTS = 5;

export default {
  lead: [
    "A worker can die without a word: the power fails, the network is cut, the process stands still. No connection breaks, no nack comes. All that the broker can do is wait, and the lease says how long.",
    "While the lease runs the job is invisible to others. When it runs out the job is given to somebody else, and what the first worker says from then on does not count.",
  ],
  drawing: () =>
    picture(
      "On a line of time: w1 claims and falls silent, the lease ends, w2 gets the job, and a late ack of w1 is skipped",
      124,
      cells(14, 22, [["in_flight", "w1"]]),
      arrow(54, 39, 136, 39, { words: "lease ends" }),
      cells(142, 22, [["ready", "#1"]]),
      arrow(182, 39, 256, 39, { words: "claim", kind: "good" }),
      cells(262, 22, [["in_flight", "w2"]]),
      box(14, 86, "w1 wakes up", { width: 96, kind: "dead" }),
      arrow(114, 96, 262, 62, { kind: "bad" }),
      text(196, 112, "late ack: skipped"),
    ),
  topics: { photos: { config: { lease_ms: LONG_LEASE_MS }, label: "Photos" } },
  steps: [
    {
      say: "Two photos are to be made smaller.",
      label: "Produce two jobs",
      async run(world) {
        await world.produce(["photo 1", "photo 2"]);
        await world.see({ ready: 2 });
        return "Both can be claimed. This queue's lease is five minutes.";
      },
    },
    {
      say: "w1 takes the first.",
      label: "Claim as w1",
      async run(world) {
        const jobs = await world.claim("w1");
        world.must(jobs[0]?.$seq === 1, `w1 got #${jobs[0]?.$seq}, not #1`);
        world.kept.first = jobs;
        await world.see({ ready: 1, in_flight: 1 });
        return "#1 is w1's. The ring around its badge empties towards the deadline.";
      },
    },
    {
      say: "w2 asks for work as well. Which job does it get?",
      label: "Claim as w2",
      async run(world) {
        const jobs = await world.claim("w2");
        world.must(jobs[0]?.$seq === 2, `w2 got #${jobs[0]?.$seq}, not #2`);
        await world.ack("w2", jobs);
        await world.see({ ready: 0, in_flight: 1 });
        return "#2, which it has done. #1 is still there, but nobody else can see it.";
      },
    },
    {
      say: "w1 gives a last sign of life, which leaves it two seconds, and then its machine stands still. It holds no connection that could break.",
      label: "Let w1 fall silent",
      async run(world) {
        await world.extend("w1", world.kept.first, LAST_SIGN_MS);
        await world.see({ ready: 1, in_flight: 0 });
        world.actors.photos.dismiss("w1"); // it does not report any more
        const { history, deliveries } = await world.job(1);
        world.must(history.at(-1)?.end === "expired", `the lease of #1 ended by ${history.at(-1)?.end}`);
        return `Two seconds later #1 is bright again: the lease ran out by itself. Nobody asked for it, and it counts as delivery ${deliveries}.`;
      },
    },
    {
      say: "w2 takes #1. This is a big photo, and the lease it asked for is too short. So w2 extends while it works.",
      label: "Work slowly as w2",
      async run(world) {
        const [job, deadline] = await claimAndExtend(world);
        world.kept.second = job;
        await world.until("the first deadline is over", async () => world.stores.photos.now() > job.deadline);
        const now = await world.job(1);
        world.must(now.state === "in_flight" && now.node === "w2", "w2 has lost #1");
        return `The first deadline has passed and w2 still has #1: extending set a new one, ${duration(deadline - job.deadline)} later. It costs no delivery; this is still number ${now.deliveries}.`;
      },
    },
    {
      say: "Now w1 wakes up. It was never dead, only asleep, and it acks what it believes to hold.",
      label: "Ack late as w1",
      async run(world) {
        const { acked, skipped } = await world.ack("w1", world.kept.first);
        world.must(acked === 0 && skipped.includes(1), "the late ack was taken");
        await world.see({ ready: 0, in_flight: 1 });
        return "Skipped: that lease is over, so the ack deletes nothing. #1 belongs to w2 and stays. But the photo has now been made smaller twice.";
      },
    },
    {
      say: "w2 is done.",
      label: "Ack as w2",
      async run(world) {
        const { acked } = await world.ack("w2", world.kept.second);
        world.must(acked === 1, "the ack of w2 was not taken");
        await world.see({ ready: 0, in_flight: 0 });
        return "The holder's ack counts. The queue is empty and nothing was lost.";
      },
    },
  ],
  takeaway:
    "A slow worker looks exactly like a dead one. Take a lease of three times the p99 of processing, or extend at every third of it; and make the work harmless to repeat, because sometimes it will be.",
};

/** Claim with a short lease and extend it in time; a page that was too slow for that tries again. */
async function claimAndExtend(world) {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const [job] = await world.until("#1 for w2", async () => {
      const jobs = await world.claim("w2", { leaseMs: FIRST_LEASE_MS });
      return jobs.length ? jobs : null;
    });
    await world.see({ ready: 0 });
    const { extended, deadlines } = await world.extend("w2", job, LONG_LEASE_MS);
    if (extended) return [job, deadlines[job.$seq]];
  }
  return world.must(false, "w2 could not extend in time");
}
