"""A model of its own for the first minutes of a home (G1): who begins the log, with crashes and late requests.

A home has two objects that are created only if absent: the genesis, which is the first link and names the log, and
`home.json`, which repeats the name. Members read both and create what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from tests.chain.model.explore import Explored, Violation, explore

__all__ = ["GenesisRules", "run_genesis"]


@dataclass(frozen=True, slots=True)
class GenesisRules:
    """G1, and its broken variants."""

    genesis_first: bool = True  # the genesis is created before home.json
    read_home_first: bool = True  # ... and so home.json is read before the genesis
    absent_genesis: str = "corrupt"  # beside a home.json: "corrupt", or "create"
    name_from_genesis: bool = True  # home.json repeats the name that the genesis has, not the one this member chose


class Phase(IntEnum):
    OFF = 0
    READING = 1  # has read the first of the two objects
    CREATING = 2  # has sent a genesis
    NAMING = 3  # has sent home.json
    OPEN = 4
    CORRUPT = 5


class Opener(NamedTuple):
    phase: Phase = Phase.OFF
    seen: int = 0  # the name in the object that was read first
    name: int = 0  # the name of the log that this member opens


class Home(NamedTuple):
    members: tuple[Opener, ...]
    crashes: int
    names: int = 0  # names given out so far
    genesis: int = 0
    home: int = 0
    air: tuple[tuple[bool, int], ...] = ()  # requests that may land at any time: (it is a genesis, name)
    opened: int = 0  # the name of the log that somebody opened
    wiped: bool = False


def run_genesis(rules: GenesisRules, *, members: int = 3, crashes: int = 2) -> Explored:
    """Explore how a home begins."""
    first = Home((Opener(),) * members, crashes)
    return explore(first, partial(_steps, rules), check=_check, states_max=1_000_000)


def _check(home: Home) -> None:
    names = {member.name for member in home.members if member.phase == Phase.OPEN}
    if home.genesis and home.home and home.genesis != home.home and not home.wiped:
        raise Violation("conflict", f"the genesis says {home.genesis}, home.json {home.home}")
    if names - {home.opened}:
        raise Violation("diverged", f"two logs in one home: {names}, {home.opened}")
    if home.wiped and home.genesis == home.home:
        raise Violation("lost", "the chain was wiped, and an empty one began under the same name")
    if not home.wiped and any(member.phase == Phase.CORRUPT for member in home.members):
        raise Violation("corrupt", "a home that lost nothing is called corrupt")


def _steps(rules: GenesisRules, home: Home) -> Iterator[tuple[str, Callable[[], Home]]]:
    for is_genesis, name in home.air:
        if not (home.genesis if is_genesis else home.home):
            landed = home._replace(genesis=name) if is_genesis else home._replace(home=name)
            yield f"{'genesis' if is_genesis else 'home.json'} {name} lands", partial(lambda reached: reached, landed)
    if home.opened and home.genesis and not home.wiped:
        yield "the chain is wiped", partial(home._replace, genesis=0, air=(), wiped=True)
    for index, member in enumerate(home.members):
        if home.crashes and member.phase not in (Phase.OFF, Phase.CORRUPT):
            crashed = _changed(home, index, Opener())
            yield f"crash of {member}", partial(crashed._replace, crashes=home.crashes - 1)
        if member.phase not in (Phase.OPEN, Phase.CORRUPT):
            yield f"{member.phase.name.lower()} of {index}", partial(_go_on, rules, home, index)


def _changed(home: Home, index: int, member: Opener) -> Home:
    return home._replace(members=tuple(sorted((*home.members[:index], member, *home.members[index + 1 :]))))


def _go_on(rules: GenesisRules, home: Home, index: int) -> Home:
    member = home.members[index]
    match member.phase:
        case Phase.OFF:
            seen = home.home if rules.read_home_first else home.genesis
            return _changed(home, index, Opener(Phase.READING, seen))
        case Phase.READING:
            return _compare(rules, home, index)
        case Phase.CREATING if home.genesis:
            name = home.genesis if rules.name_from_genesis else member.name
            return _open(home, index, name) if home.home else _name(home, index, name)
        case Phase.NAMING if home.home and not rules.genesis_first and not home.genesis:
            return _create(home, index, home.home)
        case Phase.NAMING if home.home:
            return _open(home, index, member.name)
    return home  # The outcome is unknown: it waits.


def _compare(rules: GenesisRules, home: Home, index: int) -> Home:
    """Read the second object and decide what is missing."""
    seen = home.members[index].seen
    named, begun = (seen, home.genesis) if rules.read_home_first else (home.home, seen)
    if named and begun:
        return _open(home, index, begun)
    if begun:
        return _name(home, index, begun)
    if named and rules.absent_genesis == "corrupt":
        return _changed(home, index, Opener(Phase.CORRUPT))
    if named:
        return _create(home, index, named)
    fresh = home._replace(names=home.names + 1)
    return (_create if rules.genesis_first else _name)(fresh, index, fresh.names)


def _create(home: Home, index: int, name: int) -> Home:
    air = tuple(sorted({*home.air, (True, name)}))
    return _changed(home, index, Opener(Phase.CREATING, 0, name))._replace(air=air)


def _name(home: Home, index: int, name: int) -> Home:
    air = tuple(sorted({*home.air, (False, name)}))
    return _changed(home, index, Opener(Phase.NAMING, 0, name))._replace(air=air)


def _open(home: Home, index: int, name: int) -> Home:
    """Open the log if both objects have the same name."""
    if home.home != name:
        return _changed(home, index, Opener(Phase.CORRUPT))
    return _changed(home, index, Opener(Phase.OPEN, 0, name))._replace(opened=home.opened or name)
