"""``invariants`` must find a state that contradicts itself, in every part."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenure import Record
from tenure.core.state.due_order import DueOrder
from tenure.core.state.frame_index import make_index
from tenure.core.state.invariants import invariants
from tenure.core.state.lease_page import DEADLINE, NUMBER, LeasePage
from tenure.core.state.queue import NEVER, Queue
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.testing import ManualClock
from tests.kit import run
from tests.model.test_replay import open_queue


def state() -> State:
    """One queue with a job in every place, two leases (one in two parts), a unique key and a router."""
    clock = ManualClock()
    engine = open_queue(clock, dlq_strategy="block")
    run.produce(engine, "q", [b"%d" % seq for seq in range(1, 11)], idempotency_key="k")
    run.produce(engine, "q", [Record(data=b"11", delay_ms=5_000, unique_key="u")])
    run.produce(engine, "q", [Record(data=b"12", deliver_at=clock.wall_ms() + 5_000)])
    run.claim(engine, "q", node="n", max_count=6, claim_id="c")
    run.nack(engine, "q", node="n", seqs=[1])
    run.nack(engine, "q", node="n", seqs=[2], dead=True)
    run.ack(engine, "q", node="n", seqs=[4])
    run.extend(engine, "q", node="n", seqs=[5], lease_ms=9_000)
    run.put_router(engine, "r", source="q", dest="copies")
    return engine.state


def test_a_state_made_by_commands_is_in_order():
    invariants(state())


def break_count(topic: Topic, queue: Queue) -> None:
    topic.count += 1


def break_bytes(topic: Topic, queue: Queue) -> None:
    topic.bytes -= 1


def break_floor(topic: Topic, queue: Queue) -> None:
    topic.floor = 4


def break_dead(topic: Topic, queue: Queue) -> None:
    assert topic.dead is not None
    topic.dead.add(99)


def break_frame_index(topic: Topic, queue: Queue) -> None:
    (entry,) = topic.frame_index
    topic.frame_index[0] = make_index(
        entry.segment, [[2, *entry.firsts[1:]], entry.offsets, entry.sizes, entry.times_ms]
    )


def break_order(topic: Topic, queue: Queue) -> None:
    (entry,) = topic.frame_index
    firsts = [entry.firsts[0], 1, *entry.firsts[2:]]
    topic.frame_index[0] = make_index(entry.segment, [firsts, entry.offsets, entry.sizes, entry.times_ms])


def break_base(topic: Topic, queue: Queue) -> None:
    topic.base = 77


def break_reclaim(topic: Topic, queue: Queue) -> None:
    queue.reclaim.add(3)  # it is in flight


def break_cursor(topic: Topic, queue: Queue) -> None:
    queue.cursor = 3


def break_passed(topic: Topic, queue: Queue) -> None:
    queue.cursor = 9


def break_parked(topic: Topic, queue: Queue) -> None:
    del queue.parked[2]


def break_in_flight(topic: Topic, queue: Queue) -> None:
    del queue.in_flight[3]


def only_page(queue: Queue) -> LeasePage:
    (page,) = queue.leases.pages.values()
    return page


def break_left(topic: Topic, queue: Queue) -> None:
    only_page(queue).left[0] += 1


def break_living(topic: Topic, queue: Queue) -> None:
    only_page(queue).living += 1


def break_numbers(topic: Topic, queue: Queue) -> None:
    only_page(queue).cells[NUMBER] -= 1


def break_runs(topic: Topic, queue: Queue) -> None:
    queue.leases.runs[0][1] -= 4


def break_apart(topic: Topic, queue: Queue) -> None:
    queue.leases.apart[0] += 1


def break_lease_count(topic: Topic, queue: Queue) -> None:
    queue.leases.count += 1


def break_leases(topic: Topic, queue: Queue) -> None:
    queue.leases.pages.clear()


def break_claims(topic: Topic, queue: Queue) -> None:
    queue.claims["other"] = 1


def break_deadlines(topic: Topic, queue: Queue) -> None:
    only_page(queue).cells[DEADLINE] -= 1


def break_pages_by_deadline(topic: Topic, queue: Queue) -> None:
    only_page(queue).next_ms = 0


def break_own_deadlines(topic: Topic, queue: Queue) -> None:
    queue.own_deadlines.heap.clear()


def break_delays(topic: Topic, queue: Queue) -> None:
    queue.delays.by_log = DueOrder()


def break_dues(topic: Topic, queue: Queue) -> None:
    queue.delays.by_wall.add(5 << 64 | 5)


def break_deliveries_ended(topic: Topic, queue: Queue) -> None:
    queue.deliveries_ended.size_bytes += 1


def break_plan(topic: Topic, queue: Queue) -> None:
    queue.next_change_ms = NEVER


def break_uniques(topic: Topic, queue: Queue) -> None:
    queue.uniques["v"] = 11


def break_deliveries(topic: Topic, queue: Queue) -> None:
    queue.deliveries[4] = 1  # it was acked


def break_acked(topic: Topic, queue: Queue) -> None:
    queue.acked_max = 3


@pytest.mark.parametrize(
    "breakage", [breakage for name, breakage in sorted(globals().items()) if name.startswith("break_")]
)
def test_a_state_that_contradicts_itself_is_found(breakage: Callable[[Topic, Queue], None]):
    broken = state()
    topic = broken.topics["q"]
    assert topic.queue is not None
    breakage(topic, topic.queue)
    with pytest.raises(AssertionError):
        invariants(broken)


def test_a_broker_wide_fact_that_is_wrong_is_found():
    for change in (
        lambda state: setattr(state, "live_bytes", 1),
        lambda state: setattr(state, "idempotency_keys", 5),
        lambda state: setattr(state, "next_topic_id", 1),
        lambda state: state.topics.clear(),
        lambda state: state.wall_queues.add(99),
        lambda state: state.wall_queues.clear(),
        lambda state: state.routers_from.clear(),
        lambda state: state.orphan(99),
        lambda state: state.holders.clear(),
    ):
        broken = state()
        change(broken)
        with pytest.raises(AssertionError):
            invariants(broken)
