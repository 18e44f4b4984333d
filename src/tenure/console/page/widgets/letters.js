// The dead-letter strip: the dead letters of this queue, newest first, with redrive and delete.

import { ask, call, topicPath } from "../api.js";
import { destinationsOf, guarded, redrive, redriveAll, remove } from "../actions.js";
import { h, swap } from "../dom.js";
import { whole } from "../format.js";
import { member } from "../json_text.js";
import { obstacle } from "../session.js";
import { cellWidth, nameOf } from "./cell.js";
import { confirmed, openDialog } from "./dialog.js";
import { payloadBlock } from "./job.js";
import { moment } from "./moment.js";
import { runAndToast } from "./toast.js";

const SHOWN_MAX = 24;
const REST_MS = 500; // between two readings that follow each other at once

/** The strip of a dead-letter topic; `load()` reads it again, as often as it is asked and no more than twice a second. */
export function letters(queue) {
  const element = h("section", { class: "card letters", "aria-label": "Dead letters", hidden: true });
  let topic = null;
  let loading = null;
  let again = false;
  let drawn = ""; // what is on the page, as `${topic}/${count}/${head_seq}`

  async function load(name) {
    topic = name;
    element.hidden = topic === null;
    if (topic === null) return;
    const why = obstacle(["read"], topic);
    if (why !== null) return swap(element, heading(0), h("p", { class: "hint" }, why));
    again = loading !== null; // the read under way may be older than this request
    loading ??= readAll().finally(() => (loading = null));
    await loading;
  }

  async function readAll() {
    await readOnce();
    while (again) {
      again = false;
      await new Promise((resume) => setTimeout(resume, REST_MS));
      await readOnce();
    }
  }

  async function readOnce() {
    try {
      const { count, head_seq: head } = await call("GET", topicPath(topic, "?touch=false"));
      const now = `${topic}/${count}/${head}`;
      if (now === drawn) return;
      draw({ count, letters: count ? await read(topic, count, head) : [] });
      drawn = now;
    } catch (error) {
      drawn = "";
      draw(error.status === 404 ? { count: 0, letters: [] } : { count: 0, letters: [], error });
    }
  }

  function heading(count) {
    const all = guarded("redrive", topic, "Put every dead letter back to work");
    const button = h("button", { type: "button", ...all, on: { click: () => backAll(count) } }, "Redrive all");
    const words = h("h2", {}, "Dead letters", h("span", { class: "hint" }, ` ${topic} · ${whole(count)}`));
    return h("div", { class: "row head" }, words, h("span", { class: "spring" }), count ? button : null);
  }

  function draw({ count, letters: found, error }) {
    const cells = found.map((letter) => {
      const { seq, reason } = about(letter);
      const open = () => openLetter(letter);
      const label = `Dead letter ${letter.$seq}, was job ${seq}, ${reason}`;
      return h("button", { type: "button", class: "cell dead", "data-letter": letter.$seq, "aria-label": label, title: reason, on: { click: open } }, h("span", { class: "mid" }, "✕"), h("span", { class: "seq" }, nameOf(seq)));
    });
    const rest = count - found.length;
    const none = h("p", { class: "empty" }, error ? error.message : "No job has been given up on.");
    const strip = h("div", { class: "lane flow" }, ...cells, rest > 0 ? h("span", { class: "slot gap" }, `${whole(rest)} more`) : null);
    strip.style.setProperty("--cell", `${cellWidth(found.map((letter) => about(letter).seq))}px`);
    swap(element, heading(count), found.length ? strip : none);
  }

  async function back(seqs) {
    await runAndToast(() => redrive(topic, seqs), backWords);
    await load(topic);
  }

  async function backAll(count) {
    const to = await runAndToast(() => destinationsOf(topic));
    if (to === undefined) return;
    const words = `${destinationWords(to, count)} Workers take them at once. Where the cause is not gone, they will be back here.`;
    if (!(await confirmed(`Redrive ${whole(count)} dead ${count === 1 ? "letter" : "letters"}?`, words, "Redrive", "primary"))) return;
    await runAndToast(() => redriveAll(topic, count), backWords);
    await load(topic);
  }

  /** Name the queues that the letters go to; of very many, those of the oldest. */
  function destinationWords(to, count) {
    const named = to.map(([name, letters]) => `${name} (${whole(letters)})`).join(", ") || "nowhere: none of them can go back";
    const told = to.reduce((sum, [, letters]) => sum + letters, 0);
    return told < count && told > 0 ? `The oldest ${whole(told)} go to ${named}; each of the others to the queue it came from.` : `They go to ${named}.`;
  }

  function backWords({ redriven, to }) {
    return `${whole(redriven)} back to work in ${to || queue}`;
  }

  async function erase(seq) {
    if (!(await confirmed("Delete this dead letter?", `Dead letter ${seq} of ${topic} will be gone for good.`, "Delete"))) return;
    await runAndToast(() => remove(topic, [seq]), "Deleted");
    await load(topic);
  }

  function openLetter(letter) {
    const { seq, from, deliveries, reason } = about(letter);
    const facts = [["was", `job #${seq} of ${from}`], ["deliveries", deliveries], ["reason", reason], ["since", moment(letter.$ts, Date.now())], ["tag", letter.$tag]];
    const rows = facts.filter(([, value]) => value !== undefined).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
    const body = h("div", {}, h("dl", { class: "facts" }, ...rows), payloadBlock("Payload", letter.raw));
    const dialog = openDialog({ title: `Dead letter ${letter.$seq}`, body, close: "Close" });
    const act = (run) => () => {
      dialog.close();
      run();
    };
    dialog.lastChild.append(
      h("button", { type: "button", class: "danger", ...guarded("remove", topic), on: { click: act(() => erase(letter.$seq)) } }, "Delete"),
      h("button", { type: "button", class: "primary", ...guarded("redrive", topic), on: { click: act(() => back([letter.$seq])) } }, "Redrive"),
    );
  }

  return { element, load };
}

/** The newest letters; the payload of each stays text. */
async function read(topic, count, head) {
  const body = { from_seq: 0, limit: SHOWN_MAX, include_tags: true };
  let text = await ask("POST", topicPath(topic, "/diff"), { body: { ...body, from_seq: Math.max(0, head - SHOWN_MAX) } });
  if (JSON.parse(text).records.length < Math.min(count, SHOWN_MAX) / 2) text = await ask("POST", topicPath(topic, "/diff"), { body });
  const records = split(member(text, "records")).map((raw) => ({ ...JSON.parse(raw), raw: member(raw, "data") }));
  return records.reverse();
}

/** The items of a JSON array as text. */
function split(array) {
  const items = [];
  let depth = 0;
  let start = 1;
  for (let i = 0; i < array.length; i++) {
    const char = array[i];
    if (char === '"') {
      for (i++; i < array.length && array[i] !== '"'; i++) if (array[i] === "\\") i++;
    } else if (char === "{" || char === "[") depth++;
    else if (char === "}" || char === "]") depth--;
    if ((char === "," && depth === 1) || (char === "]" && depth === 0)) {
      const item = array.slice(start, i).trim();
      if (item) items.push(item);
      start = i + 1;
    }
  }
  return items;
}

function about(letter) {
  const meta = letter.meta ?? {};
  return {
    seq: meta.$dead_letter_src_seq ?? letter.$seq,
    from: meta.$dead_letter_from ?? "?",
    deliveries: meta.$dead_letter_deliveries,
    reason: meta.$dead_letter_reason ?? "",
  };
}
