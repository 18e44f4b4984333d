// Scene 4. Workers on one queue share its jobs; the broker gives each job to one of them.

import { arrow, box, cells, picture } from "./drawing.js";

const JOBS = 6;
const WORK_MS = 200;

/** Append jobs, let these workers do them, and return the seconds that it took. */
async function time(world, nodes) {
  await world.produce(Array.from({ length: JOBS }, (_, i) => ({ piece: i + 1 })));
  await world.see({ ready: JOBS });
  const began = performance.now();
  for (const node of nodes) world.work(node, { ackAfterMs: WORK_MS });
  await world.see({ ready: 0, in_flight: 0 }, { ms: 30_000 });
  const seconds = (performance.now() - began) / 1000;
  for (const node of nodes) world.crash(node);
  return seconds;
}

export default {
  lead: [
    "One worker is too slow? Start a second on the same queue. They need not know of each other and nobody divides the work beforehand: each takes the next job when it has time, so the quick one does more.",
    "That is safe because a job that is handed out is hidden from all others until it is acked, given back, or its lease ends.",
  ],
  drawing: () =>
    picture(
      "Three workers take different jobs from one queue",
      120,
      cells(10, 42, [["in_flight", "w1"], ["in_flight", "w2"], ["ready", "#3"], ["ready", "#4"]]),
      box(244, 8, "w1", { width: 54 }),
      box(244, 46, "w2", { width: 54 }),
      box(244, 84, "w3", { width: 54 }),
      arrow(176, 52, 238, 24),
      arrow(176, 59, 238, 60),
      arrow(176, 66, 238, 96),
    ),
  topics: { jobs: { label: "The queue" } },
  steps: [
    {
      say: "Four jobs, and three workers that all ask in the same moment.",
      label: "Claim as three at once",
      async run(world) {
        await world.produce(["a", "b", "c", "d"]);
        const nodes = ["w1", "w2", "w3"];
        const got = await Promise.all(nodes.map((node) => world.claim(node)));
        const seqs = got.flat().map((job) => job.$seq);
        world.must(seqs.length === 3 && new Set(seqs).size === 3, `they got ${seqs.join(", ")}`);
        world.kept.got = got;
        await world.see({ ready: 1, in_flight: 3 });
        return `They got #${seqs.join(", #")}: three different jobs. Two workers never hold the same lease.`;
      },
    },
    {
      say: "w2 is quick: it acks and asks again while the others are still busy.",
      label: "Let w2 go on",
      async run(world) {
        await world.ack("w2", world.kept.got[1]);
        const more = await world.claim("w2");
        world.must(more[0]?.$seq === 4, `w2 got #${more[0]?.$seq}`);
        await world.see({ ready: 0, in_flight: 3 });
        await world.pause(600);
        await Promise.all([world.ack("w1", world.kept.got[0]), world.ack("w2", more), world.ack("w3", world.kept.got[2])]);
        await world.see({ ready: 0, in_flight: 0 });
        world.dismiss("w1", "w2", "w3");
        return "w2 did two jobs, the others one each. The queue shares work out by itself, by who has time.";
      },
    },
    {
      say: `Now by the clock: ${JOBS} jobs of ${WORK_MS} ms each, and one worker.`,
      label: "One worker",
      async run(world) {
        world.kept.alone = await time(world, ["w1"]);
        return `w1 alone took ${world.kept.alone.toFixed(1)} s for ${JOBS} jobs.`;
      },
    },
    {
      say: "The same again with two.",
      label: "Two workers",
      async run(world) {
        const { alone } = world.kept;
        const both = await time(world, ["w1", "w2"]);
        const compared = `${both.toFixed(1)} s instead of ${alone.toFixed(1)} s`;
        const words = both < alone ? "Nothing else was changed." : "Not quicker this time: the machine must be busy with something else.";
        return `Two workers took ${compared}. ${words}`;
      },
    },
    {
      say: "Was any job done twice, or not at all?",
      label: "Ask the broker",
      async run(world) {
        const { claimed, acked, released, expired } = await world.meters();
        const produced = 4 + 2 * JOBS;
        world.must(acked === produced && claimed === produced, `${claimed} were handed out and ${acked} acked, of ${produced}`);
        world.must(released + expired === 0, `${released + expired} leases were lost`);
        return `${produced} jobs came in, ${claimed} were handed out, ${acked} were acked. Each once.`;
      },
    },
  ],
  takeaway: "To go faster, start more workers. The queue needs no plan of who does what.",
};
