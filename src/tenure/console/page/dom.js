// Create elements; no other module does. Markup is impossible: every string becomes a text node.

const SVG = "http://www.w3.org/2000/svg";

/** An element. `props` are attributes, except `on` (listeners), `value`/`checked`/`disabled` and the like (properties). */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** An SVG element, as `h`. */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "selected", "required"]);

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (PROPERTIES.has(name)) {
      element[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false).map(text));
  return element;
}

function text(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/** Set the text of an element only where it differs: an unchanged node costs no layout. */
export function setText(element, words) {
  const wanted = String(words);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Set or remove an attribute only where it differs. */
export function mark(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, String(value));
  }
}

/** Replace the children of an element. */
export function swap(element, ...children) {
  element.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false).map(text));
}

/** Keep one element per key, in the order of `items`; elements without an item are removed. */
export function keyed(parent, known, items, { key, make, update }) {
  const seen = new Set();
  let after = null;
  for (const item of items) {
    const name = key(item);
    seen.add(name);
    let entry = known.get(name);
    if (entry === undefined) known.set(name, (entry = make(item)));
    const element = entry.element ?? entry;
    const place = after === null ? parent.firstChild : after.nextSibling;
    if (element !== place) parent.insertBefore(element, place);
    after = element;
    update(entry, item);
  }
  for (const [name, entry] of known) {
    if (!seen.has(name)) {
      (entry.element ?? entry).remove();
      known.delete(name);
    }
  }
}
