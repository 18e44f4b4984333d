// Scene 6. A worker that cannot do a job gives it back, now or for later, and says why.

import { arrow, box, cells, picture, text } from "./drawing.js";

export default {
  lead: [
    "Not every job can be done at once: the mail server is down, a file is not there yet. A worker that knows that it cannot should say so. A nack gives the job back before the lease ends, so that nobody has to wait for it.",
    "The job returns to its old place, near the head, and not to the tail: it is still the oldest. If trying at once would fail again, the nack carries a delay.",
  ],
  drawing: () =>
    picture(
      "A nack sends the job back to the head at once, or into a delay",
      124,
      cells(70, 10, [["ready", "#1"], ["ready", "#2"], ["ready", "#3"]]),
      box(232, 80, "worker", { width: 70 }),
      arrow(228, 90, 92, 50, { kind: "bad" }),
      text(200, 66, "nack", "start"),
      cells(20, 80, [["delayed", "3 s"]]),
      arrow(228, 104, 62, 104, { kind: "bad" }),
      text(150, 98, "with a delay"),
      arrow(37, 76, 66, 42, { kind: "good" }),
    ),
  topics: { mail: { label: "Mail to send" } },
  steps: [
    {
      say: "Three mails are to be sent, and w1 takes the first.",
      label: "Produce and claim",
      async run(world) {
        await world.produce([{ to: "ada" }, { to: "ben" }, { to: "cleo" }]);
        const [job] = await world.claim("w1");
        world.kept.job = job;
        await world.see({ ready: 2, in_flight: 1 });
        return `w1 holds #${job.$seq}. This is delivery ${job.deliveries} of it.`;
      },
    },
    {
      say: "w1 is being shut down and gives the job back.",
      label: "Nack as w1",
      async run(world) {
        const { nacked } = await world.nack("w1", world.kept.job, { delayMs: 0, reason: "shutting down" });
        world.must(nacked === 1, `the broker took ${nacked} nacks`);
        await world.see({ ready: 3, in_flight: 0 });
        return "#1 is available again, at the head and not behind #3. Nobody had to wait for the end of its lease.";
      },
    },
    {
      say: "w2 asks for a job.",
      label: "Claim as w2",
      async run(world) {
        const [job] = await world.claim("w2");
        world.must(job?.$seq === 1 && job.deliveries === 2, `w2 got #${job?.$seq}, delivery ${job?.deliveries}`);
        world.kept.job = job;
        await world.see({ ready: 2, in_flight: 1 });
        return "w2 got #1: its second delivery, as the ×2 on the cell says. The broker counts them.";
      },
    },
    {
      say: "The mail server does not answer, and to try at once would be in vain. w2 gives #1 back for three seconds from now, with the reason, and takes the next job.",
      label: "Nack with a delay, and claim",
      async run(world) {
        await world.nack("w2", world.kept.job, { delayMs: 3_000, reason: "the mail server does not answer" });
        const { state, history } = await world.job(1);
        world.must(state === "delayed" && history.length === 2, `#1 is ${state}, after ${history.length} leases`);
        const [next] = await world.claim("w2");
        world.must(next?.$seq === 2, `w2 got #${next?.$seq}`);
        world.kept.next = next;
        await world.see({ ready: 1, in_flight: 1, delayed: 1 });
        return `#1 is amber and counts down, and w2 got #2: a job that is delayed holds nobody up. The broker wrote down why: “${history.at(-1).reason}”. Click #1 for its whole story.`;
      },
    },
    {
      say: "w2 finishes #2, and the three seconds end.",
      label: "Wait, and try again",
      async run(world) {
        await world.ack("w2", world.kept.next);
        await world.see({ ready: 2, in_flight: 0, delayed: 0 });
        const [job] = await world.claim("w1");
        world.must(job?.$seq === 1 && job.deliveries === 3, `w1 got #${job?.$seq}, delivery ${job?.deliveries}`);
        await world.ack("w1", job);
        await world.see({ ready: 1, in_flight: 0 });
        return "#1 came back by itself, before #3, and this time the mail went out.";
      },
    },
  ],
  takeaway: "Give back what you cannot do, with the reason, and with a delay where trying at once is in vain. retry_backoff makes the delay grow by itself.",
};
