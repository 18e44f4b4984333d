// The view of one queue, live: the strip, dead letters, workers, forms and meters.

import { Actors } from "../actors.js";
import * as actions from "../actions.js";
import { h, mark, setText } from "../dom.js";
import { covers } from "../fold.js";
import { whole } from "../format.js";
import { nameProblem } from "../names.js";
import { paced } from "../pace.js";
import { href } from "../router.js";
import { isTyping } from "../shell.js";
import { QueueStore } from "../store.js";
import { warnings } from "../warnings.js";
import { act } from "../widgets/act.js";
import { counts } from "../widgets/counts.js";
import { confirmed, openDialog } from "../widgets/dialog.js";
import { jobPanel } from "../widgets/job.js";
import { letters } from "../widgets/letters.js";
import { parkedShelf } from "../widgets/parked.js";
import { plots } from "../widgets/plots.js";
import { strip } from "../widgets/strip.js";
import { runAndToast, toast } from "../widgets/toast.js";
import { names, workers } from "../widgets/workers.js";
import { drawAlarms } from "../widgets/alarms.js";

const TICK_MS = 250;
const METERS_MS = 2_000;
const CALM_ROWS = 60; // rows between two drawings above which nothing is animated
const AGES_KEPT = 60;
const STATUS = { connecting: "connecting …", live: "live", lost: "connection lost, trying again …", standby: "this server is a standby", gone: "this queue is not there", deleted: "deleted", refused: "refused" };

/** Show one queue; returns a function that leaves it. */
export function show(outlet, [topic = ""]) {
  const problem = nameProblem(topic);
  if (problem !== null) {
    outlet.append(h("h1", {}, topic), h("p", { class: "bad", role: "alert" }, `There is no queue of this name, and there can be none. ${problem}`), h("a", { href: href("queues") }, "To the list of queues"));
    return () => {};
  }
  const view = new QueueView(topic);
  outlet.append(view.element);
  view.start();
  return () => view.stop();
}

class QueueView {
  constructor(topic) {
    this.topic = topic;
    this.meters = null;
    this.ages = [];
    this.rowsDrawn = 0;
    this.dead = { name: undefined, count: -1 };
    this.draw = paced(() => this.drawNow());
    this.store = new QueueStore(topic, { onChange: this.draw, onRow: (row) => this.heard(row) });
    this.actors = new Actors(topic, { onChange: this.draw, onEnd: (node, error) => toast(`${node}: ${error.message}`, "bad") });
    this.build();
  }

  build() {
    const open = (seq) => this.openJob(seq);
    this.status = h("span", { class: "status", role: "status" }, STATUS.connecting);
    this.alarms = h("ul", { class: "alarms", role: "list", "aria-label": "Warnings" });
    this.counts = counts();
    this.strip = strip({ onOpen: open });
    this.letters = letters(this.topic);
    const unpark = h("button", { type: "button", ...actions.guarded("redrive", this.topic, "Put every parked job back to work"), on: { click: () => this.unparkAll() } }, "Redrive parked");
    this.parked = parkedShelf({ onOpen: open, button: unpark });
    const button = (action, label, run, kind = "") =>
      h("button", { type: "button", class: kind, ...actions.guarded(action, this.topic), on: { click: run } }, label);
    this.workers = workers({ onAct: (action, worker) => this.act(action, worker), onOpen: open, button });
    this.button = button;
    this.actForms = act(this.topic, this.actors);
    this.plots = plots(this.topic, { onMeters: (meters) => (this.meters = meters) });
    this.job = jobPanel(this.topic, { actions: (job) => this.jobActions(job), onClose: () => this.closeJob(), now: () => this.store.now() });
    const legend = ["ready", "suspect", "in_flight", "delayed", "parked"].map((state) => h("span", { class: `key ${state}` }, { ready: "available", in_flight: "in flight" }[state] ?? state));
    this.element = h(
      "div",
      { class: "queue-view" },
      h("div", { class: "row head" }, h("h1", {}, this.topic), this.status),
      this.counts.element,
      this.alarms,
      h(
        "div",
        { class: "stage" },
        h(
          "div",
          { class: "strips" },
          h(
            "section",
            { class: "card strip", "aria-label": "The queue" },
            h("div", { class: "row head" }, h("h2", {}, "Head"), h("span", { class: "legend" }, ...legend), h("span", { class: "spring" }), h("h2", {}, "Tail")),
            this.strip.element,
            this.parked.element,
          ),
          this.letters.element,
        ),
        h("section", { class: "card side", "aria-label": "Workers" }, h("h2", {}, "Workers"), this.workers.element),
      ),
      this.job.element,
      this.actForms.element,
      this.plots.element,
    );
  }

