// Scene 8. A dead letter keeps its provenance, and can be redriven.

import { arrow, cells, picture, text } from "./drawing.js";

export default {
  lead: [
    "A job that can never succeed must leave the queue, or it takes a worker's time for ever. But it should not vanish: it may be an order that somebody paid for.",
    "After max_deliveries the broker moves it to another topic, the dead letter, together with where it came from, how often it was tried and why it was given up. The jobs behind it go on.",
  ],
  drawing: () =>
    picture(
      "A job that failed for the last time leaves the queue downwards into the dead letter, and a redrive brings it back to the tail",
      140,
      cells(20, 14, [["in_flight", "#2"], ["ready", "#3"], ["ready", "#4"]]),
      cells(20, 92, [["dead", "✕ #2"]]),
      arrow(37, 52, 37, 88, { kind: "bad" }),
      text(46, 76, "given up", "start"),
      arrow(60, 109, 172, 52, { kind: "good" }),
      text(134, 106, "redrive: a new job at the tail", "start"),
    ),
  topics: {
    parcels: { config: { max_deliveries: 2, dead_letter: "dead" }, label: "Parcels, at most two deliveries each" },
    dead: { config: { type: "log" } },
  },
  steps: [
    {
      say: "Three parcels are to be sent. The second has no address.",
      label: "Produce three jobs",
      async run(world) {
        await world.produce([{ parcel: 1, to: "Ada" }, { parcel: 2, to: null }, { parcel: 3, to: "Cleo" }]);
        await world.see({ ready: 3 });
        return "All three look alike to the broker: it does not read payloads.";
      },
    },
    {
      say: "w1 sends the first parcel, then meets the second and gives it back with the reason.",
      label: "Work as w1",
      async run(world) {
        await world.ack("w1", await world.claim("w1"));
        const jobs = await world.claim("w1");
        await world.nack("w1", jobs, { reason: "no address" });
        await world.see({ ready: 2, in_flight: 0 });
        return "#2 is back at the head, with one delivery on its account. Perhaps another worker knows more.";
      },
    },
    {
      say: "w2 tries, and fails as well. That was the second delivery of two.",
      label: "Try again as w2",
      async run(world) {
        const jobs = await world.claim("w2");
        world.must(jobs[0]?.$seq === 2 && jobs[0].deliveries === 2, "w2 did not get the second delivery of #2");
        await world.nack("w2", jobs, { reason: "no address in the book either" });
        await world.see({ ready: 2, in_flight: 0 });
        return "#2 lies at the head once more, and its account is full. The broker has not moved it yet: it does so when it would have to hand it out again.";
      },
    },
    {
      say: "w1 asks for the next job. Which one does it get?",
      label: "Claim as w1",
      async run(world) {
        const jobs = await world.claim("w1");
        world.must(jobs[0]?.$seq === 3, `w1 got #${jobs[0]?.$seq}, not #3`);
        await world.ack("w1", jobs);
        await world.see({ ready: 0, in_flight: 0, dead_lettered: 1 });
        return "#3, which it has sent. #2 has left the queue: nobody had to decide that at three in the morning, the limit did. One bad job has cost two deliveries and no more.";
      },
    },
    {
      say: "Somebody opens the dead letter.",
      label: "Read the dead letter",
      async run(world) {
        const [letter] = await world.until("a letter", async () => {
          const found = await world.read("dead");
          return found.length ? found : null;
        });
        const { $dead_letter_src_seq: seq, $dead_letter_reason: reason, $dead_letter_deliveries: tries } = letter.meta;
        world.must(seq === 2 && letter.data.parcel === 2, "the letter is another one");
        return `It holds the payload untouched, and its story: was #${seq}, ${tries} deliveries, given up for “${reason}”. A worker that knows better need not wait for the limit: a nack may say dead, with a reason of its own.`;
      },
    },
    {
      say: "The address is found and written into the book. Now the job can succeed: redrive it.",
      label: "Redrive",
      async run(world) {
        const { redriven } = await world.redrive("dead");
        world.must(redriven === 1, `${redriven} were redriven`);
        await world.see({ ready: 1 });
        const jobs = await world.claim("w1");
        world.must(jobs[0]?.deliveries === 1 && jobs[0].data.parcel === 2, "the parcel did not come back as new");
        await world.ack("w1", jobs);
        await world.see({ ready: 0, in_flight: 0 });
        return `It came back as #${jobs[0].$seq}, at the tail and with its deliveries counted from the start. Sent.`;
      },
    },
  ],
  takeaway:
    "Set max_deliveries and a dead letter on every queue, and let somebody hear when it is not empty. Redrive only after the cause is gone, or the same jobs will be back.",
};
