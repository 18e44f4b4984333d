// Format numbers, times and bytes. Pure.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 12,345 */
export function whole(value) {
  return WHOLE.format(value);
}

/** 950, 12.3k, 4.5M */
export function short(value) {
  if (value < 1_000) return value < 10 && value % 1 ? value.toFixed(1) : String(Math.round(value));
  if (value < 999_950) return `${(value / 1_000).toFixed(value < 99_950 ? 1 : 0)}k`;
  return `${(value / 1_000_000).toFixed(1)}M`;
}

/** 0/s, 3.4/s, 1.2k/s */
export function perSecond(value) {
  return `${short(value)}/s`;
}

/** 340 ms, 4.2 s, 12 min, 3 h 20 min, 4 d */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return ms > 0 ? "<1 ms" : "0 ms";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1_000).toFixed(ms < 9_950 ? 1 : 0)} s`;
  const minutes = Math.round(ms / 60_000);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.round(minutes / 1_440)} d`;
}

/** 14:03:07.250, local time; of another day than `now` with its date and without the thousandths: 2026-01-31 14:03:07 */
export function clock(ms, now) {
  const at = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (at.toDateString() !== new Date(now).toDateString()) return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
  return `${time}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** 2026-01-31T14:03:07.250+01:00: a local time with its offset. */
export function isoTime(ms) {
  const at = new Date(ms);
  const offset = -at.getTimezoneOffset();
  const two = (value) => String(Math.floor(Math.abs(value))).padStart(2, "0");
  const zone = offset === 0 ? "Z" : `${offset < 0 ? "-" : "+"}${two(offset / 60)}:${two(offset % 60)}`;
  return new Date(ms + offset * 60_000).toISOString().replace("Z", zone);
}

/** 17 B, 3.2 KiB */
export function bytes(count) {
  if (count < 1_024) return `${count} B`;
  if (count < 1_048_576) return `${(count / 1_024).toFixed(1)} KiB`;
  return `${(count / 1_048_576).toFixed(1)} MiB`;
}

/** Round a duration up to two leading digits, as for a config. */
export function roundUp(ms) {
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(ms, 1))) - 1);
  return Math.ceil(ms / unit) * unit;
}

/** The offset, sixteen bytes in hex, and what of them can be printed; line by line. */
export function hex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = Array.from(data.subarray(at, at + 16));
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const shown = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${shown}`);
  }
  return lines.join("\n");
}
