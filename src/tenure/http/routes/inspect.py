"""Looking at a queue without touching it: jobs by state, one job with its story, live leases, both ends, meters."""

from __future__ import annotations

from msgspec.structs import asdict

from tenure.contract.names import check_topic_name, describe_value
from tenure.contract.replies import JobPage, LeasePage
from tenure.errors import Invalid
from tenure.http.api.app import Call, Route
from tenure.http.api.context import Context
from tenure.http.api.prefixes import shown_config
from tenure.http.api.query import Query
from tenure.http.api.render import reply
from tenure.http.streams.shared import streams_of
from tenure.http.wire.message import Response

__all__ = ["ROUTES"]

_PAGE = 100
_TAIL = 20
_LEASES = 50
_DIGITS_MAX = 20


def jobs(context: Context, call: Call) -> Response:
    """Jobs in one state, ascending by seq."""
    topic, query = check_topic_name(call.names["topic"]), Query(call.request)
    state = query.text("state")
    if state is None:
        state = "ready"
    page = context.broker.jobs(topic, state=state, limit=query.whole("limit", _PAGE), cursor=query.text("cursor"))
    return reply(call.request, JobPage(topic, state, page.items, page.next_cursor))


def job(context: Context, call: Call) -> Response:
    """One job: its record, its state, and how its deliveries ended."""
    topic, text = check_topic_name(call.names["topic"]), call.names["seq"]
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        raise Invalid(f"a job is named by its seq, a whole number; got {describe_value(text)}", field="seq")
    return reply(call.request, context.broker.job(topic, int(text)))


def leases(context: Context, call: Call) -> Response:
    """Live leases: who holds what, since when and until when."""
    topic, query = check_topic_name(call.names["topic"]), Query(call.request)
    page = context.broker.leases(topic, limit=query.whole("limit", _PAGE), cursor=query.text("cursor"))
    return reply(call.request, LeasePage(topic, page.items, page.next_cursor))


def strip(context: Context, call: Call) -> Response:
    """Both ends of a queue with the id of the newest event it shows, so that a reader can follow from there."""
    topic, query = check_topic_name(call.names["topic"]), Query(call.request)
    found = context.broker.strip(
        topic, head=query.whole("head", _PAGE), tail=query.whole("tail", _TAIL), leases=query.whole("leases", _LEASES)
    )
    fields = asdict(found) | {"config": shown_config(call, found.config)}
    return reply(call.request, fields | {"event_id": streams_of(context).events.mark()})


def meters(context: Context, call: Call) -> Response:
    """Histograms of one queue: time in queue, processing time, deliveries."""
    return reply(call.request, context.broker.meters(check_topic_name(call.names["topic"])))


_READ = frozenset({"read"})

ROUTES = [
    Route("GET", "/v0/topics/:topic/jobs", jobs, _READ, summary="Jobs in one state"),
    Route("GET", "/v0/topics/:topic/jobs/:seq", job, _READ, summary="One job and its deliveries"),
    Route("GET", "/v0/topics/:topic/leases", leases, _READ, summary="Live leases"),
    Route("GET", "/v0/topics/:topic/strip", strip, _READ, summary="Both ends of a queue, and where its events go on"),
    Route("GET", "/v0/topics/:topic/meters", meters, _READ, summary="Histograms of a queue"),
]
