// The dialog that creates a queue.

import { call, topicPath } from "../api.js";
import { h } from "../dom.js";
import { nameProblem } from "../names.js";
import { go } from "../router.js";
import { openDialog } from "./dialog.js";
import { runAndToast, toast } from "./toast.js";

/** Create a topic, and refuse one that exists: a PUT would replace its config. */
async function createOnly(topic, config) {
  const known = await call("GET", topicPath(topic, "?touch=false")).catch((error) => {
    if (error.status !== 404) throw error;
    return null;
  });
  if (known !== null) throw new Error(`${topic} is there already`);
  return call("PUT", topicPath(topic), config);
}

/** Ask for a name and a config, create the queue, and go to it. */
export function createQueue() {
  const name = h("input", { id: "new-name", required: true, autocomplete: "off", spellcheck: "false" });
  const lease = h("input", { id: "new-lease", type: "number", min: "100", max: "86400000", value: "30000" });
  const most = h("input", { id: "new-most", type: "number", min: "0", value: "5" });
  const dead = h("input", { id: "new-dead", autocomplete: "off", spellcheck: "false", placeholder: "<name>.dead" });
  const body = h(
    "div",
    { class: "fields" },
    h("label", { for: "new-name" }, "Name"),
    name,
    h("label", { for: "new-lease" }, "Lease, ms"),
    lease,
    h("label", { for: "new-most" }, "Deliveries at most (0: no limit)"),
    most,
    h("label", { for: "new-dead" }, "Dead letters go to"),
    dead,
  );
  const run = async () => {
    const topic = name.value.trim();
    const problem = nameProblem(topic);
    if (problem !== null) {
      toast(problem, "bad");
      name.focus();
      return false;
    }
    const config = { type: "queue", lease_ms: Number(lease.value), max_deliveries: Number(most.value) };
    if (config.max_deliveries) config.dead_letter = dead.value.trim() || `${topic}.dead`;
    const done = await runAndToast(() => createOnly(topic, config), `${topic} is there`);
    if (done) go("queue", topic);
    return done !== undefined;
  };
  openDialog({ title: "New queue", body, actions: [{ label: "Create", run }] });
  name.focus();
}
