// Scene 5. To hand a job out and to delete it are two steps; auto-ack makes them one, and loses work.

import { arrow, box, cells, picture, text } from "./drawing.js";

export default {
  lead: [
    "Taking a job is two steps. The claim leases it: the job stays in the queue, hidden from other workers, with the holder's badge on it. The ack says “done, you may delete it”, and only then is it gone.",
    "Between the two a worker can die without harm: nobody acked, so the broker still has the job. Auto-ack folds both steps into one, and with it a dead worker takes its job along.",
  ],
  drawing: () =>
    picture(
      "A claim goes from the queue to a worker; the ack comes back and deletes the cell",
      130,
      cells(14, 14, [["in_flight", "w1"], ["ready", "#2"], ["ready", "#3"]]),
      box(222, 92, "worker w1", { width: 84 }),
      arrow(56, 54, 216, 98),
      text(150, 68, "job, on lease", "start"),
      arrow(216, 112, 30, 56, { kind: "good" }),
      text(60, 104, "ack: delete it"),
    ),
  topics: { jobs: {} },
  steps: [
    {
      say: "Three letters are to be sent. A producer appends them.",
      label: "Produce three jobs",
      async run(world) {
        await world.produce(["letter to Ada", "letter to Ben", "letter to Cleo"]);
        await world.see({ ready: 3 });
        return "Three jobs wait. #1 is the head and will be handed out first.";
      },
    },
    {
      say: "Worker w1 asks for one job.",
      label: "Claim as w1",
      async run(world) {
        const [job] = await world.claim("w1");
        world.must(job?.$seq === 1, `w1 got #${job?.$seq}, not #1`);
        world.kept.first = job;
        await world.see({ ready: 2, in_flight: 1 });
        return "w1 holds #1. The cell is dashed, not gone: the broker keeps the job until w1 says it is done. The ring is the time it has for that.";
      },
    },
    {
      say: "The letter is sent, and w1 acks.",
      label: "Ack as w1",
      async run(world) {
        const { acked } = await world.ack("w1", world.kept.first);
        world.must(acked === 1, `the broker took ${acked} acks`);
        await world.see({ ready: 2, in_flight: 0 });
        return "Now #1 is deleted. Deleting is what an ack means.";
      },
    },
    {
      say: "Worker w2 holds a stream open, gets #2, and is about to die in the middle of it.",
      label: "Start w2",
      async run(world) {
        world.work("w2");
        await world.see({ ready: 1, in_flight: 1 });
        return "w2 has #2 and works on it.";
      },
    },
    {
      say: "w2 crashes: its connection is cut, and no ack was sent.",
      label: "Crash w2",
      async run(world) {
        world.crash("w2");
        await world.see({ ready: 2, in_flight: 0 });
        const { history } = await world.job(2);
        world.must(history.at(-1)?.end === "disconnect", `the lease of #2 ended by ${history.at(-1)?.end}`);
        return "#2 is back at the head, before #3. Nothing was lost, because nothing was deleted.";
      },
    },
    {
      say: "Now w3 claims with auto-ack: the broker deletes the job in the moment it hands it out.",
      label: "Claim with auto-ack",
      async run(world) {
        const [job] = await world.claim("w3", { autoAck: true });
        world.must(job?.$seq === 2, `w3 got #${job?.$seq}, not #2`);
        await world.see({ ready: 1, in_flight: 0 });
        return "#2 is not in the queue any more, and w3 has not even begun.";
      },
    },
    {
      say: "w3 crashes as w2 did.",
      label: "Crash w3",
      async run(world) {
        const lost = world.crash("w3");
        const gone = await world.job(2).then(() => false, (error) => error.status === 404);
        world.must(lost.includes(2) && gone, "#2 is still there");
        return "#2 is lost: the broker has no copy and nobody did the work. Auto-ack is for what may be lost.";
      },
    },
  ],
  takeaway: "Ack after the work, never before. What is not acked comes back, so the work may happen twice: make it harmless to repeat.",
};