  start() {
    this.store.start();
    this.ticker = setInterval(() => this.tick(), TICK_MS);
    this.metering = setInterval(() => document.hidden || this.measure(), METERS_MS);
    this.keys = (event) => this.key(event);
    addEventListener("keydown", this.keys);
    this.measure();
  }

  stop() {
    this.store.stop();
    this.actors.stop();
    this.strip.stop();
    clearInterval(this.ticker);
    clearInterval(this.metering);
    removeEventListener("keydown", this.keys);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return this.closeJob();
    if (isTyping(event.target) || (event.key !== "p" && event.key !== "c")) return;
    event.preventDefault();
    this.actForms.focus(event.key === "p" ? "produce" : "claim");
  }

  // Drawing

  heard(row) {
    if (this.job.seq !== null && covers(row.runs, this.job.seq)) this.jobStale = true;
    if (row.event === "dead_lettered") this.dead.count = -1;
  }

  drawNow() {
    const { store } = this;
    const status = store.status === "gone" && store.state !== null ? "deleted" : store.status;
    setText(this.status, status === "refused" ? store.error.message : STATUS[status]);
    mark(this.status, "data-status", store.status);
    for (const part of this.element.children) if (part !== this.element.firstChild) part.inert = status === "deleted";
    if (store.state === null || status === "deleted") return;
    const now = store.now();
    const calm = store.rows - this.rowsDrawn > CALM_ROWS;
    this.rowsDrawn = store.rows;
    this.element.classList.toggle("calm", calm);
    this.counts.draw(store.state, store.rates, now);
    this.strip.draw(store.state, { now, calm, rate: store.rates.rate("produced", now) });
    this.parked.draw(store.state, now);
    this.workers.draw(store.state, this.actors, now);
    this.loadLetters(store.state);
    if (this.jobStale) {
      this.jobStale = false;
      this.job.refresh();
    }
  }

  /** Read the dead letters when their topic or their number changed. */
  loadLetters({ config, counts: { dead_lettered: count } }) {
    const name = config.dead_letter;
    if (this.dead.name === name && this.dead.count === count) return;
    this.dead = { name, count };
    this.letters.load(name);
  }

  tick() {
    const { store } = this;
    if (store.state === null || document.hidden) return;
    this.plots.draw(store.rates, store.now());
    this.draw();
  }

  async measure() {
    try {
      await this.plots.load();
    } catch {
      return; // the stream reports that the server is away
    }
    const { state } = this.store;
    if (state === null || this.store.status === "gone") return;
    this.letters.load(state.config.dead_letter); // letters that were redriven or deleted elsewhere
    const queue = { ...state.counts, oldest_ready_ms: state.oldestReadyMs };
    this.ages = [...this.ages, state.oldestReadyMs].slice(-AGES_KEPT);
    drawAlarms(this.alarms, warnings({ queue, meters: this.meters, config: state.config, ages: this.ages }));
  }

  // Actions

  openJob(seq) {
    this.job.open(seq);
  }

  closeJob() {
    const { seq } = this.job;
    this.job.close();
    if (seq !== null) this.strip.focus(seq);
  }

  jobActions(job) {
    const one = { node: job.node, held: 1, what: [{ seqs: [job.$seq], lease_ids: [job.lease_id] }] };
    if (job.state === "in_flight")
      return ["ack", "nack", "extend"].map((action) => this.button(action, { ack: "Ack", nack: "Nack", extend: "Extend" }[action], () => this.act(action, one)));
    const erase = this.button("remove", "Delete", () => this.erase(job.$seq), "danger quiet");
    if (job.state !== "parked") return [erase];
    const back = async () => runAndToast(() => actions.redrive(this.topic, [job.$seq]), "Back to work");
    return [this.button("redrive", "Redrive", back), erase];
  }

