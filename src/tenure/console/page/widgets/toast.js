// Toasts: short messages about the last action, announced politely.

import { h } from "../dom.js";

const SHOWN_MS = 5_000;
const SHOWN_MAX = 4;

/** Show a message; `kind` is good, bad or plain. */
export function toast(words, kind = "plain") {
  const root = document.getElementById("toasts");
  const element = h("div", { class: `toast ${kind}` }, words);
  root.append(element);
  while (root.children.length > SHOWN_MAX) root.firstChild.remove();
  setTimeout(() => element.remove(), SHOWN_MS);
}

/** Run an action and show its outcome. Returns its result, or undefined where it failed. */
export async function runAndToast(work, words) {
  try {
    const result = await work();
    const message = typeof words === "function" ? words(result) : words;
    if (message) toast(message, "good");
    return result;
  } catch (error) {
    toast(error.message, "bad");
    return undefined;
  }
}
