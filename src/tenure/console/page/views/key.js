// The form for a key, where the server requires one.

import { keepKey, keyOf, keyProblem } from "../api.js";
import { h, setText, swap } from "../dom.js";

/** Show the form; resolves once a key was given. */
export function askForKey(outlet, error) {
  return new Promise((resolve) => {
    const field = h("input", { type: "password", id: "key", autocomplete: "off", spellcheck: "false", required: true });
    const submit = (event) => {
      event.preventDefault();
      const key = field.value.trim();
      const problem = key ? keyProblem(key) : "Type a key.";
      if (problem !== null) return refuse(problem);
      keepKey(key);
      resolve();
    };
    const said = h("p", { class: "bad", role: "alert", hidden: true });
    const refuse = (words) => {
      said.hidden = false;
      setText(said, words);
      field.select();
    };
    swap(
      outlet,
      h(
        "form",
        { class: "card gate", on: { submit } },
        h("h1", {}, "This server has keys"),
        h("p", { class: "hint" }, "Type one that may read. It is kept for this tab only and sent as a header."),
        said,
        h("label", { for: "key" }, "API key"),
        field,
        h("button", { class: "primary" }, "Open the console"),
      ),
    );
    field.focus();
    if (keyOf() || error.status === 403) refuse(error.message);
  });
}
