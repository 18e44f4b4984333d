// A simple worker for scenes: claim some jobs, do them one after the other, ack each, until there are none.

/** Claim and ack until no job is left; returns the payloads done, in their order. `jobMs` is how long one job takes. */
export async function doJobs(world, node, { on = world.main, max = 1, jobMs = 100, leaseMs, onDone = () => {} } = {}) {
  const done = [];
  for (;;) {
    const jobs = await world.claim(node, { on, max, leaseMs });
    if (!jobs.length) return done;
    for (const job of jobs) {
      await world.pause(jobMs);
      const { acked } = await world.ack(node, job, { on });
      world.must(acked === 1, `${node} has lost #${job.$seq}`);
      done.push(job.data);
      onDone(job);
    }
  }
}

/** Return how long an async function took, in ms, and its result. */
export async function timed(run) {
  const start = performance.now();
  const found = await run();
  return [performance.now() - start, found];
}
