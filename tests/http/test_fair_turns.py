"""Fair turns: who has used little of the loop's time is served before who has used much, and turns end by time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest

from tenure.http.wire.fair_turns import Caller, FairTurns

MS = 1 / 1024
"""A millisecond of these tests: a number that sums without a rest."""


class Loop:
    """A loop whose turns a test takes by itself."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []
        self.turns = 0

    def call_soon(self, call: Callable[[], None]) -> None:
        self.ready.append(call)

    def turn(self) -> None:
        """Take one turn: what is ready now."""
        self.turns += 1
        ready, self.ready = self.ready, []
        for call in ready:
            call()

    def settle(self) -> None:
        """Take turns until nothing is ready."""
        while self.ready:
            self.turn()


class Scene:
    """Callers that do steps of known length, on a clock that only these steps move."""

    def __init__(self, share_ms: int = 4) -> None:
        self.now_s = 0.0
        self.loop = Loop()
        self.away_s = 0.0
        self.turns = FairTurns(
            share_ms,
            loop=self.loop,  # type: ignore[arg-type]
            clock=lambda: self.now_s,
            cpu_clock=lambda: self.now_s - self.away_s,
        )
        self.turns.left_s = self.turns.share_s = share_ms * MS
        self.turns.low_s = share_ms * MS / 2
        self.done: list[str] = []

    def step(self, caller: Caller, name: str, took_ms: float) -> None:
        began_s = self.now_s
        self.now_s += took_ms * MS
        self.done.append(name)
        caller.spend(began_s)

    def ask(self, name: str, took_ms: float) -> None:
        """Do a step of this caller now if that is allowed, else have it wait."""
        caller = self.turns.named(name)
        if self.turns.is_free:
            self.step(caller, name, took_ms)
        else:
            caller.wait(partial(self.step, caller, name, took_ms))

    def counted(self) -> list[int]:
        """Take turns until nothing is left to do; return how many steps each did."""
        counts: list[int] = []
        while self.loop.ready:
            before = len(self.done)
            self.loop.turn()
            counts.append(len(self.done) - before)
        return counts


def test_while_nobody_uses_up_the_turn_no_step_waits_and_few_turns_are_asked_for() -> None:
    scene = Scene()
    for _ in range(100):
        scene.ask("one", 0.125)
        scene.ask("two", 0.125)
        assert scene.turns.is_free
        if scene.turns.left_s <= scene.turns.low_s:
            scene.loop.turn()
    assert len(scene.done) == 200
    assert scene.loop.turns <= 25  # at most one for each 2 ms of work, and none for an idle turn
    scene.loop.settle()
    assert scene.loop.ready == []


def test_a_turn_ends_by_its_time_however_much_has_arrived() -> None:
    scene = Scene(share_ms=4)
    for _ in range(700):
        scene.ask("flood", 1)
    assert len(scene.done) == 4
    counts = scene.counted()
    assert max(counts) == 4
    assert len(scene.done) == 700


def test_one_who_asks_seldom_is_served_before_everything_of_one_who_floods() -> None:
    scene = Scene()
    for _ in range(700):
        scene.ask("flood", 1)
    for _ in range(50):
        scene.loop.turn()
    before = len(scene.done)
    scene.ask("quiet", 0.25)
    scene.loop.turn()
    assert scene.done[before] == "quiet"
    scene.loop.settle()


def test_two_who_flood_share_the_time_and_not_the_number_of_steps() -> None:
    scene = Scene()
    for _ in range(400):
        scene.ask("long", 2)
        scene.ask("short", 0.5)
    for _ in range(100):
        scene.loop.turn()
    used_ms = {"long": scene.done.count("long") * 2, "short": scene.done.count("short") * 0.5}
    assert abs(used_ms["long"] - used_ms["short"]) <= 8  # two turns
    scene.loop.settle()
    assert len(scene.done) == 800


def test_one_who_comes_late_has_saved_up_no_more_than_a_turn() -> None:
    scene = Scene()
    for _ in range(700):
        scene.ask("early", 1)
    for _ in range(100):
        scene.loop.turn()
    for _ in range(100):
        scene.ask("late", 1)
    before = len(scene.done)
    for _ in range(10):
        scene.loop.turn()
    since = scene.done[before:]
    assert since[:4] == ["late"] * 4
    assert abs(since.count("late") - since.count("early")) <= 6
    scene.loop.settle()


