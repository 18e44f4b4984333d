// Produce and claim: the two forms beneath the strip.

import { guarded, produce, whyNot } from "../actions.js";
import { h } from "../dom.js";
import { whole } from "../format.js";
import { toast, runAndToast } from "./toast.js";

const COUNT_MAX = 10_000;

/** The forms; `focus("produce" | "claim")` puts the cursor into one. */
export function act(topic, actors) {
  const forms = { produce: produceForm(topic), claim: claimForm(topic, actors) };
  const element = h("section", { class: "card act", "aria-label": "Act" }, forms.produce, forms.claim);
  return {
    element,
    focus(name) {
      forms[name].querySelector("input:not([disabled]), textarea:not([disabled])")?.focus();
    },
  };
}

function field(label, input) {
  return h("label", { class: "field" }, h("span", {}, label), input);
}

function number(value, { min = "0", max = String(COUNT_MAX), disabled = false } = {}) {
  return h("input", { type: "number", min, max, value, disabled });
}

function produceForm(topic) {
  const why = whyNot("produce", topic);
  const off = { disabled: why !== null };
  const data = h("textarea", { rows: "2", spellcheck: "false", value: '{"hello": "world"}', ...off });
  const tag = h("input", { autocomplete: "off", ...off });
  const count = number("1", { min: "1", ...off });
  const delay = number("0", { max: "2592000000", ...off });
  const submit = async (event) => {
    event.preventDefault();
    const rest = tag.value ? `,"tag":${JSON.stringify(tag.value)}` : "";
    const late = Number(delay.value) ? `,"delay_ms":${Number(delay.value)}` : "";
    const record = `{"data":${asJson(data.value)}${rest}${late}}`;
    const records = Array(Math.min(Math.max(1, Number(count.value)), COUNT_MAX)).fill(record);
    await runAndToast(() => produce(topic, records), (done) => `Produced ${done.count > 1 ? `${whole(done.count)} jobs` : `#${done.last_seq}`}`);
  };
  return h(
    "form",
    { on: { submit }, "aria-label": "Produce" },
    h("h2", {}, "Produce"),
    field("Payload: JSON, or any text", data),
    h("div", { class: "row fit" }, field("Tag", tag), field("Delay, ms", delay), field("How many", count)),
    h("div", { class: "row" }, h("button", { class: "primary", ...guarded("produce", topic) }, "Produce"), why ? h("span", { class: "hint" }, why) : null),
  );
}

/** Return the input where it is JSON; else the text as a JSON string. */
function asJson(text) {
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text);
  }
}

function claimForm(topic, actors) {
  const why = whyNot("claim", topic);
  const off = { disabled: why !== null };
  const node = h("input", { value: "worker-1", maxlength: "128", required: true, autocomplete: "off", spellcheck: "false", ...off });
  const max = number("1", { min: "1", max: "1000", ...off });
  const lease = h("input", { type: "number", min: "100", max: "86400000", placeholder: "the queue's", ...off });
  const auto = h("input", { type: "checkbox", ...off });
  const after = h("input", { type: "number", min: "0", max: "600000", placeholder: "by hand", ...off });
  const claim = async (event) => {
    event.preventDefault();
    const options = { max: Number(max.value) || 1, leaseMs: Number(lease.value) || null, autoAck: auto.checked };
    await runAndToast(() => actors.claim(node.value.trim(), options), (answer) => claimWords(node.value.trim(), answer, auto.checked));
  };
  const work = () => {
    try {
      actors.start(node.value.trim() || "worker-1", { max: Number(max.value) || 1, ackAfterMs: Number(after.value) || 0 });
      toast(`${node.value.trim()} is at work: jobs are pushed to it`, "good");
    } catch (error) {
      toast(error.message, "bad");
    }
  };
  return h(
    "form",
    { on: { submit: claim }, "aria-label": "Work" },
    h("h2", {}, "Work"),
    h("div", { class: "row fit" }, field("As worker", node), field("Jobs at once", max)),
    h("div", { class: "row fit" }, field("Lease, ms", lease), field("Stream acks after, ms", after)),
    h("label", { class: "check" }, auto, h("span", {}, "Auto-ack: delete as it is handed out")),
    h(
      "div",
      { class: "row" },
      h("button", { class: "primary", ...guarded("claim", topic) }, "Claim"),
      h("button", { type: "button", ...guarded("claim", topic, "Open a work stream that can be crashed"), on: { click: work } }, "Start a stream"),
      why ? h("span", { class: "hint" }, why) : null,
    ),
  );
}

function claimWords(node, answer, autoAck) {
  if (!answer.claimed.length) return "Nothing to claim";
  const what = answer.claimed.length > 1 ? `${whole(answer.claimed.length)} jobs` : `#${answer.claimed[0].$seq}`;
  return autoAck ? `${node} got ${what}; the broker keeps no copy` : `${node} holds ${what}`;
}
