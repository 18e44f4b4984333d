// Short words about what just happened, read out politely.

import { h } from "../dom.js";

const SHOWN_MS = 5_000;
const SHOWN_MAX = 4;

/** Say something; `kind` is good, bad or plain. */
export function toast(words, kind = "plain") {
  const root = document.getElementById("toasts");
  const element = h("div", { class: `toast ${kind}` }, words);
  root.append(element);
  while (root.children.length > SHOWN_MAX) root.firstChild.remove();
  setTimeout(() => element.remove(), SHOWN_MS);
}

/** Do something and say how it went. Returns what it gave, or undefined where it failed. */
export async function tell(work, words) {
  try {
    const result = await work();
    const said = typeof words === "function" ? words(result) : words;
    if (said) toast(said, "good");
    return result;
  } catch (error) {
    toast(error.message, "bad");
    return undefined;
  }
}