  /** Put every parked job back to work, after asking: workers take them at once. */
  async unparkAll() {
    const { parked } = this.store.state.counts;
    const { dead_letter: dead, dlq_strategy: strategy } = this.store.state.config;
    const copies = strategy === "block_and_dlq" && dead ? ` Their copies in ${dead} are removed with it.` : "";
    const words = `Workers take them at once, with their deliveries counted from the start.${copies} Where the cause is not gone, they will be parked again.`;
    if (!(await confirmed(`Redrive ${whole(parked)} parked ${parked === 1 ? "job" : "jobs"}?`, words, "Redrive", "primary"))) return;
    await runAndToast(() => actions.redriveAll(this.topic, parked), ({ redriven }) => `${whole(redriven)} back to work`);
    this.store.look();
    this.letters.load(dead);
  }

  async erase(seq) {
    if (!(await confirmed(`Delete job #${seq}?`, "It will be gone for good, and nobody will work on it.", "Delete"))) return;
    await runAndToast(() => actions.remove(this.topic, [seq]), `#${seq} is deleted`);
    this.store.look();
    this.job.refresh();
  }

  /** Act for a worker. Where the worker is not this page's, ask first: the action takes work from it. */
  async act(action, worker) {
    if (action === "crash") return this.crash(worker);
    if (action === "finish") return this.actors.finish(worker.node);
    if (action === "dismiss") return this.actors.dismiss(worker.node);
    const what = worker.what ?? worker.leases.map((lease) => ({ lease_id: lease }));
    if (action === "nack") return this.nack(worker, what);
    if (!this.actors.isOwn(worker.node) && action === "ack") {
      const words = `${worker.node} is not a worker of this page. An ack deletes the job, whether or not the work was done.`;
      if (!(await confirmed(`Ack for ${worker.node}?`, words, "Ack"))) return;
    }
    if (action === "ack") await this.settle(worker, what, (one) => actions.ack(this.topic, worker.node, one), "acked");
    else await this.settle(worker, what, (one) => actions.extend(this.topic, worker.node, one, this.store.state.config.lease_ms), "extended");
  }

  async settle(worker, what, run, verb) {
    await runAndToast(
      async () => (await Promise.all(what.map(run))).reduce((sum, answer) => sum + answer[verb], 0),
      (done) => (done ? `${worker.node}: ${whole(done)} ${verb}` : `${worker.node} held nothing any more`),
    );
  }

  nack(worker, what) {
    const delay = h("input", { type: "number", id: "nack-delay", min: "0", max: "86400000", placeholder: "the queue's back-off, or none" });
    const reason = h("input", { id: "nack-reason", maxlength: "200", autocomplete: "off" });
    const dead = h("input", { type: "checkbox", id: "nack-dead" });
    const body = h(
      "div",
      { class: "fields" },
      this.actors.isOwn(worker.node) ? null : h("p", { class: "bad" }, `${worker.node} is not a worker of this page: this takes its work away.`),
      h("label", { for: "nack-delay" }, "Delay, ms"),
      delay,
      h("label", { for: "nack-reason" }, "Reason"),
      reason,
      h("label", { class: "check" }, dead, h("span", {}, "Give up on it: dead-letter it now")),
    );
    const run = () => {
      const options = { delayMs: delay.value === "" ? undefined : Number(delay.value), reason: reason.value, dead: dead.checked };
      return this.settle(worker, what, (one) => actions.nack(this.topic, worker.node, one, options), "nacked");
    };
    openDialog({ title: `Nack ${worker.held > 1 ? `${whole(worker.held)} jobs` : "the job"} of ${worker.node}`, body, actions: [{ label: "Nack", run }] });
    delay.focus();
  }

  crash(worker) {
    const gone = this.actors.crash(worker.node);
    if (gone.length) toast(`${worker.node} crashed. ${names(gone)} is lost: auto-ack had deleted it before the work was done.`, "bad");
    else toast(`${worker.node} crashed: its connection is cut and its jobs go back to the head`);
  }
}
