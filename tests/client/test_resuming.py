"""Streams as plans driven by hand: when they come back, when they give up, when they end. No network, no waiting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenure import NotFound, Overloaded
from tenure.client import CaughtUp, ClientSettings, Gap, Response, WireError
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Open, Plan, Read, Send, Sleep
from tenure.client.streams.resuming import Resuming
from tenure.client.streams.watch import Events, Watch, parse_starts
from tenure.client.streams.work import Work
from tenure.client.transport.wire import all_in_use
from tenure.contract.bodies import WatchBody
from tenure.contract.commands import Claim

Word = bytes | WireError | float
"""A part of a script: a chunk or an error for the next read, or seconds that pass before it."""
CUT = WireError("cut", sent=True)
HEARTBEAT = b": hb\n\n"
GAP = b'id: 7\nevent: gap\ndata: {"topic":"t","reason":"overrun"}\n\n'
JOB = b'id: 1\nevent: job\ndata: {"$seq":1,"$ts":1,"data":1,"deliveries":1,"lease_id":"l","deadline":9}\n\n'


def last_word(code: int, error: str) -> bytes:
    return b"event: error\ndata: %b\n\n" % json.dumps({"code": code, "error": error, "message": "no"}).encode()


class Opened:
    """A stream that the test reads for."""

    response = Response(200, b"", {"content-type": "text/event-stream"})
    closed = False

    def close(self) -> None:
        self.closed = True


class Hand:
    """Carries out the steps of a stream's plans by a script: chunks and errors for reads, with seconds between them."""

    def __init__(self, *, chance: float = 1.0, **settings: Any) -> None:
        self.now_s = 0.0
        self.session = Session(
            node="n", settings=ClientSettings(**settings), now_s=lambda: self.now_s, chance=lambda: chance
        )
        self.pauses: list[float] = []
        self.streams: list[Opened] = []
        self.sent: list[Any] = []
        self.answers: list[Response | WireError] = []

    def run(self, plan: Plan[Any], *script: Word) -> Any:
        """The result of a plan, or the step of the first read that the script has nothing for."""
        left = list(script)
        try:
            step = next(plan)
            while True:
                outcome = self._outcome(step, left)
                if outcome is None and isinstance(step, Read):
                    return step
                step = plan.throw(outcome) if isinstance(outcome, WireError) else plan.send(outcome)
        except StopIteration as done:
            return done.value

    def _outcome(self, step: object, left: list[Word]) -> Any:
        match step:
            case Open():
                found = self.answers.pop(0) if self.answers else None
                if isinstance(found, WireError):
                    return found
                self.streams.append(Opened())
                if found is not None:
                    self.streams[-1].response = found
                return self.streams[-1]
            case Send():
                self.sent.append(json.loads(step.request.body or b"null"))
                return self.answers.pop(0)
            case Sleep():
                self.pauses.append(step.seconds)
                self.now_s += step.seconds
                return None
            case Read():
                for word in iter(lambda: left.pop(0) if left else None, None):
                    if not isinstance(word, float):
                        return word
                    self.now_s += word
                return None
            case _:
                raise AssertionError(step)


def events(hand: Hand) -> Events:
    return Events(hand.session, "t", last_event_id="x")


def times(count: int, *words: Word) -> list[Word]:
    return list(words) * count


def quiet(hours: int) -> list[Word]:
    """Heartbeats and nothing else."""
    return times(240 * hours, 15.0, HEARTBEAT)


def test_a_quiet_stream_that_was_healthy_comes_back_within_a_new_time_limit() -> None:
    hand = Hand(reconnect_for_ms=60_000)
    step = hand.run(events(hand).next(), HEARTBEAT, CUT, *quiet(1), CUT, *quiet(1), CUT, HEARTBEAT)
    assert isinstance(step, Read), "it reads on"
    assert len(hand.streams) == 4


def test_one_cut_an_hour_on_a_quiet_stream_costs_the_shortest_pause() -> None:
    hand = Hand(reconnect_min_ms=100)
    hand.run(events(hand).next(), *times(6, *quiet(1), CUT))
    assert hand.pauses == [0.1] * 6


def test_a_stream_that_opens_and_breaks_off_is_not_called_in_a_tight_loop() -> None:
    hand = Hand(reconnect_min_ms=100, reconnect_max_ms=1_000)
    hand.run(events(hand).next(), *times(6, HEARTBEAT, CUT))
    assert hand.pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_silent_stream_is_not_a_healthy_one_however_long_it_is_open() -> None:
    hand = Hand(reconnect_for_ms=60_000)
    with pytest.raises(Overloaded):
        hand.run(events(hand).next(), *times(3, HEARTBEAT, 50.0, CUT))


def test_an_item_ends_an_outage() -> None:
    hand = Hand(reconnect_min_ms=100, reconnect_for_ms=1_000)
    source = events(hand)
    for _ in range(3):
        assert hand.run(source.next(), CUT, CUT, CUT, GAP) == Gap("t", "overrun")
    assert hand.pauses == [0.1, 0.2, 0.4] * 3


def test_the_time_for_coming_back_begins_with_the_cut() -> None:
    hand = Hand(reconnect_min_ms=100, reconnect_max_ms=1_000, reconnect_for_ms=5_000)
    hand.answers = [Opened.response, *[WireError("refused", sent=False)] * 99]
    with pytest.raises(Overloaded):
        hand.run(events(hand).next(), *quiet(1), CUT)
    assert sum(hand.pauses) == pytest.approx(5.5), "the attempt that begins within the time is the last"


