"""How puts become batches: the rules alone, with nothing that waits."""

from __future__ import annotations

from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure import Record
from tenure.client.batching.batcher import Batch, Batcher
from tenure.client.batching.put import Put
from tenure.client.batching.settings import PUT_BYTES, ProducerSettings
from tenure.contract.replies import Produced
from tenure.errors import Closed, Invalid, NotFound, Overloaded


class Callers:
    """Puts with names, and what their callers were told."""

    def __init__(self, **options: Any) -> None:
        self.told: dict[str, int | Exception] = {}
        self.gather: Batcher[str] = Batcher(ProducerSettings(**options), report=self._tell)
        self._seq = 0

    def _tell(self, put: Put[str]) -> None:
        assert put.waiter not in self.told, "told once"
        self.told[put.waiter] = put.error or put.seq

    def put(self, name: str, data: Any = 1, *, tag: str | None = None, unique_key: str | None = None) -> Put[str]:
        put = Put((data, {"tag": tag, "unique_key": unique_key}), name)
        self.gather.add(put)
        return put

    def accept(self, part: Batch[str]) -> None:
        first = self._seq + 1
        self._seq += len(part)
        self.gather.accept(part, Produced("q", first, self._seq, len(part)))

    def send(self) -> str:
        """One batch that goes through; the names in it."""
        batch = self.gather.take()
        self.accept(batch)
        self.gather.finish_batch()
        return names(batch)


def names(batch: Batch[str]) -> str:
    return " ".join(put.waiter for put in batch)


def test_everything_pending_goes_in_one_batch_and_in_order():
    callers = Callers()
    for name in "abc":
        callers.put(name)
    assert callers.send() == "a b c"
    assert callers.told == {"a": 1, "b": 2, "c": 3}
    assert callers.gather.idle


def test_a_batch_is_bounded_by_records():
    callers = Callers(batch_records_max=2)
    for name in "abcde":
        callers.put(name)
    assert [callers.send() for _ in range(3)] == ["a b", "c d", "e"]


def test_a_batch_is_bounded_by_bytes_and_a_larger_record_goes_alone():
    callers = Callers(batch_bytes_max=28)
    for name, size in zip("abcde", (2, 2, 18, 2, 6), strict=True):
        callers.put(name, "x" * size)
    assert [callers.send() for _ in range(4)] == ["a b", "c", "d", "e"]


def test_a_record_with_a_unique_key_goes_alone_and_keeps_its_place():
    callers = Callers()
    callers.put("a")
    callers.put("b", unique_key="k")
    callers.put("c", Record(data=b"1", unique_key="l"))
    callers.put("d")
    callers.put("e")
    assert [callers.send() for _ in range(4)] == ["a", "b", "c", "d e"]


def test_a_record_too_large_never_meets_its_neighbours():
    callers = Callers(record_bytes_max=10)
    callers.put("a")
    with pytest.raises(Invalid) as raised:
        callers.put("b", "x" * 20)
    assert raised.value.code == "record_too_large"
    with pytest.raises(Invalid):
        callers.put("c", object())
    assert callers.send() == "a"
    assert callers.gather.idle


def test_what_finds_no_room_waits_and_is_encoded_only_when_its_turn_comes():
    callers = Callers(pending_bytes_max=2 * PUT_BYTES, record_bytes_max=10)
    for name in "ab":
        callers.put(name)
    callers.put("c", bad := {"n": object()})
    callers.put("d", "x" * 20)
    callers.put("e")
    assert callers.send() == "a b"
    assert isinstance(callers.told["c"], Invalid), bad
    assert isinstance(callers.told["d"], Invalid)
    assert callers.send() == "e"
    assert callers.gather.idle


def test_giving_up_leaks_nothing_wherever_the_put_stands():
    callers = Callers(pending_bytes_max=3 * PUT_BYTES)
    flying = callers.put("a")
    batch = callers.gather.take()
    pending = callers.put("b")
    callers.put("c")
    waiting = callers.put("d")
    callers.put("e")
    for put in (flying, pending, waiting):
        callers.gather.give_up(put)
    callers.accept(batch)
    callers.gather.finish_batch()
    assert callers.send() == "c e"
    assert callers.told == {"c": 2, "e": 3}
    assert callers.gather._bytes == 0


def test_a_failure_reaches_exactly_the_callers_of_its_batch_each_with_an_error_of_its_own():
    callers = Callers(batch_records_max=2)
    for name in "abc":
        callers.put(name)
    batch = callers.gather.take()
    assert callers.gather.refuse(batch, NotFound("no such topic", code="topic_not_found", topic="q")) == []
    callers.gather.finish_batch()
    assert callers.send() == "c"
    first, second = callers.told["a"], callers.told["b"]
    assert isinstance(first, NotFound)
    assert isinstance(second, NotFound)
    assert first is not second
    assert (second.code, second.detail) == ("topic_not_found", {"topic": "q"})
    assert callers.told["c"] == 1


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_a_batch_that_is_refused_as_invalid_is_split_until_only_the_bad_records_fail(good):
    callers = Callers()
    for number, fine in enumerate(good):
        callers.put(f"{number}", fine)
    parts, requests = [callers.gather.take()], 0
    while parts:
        part = parts.pop(0)
        requests += 1
        if all(good[int(put.waiter)] for put in part):
            callers.accept(part)
        else:
            parts[:0] = callers.gather.refuse(part, Invalid("one of these"))
    callers.gather.finish_batch()
    told = [callers.told[f"{number}"] for number in range(len(good))]
    assert [isinstance(outcome, int) for outcome in told] == good
    seqs = [outcome for outcome in told if isinstance(outcome, int)]
    assert seqs == list(range(1, len(seqs) + 1)), "in the order of the calls"
    assert requests <= 2 * len(good)
    assert callers.gather.idle


