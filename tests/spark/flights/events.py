"""Flights as lines of JSON, as three producers write them: with everything that goes wrong in a year.

Each line is different from every other, except those that are sent twice on purpose.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.spark.flights.data_set import Flight

__all__ = ["PRODUCERS", "write_events"]

PRODUCERS = 3
LATE, CORRECTED, DELETED, TWICE = 0.01, 0.02, 0.005, 0.005
BROKEN, NUL, KEYLESS = 0.001, 0.001, 0.001
LATE_BY = 400
"""Lines of its own producer by which an event is late at most."""


def write_events(
    flights: Iterable[Flight], folder: Path, *, seed: int, often: int = 1
) -> tuple[list[list[Path]], Counter[str]]:
    """Write a file for each half of the year and each producer; return them, and how often each thing happened.

    The first half speaks version 1. Version 2 of the second half adds ``air_time`` and ``plan``. In a small data set
    everything happens so many times as ``often``.
    """
    dice, happened = _Dice(seed, often), Counter[str]()
    halves: list[list[list[Flight]]] = [[[] for _ in range(PRODUCERS)] for _ in range(2)]
    for flight in flights:
        halves[flight.month > 6][dice.below(PRODUCERS)].append(flight)
    files: list[list[Path]] = []
    for half, shares in enumerate(halves):
        files.append([])
        for number, share in enumerate(shares):
            path = folder / f"half-{half + 1}-producer-{number}.jsonl"
            with path.open("w") as file:
                file.writelines(f"{line}\n" for line in _lines(share, half + 1, dice, happened))
            files[-1].append(path)
    return files, happened


class _Dice:
    """Dice that hit each chance so many times as often."""

    def __init__(self, seed: int, often: int) -> None:
        self._random, self._often = random.Random(seed), often

    def below(self, count: int) -> int:
        return self._random.randrange(count)

    def hits(self, chance: float) -> bool:
        return self._random.random() < chance * self._often


def _lines(flights: Iterable[Flight], version: int, dice: _Dice, happened: Counter[str]) -> Iterator[str]:
    """Yield what one producer sends: the events in their order, with later ones between them."""
    waiting: dict[int, list[str]] = {}
    place = 0

    def later(line: str, after: int = 0) -> int:
        due = place + after + 1 + dice.below(LATE_BY)
        waiting.setdefault(due, []).append(line)
        return due - place

    for place, flight in enumerate(flights):
        yield from waiting.pop(place, ())
        event = _event(flight, version)
        if dice.hits(NUL):
            happened["nul"] += 1
            event |= _with_nul(event, dice)
        line = json.dumps(event)
        if dice.hits(LATE):
            happened["late"] += 1
            behind = later(line)
        else:
            behind = 0
            yield line
        for what in _happenings(dice):
            happened[what] += 1
            behind = later(_follower(what, event, line, flight.number), behind)
    for due in sorted(waiting):
        yield from waiting[due]


def _happenings(dice: _Dice) -> Iterator[str]:
    chances = {"corrected": CORRECTED, "deleted": DELETED, "twice": TWICE, "keyless": KEYLESS}
    chances |= {"truncated": BROKEN / 2, "no json": BROKEN / 2}
    for what, chance in chances.items():
        if dice.hits(chance):
            yield what


def _follower(what: str, event: dict[str, Any], line: str, number: int) -> str:
    """The line that comes after an event for this reason."""
    match what:
        case "corrected":
            return json.dumps(event | {"rev": 1, "dep_delay": (event["dep_delay"] or 0) + 7, "tailnum": "N1"})
        case "deleted":
            return json.dumps({name: event[name] for name in ("v", "id", "at", "month")} | {"op": "delete", "rev": 2})
        case "twice":
            return line
        case "keyless":
            return json.dumps(event | {"id": None})
        case "truncated":
            return line[: len(line) * 2 // 3]
        case _:
            return f"GET /health?flight={number} 200 OK"


def _event(flight: Flight, version: int) -> dict[str, Any]:
    event: dict[str, Any] = {"v": version, "op": "put", "id": flight.number, "rev": 0, "at": flight.at}
    event |= {"month": flight.month, "carrier": flight.carrier, "tailnum": flight.tailnum}
    event |= {"origin": flight.origin, "dest": flight.dest, "distance": flight.distance}
    event |= {"dep_delay": flight.dep_delay, "arr_delay": flight.arr_delay}
    event["fare"] = f"{(flight.distance * 17 + flight.number % 9_973) / 100:.2f}"
    if version == 2:
        event |= {"air_time": flight.air_time, "plan": {"hour": flight.hour, "gate": f"{flight.origin}{flight.hour}"}}
    return event


def _with_nul(event: dict[str, Any], dice: _Dice) -> dict[str, Any]:
    """A zero character in a text, or in one of a struct: JSON takes it, and a database may not."""
    if "plan" in event and dice.below(2):
        return {"plan": event["plan"] | {"gate": "\0gate"}}
    return {"tailnum": "N\x00123"}
