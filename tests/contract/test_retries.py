"""The rule of retries, which the client and the timers share."""

from __future__ import annotations

import pytest

from tenure.contract.repeat import Repeat
from tenure.retries import Retries


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def retries(repeat: Repeat, clock: Clock | None = None) -> Retries:
    return Retries(repeat, attempts_max=3, retry_for_ms=10_000, now_s=clock or Clock())


@pytest.mark.parametrize("repeat", Repeat)
def test_a_refusal_is_repeated_whatever_the_call(repeat: Repeat):
    call = retries(repeat)
    assert call.may_repeat(again=True, unknown=False, wait_s=1)
    assert not call.unknown


@pytest.mark.parametrize(
    ("repeat", "repeated", "unknown"),
    [(Repeat.READ, True, False), (Repeat.SAFE, True, True), (Repeat.NEVER, False, True)],
)
def test_a_lost_answer_is_repeated_where_a_second_copy_is_safe(repeat: Repeat, repeated: bool, unknown: bool):
    call = retries(repeat)
    assert call.may_repeat(again=True, unknown=True, wait_s=1) is repeated
    assert call.unknown is unknown


def test_a_later_refusal_does_not_resolve_a_lost_answer():
    call = retries(Repeat.SAFE)
    call.may_repeat(again=True, unknown=True, wait_s=1)
    assert not call.may_repeat(again=False, unknown=False, wait_s=1)
    assert call.unknown


def test_the_last_attempt_is_not_repeated():
    call = retries(Repeat.SAFE)
    assert [call.may_repeat(again=True, unknown=False, wait_s=0) for _ in range(3)] == [True, True, False]


def test_a_wait_that_ends_after_the_limit_is_not_begun():
    clock = Clock()
    call = retries(Repeat.SAFE, clock)
    assert call.may_repeat(again=True, unknown=False, wait_s=10)
    clock.now_s = 0.5
    assert not call.may_repeat(again=True, unknown=False, wait_s=10)
