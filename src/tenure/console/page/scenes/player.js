// The player of a scene: its frame, and its steps against the running broker.
//
// A scene is a module of this folder, listed in scenes/index.js, with a default export:
//
//   lead: ["…", "…"]            a few sentences before anything happens
//   drawing: () => picture(…)   shown beside them and on the card (drawing.js)
//   topics: {jobs: {config: {lease_ms: 3000, dead_letter: "dead"}, label: "Jobs", show: "strip"}, dead: {…}}
//                               scratch topics, created when the scene opens and removed when it is left. The first is
//                               the topic of an action that names none. `config` is that of PUT /v0/topics; a
//                               `dead_letter` is a key. `type` is queue by default, or log. `show`: strip (queues), log
//                               (logs), letters (the dead_letter of another topic), none. Keys are of a-z only.
//   steps: [{say, label, run: async (world) => "what happened"}]
//                               `say` is shown beside the button `label` before the step; the result of `run` is shown
//                               after it. `run` acts by `world` (world.js: produce, claim, ack, nack, extend,
//                               work, crash, configure, redrive, route, read, counts, job, meters, line, until, see,
//                               pause) and checks its result with `world.must(condition, "what came instead")`. Where
//                               that does not hold, or the broker refuses, the scene stops with that message.
//   code: [{name: "Broker.ack", about: "…", code: ["def …", "    …  # why"]}]
//                               optional: listings; `world.line(name, ...lines)` marks them while a step runs
//   takeaway: "…"               one sentence to keep, shown after the last step
//   aside: (world) => ({element, draw(), stop()})   optional: a widget of the scene's own; `draw` is called after every
//                               step and every quarter of a second. `world` is null where the key plays no scenes.
//
// `world.kept` is an object that passes values from one step to the next; `world.readers` (name → seq) is drawn under a log.

import { swap } from "../dom.js";
import { paced } from "../pace.js";
import { whyNoScratch } from "../scratch.js";
import { Frame } from "./frame.js";
import { Run } from "./run.js";
import { Unmet } from "./world.js";

const READ_MS_MIN = 1_800; // between two steps of a play, by the length of the text
const READ_MS_PER_CHAR = 32;

/** Show and play a scene; `about` is its row of scenes/index.js with `number`, `of`, `next`. Returns a function that leaves it. */
export function playScene(outlet, scene, { about, onDone }) {
  const play = new Play(scene, { about, onDone });
  outlet.append(play.frame.element);
  const why = whyNoScratch();
  if (why !== null) play.frame.showWordsOnly(why);
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
    this.id = about.id;
    this.onDone = onDone;
    this.run = null;
    this.playing = null; // a token of the play that goes on
    this.draw = paced(() => this.run?.draw());
    const buttons = { onStep: () => this.step(), onPlay: () => this.togglePlay(), onReset: () => this.begin() };
    this.frame = new Frame(scene, about, buttons);
  }

  /** Create the topics and wait for the first step. */
  async begin() {
    this.leave();
    this.frame.code?.clear();
    const onLine = (name, line) => this.run === run && this.frame.code?.at(name, line);
    const run = (this.run = new Run(this.scene, this.id, { onChange: this.draw, onLine }));
    this.frame.report("Making the scratch queue …");
    this.drawFrame();
    try {
      const elements = await run.open();
      if (this.run !== run) return;
      swap(this.frame.panels, ...elements);
      this.frame.report("The scratch queue is there, and empty.");
    } catch (error) {
      if (this.run !== run) return;
      this.fail(error);
    }
    run.busy = false;
    this.drawFrame();
  }

  /** Run the next step; returns whether its checks held. */
  async step() {
    const { run } = this;
    const step = this.scene.steps[run?.at];
    if (!run || run.busy || run.failed || !step) return false;
    run.busy = true;
    this.drawFrame();
    try {
      const words = await step.run(run.world);
      await run.reread();
      if (this.run !== run) return false;
      run.at += 1;
      run.draw(); // the text and the drawing appear together
      this.frame.report(words);
    } catch (error) {
      if (this.run !== run) return false;
      this.fail(error);
    }
    run.busy = false;
    this.drawFrame();
    if (run.at === this.scene.steps.length) this.onDone();
    return !run.failed;
  }

  /** Play step after step, with time to read; a second press pauses. */
  async togglePlay() {
    const mine = (this.playing = this.playing ? null : {});
    this.drawFrame();
    while (mine && this.playing === mine && (await this.step()) && this.run?.at < this.scene.steps.length) {
      const ms = Math.max(READ_MS_MIN, this.frame.told.textContent.length * READ_MS_PER_CHAR);
      await new Promise((resume) => setTimeout(resume, ms));
    }
    if (this.playing !== mine || mine === null) return;
    this.playing = null;
    this.drawFrame();
  }

  fail(error) {
    this.run.failed = true;
    const what = error instanceof Unmet ? "The broker did not do as promised" : "The broker refused";
    this.frame.report(`${what}: ${error.message}. Start over to try again.`, { bad: true });
  }

  drawFrame() {
    const { at, busy, failed } = this.run;
    this.frame.draw({ at, busy, failed, playing: this.playing !== null });
  }

  leave() {
    const { run } = this;
    this.run = null;
    this.playing = null;
    run?.close();
  }
}
