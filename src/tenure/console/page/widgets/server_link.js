// A link to another server. Its address comes from a store, so what is no address of the web stays text.

import { addressOf } from "../cluster.js";
import { h, mark } from "../dom.js";

/** The link, which leads to the view that is open here. */
export function serverLink(url, words = url) {
  const address = addressOf(url);
  if (address === null) return h("span", {}, words);
  const aim = ({ currentTarget }) => mark(currentTarget, "href", `${address}/${location.hash}`);
  return h("a", { href: `${address}/`, rel: "noreferrer", on: { pointerdown: aim, focus: aim, click: aim } }, words);
}
