"""Metrics of a log that lives in a store, as families of ``GET /v0/metrics``."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.chain.shipped import ShippedLog
from tenure.http.api.prometheus import Family, histogram

__all__ = ["chain_families"]


def chain_families(log: ShippedLog) -> Iterator[Family]:
    """Return the figures of the chain, of this process since it leads."""
    leadership = log.leadership
    metrics, store = leadership.metrics, leadership.chain.store.store.metrics
    figures = (
        ("epoch", "gauge", "The epoch that this process leads.", leadership.epoch),
        ("links_total", "counter", "Links created.", metrics.links),
        ("link_bytes_total", "counter", "Bytes of the links created.", metrics.link_bytes),
        ("put_repeats_total", "counter", "Repeats of links whose outcome was unknown.", metrics.put_repeats),
        ("unshipped_bytes", "gauge", "Bytes of the log that the home has not got yet.", log.unshipped_bytes),
        ("unshipped_age_seconds", "gauge", "How long the oldest of them have waited.", log.waiting.age_ms / 1000),
        ("diverged_bytes_total", "counter", "Bytes that the start moved to diverged/.", metrics.diverged_bytes),
    )
    for name, kind, about, value in figures:
        yield Family(f"tenure_chain_{name}", kind, about, [("", {}, float(value))])
    yield histogram("tenure_chain_put_seconds", "How long a link took until the home had it.", metrics.put_s)
    requests = [("", {"op": op}, float(count)) for op, count in sorted(store.requests.items())]
    yield Family("tenure_chain_store_requests_total", "counter", "Requests to the store: the bill's lines.", requests)
