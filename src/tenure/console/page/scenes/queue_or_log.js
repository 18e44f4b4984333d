// Scene 2. Reading a log changes nothing in it; working a queue empties it.

import { arrow, box, cells, picture, text } from "./drawing.js";

const NEWS = ["Ada joined", "Ben joined", "Ada left", "Cleo joined"];

export default {
  lead: [
    "Both keep messages in order, and both are called queues in a hurry. A log is a book: everybody reads it, each with a bookmark of their own, and reading takes nothing out. A queue is a pile of work: a job is for one worker, and once it is done it is gone.",
    "Tenure has both as topics, of type log and of type queue. Here they get the same four messages.",
  ],
  drawing: () =>
    picture(
      "A log keeps its records and has two readers at different places; a queue loses what was done",
      130,
      cells(90, 8, [["kept", "1"], ["kept", "2"], ["kept", "3"], ["kept", "4"]]),
      text(40, 30, "log"),
      arrow(147, 62, 147, 46, { kind: "good" }),
      arrow(227, 62, 227, 46, { kind: "good" }),
      text(147, 74, "reader"),
      text(227, 74, "reader"),
      cells(90, 88, [["gone", ""], ["gone", ""], ["ready", "3"], ["ready", "4"]]),
      text(40, 110, "queue"),
      box(258, 91, "work", { width: 54 }),
    ),
  topics: { jobs: { label: "The queue" }, news: { label: "The log", config: { type: "log" } } },
  steps: [
    {
      say: "The same four messages go into both.",
      label: "Append to both",
      async run(world) {
        await world.produce(NEWS);
        await world.produce(NEWS, { on: "news" });
        await world.see({ ready: 4 });
        return "Four jobs in the queue, four records in the log. So far they look alike.";
      },
    },
    {
      say: "Billing reads the log to its end; search reads two records and stops.",
      label: "Read the log",
      async run(world) {
        const all = await world.read("news");
        const some = await world.read("news", { limit: 2 });
        world.readers.billing = all.at(-1).$seq;
        world.readers.search = some.at(-1).$seq;
        const { count } = await world.about("news");
        world.must(all.length === 4 && some.length === 2 && count === 4, `the log has ${count} records, billing got ${all.length}`);
        return "Two readers, two places. Both got #1 and #2, and the log still has all four: a place is the reader's business.";
      },
    },
    {
      say: "Two workers take two jobs each from the queue.",
      label: "Claim from the queue",
      async run(world) {
        const one = await world.claim("w1", { max: 2 });
        const two = await world.claim("w2", { max: 2 });
        const seqs = [...one, ...two].map((job) => job.$seq);
        world.must(new Set(seqs).size === 4, `the workers got ${seqs.join(", ")}`);
        Object.assign(world.kept, { one, two });
        await world.see({ ready: 0, in_flight: 4 });
        return "w1 has #1 and #2, w2 has #3 and #4. No job went to both: the broker keeps count, not the workers.";
      },
    },
    {
      say: "Both are done with their work.",
      label: "Ack everything",
      async run(world) {
        await world.ack("w1", world.kept.one);
        await world.ack("w2", world.kept.two);
        await world.see({ ready: 0, in_flight: 0 });
        const { count } = await world.about("jobs");
        world.must(count === 0, `${count} jobs are left`);
        return "The queue is empty. There is nothing to read again: that is the point of it.";
      },
    },
    {
      say: "A new reader, audit, wants the whole story from the beginning.",
      label: "Read the log again",
      async run(world) {
        const all = await world.read("news");
        world.must(all.map((record) => record.data).join() === NEWS.join(), `the log gave ${all.length} records`);
        world.readers.audit = all.at(-1).$seq;
        return "The log gives all four again, in the same order. Nobody who came later missed anything.";
      },
    },
  ],
  takeaway: "Is it something that happened, for many to read? A log. Is it something to do, for one to do once? A queue.",
};
