"""The state of the model of taking over: as `tests.chain.model.world`, with clocks instead of faults of the store.

A clock is an age: how many ticks ago something happened, up to the longest that a rule asks for. So time goes on for
ever within a finite number of states. A tick may come between any two steps, which is how a member is paused or slow.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from tests.chain.model.explore import Violation
from tests.chain.model.history import check_denied, extend
from tests.chain.model.links import GENESIS, NONE, Slot, fences, link, newest_data, next_slot, operations
from tests.chain.model.takeover.rules import Case

__all__ = ["Left", "Member", "Role", "World", "canonical", "claim", "deny", "first_world", "occupant", "put", "replace"]

Numbers: TypeAlias = tuple[int, ...]


class Role(IntEnum):
    FOLLOWING = 0
    FENCING = 1  # has sent a fence
    OPENING = 2  # its fence stands; it opens its log and waits for grants of former leaders
    LEADING = 3
    RELEASING = 4  # has sent `released`


class Member(NamedTuple):
    """A process and its directory. A process that ended is one that has not read on since it started again."""

    role: Role = Role.FOLLOWING
    at: int = NONE  # the last link applied
    sent: int = NONE  # the link whose outcome it waits for
    sent_age: int = 0  # since it was first sent
    grant: int = 0  # ticks for which it may still answer without a commit
    any_age: int = 0  # since it received a link of any kind
    data_age: int = 0  # since it received a data link
    opening: int = 0  # ticks until it has opened its log
    restarted: bool = False  # this process has not led yet, so the lock proves that an own former leader is dead
    asked: Numbers = ()  # operations whose callers wait
    phantom: Numbers = ()  # operations in the folded state that never happened
    # The directory.
    tail: Numbers = ()  # operations that this directory wrote; those behind the chain's end are unshipped
    nonces: Numbers = ()
    is_copy: bool = False  # the directory was copied, or its machine rebooted: its lock proves nothing

    @property
    def directory(self) -> int:
        """The first nonce of this directory stands for its name; 0 before it fences."""
        return self.nonces[0] if self.nonces else 0

    @property
    def pending(self) -> Numbers:
        """Operations in the local log that are in no link this member knows."""
        known = operations(self.at)
        return tuple(number for number in self.tail if number not in known)

    def led(self, epoch: int) -> bool:
        """Report whether the fence that began an epoch was this directory's."""
        return any(link(fence).epoch == epoch - 1 and link(fence).nonce in self.nonces for fence in fences(self.at))

    def stopped(self) -> Member:
        """Return the member after its process ended and another one started in the directory."""
        return Member(at=self.at, tail=self.pending, nonces=self.nonces, is_copy=self.is_copy, restarted=True)

    def follower(self) -> Member:
        """Return the member as it reads on in the same life, without what only a leader has."""
        return Member(at=self.at, tail=self.pending, nonces=self.nonces, is_copy=self.is_copy)


class Left(NamedTuple):
    """How much may still happen."""

    operations: int = 0
    fences: int = 0
    beats: int = 0
    crashes: int = 0
    burns: int = 0
    releases: int = 0
    renewals: int = 0
    clones: int = 0
    skips: int = 0


class World(NamedTuple):
    slots: Numbers
    members: tuple[Member, ...]
    left: Left
    air: Numbers = ()  # links that were sent: each may land at any time
    freed: Numbers = ()  # epochs whose mark stands and whose data links are deleted
    checkpoint: int = NONE
    served: int = 0  # the newest epoch in which a caller was answered
    top: int = GENESIS  # the newest of all links that were acknowledged or led from
    denied: Numbers = ()  # operations whose callers were told that nothing changed


def first_world(case: Case) -> World:
    """Return a world in which the creator of the genesis leads epoch 1, and the others follow."""
    bounds = case.bounds
    leader = Member(role=Role.LEADING, at=GENESIS, nonces=(1,))
    left = Left(*(getattr(bounds, name) for name in Left._fields))
    return World((GENESIS,), canonical_members([*[Member(at=GENESIS)] * (bounds.members - 1), leader]), left)


_indexes: dict[Numbers, dict[Slot, int]] = {}


def occupant(world: World, slot: Slot) -> int:
    """Return the link in a slot, or `NONE`."""
    index = _indexes.get(world.slots)
    if index is None:
        index = _indexes[world.slots] = {link(number).slot: number for number in world.slots}
    return index.get(slot, NONE)


def put(world: World, number: int) -> World:
    """Create a link in its slot, which must be free."""
    return world._replace(slots=tuple(sorted((*world.slots, number))))


def replace(world: World, index: int, member: Member) -> World:
    """Return the world with one member changed."""
    return world._replace(members=(*world.members[:index], member, *world.members[index + 1 :]))


def canonical(world: World) -> World:
    """Return the one world for all that differ only in who is who, or in requests that can do nothing any more."""
    air = tuple(sorted({n for n in world.air if occupant(world, link(n).slot) == NONE}))
    return world._replace(members=canonical_members(world.members), air=air)


_kept: dict[Member, Member] = {}


def canonical_members(members: tuple[Member, ...] | list[Member]) -> tuple[Member, ...]:
    """Return members in an order of their own. Equal members are kept once, to save memory."""
    return tuple(sorted(_kept.setdefault(member, member) for member in members))


def claim(world: World, number: int) -> World:
    """Note that a link was acknowledged, or that its epoch is led: it must lie on the one history."""
    return world._replace(top=extend(world.top, number, world.denied))


def deny(world: World, numbers: Numbers) -> World:
    """Note that the callers of these operations were told that nothing changed."""
    check_denied(world.top, numbers)
    return world._replace(denied=tuple(sorted({*world.denied, *numbers})))


def check_answers(world: World) -> None:
    """Check that nobody may answer from an epoch after a caller was answered from a later one."""
    for member in world.members:
        if member.grant and next_slot(member.at)[0] < world.served:
            raise Violation("stale", f"{member} may answer, and epoch {world.served} has answered already")


def is_released(number: int) -> bool:
    """Report whether the newest data link of a history gave the lead away."""
    return link(newest_data(number)).is_released
