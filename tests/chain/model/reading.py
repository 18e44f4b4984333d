"""A member reads: it begins at its durable place or at the newest checkpoint, and applies links up to the end (R5)."""

from __future__ import annotations

from tests.chain.model.explore import Violation
from tests.chain.model.links import GENESIS, ancestors, data_count, link, next_slot
from tests.chain.model.rules import Case
from tests.chain.model.world import Member, Role, World, occupant, replace

__all__ = ["begin_anew", "corrupt", "read", "sealed", "start_of_bytes"]


def begin_anew(case: Case, world: World, index: int) -> World:
    """Begin with the newest checkpoint: its sealed segments, then the links from where the open segment begins."""
    member = world.members[index]
    if missing := [number for number in sealed(case, world.checkpoint) if number not in world.segments]:
        raise Violation("payload", f"a checkpoint names segments that are not there: {missing}")
    at = start_of_bytes(case, world.checkpoint)
    place = member.place if case.rules.tail_before_place else at
    fresh = Member(role=Role.WALKING, at=at, place=place, tail=member.tail, nonces=member.nonces)
    kept = fresh._replace(made=member.made, went_back=member.went_back, snapshot=member.snapshot, sure=member.sure)
    return replace(world, index, kept)


def read(case: Case, world: World, index: int) -> World:
    """Read the next slot, which is taken, and apply the link if it continues the history."""
    member = world.members[index]
    epoch, number = next_slot(member.at)
    found = occupant(world, (epoch, number))
    if link(found).prev != member.at:
        return corrupt(case, world, index, epoch=epoch)
    if not link(found).is_fence:
        return replace(world, index, member._replace(at=found))
    if case.rules.look_at_fences and epoch in world.marks:
        return begin_anew(case, world, index)
    foreign = link(found).nonce not in member.nonces
    moved = member._replace(at=found, clean=member.clean and not foreign)
    if foreign and not case.rules.tail_before_place:
        moved = moved._replace(place=found)
    return replace(world, index, moved)


def corrupt(case: Case, world: World, index: int, *, epoch: int) -> World:
    """Begin anew if the epoch was freed, as that explains what was read; else the store lost something."""
    member = world.members[index]
    if epoch in world.marks:
        return replace(world, index, member.stopped()) if member.leads else begin_anew(case, world, index)
    if world.left.forgets == case.bounds.forgets:
        raise Violation("corrupt", f"a store that lost nothing is called corrupt by {member}")
    return replace(world, index, member.stopped()._replace(role=Role.CORRUPT))


def sealed(case: Case, number: int) -> list[int]:
    """Return the sealed segments of a history, each by its last link."""
    size = case.bounds.segment_links
    whole = data_count(number) - data_count(number) % size
    ends = (each for each in ancestors(number) if not link(each).is_fence and data_count(each) <= whole)
    return sorted((each for each in ends if data_count(each) % size == 0), key=data_count)


def start_of_bytes(case: Case, number: int) -> int:
    """Return the last link of a history whose bytes are in sealed segments, or the fences behind it."""
    whole = data_count(number) - data_count(number) % case.bounds.segment_links
    while data_count(number) > whole:
        number = link(number).prev
    return number or GENESIS
