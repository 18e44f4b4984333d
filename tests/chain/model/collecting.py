"""The collector, run by a leader: sealed segments, checkpoints, marks and deletes (R6)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chain.model.links import ancestors, fences, link, next_slot
from tests.chain.model.reading import sealed, start_of_bytes
from tests.chain.model.rules import Case
from tests.chain.model.world import Member, Role, World

__all__ = [
    "checkpoint",
    "deletable",
    "delete",
    "delete_segment",
    "freeable",
    "land",
    "mark",
    "place_due",
    "reaches",
    "unnamed",
    "upload",
]


def checkpoint(case: Case, world: World, member: Member) -> World:
    """Upload the sealed segments that are missing, then write a checkpoint of the committed history.

    Only the newest checkpoint is kept: the boldest choice for a collector.
    """
    segments = world.segments
    if case.rules.upload_first:
        segments = tuple(sorted({*segments, *sealed(case, member.at)}))
    return world._replace(checkpoint=member.at, segments=segments)


def upload(case: Case, world: World, member: Member) -> World:
    """Have a standby upload the sealed segments that it does not see in the home, and send a checkpoint after them."""
    segments = tuple(sorted({*world.segments, *sealed(case, member.at)}))
    return world._replace(segments=segments, uploads=tuple(sorted((*world.uploads, member.at))))


def land(case: Case, world: World, number: int) -> World:
    """Store the checkpoint of a standby, which may be far behind by now."""
    uploads = tuple(each for each in world.uploads if each != number)
    is_newest = next_slot(number) > next_slot(world.checkpoint) or not case.rules.newest_by_place
    return world._replace(uploads=uploads, checkpoint=number if is_newest else world.checkpoint)


def unnamed(case: Case, world: World) -> list[int]:
    """Return the sealed segments that the newest checkpoint does not name. Nothing is dropped from these logs."""
    return [number for number in world.segments if number not in sealed(case, world.checkpoint)]


def delete_segment(world: World, number: int) -> World:
    """Delete one sealed segment."""
    return world._replace(segments=tuple(each for each in world.segments if each != number))


def place_due(case: Case, world: World, member: Member) -> bool:
    """Report whether the durable place must move before an epoch can be freed."""
    if not case.rules.place_before_free or not world.checkpoint:
        return False
    below = ancestors(_floor(case, world))
    return any(number in below and number not in ancestors(member.place) for number in fences(member.at))


def freeable(case: Case, world: World, member: Member) -> Iterator[int]:
    """Yield the fences of epochs that this leader knows to be closed and to lie wholly below the floor."""
    if world.checkpoint == 0:
        return
    below = ancestors(_floor(case, world))
    for fence in fences(member.at):
        noted = not case.rules.place_before_free or fence in ancestors(member.place)
        if noted and fence in below and link(fence).number > 0:
            yield fence


def _floor(case: Case, world: World) -> int:
    """Return the last link whose bytes are in the segments that the newest checkpoint names."""
    return start_of_bytes(case, world.checkpoint) if case.rules.keep_open_segment else world.checkpoint


def reaches(case: Case, world: World, epoch: int) -> bool:
    """Report whether the floor lies within this epoch, so that a collector of single links could free some."""
    floor = link(start_of_bytes(case, world.checkpoint))
    return floor.epoch == epoch and not floor.is_fence


def mark(case: Case, world: World, epoch: int) -> World:
    """Create the mark of an epoch. Its links are older than a grant, so its leader's honest clocks show a lapse."""
    world = world._replace(marks=tuple(sorted((*world.marks, epoch))))
    if not case.rules.keep_longer_than_grant:
        return world
    members = tuple(sorted(_lapse(case, member, epoch) for member in world.members))
    return world._replace(members=members)


def _lapse(case: Case, member: Member, epoch: int) -> Member:
    leading = member.role == Role.LEADING and next_slot(member.at)[0] == epoch
    if leading or (member.role == Role.FENCING and next_slot(member.sent)[0] == epoch):
        member = member._replace(lapsed=True)
    if member.snapshot and not case.bounds.clocks_go_back:
        before = Member(*member.snapshot)  # type: ignore[arg-type]
        member = member._replace(snapshot=tuple(_lapse(case, before, epoch)))
    return member


def deletable(case: Case, world: World, member: Member) -> Iterator[int]:
    """Yield the links that this leader may delete: by number, below the fence of a freed epoch."""
    for fence in freeable(case, world, member):
        epoch, end = link(fence).slot
        if case.rules.mark_first and epoch not in world.marks:
            continue
        last = end + (not case.rules.keep_fences)
        yield from (number for number in world.slots if link(number).epoch == epoch and link(number).number < last)


def delete(world: World, number: int) -> World:
    """Delete one link."""
    return world._replace(slots=tuple(each for each in world.slots if each != number))
