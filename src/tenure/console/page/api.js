// HTTP requests to the server, with one kind of error. The key goes into a header and never into an address.

const BASE = new URL("../", import.meta.url);
const KEY = "tenure.key";

/** A refusal of the server, or an unreachable server (`status` 0). */
export class ApiError extends Error {
  constructor(status, code, message, detail = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.detail = detail;
  }
}

export function keyOf() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function keepKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/** Return why a key is not valid; null where it is. A header, and so a key, has visible ASCII only. */
export function keyProblem(key) {
  const wrong = [...key].find((char) => !/[!-~]/.test(char));
  if (wrong === undefined) return null;
  const code = wrong.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return `A key has only letters, digits and signs of ASCII, without spaces. This one has ${/\s/.test(wrong) ? "a space" : `“${wrong}”`} (U+${code}) in it: copy it again.`;
}

function headersOf(more) {
  const key = keyOf();
  const wrong = keyProblem(key);
  if (wrong !== null) throw new ApiError(401, "unauthorized", wrong);
  return key ? { authorization: `Bearer ${key}`, ...more } : more;
}

/** Send a request and return the answer's text; raises ApiError. */
export async function ask(method, path, { body, headers, signal, keepalive } = {}) {
  const response = await open(method, path, { body, headers, signal, keepalive });
  try {
    return await response.text();
  } catch (error) {
    throw signal?.aborted ? error : unreachable();
  }
}

/** Send a request and return the answer as JSON; raises ApiError. */
export async function call(method, path, body, options = {}) {
  return JSON.parse(await ask(method, path, { ...options, body }));
}

/** Send a request and return the response once its head is there; raises ApiError. With `keepalive` it outlives the page. */
export async function open(method, path, { body, headers = {}, signal, keepalive = false } = {}) {
  const json = body === undefined ? {} : { "content-type": "application/json" };
  const sent = headersOf({ ...json, ...headers }); // before the request: a wrong key is not a network error
  let response;
  try {
    response = await fetch(new URL(path, BASE), {
      method,
      headers: sent,
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
      signal,
      keepalive,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    throw signal?.aborted ? error : unreachable();
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

function unreachable() {
  return new ApiError(0, "unreachable", "the server cannot be reached");
}

async function refusal(response) {
  try {
    const { error } = await response.json();
    return new ApiError(response.status, error.code, error.message, error.detail ?? {});
  } catch {
    return new ApiError(response.status, "unexpected", `the server answered ${response.status}`);
  }
}

/** Return the path of a topic, or of a resource beneath it. */
export function topicPath(topic, rest = "") {
  return `v0/topics/${encodeURIComponent(topic)}${rest}`;
}
