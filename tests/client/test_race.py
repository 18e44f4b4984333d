"""Which address of a host is tried when: the rule alone."""

from __future__ import annotations

import math
from socket import AF_INET, AF_INET6, SOCK_STREAM, AddressFamily
from typing import Any

import pytest

from tenure.client.transport.race import Place, Race

SIX = [(AF_INET6, SOCK_STREAM, 6, "", (f"::{number}", 80, 0, 0)) for number in (1, 2, 3)]
FOUR = [(AF_INET, SOCK_STREAM, 6, "", (f"127.0.0.{number}", 80)) for number in (1, 2, 3)]


def tried(race: Race, *times_s: float) -> list[Any]:
    """What is tried at these moments, in order."""
    found: list[Place] = []
    for now_s in times_s:
        while (place := race.next(now_s)) is not None:
            found.append(place)
    return found


def test_an_address_has_a_head_start_and_then_company() -> None:
    race = Race(FOUR, now_s=10.0, timeout_s=5.0)
    assert tried(race, 10.0) == FOUR[:1]
    assert race.due_s == 10.25
    assert tried(race, 10.2) == []
    assert tried(race, 10.25) == FOUR[1:2]
    assert tried(race, 10.49, 10.5) == FOUR[2:]
    assert (race.due_s, tried(race, 99.0)) == (math.inf, [])


def test_an_address_that_fails_gives_way_at_once() -> None:
    race = Race(FOUR, now_s=10.0, timeout_s=5.0)
    assert tried(race, 10.0) == FOUR[:1]
    race.failed(ConnectionRefusedError("no"))
    assert tried(race, 10.01) == FOUR[1:2]
    assert race.due_s == pytest.approx(10.26), "the next one has its head start"
    assert str(race.error) == "no"


@pytest.mark.parametrize("timeout_s", [0.03, 0.3, 3.0])
def test_every_address_has_its_share_of_the_time(timeout_s: float) -> None:
    """It is at least as long for the last as it would be if they were tried one after the other."""
    race = Race(FOUR, now_s=0.0, timeout_s=timeout_s)
    begun = []
    while race.due_s < math.inf:
        begun.append(race.due_s)
        race.next(race.due_s)
    assert len(begun) == 3
    assert begun[-1] <= timeout_s * 2 / 3 + 1e-9


@pytest.mark.parametrize("first", [SIX, FOUR])
def test_families_take_turns_and_the_first_one_is_that_of_the_resolver(
    first: list[tuple[AddressFamily, Any, int, str, Any]],
) -> None:
    other = FOUR if first is SIX else SIX
    race = Race([*first, other[0]], now_s=0.0, timeout_s=9.0)
    assert tried(race, *range(9)) == [first[0], other[0], first[1], first[2]]


def test_a_name_without_an_address_is_an_error() -> None:
    race = Race([], now_s=0.0, timeout_s=1.0)
    assert race.next(0.0) is None
    assert "has no address" in str(race.error)
