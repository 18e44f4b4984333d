// The frame of a scene: its words, its drawing, the buttons, and the line about the last step.

import { h, mark, setText, swap } from "../dom.js";
import { href } from "../router.js";
import { codePane } from "./code.js";

/** The frame; `onStep`, `onPlay`, `onReset` are called by its buttons. */
export class Frame {
  constructor(scene, about, { onStep, onPlay, onReset }) {
    this.scene = scene;
    const button = (words, run, kind = "") => h("button", { type: "button", class: kind, on: { click: run } }, words);
    this.next = button("Next", onStep, "primary");
    this.play = button("Play", onPlay);
    this.reset = button("Start over", onReset, "quiet");
    this.coming = h("p", { class: "coming" });
    this.told = h("p", { class: "told", role: "status", "aria-live": "polite" });
    this.dots = h("ol", { class: "dots", "aria-hidden": "true" }, ...scene.steps.map(() => h("li")));
    const onward = (words, kind) => h("a", { class: kind, href: about.next ? href("course", about.next.id) : href("course") }, words);
    this.go = onward(about.next ? `Next scene: ${about.next.title}` : "Back to the list", "button"); // at the end
    this.skip = onward(about.next ? `Skip to ${about.next.title} ▸` : "Back to the list ▸", "onward"); // until then
    this.controls = h("div", { class: "row" }, this.next, this.play, this.go, this.reset, h("span", { class: "spring" }), this.dots);
    this.panels = h("div", { class: "panels" });
    this.code = scene.code ? codePane(scene.code) : null;
    const words = h("div", {}, ...scene.lead.map((said) => h("p", {}, said)));
    this.lead = h("div", { class: this.code ? "lead alone" : "lead" }, words, scene.drawing()); // beside code there is no room for it
    this.end = h("p", { class: "takeaway", hidden: true }, h("b", {}, "To keep: "), scene.takeaway);
    this.element = this.#build(about);
  }

  #build(about) {
    const { scene } = this;
    const place = [h("a", { class: "hint", href: href("course") }, "◂ Course"), h("span", { class: "hint" }, `${about.number} of ${about.of}`)];
    return h(
      "article",
      { class: "scene", "data-scene": about.id },
      h("div", { class: "row head" }, ...place),
      h("h1", {}, about.title),
      about.previously ? h("p", { class: "previously" }, h("b", {}, "Previously: "), about.previously) : null,
      this.lead,
      h("section", { class: "card teller", "aria-label": "Steps" }, this.told, this.coming, this.controls, this.end),
      this.panels,
      this.code?.element ?? null,
      this.skip,
    );
  }

  /** Show the words alone: without the scopes there is no queue to show. */
  showWordsOnly(why) {
    this.report(`${why} Scenes make queues of their own and remove them, so here are the words and the drawing only.`, { bad: true });
    this.told.after(h("ol", { class: "script" }, ...this.scene.steps.map(({ say: words }) => h("li", {}, words))));
    mark(this.lead, "class", "lead");
    this.controls.hidden = true;
    this.coming.hidden = true;
    this.end.hidden = false;
    const aside = this.scene.aside?.(null);
    if (aside) swap(this.panels, aside.element);
  }

  report(words, { bad = false } = {}) {
    mark(this.told, "class", bad ? "told bad" : "told");
    setText(this.told, words);
  }

  /** Show where the scene stands: `at` steps are done. */
  draw({ at, busy, failed, playing }) {
    const step = this.scene.steps[at];
    this.coming.hidden = !step || failed;
    setText(this.coming, step?.say ?? "");
    setText(this.next, step?.label ?? "Next");
    setText(this.play, playing ? "Pause" : "Play");
    mark(this.next, "aria-disabled", busy ? "true" : null); // not `disabled`, which would take the focus away
    const had = this.next === document.activeElement || this.play === document.activeElement;
    this.next.hidden = this.play.hidden = !step || failed;
    this.end.hidden = this.go.hidden = Boolean(step);
    this.skip.hidden = !step;
    if (had && this.next.hidden) (step ? this.reset : this.go).focus();
    mark(this.element, "data-at", at);
    mark(this.element, "data-state", failed ? "failed" : busy ? "busy" : step ? "waiting" : "done");
    [...this.dots.children].forEach((dot, i) => mark(dot, "class", i < at ? "done" : i === at ? (failed ? "failed" : "now") : null));
  }
}
