"""Faults: processes that end, directories that burn, machines set back to a snapshot, a store that forgets."""

from __future__ import annotations

from tests.chain.model.links import NONE, link, operations
from tests.chain.model.rules import Case
from tests.chain.model.world import Member, Role, World, replace

__all__ = ["burn", "clone", "crash", "forget", "lose_power", "restore", "take_snapshot"]


def crash(case: Case, world: World, index: int) -> World:
    """End the process; the directory stays as it was written."""
    left = world.left._replace(crashes=world.left.crashes - 1)
    return replace(world._replace(left=left), index, world.members[index].stopped())


def lose_power(case: Case, world: World, index: int) -> World:
    """End the process and lose all that was not synced: what was never sent."""
    member = world.members[index]
    synced = {*operations(member.at), *link(member.sent).operations}
    tail = tuple(number for number in member.tail if number in synced)
    missing = member.missing
    if not case.rules.sync_before_place:
        missing, tail = tuple(number for number in operations(member.place) if number in member.asked), ()
    left = world.left._replace(power_losses=world.left.power_losses - 1)
    return replace(world._replace(left=left), index, member.stopped()._replace(tail=tail, missing=missing))


def burn(case: Case, world: World, index: int) -> World:
    """End the process and lose its directory."""
    left = world.left._replace(burns=world.left.burns - 1)
    return replace(world._replace(left=left), index, Member())


def take_snapshot(case: Case, world: World, index: int) -> World:
    """Keep a copy of a machine: the memory of its process and its directory."""
    member = world.members[index]
    left = world.left._replace(snapshots=world.left.snapshots - 1)
    return replace(world._replace(left=left), index, member._replace(snapshot=tuple(member)))


def restore(case: Case, world: World, index: int) -> World:
    """Set a machine back to its snapshot; answers to its old requests are lost."""
    member = world.members[index]
    before = Member(*member.snapshot)._replace(replied=False, went_back=True)  # type: ignore[arg-type]
    left = world.left._replace(restores=world.left.restores - 1)
    snapshot = member.snapshot if left.restores else ()
    return replace(world._replace(left=left), index, before._replace(snapshot=snapshot))


def forget(case: Case, world: World) -> World:
    """Lose the newest object of the store, and with it the answers that were given for it alone."""
    slots = world.slots[:-1]
    top = world.top
    while top not in slots:
        top = link(top).prev
    members = tuple(sorted(_unsure(case, member) for member in world.members))
    left = world.left._replace(forgets=world.left.forgets - 1)
    assert top != NONE
    return world._replace(slots=slots, members=members, left=left, top=top, denied=())


def _unsure(case: Case, member: Member) -> Member:
    """Note that the store lost something: an outage that the leader's clocks show, unless it was silent."""
    lapsed = member.lapsed or (member.role == Role.LEADING and not case.bounds.forgets_silently)
    return member._replace(sure=False, lapsed=lapsed)


def clone(case: Case, world: World, index: int) -> World:
    """Run a second machine from a snapshot, beside the first."""
    member = world.members[index]
    copy = Member(*member.snapshot)._replace(replied=False, went_back=True)  # type: ignore[arg-type]
    left = world.left._replace(clones=world.left.clones - 1)
    member = member._replace(snapshot=(), went_back=True)
    members = (*world.members[:index], member, *world.members[index + 1 :], copy)
    return world._replace(members=tuple(sorted(members)), left=left)
