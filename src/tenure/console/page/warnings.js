// Derive the warnings about a queue from samples. Pure.

import { duration, roundUp, whole } from "./format.js";

const SAMPLES_MIN = 8; // seconds that the oldest job must have got older in a row
const AGE_MS_MIN = 10_000;
const ACKS_MIN = 20;
const POISON_DELIVERIES = 3;
const LEASE_FACTOR = 3; // a lease should be this many times the p99 of processing

/** Warnings as `{kind, text}`. `queue`, `meters` and `config` are the API's, `ages` are oldest ages, one a second. */
export function warnings({ queue, meters, config, ages = [] }) {
  return [oldest(queue, ages), suspects(queue), poison(meters, config), lease(meters, config), parked(queue)].filter(Boolean);
}

function oldest(queue, ages) {
  const recent = ages.slice(-SAMPLES_MIN);
  const rising = recent.length === SAMPLES_MIN && recent.every((age, i) => i === 0 || age > recent[i - 1]);
  if (!rising || queue.oldest_ready_ms < AGE_MS_MIN) return null;
  const held = queue.in_flight ? "workers do not keep up" : "nobody is working on this queue";
  return { kind: "oldest", text: `The oldest job has waited ${duration(queue.oldest_ready_ms)} and is getting older: ${held}.` };
}

function suspects(queue) {
  if (!queue.suspects) return null;
  const what = queue.suspects === 1 ? "1 job waits" : `${whole(queue.suspects)} jobs wait`;
  return { kind: "suspects", text: `${what} apart: ${queue.suspects === 1 ? "its" : "their"} worker was lost. The log of the worker says what it ran, and how it ended.` };
}

function poison(meters, config) {
  const worst = meters?.worst;
  if (!worst) return null;
  const most = config.max_deliveries;
  if (worst.tries < (most ? Math.min(POISON_DELIVERIES, most) : POISON_DELIVERIES)) return null;
  const fate = most ? `of ${most}` : "and there is no limit: set max_deliveries and a dead_letter";
  return { kind: "poison", seq: worst.seq, text: `Job #${worst.seq} has been tried ${worst.tries} times ${fate}. It may be poison.` };
}

function lease(meters, config) {
  const p99 = meters?.processing_ms_p99 ?? meters?.processing_ms?.p99;
  if (!p99 || meters.acked < ACKS_MIN || config.lease_ms >= LEASE_FACTOR * p99) return null;
  const wanted = Math.min(roundUp(LEASE_FACTOR * p99), 86_400_000);
  return {
    kind: "lease",
    text: `The lease of ${duration(config.lease_ms)} is short: 1 in 100 jobs takes longer than ${duration(p99)}. Set lease_ms to ${whole(wanted)}.`,
  };
}

function parked(queue) {
  if (!queue.parked) return null;
  return { kind: "parked", text: `${queue.parked === 1 ? "1 parked job waits" : `${whole(queue.parked)} parked jobs wait`} for a redrive.` };
}
