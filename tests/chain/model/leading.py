"""A leader: it writes, ships, learns the outcome of its one create (R2), acknowledges (R3) or stops (R7)."""

from __future__ import annotations

from tests.chain.model.fencing import fence_created
from tests.chain.model.links import NONE, Link, intern, link, next_slot
from tests.chain.model.reading import corrupt
from tests.chain.model.rules import Case
from tests.chain.model.world import Member, Role, World, claim, deny, occupant, replace, settle

__all__ = ["answered", "conflicting", "note_place", "read_back", "ship", "write"]


def write(case: Case, world: World, index: int) -> World:
    """Append an operation to the local log; its caller waits."""
    member, left = world.members[index], world.left
    number = case.bounds.operations - left.operations + 1
    world = world._replace(left=left._replace(operations=left.operations - 1))
    return replace(world, index, member._replace(tail=(*member.tail, number), asked=(*member.asked, number)))


def ship(case: Case, world: World, index: int) -> World:
    """Send all that is pending as the next link. Its bytes were synced before, so a power loss leaves them."""
    member = world.members[index]
    epoch, number = next_slot(member.at)
    data = intern(Link(epoch, number, member.at, 0, member.pending))
    air = tuple(sorted({*world.air, data}))
    return replace(settle(case, world._replace(air=air)), index, member._replace(sent=data))


def answered(case: Case, world: World, index: int) -> World:
    """Take the store's answer: created, or taken and then read."""
    member, rules = world.members[index], case.rules
    there = occupant(world, link(member.sent).slot)
    if member.replied or rules.taken == "mine" or (rules.taken == "read" and there == member.sent):
        return _mine(case, world, index)
    return _anothers(case, world, index, there=there)


def conflicting(case: Case, world: World, index: int) -> World:
    """Take a 409 on an empty key for another's link, as only a broken variant does."""
    return _anothers(case, world, index, there=NONE)


def _mine(case: Case, world: World, index: int) -> World:
    member, rules = world.members[index], case.rules
    if member.role == Role.FENCING:
        return fence_created(case, world, index)
    if _is_due(rules.look_after_commit, member) and link(member.sent).epoch in world.marks:
        return replace(world, index, member.stopped())
    sure = member.sure
    if _is_due(rules.link_before_commit, member) and case.bounds.forgets:
        if occupant(world, link(member.at).slot) != member.at:
            return corrupt(case, world, index, epoch=link(member.at).epoch)
        sure = member.sent in world.slots
    committed = member._replace(at=member.sent, sent=NONE, replied=False, lapsed=False, sure=sure)
    world = replace(world, index, committed)
    return claim(world, member.sent) if sure else world


def _is_due(when: str, member: Member) -> bool:
    return when == "always" or (when == "lapse" and member.lapsed)


def _anothers(case: Case, world: World, index: int, *, there: int) -> World:
    member, rules = world.members[index], case.rules
    if member.role == Role.FENCING and not member.leads:
        return replace(world, index, member._replace(role=Role.WALKING, sent=NONE))
    definite = rules.taken != "read" or there == NONE or _is_foreign_fence(case, member, there)
    if rules.look_before_denial and link(member.sent).epoch in world.marks:
        definite = False
    world = replace(world, index, member.stopped())
    return deny(world, tuple(set(member.asked).intersection(member.pending))) if definite else world


def _is_foreign_fence(case: Case, member: Member, there: int) -> bool:
    """Decide R7: data of my epoch, or a fence of my directory, means that this machine went back in time."""
    if not link(there).is_fence:
        return case.rules.own_data == "denied"
    return link(there).directory != member.directory or case.rules.own_fence == "denied"


def note_place(case: Case, world: World, index: int) -> World:
    """Write the durable place beside the log."""
    member = world.members[index]
    return replace(world, index, member._replace(place=member.at, tail=member.pending))


def read_back(case: Case, world: World, index: int) -> World:
    """Read the last committed link: a leader stops if the store has lost it."""
    member = world.members[index]
    if occupant(world, link(member.at).slot) != member.at:
        return corrupt(case, world, index, epoch=link(member.at).epoch)
    return replace(world, index, member._replace(sure=True))
