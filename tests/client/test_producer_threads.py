"""`Producer` against a real server: many threads put, one of them sends for all."""

from __future__ import annotations

import threading

import pytest

from tenure import Record
from tenure.client.batching.blocking_producer import Producer
from tenure.client.batching.settings import PUT_BYTES
from tenure.errors import Closed, Indeterminate, Invalid, NotFound
from tests.client.held_clients import held_blocking_client


def pending(producer: Producer, number: int) -> None:
    """Until that many puts were taken in, which is to say that many threads wait."""
    with producer._lock:
        taken = producer._batcher.next_number
    while taken <= number:
        threading.Event().wait(0.001)
        with producer._lock:
            taken = producer._batcher.next_number


def test_one_thread_puts_one_after_the_other(server):
    with held_blocking_client(server) as b, b.producer() as producer:
        assert [producer.put({"n": n}, tag="t") for n in range(3)] == [1, 2, 3]
        assert b.wire.sizes == [1, 1, 1]
        assert b.stored() == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_what_threads_put_during_a_request_makes_up_the_next_one(server):
    with held_blocking_client(server) as b, b.producer() as producer:
        b.wire.hold()
        first = b.run(producer.put, "first")
        b.wire.arrived()
        others = [b.run(producer.put, n) for n in range(8)]
        pending(producer, 9)
        b.wire.release()
        assert first.result() == 1
        assert sorted(put.result() for put in others) == list(range(2, 10))
        assert b.wire.sizes == [1, 8]


def test_many_threads_get_the_seqs_of_their_own_records(server):
    with held_blocking_client(server) as b, b.producer() as producer:

        def caller(name: int) -> list[tuple[int, list[int]]]:
            return [(producer.put([name, n]), [name, n]) for n in range(20)]

        told = [pair for done in [b.run(caller, name) for name in range(16)] for pair in done.result()]
        assert [data for _, data in sorted(told)] == b.stored()
        assert len(b.wire.sizes) < 320


def test_a_linger_waits_for_more_but_not_when_the_batch_is_full(server):
    with held_blocking_client(server) as b, b.producer(linger_ms=5, batch_records_max=2) as producer:
        assert producer.put(1) == 1
        puts = [b.run(producer.put, n) for n in range(6)]
        assert sorted(put.result() for put in puts) == [2, 3, 4, 5, 6, 7]


def test_one_bad_record_does_not_fail_its_neighbours(server):
    with held_blocking_client(server) as b, b.producer(record_bytes_max=100) as producer:
        b.wire.hold()
        first = b.run(producer.put, "first")
        b.wire.arrived()
        good = [b.run(producer.put, n) for n in range(3)]
        bad = b.run(lambda: producer.put(3, tag="refused-by-the-server-alone"))
        pending(producer, 5)
        with pytest.raises(Invalid):
            producer.put("x" * 200)
        b.wire.release()
        assert first.result() == 1
        assert sorted(put.result() for put in good) == [2, 3, 4]
        with pytest.raises(Invalid):
            bad.result()


def test_a_failing_batch_fails_its_callers_and_nobody_else(server):
    with held_blocking_client(server) as b, Producer(b.client, f"{b.topic}-absent", create=False) as producer:
        b.wire.hold()
        puts = [b.run(producer.put, 0)]
        b.wire.arrived()
        puts += [b.run(producer.put, n) for n in range(1, 4)]
        pending(producer, 4)
        b.wire.release()
        errors = [put.exception() for put in puts]
        assert {type(error) for error in errors} == {NotFound}
        assert len({id(error) for error in errors}) == 4
        b.client.put_topic(producer.topic, type="queue")
        assert producer.put("later") == 1


def test_a_lost_answer_is_asked_for_again_and_nothing_is_stored_twice(server):
    """Fault 26."""
    with held_blocking_client(server) as b, b.producer() as producer:
        b.wire.lose_answers(1)
        assert producer.put_many([1, 2]) == [1, 2]
        assert b.stored() == [1, 2]


def test_a_leader_that_is_interrupted_leaves_nobody_waiting(server):
    with held_blocking_client(server) as b, b.producer() as producer:
        b.wire.hold()
        b.wire.fail_once(KeyboardInterrupt())
        leader = b.run(producer.put_many, [1, 2])
        b.wire.arrived()
        others = [b.run(producer.put, n) for n in range(3)]
        pending(producer, 5)
        b.wire.release()
        assert isinstance(leader.exception(), KeyboardInterrupt)
        assert sorted(put.result() for put in others) == [1, 2, 3]


def test_others_in_the_batch_of_an_interrupted_leader_hear_that_the_outcome_is_unknown(server):
    with held_blocking_client(server) as b, b.producer() as producer:
        b.wire.hold()
        first = b.run(producer.put, "first")
        b.wire.arrived()
        puts = [b.run(producer.put, n) for n in range(3)]
        pending(producer, 4)
        b.wire.fail_once(KeyboardInterrupt(), after=1)
        b.wire.release()
        assert first.result() == 1
        outcomes = [type(put.exception()) for put in puts]
        assert sorted(kind.__name__ for kind in outcomes) == ["Indeterminate", "Indeterminate", "KeyboardInterrupt"]
        assert producer._batcher.idle
        assert not producer._led


def test_puts_wait_for_room(server):
    with (
        held_blocking_client(server) as b,
        b.producer(pending_bytes_max=2 * PUT_BYTES, batch_records_max=2) as producer,
    ):
        b.wire.hold()
        puts = [b.run(producer.put, n) for n in range(8)]
        b.wire.arrived()
        pending(producer, 8)
        b.wire.release()
        assert sorted(put.result() for put in puts) == list(range(1, 9))
        assert producer._batcher.idle
        assert producer._batcher._bytes == 0


def test_put_many_returns_its_seqs_in_order_and_raises_the_first_error(server):
    with held_blocking_client(server) as b, b.producer(batch_records_max=100) as producer:
        assert producer.put_many(range(250)) == list(range(1, 251))
        assert producer.put_many([]) == []
        bad = Record(data=b"2", tag="refused-by-the-server-alone")
        with pytest.raises(Invalid):
            producer.put_many(["a", bad, "c"])
        with pytest.raises(Invalid) as raised:
            producer.put_many(["d", object(), "e"])
        assert raised.value.__notes__ == ["item 1 of 3"]
        assert b.stored()[250:] == ["a", "c", "d", "e"]


def test_flush_and_close_wait_for_what_is_pending(server):
    with held_blocking_client(server) as b:
        producer = b.producer()
        b.wire.hold()
        put = b.run(producer.put, 1)
        b.wire.arrived()
        flushing, closing = b.run(producer.flush), b.run(producer.close)
        b.wire.release()
        flushing.result()
        closing.result()
        assert put.result() == 1
        with pytest.raises(Closed):
            producer.put(2)


def test_closing_by_a_deadline_fails_what_was_not_sent(server):
    with held_blocking_client(server) as b:
        producer = b.producer()
        b.wire.hold()
        flying = b.run(producer.put, 1)
        b.wire.arrived()
        waiting = b.run(producer.put, 2)
        pending(producer, 2)
        producer.close(deadline_ms=1)
        assert isinstance(waiting.exception(), Closed)
        b.wire.release()
        assert flying.result() == 1


def test_an_outcome_that_stays_unknown_is_told(server):
    """Fault 30."""
    with held_blocking_client(server, attempts_max=1) as b, b.producer() as producer:
        b.wire.lose_answers(1)
        with pytest.raises(Indeterminate):
            producer.put(1)
