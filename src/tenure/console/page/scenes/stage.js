// The frame of a scene, and the play of it on the running broker.
//
// A scene is a module of this folder, listed in scenes/index.js, with a default export:
//
//   lead: ["…", "…"]            a few sentences before anything happens
//   drawing: () => picture(…)   shown beside them and on the card (drawing.js)
//   topics: {jobs: {config: {lease_ms: 3000, dead_letter: "dead"}, label: "Jobs", show: "strip"}, dead: {…}}
//                               scratch topics, made when the scene opens and removed when it is left. The first is what
//                               a deed means that names none. `config` is that of PUT /v0/topics; a `dead_letter` is a
//                               key. `type` is queue unless it says log. `show`: strip (queues), log (logs), letters (a
//                               topic that is somebody's dead_letter), none. Keys are of a-z only.
//   steps: [{say, label, run: async (world) => "what happened"}]
//                               `say` stands beside the button `label` before the step; what `run` returns is told
//                               after it. `run` does real things by `world` (world.js: produce, claim, ack, nack, extend,
//                               work, crash, configure, redrive, route, read, counts, job, meters, until, see, pause) and checks
//                               what it is about to tell with `world.must(condition, "what came instead")`. Where that
//                               does not hold, or the broker refuses, the scene stops there and says so.
//   takeaway: "…"               one sentence to keep, shown after the last step
//   aside: (world) => ({element, draw(), stop()})   optional: a widget of the scene's own; `draw` is called after every
//                               step and every quarter of a second. `world` is null where the key plays no scenes.
//
// `world.kept` is an object for what one step leaves to the next; `world.readers` (name → seq) is drawn under a log.

import { mark, h, say, swap } from "../dom.js";
import { paced } from "../pace.js";
import { href } from "../router.js";
import { create, namesFor, remove, whyNoScratch } from "../scratch.js";
import { QueueStore } from "../store.js";
import { logPanel, lettersPanel, queuePanel } from "./panels.js";
import { Unmet, World } from "./world.js";

const TICK_MS = 250;
const READ_MS_MIN = 1_800; // between two steps of a play, by the length of what was told
const READ_MS_PER_CHAR = 32;

/** Put a scene on; `about` is its row of scenes/index.js with `number`, `of`, `next`. Returns how to leave. */
export function stage(outlet, scene, { about, onDone }) {
  const play = new Play(scene, { about, onDone });
  outlet.append(play.element);
  const why = whyNoScratch();
  if (why !== null) play.onlyTell(why);
  else play.begin();
  const hide = () => play.leave();
  const back = (event) => event.persisted && location.reload(); // its topics are gone
  addEventListener("pagehide", hide);
  addEventListener("pageshow", back);
  return () => {
    removeEventListener("pagehide", hide);
    removeEventListener("pageshow", back);
    play.leave();
  };
}

class Play {
  constructor(scene, { about, onDone }) {
    this.scene = scene;
    this.onDone = onDone;
    this.about = about;
    this.run = null; // {names, world, panels, signal…} of this time through
    this.playing = false;
    this.draw = paced(() => this.drawNow());
    this.build();
  }

  build() {
    const { scene, about } = this;
    const button = (words, run, kind = "") => h("button", { type: "button", class: kind, on: { click: run } }, words);
    this.nextButton = button("Next", () => this.step(), "primary");
    this.playButton = button("Play", () => this.togglePlay());
    this.resetButton = button("Start over", () => this.begin(), "quiet");
    this.coming = h("p", { class: "coming" });
    this.told = h("p", { class: "told", role: "status", "aria-live": "polite" });
    this.dots = h("ol", { class: "dots", "aria-hidden": "true" }, ...scene.steps.map(() => h("li")));
    this.controls = h("div", { class: "row" }, this.nextButton, this.playButton, this.resetButton, h("span", { class: "spring" }), this.dots);
    this.panels = h("div", { class: "panels" });
    this.end = h("p", { class: "takeaway", hidden: true }, h("b", {}, "To keep: "), scene.takeaway);
    const onward = about.next ? h("a", { class: "onward", href: href("course", about.next.id) }, `Next scene: ${about.next.title} ▸`) : null;
    this.element = h(
      "article",
      { class: "scene", "data-scene": about.id },
      h("div", { class: "row head" }, h("a", { class: "hint", href: href("course") }, "◂ Course"), h("span", { class: "hint" }, `${about.number} of ${about.of}`)),
      h("h1", {}, about.title),
      h("div", { class: "lead" }, h("div", {}, ...scene.lead.map((words) => h("p", {}, words))), scene.drawing()),
      h("section", { class: "card teller", "aria-label": "Steps" }, this.told, this.coming, this.controls, this.end),
      this.panels,
      onward,
    );
  }

  /** Without the scopes there is no queue to show: the words alone. */
  onlyTell(why) {
    const steps = this.scene.steps.map(({ say: words }) => h("li", {}, words));
    const aside = this.scene.aside?.(null);
    say(this.told, `${why} Scenes make queues of their own and remove them, so here are the words and the drawing only.`);
    mark(this.told, "class", "told bad");
    this.controls.hidden = true;
    this.coming.hidden = true;
    this.end.hidden = false;
    if (aside) this.panels.append(aside.element);
    this.told.after(h("ol", { class: "script" }, ...steps));
  }

