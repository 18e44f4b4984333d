// The view of the servers that share a home: this one in figures, and all of them in a table.

import { cluster, servers } from "../cluster.js";
import { h, keyed, mark, setText } from "../dom.js";
import { bytes, duration, whole } from "../format.js";
import { serverLink } from "../widgets/server_link.js";

const COLUMNS = ["Server", "Role", "Epoch", "Link", "Last seen", "Version"];
const FIGURES = [
  ["role", "role of this server"],
  ["epoch", "epoch"],
  ["number", "next link"],
  ["lag_links", "links behind"],
  ["lag", "behind"],
  ["grant", "may answer for"],
  ["unshipped", "not in the home"],
  ["diverged", "in diverged/"],
];

/** Show the members; returns a function that leaves them. */
export function show(outlet) {
  const view = membersView();
  outlet.append(view.element);
  return cluster.subscribe(view.draw);
}

function membersView() {
  const note = h("p", { class: "hint", role: "status" }, "…");
  const values = {};
  const tile = ([key, label]) => {
    values[key] = h("b", { "data-figure": key }, "–");
    return h("div", { class: "tile" }, values[key], h("span", {}, label));
  };
  const rows = h("tbody");
  const head = h("thead", {}, h("tr", {}, ...COLUMNS.map((word) => h("th", { scope: "col" }, word))));
  const element = h(
    "div",
    { class: "members" },
    h("div", { class: "row head" }, h("h1", {}, "Members")),
    note,
    h("div", { class: "tiles" }, ...FIGURES.map(tile)),
    h("div", { class: "card flush" }, h("table", { "aria-label": "Servers that share the home" }, head, rows)),
  );
  const shown = new Map();
  const draw = ({ known, error }) => {
    setText(note, noteOf(known, error));
    if (known === null) return;
    for (const [key, words] of Object.entries(figuresOf(known))) setText(values[key], words);
    mark(values.diverged, "data-bad", known.diverged_bytes > 0);
    keyed(rows, shown, servers(known), { key: ({ url }) => url, make: makeRow, update: (row, member) => row.update(member) });
  };
  return { element, draw };
}

function noteOf(known, error) {
  if (error !== null) return `Not connected: ${error.message}. What is shown may be old.`;
  if (known.role === "alone") return "No other server shares this one's log. Start a second one with the same --home, and both with --advertise.";
  return known.leader ? `Epoch ${whole(known.epoch)} is led by ${known.leader}.` : `No server is known to lead epoch ${whole(known.epoch)}.`;
}

function figuresOf(known) {
  const follows = known.role === "standby";
  return {
    role: known.is_caught_up ? known.role : `${known.role}, catching up`,
    epoch: whole(known.epoch),
    number: whole(known.number),
    lag_links: follows ? whole(known.follow_lag_links) : "–",
    lag: follows ? duration(known.follow_lag_ms) : "–",
    grant: duration(known.grant_left_ms),
    unshipped: bytes(known.unshipped_bytes),
    diverged: bytes(known.diverged_bytes),
  };
}

function makeRow({ url, isHere }) {
  const cells = Object.fromEntries(["role", "epoch", "number", "seen", "version"].map((name) => [name, h("td", { "data-cell": name })]));
  const name = isHere ? h("span", {}, `${url || "this server"} (here)`) : serverLink(url);
  return {
    element: h("tr", { "data-server": url }, h("th", { scope: "row" }, name), ...Object.values(cells)),
    update(member) {
      setText(cells.role, member.role);
      mark(cells.role, "data-role", member.role);
      setText(cells.epoch, whole(member.epoch));
      setText(cells.number, whole(member.number));
      setText(cells.seen, member.isHere ? "now" : `${duration(member.age_ms)} ago`);
      setText(cells.version, member.version || "–");
    },
  };
}
