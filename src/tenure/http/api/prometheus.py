"""Metrics of a running server, as Prometheus text (0.0.4) or as JSON, both from one list of families.

Written by hand because it is a page long: a library would keep a second copy of every number in objects of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from tenure.broker.broker import Broker
from tenure.errors import NotFound
from tenure.histogram import Histogram
from tenure.http.api.app import Call, Route
from tenure.http.api.prefixes import visible_names
from tenure.http.wire.fair_turns import in_turn
from tenure.http.wire.message import Request, Response

__all__ = ["TEXT_TYPE", "Exposition", "Family", "Traffic", "as_text", "histogram", "wants_json"]

TEXT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_TURN: Final = 50
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_QUEUE_GAUGES: Final = ("ready", "suspects", "in_flight", "delayed", "parked", "oldest_ready_ms", "ack_holes")


class Family(msgspec.Struct):
    """One metric: samples are a suffix of the name, labels and a value."""

    name: str
    kind: str
    help: str
    samples: list[tuple[str, dict[str, str], float]] = []


class Traffic:
    """Counts of answered requests, by method, route and class of status. Bounded by the route table."""

    def __init__(self) -> None:
        self.answered = Counter[tuple[str, str, int]]()

    def observe(self, route: Route | None, request: Request, status: int) -> None:
        """Count one answer; requests without a route are counted together."""
        if route is None:
            self.answered["-", "-", status // 100] += 1
        else:
            self.answered[route.method, route.pattern, status // 100] += 1

    def family(self) -> Family:
        samples = [
            ("", {"method": method, "route": pattern, "status": f"{status}xx"}, float(count))
            for (method, pattern, status), count in sorted(self.answered.items())
        ]
        return Family("tenure_requests_total", "counter", "Requests answered.", samples)


class Exposition:
    """The answer to ``GET /v0/metrics``.

    ``wire`` returns the numbers of the connections, ``home`` the families of a log that has one. At most ``topics_max``
    topics have numbers of their own; how many had none is a number too. A key with prefixes sees its own topics only,
    and the totals.
    """

    def __init__(
        self,
        traffic: Traffic,
        *,
        wire: Callable[[], Mapping[str, float]],
        topics_max: int,
        home: Callable[[], Iterable[Family]] = tuple,
    ) -> None:
        self.traffic = traffic
        self._wire = wire
        self._home = home
        self._topics_max = topics_max

    async def answer(self, broker: Broker | None, call: Call) -> Response:
        """Return the page, in the form that the caller accepts; without a broker, the figures of the server alone."""
        families = [] if broker is None else [*totals(broker), *await self._topics(broker, call)]
        families += [*self._connections(), *self._home(), self.traffic.family()]
        return await in_turn(call.request.caller, partial(self._page, families, call))

    def _page(self, families: list[Family], call: Call) -> Response:
        if not wants_json(call.request.headers.get("accept", "")):
            return Response(200, as_text(families).encode(), content_type=TEXT_TYPE)
        body = {family.name: _as_json(family) for family in families}
        performance = {"server_total_ms": round(call.request.elapsed_ms, 3)}
        return Response(200, msgspec.json.encode({"metrics": body, "performance": performance}))

    def _connections(self) -> Iterator[Family]:
        for name, value in self._wire().items():
            kind = "counter" if name.endswith("_total") else "gauge"
            yield Family(f"tenure_{name}", kind, "Of the wire, since the start.", [("", {}, float(value))])

    async def _topics(self, broker: Broker, call: Call) -> list[Family]:
        sizes = {name: Family(f"tenure_topic_{name}", "gauge", f"Live {name}.") for name in ("records", "bytes")}
        gauges = {name: Family(f"tenure_queue_{name}", "gauge", "Of a queue, now.") for name in _QUEUE_GAUGES}
        dead = Family("tenure_queue_dead_lettered_total", "counter", "Jobs moved to the dead letters.")
        expired = Family("tenure_queue_expired_total", "counter", "Jobs whose lease ran out.")
        lost = Family("tenure_queue_lost_total", "counter", "Jobs whose worker was lost.")
        names = list(visible_names(broker, call))

        def collect(part: list[str]) -> None:
            for name in part:
                try:
                    about = broker.topic(name, touch=False)
                except NotFound:
                    continue
                label = {"topic": name}
                sizes["records"].samples.append(("", label, about.count))
                sizes["bytes"].samples.append(("", label, about.bytes))
                if about.queue is not None:
                    for gauge, family in gauges.items():
                        family.samples.append(("", label, getattr(about.queue, gauge)))
                    dead.samples.append(("", label, about.queue.dead_lettered))
                    for family, ended in zip((expired, lost), broker.ended(name), strict=True):
                        family.samples.append(("", label, ended))

        shown = names[: self._topics_max]
        for at in range(0, len(shown), _TURN):
            await in_turn(call.request.caller, partial(collect, shown[at : at + _TURN]))
            await asyncio.sleep(0)  # others want their turn
        count = Family("tenure_topics", "gauge", "Topics.", [("", {}, len(names))])
        omitted = Family("tenure_topics_omitted", "gauge", "Topics without numbers of their own here.")
        omitted.samples.append(("", {}, max(0, len(names) - self._topics_max)))
        return [count, omitted, *sizes.values(), *gauges.values(), dead, expired, lost]


def totals(broker: Broker) -> Iterator[Family]:
    """Return the totals of the broker since it was opened."""
    metrics = broker.metrics
    for name, value in metrics.as_dict().items():
        yield Family(
            f"tenure_{name}_total", "counter", f"{name.replace('_', ' ')}, since the start.", [("", {}, value)]
        )
    failed, crowded = float(broker.failed is not None), float(broker.is_crowded)
    yield Family("tenure_log_failed", "gauge", "1 once the disk has failed: nothing is written.", [("", {}, failed)])
    yield Family("tenure_log_crowded", "gauge", "1 while the disk is full: appends are refused.", [("", {}, crowded)])
    yield histogram("tenure_fsync_ms", "How long a sync took, in milliseconds.", metrics.sync_ms)
    yield histogram("tenure_batch_frames", "Frames in one write.", metrics.batch_frames)


def histogram(name: str, about: str, values: Histogram) -> Family:
    """Return a histogram as a family."""
    family, below = Family(name, "histogram", about), 0
    for bound, count in zip([*map(_number, values.bounds), "+Inf"], values.counts, strict=True):
        below += count
        family.samples.append(("_bucket", {"le": bound}, below))
    family.samples += [("_sum", {}, values.total), ("_count", {}, below)]
    return family


def as_text(families: Iterable[Family]) -> str:
    """Return the families in the exposition format of Prometheus."""
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for suffix, labels, value in family.samples:
            inner = ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels.items())
            lines.append(
                f"{family.name}{suffix}{{{inner}}} {_number(value)}" if inner else _plain(family, suffix, value)
            )
    return "\n".join(lines) + "\n"


def _plain(family: Family, suffix: str, value: float) -> str:
    return f"{family.name}{suffix} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _as_json(family: Family) -> Any:
    """Return a plain number where there is one only, else samples with their labels."""
    if len(family.samples) == 1 and not family.samples[0][1]:
        return family.samples[0][2]
    return [
        {**({"part": suffix[1:]} if suffix else {}), **labels, "value": value}
        for suffix, labels, value in family.samples
    ]


def wants_json(accept: str) -> bool:
    """Return whether an Accept header prefers JSON to text: it names JSON, and does not name text with more weight."""
    weights = {"application/json": 0.0, "text/plain": 0.0}
    for part in accept.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if kind in weights:
            weights[kind] = max(weights[kind], weight)
    return weights["application/json"] > weights["text/plain"]