def test_the_time_before_a_moment_at_which_nobody_waited_does_not_count() -> None:
    scene = Scene()
    for _ in range(100):
        scene.ask("old", 1)
    scene.loop.settle()
    for _ in range(40):
        scene.ask("old", 1)
        scene.ask("new", 1)
    before = len(scene.done)
    for _ in range(8):
        scene.loop.turn()
    since = scene.done[before:]
    assert abs(since.count("old") - since.count("new")) <= 8
    scene.loop.settle()


def test_after_a_step_longer_than_a_turn_its_caller_rests_for_as_many_turns_and_others_do_not() -> None:
    scene = Scene(share_ms=4)
    for _ in range(10):
        scene.ask("heavy", 16)
    served: list[int] = []
    for turn in range(40):
        before = len(scene.done)
        if turn % 2:
            scene.ask("light", 0.25)
        scene.loop.turn()
        done = scene.done[before:]
        assert done.count("light") == turn % 2
        served += [turn] * done.count("heavy")
    assert [after - before for before, after in pairwise(served)] == [5] * (len(served) - 1)
    assert len(served) >= 7
    scene.loop.settle()
    assert scene.done.count("heavy") == 10


def test_steps_of_one_caller_keep_their_order() -> None:
    scene, order = Scene(), list[int]()
    for _ in range(10):
        scene.ask("one", 1)
    caller = scene.turns.named("one")

    def step(number: int) -> None:
        order.append(number)
        scene.step(caller, "one", number % 3)

    for number in range(100):
        caller.wait(partial(step, number))
    scene.loop.settle()
    assert order == list(range(100))


def test_a_step_that_fails_ends_no_line() -> None:
    scene = Scene()
    for _ in range(10):
        scene.ask("one", 1)

    def fail() -> None:
        raise RuntimeError("a bug")

    scene.turns.named("two").wait(fail)
    with pytest.raises(RuntimeError):
        scene.loop.turn()
    scene.loop.settle()
    assert scene.done == ["one"] * 10
    assert scene.turns.is_free


async def test_work_after_a_wait_is_done_at_once_or_in_a_turn_of_its_caller_unless_it_was_cancelled() -> None:
    scene = Scene()
    caller = scene.turns.named("one")
    await caller.do(lambda: scene.done.append("at once"))
    scene.ask("one", 10)
    gone, later = (asyncio.ensure_future(caller.do(partial(scene.done.append, name))) for name in ("gone", "later"))
    failing = asyncio.ensure_future(caller.do(lambda: 1 // 0))
    await asyncio.sleep(0)
    assert scene.done == ["at once", "one"]
    gone.cancel()
    scene.loop.settle()
    await asyncio.wait_for(later, 60)
    assert scene.done == ["at once", "one", "later"]
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(failing, 60)


def test_who_was_served_before_is_served_at_once_beside_new_callers_without_end() -> None:
    scene = Scene(share_ms=4)
    quiet = scene.turns.named("quiet")
    scene.turns.is_free = False
    for turn in range(200):
        for _ in range(6):  # more than a turn's time
            new = Caller(scene.turns)
            new.wait(partial(scene.step, new, "new", 1))
        quiet.wait(partial(scene.step, quiet, "quiet", 0.25))
        scene.loop.turn()
        assert scene.done.count("quiet") >= turn - 1, turn
    scene.loop.settle()
    assert scene.done.count("new") == 1_200


def test_a_new_caller_is_served_next_beside_many_who_flood() -> None:
    scene = Scene(share_ms=4)
    for number in range(50):
        for _ in range(40):
            scene.ask(f"flood {number}", 1)
    for _ in range(100):
        scene.loop.turn()
    before = len(scene.done)
    new = Caller(scene.turns)
    new.wait(partial(scene.step, new, "new", 1))
    new.wait(partial(scene.step, new, "new", 1))
    scene.loop.turn()
    assert scene.done[before : before + 2] == ["new", "new"]
    scene.loop.settle()


def test_a_caller_is_not_charged_for_the_time_in_which_other_processes_had_the_processor() -> None:
    scene = Scene(share_ms=4)
    caller, other = scene.turns.named("caller"), scene.turns.named("other")

    def step() -> None:
        began_s = scene.now_s
        scene.now_s += 100 * MS
        scene.away_s += 99 * MS
        scene.done.append("caller")
        caller.spend(began_s)

    scene.turns.is_free = False
    for _ in range(40):
        other.wait(partial(scene.step, other, "other", 1))
    for _ in range(5):
        caller.wait(step)
        scene.loop.turn()
    assert scene.done.count("caller") >= 4
    assert caller.used_s < 50 * MS
    scene.loop.settle()
