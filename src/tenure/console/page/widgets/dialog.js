// A dialog: a title, a body and its actions.

import { h } from "../dom.js";

/** Open a dialog. `actions` are `{label, kind, run}`; `run` may return false to keep it open. Returns the element. */
export function openDialog({ title, body, actions = [], close = "Cancel" }) {
  const dialog = h("dialog", { "aria-label": title });
  const leave = () => dialog.close();
  const buttons = actions.map(({ label, kind = "primary", run }) =>
    h("button", { type: "button", class: kind, on: { click: async () => (await run()) !== false && leave() } }, label),
  );
  dialog.append(
    h("h2", {}, title),
    body,
    h("div", { class: "row end" }, h("button", { type: "button", class: "quiet", on: { click: leave } }, close), ...buttons),
  );
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && leave());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Ask for confirmation; resolves to true where it was confirmed. */
export function confirmed(title, words, label, kind = "danger") {
  return new Promise((resolve) => {
    const actions = [{ label, kind, run: () => resolve(true) }];
    const dialog = openDialog({ title, body: h("p", {}, words), actions });
    dialog.addEventListener("close", () => resolve(false));
  });
}