  /** Make the topics and stand before the first step. */
  async begin() {
    this.leave();
    const stop = new AbortController();
    const names = namesFor(this.about.id, Object.keys(this.scene.topics));
    const run = (this.run = { names, stop, at: 0, panels: [], stores: {}, busy: true, failed: false, world: null });
    this.tell("Making the scratch queue …");
    this.drawSteps();
    try {
      await create(names, this.scene.topics);
      if (this.run !== run) return remove(names); // left meanwhile
      this.open(run);
      run.busy = false;
      this.tell("The scratch queue is there, and empty.");
    } catch (error) {
      if (this.run === run) this.fail(error);
    }
    this.drawSteps();
  }

  open(run) {
    const { names, stores, stop } = run;
    const entries = Object.entries(this.scene.topics);
    const isQueue = ({ config = {} }) => config.type !== "log";
    const letterKeys = new Set(entries.map(([, { config = {} }]) => config.dead_letter).filter(Boolean));
    const kindOf = (key, topic) => topic.show ?? (letterKeys.has(key) ? "letters" : isQueue(topic) ? "strip" : "log");
    for (const [key, topic] of entries) if (kindOf(key, topic) === "strip") stores[key] = new QueueStore(names[key], { onChange: this.draw });
    run.world = new World({ names, stores, onChange: this.draw, signal: stop.signal });
    for (const [key, topic] of entries) {
      const kind = kindOf(key, topic);
      const label = topic.label ?? (kind === "log" ? "The log" : "The queue");
      if (kind === "strip") run.panels.push(queuePanel(label, { store: stores[key].start(), actors: run.world.actors[key] }));
      else if (kind === "log") run.panels.push({ ...logPanel(label), logKey: key });
      else if (kind === "letters") {
        const source = entries.find(([, { config = {} }]) => config.dead_letter === key)?.[0] ?? run.world.main;
        run.panels.push(lettersPanel(names[key], { source: stores[source] }));
      }
    }
    const aside = this.scene.aside?.(run.world);
    if (aside) run.panels.push({ tick() { aside.draw?.(); }, draw() {}, stop() {}, ...aside });
    swap(this.panels, ...run.panels.map((panel) => panel.element));
    run.ticker = setInterval(() => document.hidden || run.panels.forEach((panel) => panel.tick()), TICK_MS);
    this.readLogs(run);
  }

  drawNow() {
    for (const panel of this.run?.panels ?? []) if (!panel.logKey) panel.draw();
  }

  /** A log has no event stream of its own here: it is read again after every step. */
  async readLogs(run) {
    for (const panel of run.panels) {
      if (panel.logKey) panel.draw({ records: await run.world.read(panel.logKey), readers: run.world.readers });
      else panel.reload?.();
    }
  }

  /** Do the next step; returns whether it came out as promised. */
  async step() {
    const { run } = this;
    const step = this.scene.steps[run?.at];
    if (!run || run.busy || run.failed || !step) return false;
    run.busy = true;
    this.drawSteps();
    try {
      const words = await step.run(run.world);
      if (this.run !== run) return false;
      run.at += 1;
      await this.readLogs(run);
      this.tell(words);
    } catch (error) {
      if (this.run === run) this.fail(error);
    }
    run.busy = false;
    this.draw();
    if (this.run !== run) return false;
    this.drawSteps();
    if (run.at === this.scene.steps.length) this.onDone();
    return !run.failed;
  }

  async togglePlay() {
    if (this.playing) return this.pausePlay();
    this.playing = true;
    const { run } = this;
    say(this.playButton, "Pause");
    while (this.playing && this.run === run && (await this.step()) && run.at < this.scene.steps.length) {
      await new Promise((resume) => setTimeout(resume, Math.max(READ_MS_MIN, this.told.textContent.length * READ_MS_PER_CHAR)));
    }
    if (this.run === run) this.pausePlay();
  }

  pausePlay() {
    this.playing = false;
    say(this.playButton, "Play");
  }

  tell(words) {
    mark(this.told, "class", "told");
    say(this.told, words);
  }

  fail(error) {
    this.run.failed = true;
    mark(this.told, "class", "told bad");
    say(this.told, `${error instanceof Unmet ? "The broker did not do as promised" : "The broker refused"}: ${error.message}. Start over to try again.`);
  }

  drawSteps() {
    const { steps } = this.scene;
    const { at, busy, failed } = this.run;
    const step = steps[at];
    this.coming.hidden = !step;
    say(this.coming, step?.say ?? "");
    say(this.nextButton, step?.label ?? "Next");
    this.nextButton.hidden = this.playButton.hidden = !step || failed;
    this.nextButton.disabled = busy;
    this.end.hidden = Boolean(step);
    mark(this.element, "data-at", at);
    mark(this.element, "data-state", failed ? "failed" : busy ? "busy" : step ? "waiting" : "done");
    [...this.dots.children].forEach((dot, i) => mark(dot, "class", i < at ? "done" : i === at ? (failed ? "failed" : "now") : null));
  }

  /** Stop what runs and remove its topics. */
  leave() {
    const { run } = this;
    this.run = null;
    this.pausePlay();
    if (run === null) return;
    run.stop.abort();
    clearInterval(run.ticker);
    for (const store of Object.values(run.stores)) store.stop();
    run.world?.stop();
    for (const panel of run.panels) panel.stop();
    remove(run.names);
  }
}