def test_a_stream_that_finds_no_free_connection_tries_on_and_says_in_the_end_that_its_client_is_busy() -> None:
    hand = Hand(reconnect_min_ms=100, reconnect_max_ms=1_000, reconnect_for_ms=5_000)
    hand.answers = [Opened.response, *[all_in_use("streams_max")] * 99]
    with pytest.raises(Overloaded, match="streams_max") as caught:
        hand.run(events(hand).next(), *quiet(1), CUT)
    assert caught.value.code == "busy"
    assert len(hand.pauses) > 3


@pytest.mark.parametrize(("code", "error", "kind"), [(404, "topic_not_found", NotFound), (503, "read_only", None)])
def test_items_that_came_with_an_error_are_given_out_before_it(code: int, error: str, kind: type | None) -> None:
    hand = Hand()
    source = events(hand)
    assert hand.run(source.next(), GAP + GAP + last_word(code, error)) == Gap("t", "overrun")
    assert hand.run(source.next()) == Gap("t", "overrun")
    if kind is not None:
        with pytest.raises(kind):
            hand.run(source.next())
    else:
        assert hand.run(source.next(), GAP) == Gap("t", "overrun")
        assert (len(hand.streams), hand.pauses) == (2, [0.1])


def test_jobs_that_came_with_an_error_are_given_out_before_it() -> None:
    hand = Hand()
    work = Work(hand.session, "q", Claim(node="n"), max_count=5)
    assert [job.seq for job in hand.run(work.next(), JOB + JOB + last_word(404, "topic_not_found"))] == [1, 1]
    for _ in range(2):
        with pytest.raises(NotFound):
            hand.run(work.next())


def test_jobs_that_came_with_the_start_of_too_long_an_event_are_given_out_before_the_error() -> None:
    hand = Hand(frame_bytes_max=1_000)
    work = Work(hand.session, "q", Claim(node="n"), max_count=5)
    assert len(hand.run(work.next(), JOB + b"event: job\ndata: " + b"x" * 2_000)) == 1
    with pytest.raises(Overloaded, match="longer than 1000 bytes"):
        hand.run(work.next(), b"x")


def test_a_work_stream_asks_to_isolate_and_notes_how_many_suspects_wait() -> None:
    hand = Hand()
    work = Work(hand.session, "q", Claim(node="n", isolate=True, group="g", suspects=True), max_count=5)
    said = b'event: suspects\ndata: {"topic":"q","suspects":%d}\n\n'
    assert hand.run(work.next(), said % 3) == []
    assert work.suspects == 3
    assert [job.seq for job in hand.run(work.next(), said % 5 + JOB)] == [1]
    assert work.suspects == 5
    assert work._request.path.endswith("/work?node=n&max=5&isolate=true&group=g&suspects=true")


def test_a_work_stream_that_does_not_isolate_asks_as_it_always_did() -> None:
    assert Work(Hand().session, "q", Claim(node="n"), max_count=5)._request.path.endswith("/work?node=n&max=5")


def sources(hand: Hand) -> list[Resuming[Any]]:
    return [events(hand), Watch(hand.session, WatchBody(topics=parse_starts("t")))]


SESSION = Response(200, b'{"stream_url":"/v0/watch/wid_1","topics":{"t":{"from_seq":5}}}')


@pytest.mark.parametrize("which", [0, 1])
def test_a_stream_that_is_closed_while_it_is_read_ends_and_does_not_come_back(which: int) -> None:
    hand = Hand()
    hand.answers = [SESSION] * which
    source = sources(hand)[which]
    plan = source.next()
    step = next(plan)
    while not isinstance(step, Read):
        step = plan.send(hand._outcome(step, []))
    source.line.close()
    with pytest.raises(StopIteration) as done:
        plan.throw(CUT)
    assert done.value.value is None
    assert (len(hand.streams), hand.streams[0].closed, hand.pauses) == (1, True, [])


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_stream_that_is_closed_while_it_opens_is_not_read(which: int) -> None:
    hand = Hand()
    hand.answers = [SESSION] if which == 1 else []
    work = Work(hand.session, "q", Claim(node="n"), max_count=5)
    every: list[Work | Resuming[Any]] = [*sources(hand), work]
    source = every[which]
    plan: Plan[Any] = source.next()
    step = next(plan)
    while not isinstance(step, Open):
        step = plan.send(hand._outcome(step, []))
    source.line.close()
    with pytest.raises((StopIteration, Overloaded)):
        plan.send(hand._outcome(step, []))
    assert hand.streams[0].closed


def test_a_watch_of_what_is_new_keeps_its_beginning_over_a_lost_session() -> None:
    """Fault 32: a session that the server forgot before anything came must not skip what came since."""
    hand = Hand()
    gone = Response(404, b'{"error":{"code":"not_found","message":"no such session"}}')
    later = Response(200, b'{"stream_url":"/v0/watch/wid_2","topics":{"t":{"from_seq":5},"u":{"from_seq":3}}}')
    begun = Response(200, b'{"stream_url":"/v0/watch/wid_1","topics":{"t":{"from_seq":5},"u":{"from_seq":2}}}')
    hand.answers = [begun, Opened.response, gone, later, Opened.response]
    watch = Watch(hand.session, WatchBody(topics=parse_starts({"t": None, "u": 2})))
    caught_up = b'event: caught-up\ndata: {"topic":"t","head_seq":5}\n\n'
    assert hand.run(watch.next(), HEARTBEAT, CUT, caught_up) == CaughtUp("t", 5)
    assert [body["topics"] for body in hand.sent] == [
        {"t": {"tail": True}, "u": {"from_seq": 2}},
        {"t": {"from_seq": 5}, "u": {"from_seq": 2}},
    ]
