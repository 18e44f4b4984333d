// Scene 12. One record, several queues: routers copy, and each queue has its own pace and its own failures.

import { arrow, box, cell, picture } from "./drawing.js";

const TEAMS = ["mail", "stock", "bill"];

export default {
  lead: [
    "An order comes in. The mail team wants to confirm it, the stock room to pack it, accounting to bill it. Three workers at one queue would not do: each job goes to one of them.",
    "So each team has a queue of its own, and a router copies every order into each. The shop appends once and does not know who listens.",
  ],
  drawing: () =>
    picture(
      "One record is copied by three routers into three queues, each with its own worker",
      150,
      cell(16, 58, "kept", "order"),
      ...TEAMS.flatMap((team, i) => [
        arrow(56, 75, 134, 27 + i * 48, {}),
        cell(140, 10 + i * 48, "ready", "#1"),
        box(206, 13 + i * 48, team, { width: 74 }),
      ]),
    ),
  topics: {
    orders: { config: { type: "log" }, label: "Orders, as the shop appends them" },
    mail: { label: "Mail" },
    stock: { label: "Stock" },
    bill: { label: "Bill" },
  },
  steps: [
    {
      say: "Two teams sign up: a router from the orders to each queue.",
      label: "Add two routers",
      async run(world) {
        await world.route("orders", "mail");
        await world.route("orders", "stock");
        return "Nothing moves yet. A router copies what is appended from now on.";
      },
    },
    {
      say: "The shop appends one order.",
      label: "Append an order",
      async run(world) {
        await world.produce([{ order: 1, item: "lamp" }], { on: "orders" });
        await world.see({ ready: 1 }, { on: "mail" });
        await world.see({ ready: 1 }, { on: "stock" });
        await world.see({ ready: 0 }, { on: "bill" });
        return "One append, two jobs: mail and stock have a copy each. Accounting has none, it has not signed up.";
      },
    },
    {
      say: "Mail is quick. Stock finds the shelf empty and wants to look again in ten minutes.",
      label: "Let both work",
      async run(world) {
        const mail = await world.claim("mailer", { on: "mail" });
        await world.ack("mailer", mail, { on: "mail" });
        const stock = await world.claim("packer", { on: "stock" });
        await world.nack("packer", stock, { on: "stock", delayMs: 600_000, reason: "shelf is empty" });
        await world.see({ ready: 0, in_flight: 0 }, { on: "mail" });
        await world.see({ delayed: 1 }, { on: "stock" });
        return "The ack of one team deletes its own copy and no other. Stock is late, and mail does not notice.";
      },
    },
    {
      say: "Now accounting signs up too, and a second order comes.",
      label: "Add a third",
      async run(world) {
        await world.route("orders", "bill");
        await world.produce([{ order: 2, item: "chair" }], { on: "orders" });
        for (const team of TEAMS) await world.see({ ready: 1 }, { on: team });
        const [job] = await world.claim("biller", { on: "bill" });
        world.must(job?.data.order === 2, `accounting got order ${job?.data.order}`);
        await world.ack("biller", job, { on: "bill" });
        return "Three copies of order 2. The shop has changed nothing for it. Accounting did not get order 1: whoever comes later reads the log for that.";
      },
    },
    {
      say: "What did the routers do?",
      label: "Count the copies",
      async run(world) {
        const found = await world.until("all copies counted", async () => {
          const { routers } = await world.call("GET", `v0/routers?source=${encodeURIComponent(world.names.orders)}`);
          return routers.reduce((sum, router) => sum + router.forwarded_total, 0) === 5 ? routers : null;
        });
        const words = found.map(({ dest, forwarded_total: count }) => `${TEAMS.find((team) => world.names[team] === dest)} ${count}`);
        return `Copied: ${words.join(", ")}. Each router keeps its place in the log, so after a restart it goes on where it was. A copy may then come twice.`;
      },
    },
  ],
  takeaway: "To share work among many, one queue and many workers. To tell many, one queue for each, and a router between. Mostly you want both: a queue for each team, and several workers at it.",
};
