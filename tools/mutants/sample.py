"""Which mutants are tried, and which tests against each."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from tools.mutants.mutate import Mutant, mutants_of

ROOMS = ("core", "log", "broker")
FLOORS = (
    *("tests/core", "tests/log", "tests/broker", "tests/model"),
    *(f"tests/faults/test_{name}.py" for name in ("time", "semantics", "owners", "failing_disk")),
)
"""Folders and files of the tests that are tried."""
Calls = dict[str, tuple[float, frozenset[str]]]
"""Each test with its processor time in seconds and the functions that it calls."""


class Stage(NamedTuple):
    tests: list[str]
    seconds: float


def sample(root: Path, *, count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants, as many of each room, and of each kind in a room as far as there are any."""
    dice = random.Random(seed)
    rooms = [_by_kind(root, room, dice) for room in ROOMS]
    return _in_turns(rooms)[:count]


def _by_kind(root: Path, room: str, dice: random.Random) -> list[Mutant]:
    kinds: dict[str, list[Mutant]] = {}
    for path in sorted((root / "src" / "tenure" / room).rglob("*.py")):
        for mutant in mutants_of(path, source=root / "src"):
            kinds.setdefault(mutant.kind, []).append(mutant)
    for mutants in kinds.values():
        dice.shuffle(mutants)
    return _in_turns([[mutant for mutant in kinds[kind] if not mutant.is_idle] for kind in sorted(kinds)])


def _in_turns(lists: Iterable[list[Mutant]]) -> list[Mutant]:
    return [mutant for turn in zip_longest(*lists) for mutant in turn if mutant is not None]


def stages(mutant: Mutant, calls: Calls, *, seconds_max: float) -> list[Stage]:
    """Return the tests that call the changed function: those of its own room first, the fastest ones in front.

    Each stage takes at most ``seconds_max`` of processor time; its slowest tests are left out beyond that.
    """
    function = f"{mutant.path_in_source} {mutant.function}"
    own = f"tests/{mutant.room}/"
    callers = [name for name, (_, called) in calls.items() if function in called]
    rooms = [[name for name in callers if name.startswith(own)], [name for name in callers if not name.startswith(own)]]
    return [_stage(names, calls, seconds_max) for names in rooms if names]


def _stage(names: list[str], calls: Calls, seconds_max: float) -> Stage:
    chosen, seconds = list[str](), 0.0
    for name in sorted(names, key=lambda name: calls[name][0]):
        if chosen and seconds + calls[name][0] > seconds_max:
            break
        chosen.append(name)
        seconds += calls[name][0]
    return Stage(chosen, seconds)
