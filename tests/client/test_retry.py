"""What is repeated, when, and how often: plans driven by hand, no network and no waiting."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tenure import Closed, Conflict, Corrupt, Denied, Indeterminate, Overloaded, TenureError
from tenure.client import ClientSettings, Response, WireError
from tenure.client.calls.inspect import health
from tenure.client.calls.queues import claim, redrive
from tenure.client.calls.records import produce
from tenure.client.plan.producer_lanes import ProducerLane
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan, Send, Sleep, Take
from tenure.client.transport.wire import all_in_use
from tenure.errors import NotLeader

Outcome = Response | WireError
LOST = WireError("reset", sent=True)
REFUSED = WireError("refused", sent=False)
BUSY = all_in_use("connections_max")
OK = Response(200, b'{"topic":"t","first_seq":1,"last_seq":1,"count":1,"status":"ok","redriven":0,"claimed":[]}')


def says(status: int, code: str, *, after: str | None = None, **detail: Any) -> Response:
    body = json.dumps({"error": {"code": code, "message": "no", "detail": detail}}).encode()
    return Response(status, body, {} if after is None else {"retry-after": after})


class Driven:
    """Runs a plan against a list of outcomes; notes how often it sent and how long it would have slept."""

    def __init__(self, *outcomes: Outcome, chance: float = 0.5, **settings: Any) -> None:
        self.session = Session(
            node="n", settings=ClientSettings(**settings), now_s=lambda: self.now_s, chance=lambda: chance
        )
        self.outcomes = list(outcomes)
        self.sent: list[bytes | None] = []
        self.slept: list[float] = []
        self.now_s = 0.0

    def run(self, plan: Plan[Any]) -> Any:
        outcome: Any = None
        throw: WireError | None = None
        while True:
            try:
                step = plan.throw(throw) if throw is not None else plan.send(outcome)
            except StopIteration as done:
                return done.value
            outcome = throw = None
            match step:
                case Send():
                    self.sent.append(step.request.body)
                    found = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
                    if isinstance(found, WireError):
                        throw = found
                    else:
                        outcome = found
                case Sleep():
                    self.slept.append(step.seconds)
                    self.now_s += step.seconds
                case Take():
                    outcome = self.session.lanes.take(lambda lane: True)
                    assert isinstance(outcome, ProducerLane)
                case _:
                    raise AssertionError(step)


def put(session: Session) -> Plan[Any]:
    return produce(session, "t", [1])


CALLS: list[Callable[[Session], Plan[Any]]] = [
    put,
    lambda session: claim(session, "t"),
    lambda session: redrive(session, "t"),
    health,
]


@pytest.mark.parametrize("call", CALLS)
def test_what_was_never_sent_is_repeated_whatever_it_is(call: Callable[[Session], Plan[Any]]) -> None:
    driven = Driven(REFUSED, REFUSED, OK)
    driven.run(call(driven.session))
    assert len(driven.sent) == 3


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("refusal", [says(429, "throttled", after="1"), says(503, "shutting_down", after="1")])
def test_a_server_that_says_later_is_asked_later(call: Callable[[Session], Plan[Any]], refusal: Response) -> None:
    driven = Driven(refusal, refusal, OK)
    driven.run(call(driven.session))
    assert driven.slept == [1.5, 1.5], "never before Retry-After, and up to as much again by chance"


def test_waits_grow_are_drawn_by_chance_and_are_bounded() -> None:
    driven = Driven(REFUSED, chance=1.0, attempts_max=6, backoff_min_ms=100, backoff_max_ms=500)
    with pytest.raises(Overloaded) as caught:
        driven.run(put(driven.session))
    assert caught.value.code == "unreachable"
    assert driven.slept == [0.1, 0.2, 0.4, 0.5, 0.5]
    none = Driven(REFUSED, chance=0.0, attempts_max=3)
    with pytest.raises(Overloaded):
        none.run(put(none.session))
    assert none.slept == [0, 0]


def test_attempts_are_bounded_by_number_and_by_time() -> None:
    busy = says(429, "throttled", after="1")
    few = Driven(busy, attempts_max=4)
    with pytest.raises(Overloaded):
        few.run(put(few.session))
    assert len(few.sent) == 4
    brief = Driven(busy, attempts_max=1_000, retry_for_ms=10_000)
    with pytest.raises(Overloaded):
        brief.run(put(brief.session))
    assert brief.now_s <= 10
    assert len(brief.sent) == 7


def test_a_retry_after_beyond_reason_is_cut_and_one_that_is_none_is_ignored() -> None:
    driven = Driven(says(503, "not_ready", after="86400"), OK, retry_after_max_ms=2_000, chance=0.0)
    driven.run(put(driven.session))
    assert driven.slept == [2.0]
    for odd in ("soon", "-1", "1e9", "", "9" * 40):
        driven = Driven(says(503, "not_ready", after=odd), OK, chance=1.0, backoff_min_ms=50)
        driven.run(put(driven.session))
        assert driven.slept == [0.05]


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (says(400, "invalid_request"), TenureError),
        (says(403, "forbidden"), Denied),
        (says(409, "idempotency_conflict", last_client_seq=1, first_seq=1, last_seq=1), Conflict),
        (says(422, "topic_full"), Overloaded),
        (says(503, "corrupt"), Corrupt),
    ],
)
def test_an_answer_is_an_answer(refusal: Response, kind: type[TenureError]) -> None:
    driven = Driven(refusal)
    with pytest.raises(kind) as caught:
        driven.run(put(driven.session))
    assert not isinstance(caught.value, Indeterminate)
    assert len(driven.sent) == 1


@pytest.mark.parametrize(
    "unclear",
    [LOST, Response(502, b"<html>"), Response(504, b""), Response(503, b"<html>"), says(503, "indeterminate")],
)
def test_what_is_unknown_is_repeated_only_where_that_is_safe(unclear: Outcome) -> None:
    safe = Driven(unclear, OK)
    safe.run(put(safe.session))
    assert len(safe.sent) == 2
    assert safe.sent[0] == safe.sent[1], "the same lane and the same number"
    unsafe = Driven(unclear, OK)
    with pytest.raises(Indeterminate):
        unsafe.run(redrive(unsafe.session, "t"))
    assert len(unsafe.sent) == 1


def test_a_bug_of_the_server_is_not_repeated_and_its_outcome_is_unknown() -> None:
    driven = Driven(says(500, "internal"))
    with pytest.raises(Indeterminate):
        driven.run(put(driven.session))
    reading = Driven(says(500, "internal"))
    with pytest.raises(TenureError) as caught:
        reading.run(health(reading.session))
    assert (caught.value.code, len(driven.sent), len(reading.sent)) == ("internal", 1, 1)


@pytest.mark.parametrize(
    "last", [REFUSED, says(429, "throttled"), says(403, "forbidden"), says(404, "topic_not_found")]
)
def test_once_unknown_it_stays_unknown_until_a_success(last: Outcome) -> None:
    """Fault 30: whatever the later copies are told."""
    driven = Driven(LOST, last, attempts_max=3)
    with pytest.raises(Indeterminate):
        driven.run(put(driven.session))


def test_a_read_is_never_indeterminate() -> None:
    driven = Driven(LOST, attempts_max=3)
    with pytest.raises(Overloaded) as caught:
        driven.run(health(driven.session))
    assert caught.value.code == "unreachable"
    closed = Driven(LOST, says(503, "read_only"), attempts_max=3)
    with pytest.raises(Closed):
        closed.run(health(closed.session))


def test_a_conflict_on_our_own_number_after_a_lost_answer_is_success() -> None:
    """Fault 26."""
    driven = Driven(LOST, says(409, "idempotency_conflict", last_client_seq=1, first_seq=7, last_seq=8))
    produced = driven.run(put(driven.session))
    assert (list(produced.seqs), produced.deduped) == ([7, 8], True)


def test_a_conflict_that_does_not_name_our_seqs_is_not_success() -> None:
    """The mark has moved on: somebody else uses our lane, and our own copy may or may not have been first."""
    driven = Driven(LOST, says(409, "idempotency_conflict", last_client_seq=9))
    with pytest.raises(Indeterminate):
        driven.run(put(driven.session))


def test_a_lane_is_given_back_however_the_call_ends() -> None:
    driven = Driven(says(403, "forbidden"))
    for _ in range(3):
        with pytest.raises(Denied):
            driven.run(put(driven.session))
    assert driven.session.lanes.count == 1
    plan = put(driven.session)
    next(plan)
    plan.close()
    assert driven.session.lanes.count == 1


def test_an_answer_that_makes_no_sense_is_an_error() -> None:
    driven = Driven(Response(200, b"[]"))
    with pytest.raises(TenureError) as caught:
        driven.run(health(driven.session))
    assert caught.value.code == "bad_answer"


@pytest.mark.parametrize("call", [lambda session: put(session), lambda session: redrive(session, "t")])
def test_a_success_that_makes_no_sense_leaves_the_outcome_unknown(call: Callable[[Session], Plan[Any]]) -> None:
    driven = Driven(Response(200, b"<html>"))
    with pytest.raises(Indeterminate) as caught:
        driven.run(call(driven.session))
    assert caught.value.detail["cause"] == "bad_answer"


def test_a_client_closed_after_a_lost_answer_leaves_the_outcome_unknown() -> None:
    driven = Driven(LOST, WireError("closed", sent=False, closed=True))
    with pytest.raises(Indeterminate) as caught:
        driven.run(put(driven.session))
    assert caught.value.detail["cause"] == "client_closed"


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("several", [False, True])
def test_a_call_that_waited_for_a_connection_in_vain_is_busy_and_waits_no_more(
    call: Callable[[Session], Plan[Any]], several: bool
) -> None:
    driven = Driven(BUSY)
    driven.session.has_several = lambda: several
    with pytest.raises(Overloaded) as caught:
        driven.run(call(driven.session))
    assert (caught.value.code, len(driven.sent), driven.slept) == ("busy", 1, [])


def test_a_client_that_is_busy_after_a_lost_answer_leaves_the_outcome_unknown() -> None:
    driven = Driven(LOST, BUSY)
    with pytest.raises(Indeterminate) as caught:
        driven.run(put(driven.session))
    assert caught.value.detail["cause"] == "busy"


def test_what_a_newer_server_says_more_is_ignored() -> None:
    driven = Driven(Response(200, b'{"status":"ok","mood":{"fine":true}}'))
    assert driven.run(health(driven.session)).status == "ok"


# Several servers

SEEKING = [REFUSED, says(421, "not_leader"), says(503, "store_away", after="1"), says(503, "not_ready", after="1")]


@pytest.mark.parametrize("found", SEEKING)
@pytest.mark.parametrize("call", CALLS)
def test_servers_without_a_leader_are_asked_round_for_as_long_as_the_time_lasts(
    call: Callable[[Session], Plan[Any]], found: Outcome
) -> None:
    driven = Driven(*[found] * 20, OK, chance=1.0, attempts_max=1)
    driven.session.has_several = lambda: True
    driven.run(call(driven.session))
    assert len(driven.sent) == 21, "an attempt that met no leader is not counted"
    assert max(driven.slept) == 0.2, "a leader that came is found soon, whatever Retry-After says"
    brief = Driven(found, chance=1.0, retry_for_ms=3_000)
    brief.session.has_several = lambda: True
    with pytest.raises((Overloaded, Closed)):
        brief.run(call(brief.session))
    assert brief.now_s <= 3


def test_seeking_a_leader_leaves_the_other_attempts_as_many_as_they_are() -> None:
    driven = Driven(LOST, REFUSED, REFUSED, LOST, REFUSED, LOST, OK, attempts_max=3)
    driven.session.has_several = lambda: True
    with pytest.raises(Indeterminate):
        driven.run(put(driven.session))
    assert len(driven.sent) == 6, "the third lost answer is the last attempt"


@pytest.mark.parametrize("found", SEEKING)
def test_a_client_of_one_server_counts_every_attempt(found: Outcome) -> None:
    driven = Driven(found, attempts_max=3)
    with pytest.raises((Overloaded, Closed)):
        driven.run(put(driven.session))
    assert len(driven.sent) == 3


def test_the_refusal_of_a_follower_names_the_leader_and_what_to_do() -> None:
    driven = Driven(says(421, "not_leader", leader="http://b:1", epoch=7), attempts_max=1)
    with pytest.raises(NotLeader) as caught:
        driven.run(put(driven.session))
    assert (caught.value.detail["leader"], caught.value.detail["epoch"]) == ("http://b:1", 7)
    assert "add it to the client's URL" in caught.value.message
