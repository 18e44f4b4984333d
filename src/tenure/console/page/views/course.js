// The view of the course: fourteen cards, or one scene.

import { h } from "../dom.js";
import { href } from "../router.js";
import { SCENES } from "../scenes/index.js";
import { playScene } from "../scenes/player.js";
import { sweep, whyNoScratch } from "../scratch.js";

const DONE = "tenure.course";

/** Show the cards or the scene that the address names; returns a function that leaves it. */
export function show(outlet, [id]) {
  const at = SCENES.findIndex((scene) => scene.id === id);
  return at < 0 ? showCards(outlet) : showScene(outlet, at);
}

function done() {
  return (sessionStorage.getItem(DONE) ?? "").split(" ").filter(Boolean);
}

function keepDone(id) {
  sessionStorage.setItem(DONE, [...new Set([...done(), id])].join(" "));
}

function showCards(outlet) {
  const why = whyNoScratch();
  const seen = done();
  const words = why ? `${why} Without it the scenes are words and drawings only.` : "Each scene runs on this broker, in a queue of its own that is removed when you leave it. Nothing is pretended.";
  const next = SCENES.find(({ id }) => !seen.includes(id)) ?? SCENES[0];
  outlet.append(
    h("div", { class: "row head" }, h("h1", {}, "Course"), h("span", { class: "hint" }, `${seen.length} of ${SCENES.length} played`), h("span", { class: "spring" }), h("a", { class: "button", href: href("course", next.id) }, seen.length ? "Go on" : "Begin")),
    h("p", { class: why ? "bad" : "hint" }, words),
    h("ol", { class: "scenes" }, ...SCENES.map((scene, i) => card(scene, i + 1, seen.includes(scene.id)))),
  );
  if (why === null) sweep().catch(() => {}); // the next visit tries again
}

function card(scene, number, isDone) {
  const drawing = h("div", { class: "thumb", "aria-hidden": "true" });
  scene.load().then((module) => drawing.append(module.default.drawing())).catch(() => {}); // a card does without
  const state = isDone ? h("span", { class: "played", title: "Played to its end" }, "✓ played") : null;
  return h(
    "li",
    { class: "card scene-card", "data-scene": scene.id },
    drawing,
    h("h2", {}, h("span", { class: "number" }, number), h("a", { href: href("course", scene.id) }, scene.title)),
    state,
    h("p", { class: "hint" }, scene.line),
  );
}

function showScene(outlet, at) {
  let leave = () => {};
  let left = false;
  const about = { ...SCENES[at], number: at + 1, of: SCENES.length, next: SCENES[at + 1] };
  SCENES[at].load().then(
    (module) => {
      if (!left) leave = playScene(outlet, module.default, { about, onDone: () => keepDone(about.id) });
    },
    () => outlet.append(h("p", { class: "empty" }, "This scene could not be loaded. Reload the page.")),
  );
  return () => {
    left = true;
    leave();
  };
}
