// Plots of the broker's meters: time in queue, processing time, deliveries; and the last minute's throughput.

import { call, topicPath } from "../api.js";
import { h, mark, s, setText, swap } from "../dom.js";
import { duration, perSecond, whole } from "../format.js";
import { histogram } from "./histogram.js";
import { moment } from "./moment.js";

const WIDTH = 280;
const HEIGHT = 96;
const LINES = [
  ["produced", "in"],
  ["claimed", "handed out"],
  ["acked", "done"],
  ["expired", "ran out"],
  ["lost", "lost"],
  ["returned", "returned"],
];

/** The plots; `load()` reads the meters, `draw(rates, now)` moves the throughput. `onMeters` is given what was read. */
export function plots(topic, { onMeters }) {
  const deliveries = (value) => `${Math.ceil(value)}`;
  const shapes = {
    in_queue_ms: histogram("Time in queue, append to first claim", duration),
    processing_ms: histogram("Processing time, claim to ack", duration),
    deliveries: histogram("Deliveries per job", deliveries),
  };
  const flow = throughput();
  const table = h("tbody");
  const head = ["", "p50", "p90", "p99", "jobs"].map((word) => h("th", { scope: "col" }, word));
  const element = h(
    "section",
    { class: "card plots", "aria-label": "Measured" },
    h("div", { class: "row head" }, h("h2", {}, "Measured by the broker", h("span", { class: "hint since" }))),
    h("div", { class: "grid" }, flow.element, ...Object.values(shapes).map((shape) => shape.element)),
    h("details", {}, h("summary", {}, "As a table"), h("table", {}, h("thead", {}, h("tr", {}, ...head)), table)),
  );
  async function load() {
    const meters = await call("GET", topicPath(topic, "/meters"));
    for (const [name, shape] of Object.entries(shapes)) shape.draw(meters[name]);
    swap(element.querySelector(".since"), ...(meters.since === null ? [" nothing yet"] : [" since ", moment(meters.since, Date.now())]));
    swap(table, ...rows(meters, deliveries));
    onMeters(meters);
  }
  return { element, load, draw: flow.draw };
}

function rows(meters, deliveries) {
  const lines = [["time in queue", "in_queue_ms", duration], ["processing", "processing_ms", duration], ["deliveries", "deliveries", deliveries]];
  return lines.map(([label, name, unit]) => {
    const { p50, p90, p99, count } = meters[name];
    const cells = [p50, p90, p99].map((value) => h("td", {}, value === null ? "–" : unit(value)));
    return h("tr", {}, h("th", { scope: "row" }, label), ...cells, h("td", {}, whole(count)));
  });
}

function throughput() {
  const paths = LINES.map(([name]) => s("path", { class: `flow ${name}` }));
  const svg = s("svg", { class: "bars", viewBox: `0 0 ${WIDTH} ${HEIGHT + 16}`, role: "img", "aria-label": "Throughput of the last minute" }, ...paths);
  const legend = h("p", { class: "hint quantiles" });
  const element = h("figure", { class: "plot" }, h("figcaption", {}, "Throughput, the last minute"), svg, legend);
  const words = LINES.map(([name, label]) => [name, h("span", { class: `key ${name}` }, label)]);
  swap(legend, ...words.flatMap(([, span]) => [span, " "]));
  return {
    element,
    draw(rates, now) {
      const series = LINES.map(([name]) => rates.series(name, now));
      const most = Math.max(1, ...series.flat());
      series.forEach((values, i) => {
        const y = (value) => (HEIGHT - (value / most) * (HEIGHT - 4)).toFixed(1);
        const step = WIDTH / (values.length - 1);
        mark(paths[i], "d", values.map((value, x) => `${x ? "L" : "M"}${(x * step).toFixed(1)},${y(value)}`).join(""));
      });
      words.forEach(([name, span], i) => setText(span, `${LINES[i][1]} ${perSecond(rates.rate(name, now))}`));
      mark(svg, "aria-label", `Throughput of the last minute: ${words.map(([, span]) => span.textContent).join(", ")}`);
    },
  };
}
