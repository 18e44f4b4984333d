// A point in time: short for the eye, whole under the pointer and for machines.

import { h } from "../dom.js";
import { clock, isoTime } from "../format.js";

/** A `<time>`; `now` decides whether the day goes without saying. */
export function moment(ms, now) {
  const whole = isoTime(ms);
  return h("time", { datetime: whole, title: whole }, clock(ms, now));
}
