// Scene 5. To hand a job out and to delete it are two steps; auto-ack makes them one, and loses work.

import { arrow, box, cells, picture, text } from "./drawing.js";

const LEASE = "Broker.lease";
const PROCESS = "Worker.process";
const ACK = "Broker.ack";

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
  code: [
    {
      name: LEASE,
      about: "give the head to one worker, hide it from the others",
      code: [
        "def lease(node, auto_ack=False):",
        "    job = ready.take_first()  # the head",
        "    job.holder = node  # nobody else's now",
        "    in_flight[job.seq] = job  # and kept",
        "    if auto_ack:",
        "        del in_flight[job.seq]  # too soon",
        "    return job",
      ],
    },
    {
      name: PROCESS,
      about: "do the work, then say so to the broker",
      code: [
        "def process(job):",
        "    try:",
        "        do_the_work(job.data)",
        "        broker.ack(me, job.seq)  # done",
        "    except Exception:",
        "        raise  # no ack: it comes back",
      ],
    },
    {
      name: ACK,
      about: "let only the holder delete",
      code: [
        "def ack(node, seq):",
        "    job = in_flight.get(seq)",
        "    if job is None:",
        "        return  # done, or never held",
        "    if job.holder != node:",
        "        raise PreconditionFailed  # 412",
        "    del in_flight[seq]  # deleted only now",
      ],
    },
  ],
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
        await world.line(LEASE, 2);
        const [job] = await world.claim("w1");
        world.must(job?.$seq === 1, `w1 got #${job?.$seq}, not #1`);
        world.kept.first = job;
        await world.line(LEASE, 3, 4);
        await world.see({ ready: 2, in_flight: 1 });
        return "w1 holds #1. The cell is dashed, not gone: the broker keeps the job until w1 says it is done. The ring is the time it has for that.";
      },
    },
    {
      say: "The letter is sent, and w1 acks.",
      label: "Ack as w1",
      async run(world) {
        await world.line(PROCESS, 3, 4);
        await world.line(ACK, 2, 5);
        const { acked } = await world.ack("w1", world.kept.first);
        world.must(acked === 1, `the broker took ${acked} acks`);
        await world.line(ACK, 7);
        await world.see({ ready: 2, in_flight: 0 });
        return "The ack went back to the broker, and now #1 is deleted. Deleting is what an ack means.";
      },
    },
    {
      say: "Worker w2 holds a stream open, gets #2, and is about to die in the middle of it.",
      label: "Start w2",
      async run(world) {
        world.work("w2");
        await world.line(LEASE, 2, 3, 4);
        await world.see({ ready: 1, in_flight: 1 });
        await world.line(PROCESS, 3);
        return "w2 has #2 and works on it.";
      },
    },
    {
      say: "w1 has nothing to do with #2, and acks it all the same: a bug, or an ack that comes late.",
      label: "Ack #2 as w1",
      async run(world) {
        await world.line(ACK, 2, 5);
        const refused = await world.ackOfAnother("w1", { $seq: 2 });
        await world.line(ACK, 6);
        world.must(refused?.status === 412 && refused.code === "precondition_failed", `the broker answered ${refused?.status ?? "yes"}`);
        const { state, node } = await world.job(2);
        world.must(state === "in_flight" && node === "w2", `#2 is ${state}, held by ${node}`);
        return "412 precondition_failed: the ack of somebody else's lease is refused, and w2 still holds #2. (Unless asked to be strict, an ack reports such a seq as skipped.)";
      },
    },
    {
      say: "w2 crashes: its connection is cut, and no ack was sent.",
      label: "Crash w2",
      async run(world) {
        world.forgetRefusal();
        world.crash("w2");
        await world.line(PROCESS, 5, 6);
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
        await world.line(LEASE, 2, 5);
        const [job] = await world.claim("w3", { autoAck: true });
        world.must(job?.$seq === 2, `w3 got #${job?.$seq}, not #2`);
        await world.line(LEASE, 6);
        await world.see({ ready: 1, in_flight: 0 });
        return "#2 is not in the queue any more, and w3 has not even begun.";
      },
    },
    {
      say: "w3 crashes as w2 did.",
      label: "Crash w3",
      async run(world) {
        await world.line(PROCESS, 3);
        const lost = world.crash("w3");
        const gone = await world.job(2).then(() => false, (error) => error.status === 404);
        world.must(lost.includes(2) && gone, "#2 is still there");
        return "#2 is lost: the broker has no copy and nobody did the work. Auto-ack is for what may be lost.";
      },
    },
  ],
  takeaway: "Ack after the work, never before. What is not acked comes back, so the work may happen twice: make it harmless to repeat.",
};
