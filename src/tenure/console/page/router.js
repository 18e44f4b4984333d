// Addresses by hash: #/queues, #/queue/<name>, #/course/<scene>, #/members. A view is a module with `show(outlet, parts)`, which returns a function that leaves it.

// Views with a label are in the navigation.
const VIEWS = [
  { path: "queues", label: "Queues", load: () => import("./views/queues.js") },
  { path: "queue", load: () => import("./views/queue.js") },
  { path: "course", label: "Course", load: () => import("./views/course.js") },
  { path: "members", label: "Members", load: () => import("./views/members.js") },
];

let leave = () => {};
let turn = 0;

/** Return the entries of the navigation: `[{path, label}]`. */
export function places() {
  return VIEWS.filter(({ label }) => label);
}

/** Return the decoded parts of the current address. */
export function parts() {
  const words = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  return words.map((word) => {
    try {
      return decodeURIComponent(word);
    } catch {
      return word;
    }
  });
}

export function go(...words) {
  location.hash = "#/" + words.map(encodeURIComponent).join("/");
}

export function href(...words) {
  return "#/" + words.map(encodeURIComponent).join("/");
}

/** Show the view that the address names, after leaving the one before. */
export async function navigate(outlet, onShown = () => {}) {
  const mine = ++turn;
  const [name, ...rest] = parts();
  const view = VIEWS.find(({ path }) => path === name) ?? VIEWS[0];
  const { show } = await view.load();
  if (mine !== turn) return; // another navigation began during the load
  leave();
  leave = () => {};
  outlet.replaceChildren();
  onShown(view.path, rest);
  leave = show(outlet, rest) ?? (() => {});
}
