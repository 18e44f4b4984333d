// Asking for a key, where the server wants one.

import { keepKey, keyOf } from "../api.js";
import { h, swap } from "../dom.js";

/** Show the form; resolves once a key was given. */
export function askForKey(outlet, error) {
  return new Promise((resolve) => {
    const field = h("input", { type: "password", id: "key", autocomplete: "off", spellcheck: "false", required: true });
    const submit = (event) => {
      event.preventDefault();
      keepKey(field.value.trim());
      resolve();
    };
    const wrong = keyOf() || error.status === 403;
    swap(
      outlet,
      h(
        "form",
        { class: "card gate", on: { submit } },
        h("h1", {}, "This server has keys"),
        h("p", { class: "hint" }, "Type one that may read. It is kept for this tab only and sent as a header."),
        wrong ? h("p", { class: "bad", role: "alert" }, error.message) : null,
        h("label", { for: "key" }, "API key"),
        field,
        h("button", { class: "primary" }, "Open the console"),
      ),
    );
    field.focus();
  });
}
