// The panel of one job: its payload as text, its state, its history, and its actions.

import { ask, topicPath } from "../api.js";
import { h, swap } from "../dom.js";
import { duration } from "../format.js";
import { member } from "../json_text.js";
import { describe } from "../payload.js";
import { moment } from "./moment.js";

const ENDS = { expired: "lease ran out", nack: "nack", disconnect: "connection lost", dead: "dead-lettered", returned: "returned untried", lost: "its worker was lost" };

/** The panel; `open(seq)`, `refresh()`, `close()`. `actions(job)` gives the buttons for a job. */
export function jobPanel(topic, { actions, onClose, now }) {
  const element = h("aside", { class: "job card", "aria-label": "Job", hidden: true, tabindex: "-1" });
  let current = null;

  async function open(seq, { focus = true } = {}) {
    current = seq;
    element.hidden = false;
    try {
      const text = await ask("GET", topicPath(topic, `/jobs/${seq}`));
      if (current === seq) draw(JSON.parse(text), text);
    } catch (error) {
      if (current === seq) drawGone(seq, error);
    }
    if (focus) element.focus();
  }

  function drawGone(seq, error) {
    const words = error.status === 404 ? "It is done, or was deleted." : error.message;
    swap(element, header(`Job #${seq}`), h("p", { class: "empty" }, words));
  }

  function header(title) {
    const close = h("button", { type: "button", class: "quiet icon", "aria-label": "Close", on: { click: onClose } }, "✕");
    return h("div", { class: "row head" }, h("h2", {}, title), h("span", { class: "spring" }), close);
  }

  function draw(job, text) {
    const facts = [
      ["state", job.state === "ready" && job.lost ? "ready, a suspect: it waits apart" : job.state.replace("_", " ")],
      ["holder", job.node && [job.node, ", until ", moment(job.deadline, now())]],
      ["deliveries", job.deliveries],
      ["tries", job.tries === undefined ? null : String(job.tries)],
      ["worker lost", job.lost && `${job.lost === 1 ? "once" : `${job.lost} times`} since the last verdict`],
      ["produced", [moment(job.$ts, now()), `, ${duration(Math.max(0, now() - job.$ts))} ago`]],
      ["comes back", job.deliver_at && moment(job.deliver_at, now())],
      ["producer", job.$node],
      ["tag", job.$tag],
      ["reason", job.reason],
    ];
    const rows = facts.filter(([, value]) => value !== undefined && value !== null && value !== 0);
    swap(
      element,
      header(`Job #${job.$seq}`),
      h("div", { class: "row tight" }, ...actions(job)),
      h("dl", { class: "facts" }, ...rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      payloadBlock("Payload", member(text, "data")),
      payloadBlock("Meta", member(text, "meta")),
      h("h3", {}, "Leases"),
      story(job, now()),
    );
  }

  return {
    element,
    open,
    refresh: () => current !== null && open(current, { focus: false }),
    close() {
      current = null;
      element.hidden = true;
    },
    get seq() {
      return current;
    },
  };
}

/** Stored JSON under a heading, as text; null where there is none. */
export function payloadBlock(title, json) {
  if (json === null) return null;
  const { kind, text, note } = describe(json);
  return [h("h3", {}, title, h("span", { class: "hint" }, ` ${kind}, ${note}`)), h("pre", { class: "payload", tabindex: "0" }, text)];
}

function story(job, now) {
  const past = job.history.map((one) => ({ ...one, words: ENDS[one.end] ?? one.end }));
  if (job.state === "in_flight") past.push({ node: job.node, lease_id: job.lease_id, from: job.since, to: now, words: "holds it now" });
  if (!past.length) return h("p", { class: "hint" }, "It was never handed out.");
  const rows = past.map(({ node, lease_id: lease, from, to, words, reason }, i) =>
    h(
      "tr",
      {},
      h("td", {}, i + 1),
      h("td", { title: `lease ${lease}` }, node),
      h("td", {}, moment(from, now)),
      h("td", {}, duration(Math.max(0, to - from))),
      h("td", {}, reason ? `${words}: ${reason}` : words),
    ),
  );
  const head = ["", "Worker", "From", "Held", "How it ended"].map((word) => h("th", { scope: "col" }, word));
  return h("table", { class: "story" }, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows));
}
