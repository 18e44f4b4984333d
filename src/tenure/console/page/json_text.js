// Handle JSON as text. Parsing would change what was stored: 1e400, long integers, duplicate keys. Pure.

/** Return the text of a top-level member of an object, unchanged; null where there is none. */
export function member(text, name) {
  let at = skipSpace(text, 0);
  if (text[at] !== "{") return null;
  at = skipSpace(text, at + 1);
  while (at < text.length && text[at] === '"') {
    const end = skipString(text, at);
    const found = JSON.parse(text.slice(at, end)) === name;
    const start = skipSpace(text, skipSpace(text, end) + 1); // after the colon
    at = skipValue(text, start);
    if (found) return text.slice(start, at);
    at = skipSpace(text, at);
    if (text[at] === ",") at = skipSpace(text, at + 1);
  }
  return null;
}

/** Return the JSON indented over lines; strings and numbers stay as written. Stops after `most` characters. */
export function indent(text, most = Infinity) {
  let out = "";
  let depth = 0;
  let at = 0;
  const line = () => "\n" + "  ".repeat(Math.min(depth, 40));
  while (at < text.length && out.length < most) {
    const char = text[at];
    if (char === '"') {
      const end = skipString(text, at);
      out += text.slice(at, end);
      at = end;
      continue;
    }
    at++;
    if (char === "{" || char === "[") {
      const next = skipSpace(text, at);
      if (text[next] === "}" || text[next] === "]") {
        out += char + text[next];
        at = next + 1;
      } else {
        depth++;
        out += char + line();
      }
    } else if (char === "}" || char === "]") {
      depth--;
      out += line() + char;
    } else if (char === ",") out += char + line();
    else if (char === ":") out += ": ";
    else if (!" \n\r\t".includes(char)) out += char;
  }
  return out;
}

function skipSpace(text, at) {
  while (at < text.length && " \n\r\t".includes(text[at])) at++;
  return at;
}

function skipString(text, at) {
  for (let i = at + 1; i < text.length; i++) {
    if (text[i] === "\\") i++;
    else if (text[i] === '"') return i + 1;
  }
  return text.length;
}

function skipValue(text, at) {
  if (text[at] === '"') return skipString(text, at);
  if (text[at] === "{" || text[at] === "[") {
    let depth = 0;
    for (let i = at; i < text.length; i++) {
      if (text[i] === '"') i = skipString(text, i) - 1;
      else if (text[i] === "{" || text[i] === "[") depth++;
      else if ((text[i] === "}" || text[i] === "]") && --depth === 0) return i + 1;
    }
    return text.length;
  }
  while (at < text.length && !",}] \n\r\t".includes(text[at])) at++;
  return at;
}
