// The banner of a server that cannot show its queues: one that follows another, or does not answer. It lies above the page, so that nothing moves.

import { servers } from "../cluster.js";
import { h, mark, swap } from "../dom.js";
import { serverLink } from "./server_link.js";

/** The banner; `draw({known, error})`. */
export function banner() {
  const element = h("div", { class: "banner", role: "status", hidden: true });
  return {
    element,
    draw({ known, error }) {
      const { words, links } = about(known, error);
      const all = JSON.stringify([words, links]);
      if (element.dataset.all === all) return;
      mark(element, "data-all", all);
      element.hidden = words === "";
      swap(element, h("span", {}, words), ...links.map((url) => serverLink(url)));
    },
  };
}

function about(known, error) {
  if (known === null || known.role === "alone") return { words: "", links: [] };
  const others = servers(known).filter(({ isHere }) => !isHere);
  if (error !== null) {
    const words = others.length ? "This server does not answer. The others that were seen:" : "This server does not answer.";
    return { words, links: others.map(({ url }) => url) };
  }
  if (known.role !== "standby") return { words: "", links: [] };
  const words = known.leader ? "This server is a standby. The leader is" : "This server is a standby, and no server is known to lead.";
  return { words, links: known.leader ? [known.leader] : [] };
}
