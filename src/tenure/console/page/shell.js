// The frame around every view: navigation, the key in use, light or dark.

import { keepKey } from "./api.js";
import { h, setText, swap } from "./dom.js";
import { href, places } from "./router.js";
import { toggleTheme } from "./theme.js";
import { banner } from "./widgets/banner.js";
import { openDialog } from "./widgets/dialog.js";

const KEYS = [
  ["p", "produce a job"],
  ["c", "claim as a worker"],
  ["← →", "walk along the strip"],
  ["Enter", "open the job under the cursor"],
  ["/", "search the queues"],
  ["t", "light or dark"],
  ["Esc", "close what is open"],
  ["?", "this list"],
];

/** Build the frame; returns its outlet and its setters. */
export function buildShell(root) {
  const outlet = h("main", { id: "main", tabindex: "-1" });
  const place = h("span", { class: "place" });
  const session = h("span", { class: "session" });
  const theme = h("button", { class: "quiet icon", "aria-label": "Light or dark", title: "Light or dark (t)", on: { click: toggleTheme } }, "◐");
  const help = h("button", { class: "quiet icon", "aria-label": "Keys", title: "Keys (?)", on: { click: showKeys } }, "?");
  const header = h(
    "header",
    { class: "top" },
    h("a", { class: "brand", href: href("queues") }, h("span", { class: "logo", "aria-hidden": "true" }, h("i"), h("i")), "Tenure"),
    h("nav", { "aria-label": "Place" }, ...places().map(({ path, label }) => h("a", { href: href(path) }, label)), place),
    h("span", { class: "spring" }),
    session,
    theme,
    help,
  );
  const standby = banner();
  root.replaceChildren(header, outlet, standby.element, h("div", { id: "toasts", role: "status", "aria-live": "polite" }));
  addEventListener("keydown", shortcuts);
  return {
    outlet,
    setCluster: standby.draw,
    setSession: (about) => swap(session, ...sessionWords(about)),
    setOffline: (words) => swap(outlet, h("p", { class: "empty" }, `Not connected: ${words}. Trying again …`)),
    setPlace(view, parts) {
      setText(place, parts[0] ?? "");
      document.title = parts[0] ? `${parts[0]} · Tenure` : "Tenure";
    },
  };
}

function sessionWords({ keys, scopes, prefixes }) {
  if (!keys) return [h("span", { class: "hint" }, "no keys on this server")];
  const forget = () => {
    keepKey("");
    location.reload();
  };
  const reach = prefixes === null ? "" : ` on ${prefixes.join(", ")}`;
  return [
    h("span", { class: "hint", title: `This key may ${scopes.join(", ")}${reach}` }, `key: ${scopes.join(" ")}`),
    h("button", { class: "quiet", on: { click: forget } }, "Forget"),
  ];
}

function shortcuts(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (event.key === "t") toggleTheme();
  else if (event.key === "?") showKeys();
}

/** Return whether key presses go into a field. */
export function isTyping(target) {
  return target instanceof Element && target.closest("input, textarea, select, dialog") !== null;
}

function showKeys() {
  const rows = KEYS.map(([key, words]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, words)));
  openDialog({ title: "Keys", body: h("table", { class: "keys" }, h("tbody", {}, ...rows)), close: "Close" });
}
