// One time through a scene: its scratch topics, what is drawn of them, and the world that the steps act in.

import { create, namesFor, remove } from "../scratch.js";
import { QueueStore } from "../store.js";
import { lettersPanel, logPanel, queuePanel } from "./panels.js";
import { World } from "./world.js";

const TICK_MS = 250;

export class Run {
  at = 0; // steps done
  busy = true;
  failed = false;
  #stop = new AbortController();
  #stores = {};
  #queues = {}; // the panels of those that are drawn as strips
  #panels = [];
  #ticker = 0;

  constructor(scene, id, { onChange, onLine }) {
    this.scene = scene;
    this.topics = Object.entries(scene.topics);
    this.names = namesFor(id, Object.keys(scene.topics));
    this.onChange = onChange;
    this.onLine = onLine;
  }

  /** Make the topics and begin to follow them; returns the elements that show them. Raises ApiError. */
  async open() {
    await create(this.names, this.scene.topics);
    if (this.#stop.signal.aborted) {
      remove(this.names); // left meanwhile
      return [];
    }
    for (const [key, topic] of this.topics)
      if (this.#kind(key, topic) === "strip") this.#stores[key] = new QueueStore(this.names[key], { onChange: this.onChange });
    const heard = { onChange: this.onChange, onLine: this.onLine, onRefused: (key, found) => this.#queues[key]?.refused(found) };
    this.world = new World({ names: this.names, stores: this.#stores, signal: this.#stop.signal, ...heard });
    this.#panels = this.topics.map(([key, topic]) => this.#panel(key, topic)).filter(Boolean);
    const aside = this.scene.aside?.(this.world);
    if (aside) this.#panels.push({ draw() {}, tick: () => aside.draw?.(), stop() {}, ...aside });
    for (const store of Object.values(this.#stores)) store.start();
    this.#ticker = setInterval(() => document.hidden || this.#panels.forEach((panel) => panel.tick()), TICK_MS);
    await this.reread();
    return this.#panels.map((panel) => panel.element);
  }

  #kind(key, { show, config = {} }) {
    const isLetters = this.topics.some(([, other]) => other.config?.dead_letter === key);
    return show ?? (isLetters ? "letters" : config.type === "log" ? "log" : "strip");
  }

  #panel(key, topic) {
    const kind = this.#kind(key, topic);
    if (kind === "strip") return (this.#queues[key] = queuePanel(topic.label ?? "The queue", { store: this.#stores[key], actors: this.world.actors[key], producer: key === this.world.main }));
    if (kind === "log") return logPanel(topic.label ?? "The log", { read: () => this.world.read(key), readers: this.world.readers });
    if (kind !== "letters") return null;
    const source = this.topics.find(([, other]) => other.config?.dead_letter === key)?.[0] ?? this.world.main;
    return lettersPanel(this.names[key], { source: this.#stores[source] });
  }

  draw() {
    for (const panel of this.#panels) panel.draw();
  }

  /** Logs and dead letters have no stream here: they are read again after every step. */
  async reread() {
    for (const panel of this.#panels) await panel.reread?.();
  }

  /** Stop what runs and remove the topics. */
  close() {
    this.#stop.abort();
    clearInterval(this.#ticker);
    for (const store of Object.values(this.#stores)) store.stop();
    this.world?.stop();
    for (const panel of this.#panels) panel.stop();
    remove(this.names);
  }
}
