// Scene 1. The caller need not wait for the work, and the worker need not run when the work is put.

import { arrow, box, cells, picture, text } from "./drawing.js";

const WORK_MS = 1_000;
const PIECE_MS = 150;

export default {
  lead: [
    "Somebody presses a button in a shop, and a picture must be scaled, a letter sent, a bill printed. If the shop does that before it answers, everybody waits for the slowest part, and when the printer is broken nobody can buy.",
    "With a queue the shop writes down what is to be done and answers at once. The work is done later, by somebody else, as fast as they can.",
  ],
  drawing: () =>
    picture(
      "A shop puts jobs into a queue and answers at once; a worker does them later",
      120,
      box(8, 44, "shop"),
      arrow(76, 58, 104, 58),
      cells(110, 41, [["ready", "#1"], ["ready", "#2"], ["ready", "#3"]]),
      arrow(232, 58, 250, 58),
      box(254, 44, "worker", { width: 60 }),
      text(40, 96, "answers now"),
      text(284, 96, "works later"),
    ),
  topics: { orders: { label: "Orders" } },
  steps: [
    {
      say: "First without a queue: the shop does the work itself, which takes a second (here it only waits), and then answers.",
      label: "Order, and wait",
      async run(world) {
        const began = performance.now();
        await world.pause(WORK_MS);
        world.kept.waited = performance.now() - began;
        return `The customer waited ${Math.round(world.kept.waited)} ms for an answer. Nothing is in the queue: there was no use for it.`;
      },
    },
    {
      say: "The same order, but the shop only writes it down.",
      label: "Order by the queue",
      async run(world) {
        const began = performance.now();
        await world.produce([{ order: 1 }]);
        const took = performance.now() - began;
        await world.see({ ready: 1 });
        world.must(took < world.kept.waited, `the broker took ${Math.round(took)} ms to answer`);
        return `The broker answered after ${Math.max(1, Math.round(took))} ms. The customer may go; the order waits in the queue.`;
      },
    },
    {
      say: "Seven more customers at the same moment. There is no worker yet.",
      label: "A rush of orders",
      async run(world) {
        await Promise.all([2, 3, 4, 5, 6, 7, 8].map((order) => world.produce([{ order }])));
        await world.see({ ready: 8 });
        return "Eight orders wait, and nobody who ordered does. A queue takes the peak, so the workers need only manage the average.";
      },
    },
    {
      say: "A worker arrives and does one order after the other.",
      label: "Start the worker",
      async run(world) {
        const began = performance.now();
        world.work("w1", { ackAfterMs: PIECE_MS });
        await world.see({ ready: 0, in_flight: 0 }, { ms: 20_000 });
        return `All eight are done, ${((performance.now() - began) / 1000).toFixed(1)} s after the worker came. It went at its own pace, whatever the rush.`;
      },
    },
    {
      say: "The worker goes home, and two more orders come.",
      label: "Order while nobody works",
      async run(world) {
        world.crash("w1");
        await world.produce([{ order: 9 }, { order: 10 }]);
        await world.see({ ready: 2, in_flight: 0 });
        return "The shop noticed nothing: both orders were taken. Shop and worker need not be there at the same time.";
      },
    },
    {
      say: "The worker comes back.",
      label: "Start the worker again",
      async run(world) {
        world.work("w1", { ackAfterMs: PIECE_MS });
        await world.see({ ready: 0, in_flight: 0 });
        const { acked } = await world.meters();
        world.must(acked === 10, `the broker counts ${acked} acks`);
        return "Ten orders came in, and the broker counts ten acks.";
      },
    },
  ],
  takeaway: "Put a queue where the one who asks does not need the result at once. It takes time out of the answer, and failures too.",
};