def test_an_answer_that_tells_of_fewer_records_than_were_sent_fails_them_all():
    callers = Callers()
    callers.put("a")
    callers.put("b")
    callers.gather.accept(callers.gather.take(), Produced("q", 1, 1, 1))
    assert [getattr(outcome, "code", None) for outcome in callers.told.values()] == ["bad_answer", "bad_answer"]


def test_what_was_not_sent_can_be_abandoned():
    callers = Callers(pending_bytes_max=2 * PUT_BYTES)
    callers.put("a")
    batch = callers.gather.take()
    callers.put("b")
    callers.put("c")
    callers.gather.abandon(Closed("closed"))
    callers.accept(batch)
    callers.gather.finish_batch()
    assert callers.told["a"] == 1
    assert isinstance(callers.told["b"], Closed)
    assert isinstance(callers.told["c"], Closed)
    assert callers.gather.idle


def test_numbers_tell_which_put_is_the_oldest_without_an_outcome():
    callers = Callers(batch_records_max=1, pending_bytes_max=PUT_BYTES)
    assert callers.gather.oldest_number == callers.gather.next_number == 1
    for name in "ab":
        callers.put(name)
    assert (callers.gather.oldest_number, callers.gather.next_number) == (1, 3)
    callers.send()
    assert callers.gather.oldest_number == 2
    callers.send()
    assert callers.gather.oldest_number == callers.gather.next_number == 3


@pytest.mark.parametrize("options", [{"linger_ms": 6}, {"linger_ms": -1}, {"linger_ms": "1"}, {"batch_records_max": 0}])
def test_limits_that_make_no_sense_are_refused(options):
    with pytest.raises(Invalid):
        ProducerSettings(**options)


def test_options_beside_a_record_are_refused():
    with pytest.raises(Invalid):
        Callers().put("a", Record(data=b"1"), tag="t")


def test_an_error_that_is_not_ours_is_passed_on_as_it_is():
    callers = Callers()
    callers.put("a")
    callers.put("b")
    callers.gather.refuse(callers.gather.take(), error := RuntimeError("a bug"))
    assert callers.told == {"a": error, "b": error}
    assert not isinstance(error, Overloaded)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 40)),
        st.tuples(st.just("unique"), st.integers(0, 40)),
        st.tuples(st.sampled_from(["take", "accept", "refuse", "fail", "abandon"]), st.just(0)),
        st.tuples(st.just("give up"), st.integers(0, 60)),
    ),
    max_size=80,
)


@given(STEPS)
def test_whatever_happens_every_put_is_told_once_in_order_and_no_byte_is_lost_count_of(steps):
    callers = Callers(batch_records_max=4, batch_bytes_max=60, record_bytes_max=30, pending_bytes_max=6 * PUT_BYTES)
    gather, puts, parts = callers.gather, list[Put[str]](), list[Batch[str]]()
    for step, number in steps:
        if step in ("put", "unique"):
            put = Put(("x" * number, {"unique_key": f"{number}" if step == "unique" else None}), f"{len(puts)}")
            try:
                gather.add(put)
            except Invalid:
                continue
            puts.append(put)
        elif step == "take" and not gather._flying:
            parts = [batch] if (batch := gather.take()) else []
            assert all(len(part) == 1 or not any(put.alone for put in part) for part in parts)
        elif step in ("accept", "refuse", "fail") and parts:
            part = parts.pop(0)
            if step == "accept":
                callers.accept(part)
            else:
                parts[:0] = gather.refuse(part, Invalid("no") if step == "refuse" else NotFound("none"))
            if not parts:
                gather.finish_batch()
        elif step == "give up" and number < len(puts):
            gather.give_up(puts[number])
        elif step == "abandon":
            gather.abandon(Closed("closed"))
        assert gather._bytes == sum(put.cost_bytes for put in (*gather._pending, *gather._flying))
        assert not gather._waiting or gather.crowded
        assert not (gather.crowded and not gather._pending and not gather._flying)
    seqs = [put.seq for put in puts if put.seq]
    assert seqs == sorted(seqs), "in the order of the calls"
    undecided = {put.waiter for put in (*gather._pending, *gather._waiting, *(put for part in parts for put in part))}
    for put in puts:
        assert put.given_up or (put.waiter in callers.told) != (put.waiter in undecided)


@pytest.mark.parametrize("room", [1_000, 1 << 30], ids=["most wait for room", "all are pending"])
def test_a_batch_costs_the_same_however_many_were_sent_before_it(room):
    def cost_s(count: int) -> float:
        callers = Callers(batch_records_max=1, pending_bytes_max=room)
        for number in range(count):
            callers.put(str(number))
        begun_s = thread_time()
        while callers.gather.head is not None:
            callers.send()
        return thread_time() - begun_s

    few, many = (min(cost_s(count) for _ in range(3)) for count in (5_000, 20_000))
    assert many < 8 * few, "four times as many: four times as much, and not sixteen times"
