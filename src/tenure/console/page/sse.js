// Event streams through fetch, because an EventSource cannot carry a header.

import { open } from "./api.js";

/** Frames of a stream as `{id, event, data}`, `data` as text; ends when the server ends it. Raises ApiError. */
export async function* frames(path, { lastId, signal }) {
  const headers = { accept: "text/event-stream" };
  if (lastId) headers["last-event-id"] = lastId;
  const response = await open("GET", path, { headers, signal });
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new Parser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield parser.take(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Pieces of text in, whole frames out. Comments and `retry` are dropped. */
export class Parser {
  #rest = "";

  take(piece) {
    const text = this.#rest + piece;
    const found = [];
    let start = 0;
    for (;;) {
      const end = text.indexOf("\n\n", start);
      if (end < 0) break;
      const frame = parse(text.slice(start, end));
      if (frame !== null) found.push(frame);
      start = end + 2;
    }
    this.#rest = text.slice(start);
    return found;
  }
}

function parse(block) {
  const frame = { id: null, event: "message", data: "" };
  let lines = 0;
  for (const line of block.split("\n")) {
    if (line.startsWith("data: ")) frame.data += (lines++ ? "\n" : "") + line.slice(6);
    else if (line.startsWith("event: ")) frame.event = line.slice(7);
    else if (line.startsWith("id: ")) frame.id = line.slice(4);
  }
  return lines ? frame : null;
}
