// One badge and one colour per worker, the same wherever it appears. Pure.

const HUES = 8; // classes hue-0 to hue-7 in the style sheet

/** The class of a worker's colour. */
export function hueOf(node) {
  let hash = 0;
  for (let i = 0; i < node.length; i++) hash = (hash * 31 + node.charCodeAt(i)) >>> 0;
  return `hue-${((hash ^ (hash >>> 7)) >>> 0) % HUES}`;
}

/** At most three characters that stand for a worker: worker-12 is w12, alice is ali. */
export function badgeOf(node) {
  const found = /^([^0-9]*?)[-_.:]?([0-9]{1,2})$/.exec(node);
  if (found && found[1]) return (found[1][0] + found[2]).slice(0, 3);
  return Array.from(node).slice(0, 3).join("");
}
