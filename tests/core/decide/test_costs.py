"""The cost of a command follows what it touches, not what else there is: counted steps beside ten times as much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure import Overloaded, Record, Settings
from tenure.contract import commands as c
from tenure.core.decide.table import DECIDES
from tenure.testing.clock import ManualClock
from tests.kit.counted_steps import count_steps
from tests.kit.rules import Rules, make_queue


def run(rules: Rules, command: c.Command[Any]) -> None:
    """Decide and fold a command, without a look at everything else."""
    rules._carry_out(DECIDES[type(command)](rules.state, command, rules.now_ms, rules.payloads))


def cost(rules: Rules, command: c.Command[Any]) -> int:
    return count_steps(lambda: run(rules, command))


def beside_routers(count: int) -> int:
    rules = Rules()
    for number in range(count):
        run(rules, c.PutRouter(router=f"r{number}", source=f"s{number}", dest=f"d{number}"))
    return cost(rules, c.PutRouter(router="new", source="a", dest="b"))


def among_cancelled_delays(count: int) -> int:
    rules = Rules()
    make_queue(rules)
    run(rules, c.Append(topic="q", records=[Record(data=b"x", delay_ms=10_000)] * count))
    run(rules, c.DeleteRecords(topic="q", seqs=list(range(1, count, 2))))
    return cost(rules, c.Claim(topic="q", node="w"))


def delayed_jobs(count: int) -> int:
    rules = Rules()
    make_queue(rules)
    run(rules, c.Append(topic="q", records=[Record(data=b"x", delay_ms=10_000 + n) for n in range(count)]))
    listed = c.ListJobs(topic="q", state="delayed", limit=5)
    return cost(rules, c.Strip(topic="q", head=5, tail=5)) + cost(rules, listed)


def held_jobs(count: int) -> int:
    rules = Rules()
    make_queue(rules)
    run(rules, c.Append(topic="q", records=[b"x"] * count))
    for _ in range(count):
        run(rules, c.Claim(topic="q", node="w"))
    return cost(rules, c.ListLeases(topic="q", limit=5))


@pytest.mark.parametrize("beside", [beside_routers, among_cancelled_delays, delayed_jobs, held_jobs])
def test_a_command_costs_the_same_beside_ten_times_as_much(beside: Callable[[int], int]) -> None:
    assert beside(2_000) < 1.5 * beside(200)


def test_a_keyed_append_at_the_limit_looks_at_a_bounded_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.core.state.state._KEYED_LOOKS_MAX", 10)

    def refused(topics: int) -> int:
        rules = Rules(settings=Settings(idempotency_keys_max=topics))
        for number in range(topics):
            run(rules, c.Append(topic=f"t{number}", records=[b"x"], idempotency_key="k"))

        def append() -> None:
            with pytest.raises(Overloaded, match="idempotency"):
                run(rules, c.Append(topic="t0", records=[b"x"], idempotency_key="another"))

        return count_steps(append)

    assert refused(1_000) < 2 * refused(100)


def test_keys_that_have_expired_make_room_though_not_all_topics_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.setattr("tenure.core.state.state._KEYED_LOOKS_MAX", 2)
    rules = Rules(clock, Settings(idempotency_keys_max=9))
    for number in range(9):
        window_ms = 1_000 if number == 5 else 500_000
        config = {"idempotency_window_ms": window_ms}
        rules.produce(f"t{number}", [b"x"], config=config, idempotency_key="k")
    clock.advance(2_000)
    refusals = 0
    while True:
        try:
            rules.produce("t0", [b"x"], idempotency_key="another")
            break
        except Overloaded:
            refusals += 1
    assert refusals == 2, "two topics for each of the calls before, and the third finds the sixth"
