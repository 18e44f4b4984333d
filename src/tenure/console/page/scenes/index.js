// The fourteen scenes in their order.

export const SCENES = [
  { id: "async", title: "Why asynchronous", line: "Do it later, and the one who asks need not wait.", load: () => import("./async.js") },
  { id: "queue-or-log", title: "A queue is not a log", line: "One is read and stays, the other is done and gone.", load: () => import("./queue_or_log.js") },
  { id: "head-and-tail", title: "Head and tail", line: "In at one end, out at the other.", load: () => import("./head_and_tail.js") },
  { id: "competing", title: "Competing consumers", line: "More workers, the same queue, no job twice.", load: () => import("./competing.js") },
  { id: "ack", title: "Ack: you may delete it", line: "Handing out and deleting are two steps.", load: () => import("./ack.js") },
  { id: "nack", title: "Nack and requeue", line: "A worker that cannot gives the job back.", load: () => import("./nack.js") },
  { id: "poison", title: "Poison", line: "A job that fails every time, and what it costs.", load: () => import("./poison.js") },
  { id: "dead-letter", title: "Dead letters", line: "Where jobs go that nobody could do, and the way back.", load: () => import("./dead_letter.js") },
  { id: "visibility", title: "Visibility timeout", line: "A lease that ends while the work goes on.", load: () => import("./visibility.js") },
  { id: "prefetch", title: "Prefetch", line: "How many jobs a worker may hold at once.", load: () => import("./prefetch.js") },
  { id: "ordering", title: "Ordering against parallelism", line: "Two workers, and who finishes first.", load: () => import("./ordering.js") },
  { id: "fan-out", title: "Fan-out", line: "One message, every team its own copy.", load: () => import("./fan_out.js") },
  { id: "meters", title: "The meters to watch", line: "Depth, age, and which of them tells you.", load: () => import("./meters.js") },
  { id: "canvas", title: "Design canvas", line: "Your workload's knobs against measured values.", load: () => import("./canvas.js") },
];
