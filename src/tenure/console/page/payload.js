// Format a payload for the page: always as text, always bounded. Pure.

import { bytes, hex } from "./format.js";
import { indent } from "./json_text.js";

const SHOWN_MAX = 20_000;
const HEX_BYTES_MAX = 1_024;

/** `{kind, text, note}` for the JSON text of a payload. A string with control characters is shown as its bytes. */
export function describe(json) {
  const size = new TextEncoder().encode(json.length > 1 << 20 ? json.slice(0, 1 << 20) : json).length;
  if (json.startsWith('"')) {
    const value = JSON.parse(json);
    if (isBinary(value)) {
      const data = new TextEncoder().encode(value.slice(0, HEX_BYTES_MAX));
      return { kind: "binary", text: hex(data.subarray(0, HEX_BYTES_MAX)), note: cut(data.length > HEX_BYTES_MAX || value.length > HEX_BYTES_MAX, size) };
    }
    return { kind: "text", text: value.slice(0, SHOWN_MAX), note: cut(value.length > SHOWN_MAX, size) };
  }
  const text = indent(json, SHOWN_MAX);
  return { kind: "JSON", text, note: cut(text.length >= SHOWN_MAX, size) };
}

function isBinary(value) {
  return /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffd]/.test(value.slice(0, 4_096));
}

function cut(isCut, size) {
  return isCut ? `${bytes(size)}, the rest is not shown` : bytes(size);
}
