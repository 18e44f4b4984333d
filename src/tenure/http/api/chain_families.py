"""Metrics of a log that lives in a store, as families of ``GET /v0/metrics``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tenure.chain.shipped import ShippedLog
from tenure.contract.replies.cluster import ClusterInfo
from tenure.http.api.prometheus import Family, histogram

__all__ = ["alone_families", "checkpoints_family", "leader_families", "shared_families"]

_SEEN_MS: Final = 60_000
"""A server whose last sign of life is older counts for none."""

_Figure = tuple[str, str, str, float]
Requests = Mapping[str, int]
"""Requests to the store by their kind."""


def shared_families(info: ClusterInfo, *, takeovers: int, fenced: int, requests: Requests) -> Iterator[Family]:
    """Return the figures of a server that shares its home, whether it leads or follows."""
    yield _bill(requests)
    roles = [("", {"role": role}, float(info.role == role)) for role in ("leader", "standby")]
    yield Family("tenure_chain_role", "gauge", "1 for the role of this server.", roles)
    seen = sum(member.age_ms <= _SEEN_MS for member in info.members)
    yield from _families(
        [
            *_state_figures(info.epoch, fenced=fenced, diverged_bytes=info.diverged_bytes),
            (
                "members",
                "gauge",
                "Servers of this home that were seen within the last minute, this one included.",
                seen,
            ),
            ("follow_lag_links", "gauge", "Links that the last look at the chain brought.", info.follow_lag_links),
            ("follow_lag_seconds", "gauge", "Since a standby was at the end of the chain.", info.follow_lag_ms / 1000),
            ("takeovers_total", "counter", "Times that this process came to lead.", takeovers),
        ]
    )
    if info.grant_left_ms is not None:
        about = "How long this process may still answer what is not committed."
        yield from _families([("grant_left_seconds", "gauge", about, info.grant_left_ms / 1000)])


def alone_families(log: ShippedLog) -> Iterator[Family]:
    """Return the figures of a server that leads its home alone."""
    leadership = log.leadership
    metrics = leadership.metrics
    state = _state_figures(leadership.epoch, fenced=metrics.fenced, diverged_bytes=metrics.diverged_bytes)
    yield _bill(leadership.chain.store.store.metrics.requests)
    yield from _families(state)
    yield checkpoints_family(log.checkpoints)
    yield from leader_families(log)


def leader_families(log: ShippedLog) -> Iterator[Family]:
    """Return the figures of the chain, of this process since it leads."""
    metrics = log.leadership.metrics
    yield from _families(
        [
            ("link_bytes_total", "counter", "Bytes of the links created.", metrics.link_bytes),
            ("put_repeats_total", "counter", "Repeats of links whose outcome was unknown.", metrics.put_repeats),
            ("unshipped_bytes", "gauge", "Bytes of the log that the home has not got yet.", log.unshipped_bytes),
            ("unshipped_age_seconds", "gauge", "How long the oldest of them have waited.", log.waiting.age_ms / 1000),
        ]
    )
    links = [("", {"kind": kind}, float(count)) for kind, count in metrics.links.items()]
    yield Family("tenure_chain_links_total", "counter", "Links created.", links)
    yield histogram("tenure_chain_put_seconds", "How long a link took until the home had it.", metrics.put_s)


def checkpoints_family(count: int) -> Family:
    """Return how many checkpoints this process brought to the home, whatever it was at the time."""
    about = "Checkpoints that this process stored in the home."
    return Family("tenure_chain_checkpoints_total", "counter", about, [("", {}, float(count))])


def _bill(requests: Requests) -> Family:
    samples = [("", {"op": op}, float(count)) for op, count in sorted(requests.items())]
    return Family("tenure_chain_store_requests_total", "counter", "Requests to the store: the bill's lines.", samples)


def _state_figures(epoch: int, *, fenced: int, diverged_bytes: int) -> list[_Figure]:
    return [
        ("epoch", "gauge", "The epoch that this process leads or follows.", epoch),
        ("fenced_total", "counter", "Times that another process took the lead from this one.", fenced),
        ("diverged_bytes_total", "counter", "Bytes that this process moved to diverged/.", diverged_bytes),
    ]


def _families(figures: Iterable[_Figure]) -> Iterator[Family]:
    for name, kind, about, value in figures:
        yield Family(f"tenure_chain_{name}", kind, about, [("", {}, float(value))])
