// Scene 7. A job that fails every time is always the oldest, so it is always the next; a limit ends that.

import { arrow, box, cells, picture, text } from "./drawing.js";

const TRIES = 4;

/** Take the head, fail at it if it is the poison, and give it back; returns the job. */
async function tryOnce(world) {
  const [job] = await world.claim("w1");
  world.must(job?.$seq === 1, `w1 got #${job?.$seq}`);
  await world.pause(250);
  await world.nack("w1", job, { delayMs: 0, reason: "this is no picture" });
  await world.pause(150);
  return job;
}

export default {
  lead: [
    "Some jobs fail whoever tries and however often: a payload that cannot be read, an order for something that does not exist. Such a job is poison. It is given back, it is the oldest, so it is handed out again, and it fails again.",
    "One of them keeps a worker busy for ever. As many as there are workers, and the queue stands still while everything looks busy.",
  ],
  drawing: () =>
    picture(
      "A job goes round between the head and a worker while the others wait",
      120,
      cells(20, 12, [["dead", "#1"], ["ready", "#2"], ["ready", "#3"], ["ready", "#4"]]),
      box(190, 78, "worker", { width: 70 }),
      arrow(40, 50, 184, 88),
      arrow(184, 102, 24, 50, { kind: "bad" }),
      text(62, 104, "again and again"),
      text(184, 34, "… and all wait", "start"),
    ),
  topics: { pictures: { label: "Pictures to scale" }, dead: { show: "letters", config: { type: "log" } } },
  steps: [
    {
      say: "Four pictures are to be scaled. The first is not a picture at all.",
      label: "Produce four jobs",
      async run(world) {
        await world.produce(["recipe.txt", "cat.png", "dog.png", "owl.png"]);
        await world.see({ ready: 4 });
        return "Four jobs; nothing tells #1 from the others. The broker does not look into payloads.";
      },
    },
    {
      say: "w1 takes the head, fails, and gives it back.",
      label: "Try once",
      async run(world) {
        const { deliveries } = await tryOnce(world);
        await world.see({ ready: 4, in_flight: 0 });
        return `After delivery ${deliveries}, #1 is at the head again. So far this could be bad luck.`;
      },
    },
    {
      say: `w1 goes on as any worker would: it asks for the next job. ${TRIES} times.`,
      label: `Try ${TRIES} times more`,
      async run(world) {
        for (let i = 0; i < TRIES; i++) await tryOnce(world);
        await world.see({ ready: 4, in_flight: 0 });
        const { deliveries } = await world.job(1);
        const other = await world.job(2);
        world.must(deliveries === TRIES + 1 && other.deliveries === 0, `#1 was delivered ${deliveries} times, #2 ${other.deliveries} times`);
        return `#1 was handed out ${deliveries} times, #2 never. w1 was busy all the time and did nothing.`;
      },
    },
    {
      say: "The broker knows which job it hands out most often.",
      label: "Ask the meters",
      async run(world) {
        const { worst, acked } = await world.meters();
        world.must(worst?.seq === 1, `the worst job is #${worst?.seq}`);
        return `The worst job is #${worst.seq} with ${worst.deliveries} deliveries, and ${acked} jobs are done. The list of queues warns of such a job.`;
      },
    },
    {
      say: "Now the queue gets a limit: three deliveries, and what has had them goes to a topic for dead letters. w1 asks for the next job.",
      label: "Set max_deliveries, and claim",
      async run(world) {
        await world.configure({ max_deliveries: 3, dead_letter: "dead" });
        const [job] = await world.claim("w1");
        world.must(job?.$seq === 2, `w1 got #${job?.$seq}`);
        world.kept.job = job;
        await world.see({ ready: 2, in_flight: 1, dead_lettered: 1 });
        const [letter] = await world.read("dead");
        world.must(letter?.data === "recipe.txt", "the dead letter is not there");
        return "The broker moved #1 aside instead of handing it out again, and w1 got #2. The dead letter still has its payload, and why it is there.";
      },
    },
    {
      say: "w1 goes on.",
      label: "Finish the others",
      async run(world) {
        await world.ack("w1", world.kept.job);
        world.work("w1", { ackAfterMs: 300 });
        await world.see({ ready: 0, in_flight: 0 });
        return "The three real pictures are done. One bad job cost five tries, and then no more.";
      },
    },
  ],
  takeaway: "Set max_deliveries and dead_letter on every queue. Without a limit one bad job can stop all the good ones.",
};
