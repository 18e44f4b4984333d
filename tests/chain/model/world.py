"""The state of the model: a store, requests under way, members with their directories, and what callers were told.

Everything is a tuple of numbers, so that states can be compared, sorted and hashed. Members have no names: their order
in the tuple means nothing, and it is sorted, so that worlds which differ only in who is who are one state.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from tests.chain.model.history import check_denied, extend
from tests.chain.model.links import GENESIS, NONE, Slot, link, operations
from tests.chain.model.rules import Case

__all__ = ["Left", "Member", "Role", "World", "claim", "deny", "first_world", "occupant", "put", "replace", "settle"]

Numbers: TypeAlias = tuple[int, ...]


class Role(IntEnum):
    OFF = 0  # has no directory and has read nothing
    WALKING = 1  # reads the chain
    READY = 2  # has read the link before the free slot (where the store may forget)
    FENCING = 3  # has sent a fence
    PROVING = 4  # its fence is in the slot; the looks of R4 follow
    LEADING = 5
    CORRUPT = 6


class Member(NamedTuple):
    """A process and its directory."""

    role: Role = Role.OFF
    at: int = NONE  # the last link applied
    sent: int = NONE  # the link whose outcome it waits for
    replied: bool = False  # the store's "created" is on its way back
    step: int = 0  # how many looks of R4 are done
    leads: bool = False  # it fences itself, as the leader that it is
    clean: bool = False  # T2: the walk began at the durable place and met no foreign fence
    lapsed: bool = False  # R2b: by its clocks, more than a grant passed since its last committed link
    asked: Numbers = ()  # operations whose callers wait in this life
    # The directory.
    place: int = NONE  # the durable place: all up to this link is on disk
    tail: Numbers = ()  # operations behind the place, whether the chain has them or not
    nonces: Numbers = ()  # T1's file
    missing: Numbers = ()  # operations below the place that a power loss took
    # What only the properties know.
    made: Numbers = ()  # nonces of fences that this directory really sent
    sure: bool = True  # the store forgot nothing since this member last proved where it is
    went_back: bool = False  # the directory was set back to a snapshot
    snapshot: tuple[object, ...] = ()

    @property
    def directory(self) -> int:
        """The first nonce of this directory stands for its name; 0 before it fences."""
        return self.nonces[0] if self.nonces else 0

    @property
    def pending(self) -> Numbers:
        """Operations in the local log that are in no link this member knows."""
        known = operations(self.at)
        return tuple(number for number in self.tail if number not in known)

    def stopped(self) -> Member:
        """Return the member after its process ended and, if it has a directory, started again at its durable place.

        A member that does not read is as good as one that does not run, so starting again costs no step.
        """
        kept = Member()._replace(**{name: getattr(self, name) for name in _DURABLE})
        return kept._replace(role=Role.WALKING, at=kept.place, clean=True) if kept.place else kept


_DURABLE = ("place", "tail", "nonces", "missing", "made", "sure", "went_back", "snapshot")


class Left(NamedTuple):
    """How much may still happen."""

    operations: int = 0
    fences: int = 0
    crashes: int = 0
    power_losses: int = 0
    burns: int = 0
    renewals: int = 0
    snapshots: int = 0
    restores: int = 0
    forgets: int = 0
    clones: int = 0


class World(NamedTuple):
    slots: Numbers  # links in the store: in the order of creation if the store may forget, else sorted
    members: tuple[Member, ...]
    left: Left
    air: Numbers = ()  # links that were sent: each may land at any time, again and again
    marks: Numbers = ()  # freed epochs
    checkpoint: int = NONE  # the newest
    segments: Numbers = ()  # uploaded sealed segments, each by its last link
    uploads: Numbers = ()  # checkpoints of standbys on their way: the home was seen to hold their segments
    top: int = GENESIS  # the newest of all links that were acknowledged or led from: they must form one history
    denied: Numbers = ()  # operations whose callers were told that nothing changed


def first_world(case: Case) -> World:
    """Return a world in which the creator of the genesis leads epoch 1, and the others know the genesis alone."""
    bounds = case.bounds
    leader = Member(role=Role.LEADING, at=GENESIS, place=GENESIS, clean=True, nonces=(1,), made=(1,))
    other = Member(place=GENESIS).stopped()
    left = Left(
        operations=bounds.operations,
        fences=bounds.fences,
        crashes=bounds.crashes,
        power_losses=bounds.power_losses,
        burns=bounds.burns,
        renewals=bounds.renewals,
        snapshots=min(bounds.restores + bounds.clones, 1),
        restores=bounds.restores,
        forgets=bounds.forgets,
        clones=bounds.clones,
    )
    return World((GENESIS,), (*[other] * (bounds.members - 1), leader), left)


_indexes: dict[Numbers, dict[Slot, int]] = {}


def occupant(world: World, slot: Slot) -> int:
    """Return the link in a slot, or `NONE`."""
    index = _indexes.get(world.slots)
    if index is None:
        index = _indexes[world.slots] = {link(number).slot: number for number in world.slots}
    return index.get(slot, NONE)


def put(case: Case, world: World, number: int) -> World:
    """Create a link in its slot, which must be free."""
    slots = (*world.slots, number)
    return settle(case, world._replace(slots=slots if case.bounds.forgets else tuple(sorted(slots))))


def settle(case: Case, world: World) -> World:
    """Forget requests whose landing cannot matter any more: their slot is taken for ever."""
    if case.bounds.forgets:
        return world
    collected, fences_too = case.bounds.collector, not case.rules.keep_fences
    air = []
    for number in world.air:
        there = occupant(world, link(number).slot)
        if there == NONE or (collected and (fences_too or not link(there).is_fence)):
            air.append(number)
    return world._replace(air=tuple(air)) if len(air) < len(world.air) else world


_members: dict[Member, Member] = {}


def replace(world: World, index: int, member: Member) -> World:
    """Return the world with one member changed. Equal members are kept once."""
    member = _members.setdefault(member, member)
    members = (*world.members[:index], member, *world.members[index + 1 :])
    return world._replace(members=tuple(sorted(members)))


def claim(world: World, number: int) -> World:
    """Note that a link was acknowledged, or that its epoch is led: it must lie on the one history."""
    top = extend(world.top, number, world.denied)
    return world if top == world.top else world._replace(top=top)


def deny(world: World, numbers: Numbers) -> World:
    """Note that the callers of these operations were told that nothing changed."""
    check_denied(world.top, numbers)
    return world._replace(denied=tuple(sorted({*world.denied, *numbers})))
