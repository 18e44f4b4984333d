"""A candidate and a leader: fence, open, write, ship, give the lead away, and learn what became of a link."""

from __future__ import annotations

from tests.chain.model.explore import Violation
from tests.chain.model.links import NONE, Link, fences, intern, link, next_slot
from tests.chain.model.takeover.following import begin_anew
from tests.chain.model.takeover.rules import Case
from tests.chain.model.takeover.world import Member, Role, World, claim, deny, occupant, replace

__all__ = ["answered", "challenge", "checkpoint", "free", "freeable", "open_log", "release", "ship", "write"]


def _send(world: World, index: int, member: Member, number: int) -> World:
    world = world._replace(air=(*world.air, number))
    return replace(world, index, member._replace(sent=number, sent_age=0))


def challenge(case: Case, world: World, index: int) -> World:
    """Send a fence for the next slot. A leader does it to itself, and goes on answering meanwhile."""
    member, left = world.members[index], world.left
    nonce = case.bounds.fences - left.fences + 2
    epoch, number = next_slot(member.at)
    fence = intern(Link(epoch, number, member.at, nonce, (), member.directory or nonce))
    leads = member.role == Role.LEADING
    world = world._replace(left=left._replace(fences=left.fences - 1, renewals=left.renewals - leads))
    role = Role.LEADING if leads else Role.FENCING
    return _send(world, index, member._replace(role=role, any_age=0, nonces=(*member.nonces, nonce)), fence)


def open_log(case: Case, world: World, index: int) -> World:
    """Begin to lead from the folded state."""
    member = world.members[index]
    if member.phantom:
        raise Violation("phantom", f"a leader serves from a state with {member.phantom}, which never happened")
    grant = case.bounds.grant if case.rules.fences_grant else 0
    led = member._replace(role=Role.LEADING, grant=grant, any_age=0, data_age=0, restarted=False)
    return replace(world, index, led)


def write(case: Case, world: World, index: int) -> World:
    """Append an operation to the local log; its caller waits."""
    member, left = world.members[index], world.left
    number = case.bounds.operations - left.operations + 1
    world = world._replace(left=left._replace(operations=left.operations - 1))
    return replace(world, index, member._replace(tail=(*member.tail, number), asked=(*member.asked, number)))


def ship(case: Case, world: World, index: int) -> World:
    """Send all that is pending as the next link; a link without anything is a beat."""
    member, left = world.members[index], world.left
    if not member.pending and not link(member.at).is_fence:
        world = world._replace(left=left._replace(beats=left.beats - 1))
    return _send(world, index, member, _data(member, member.pending))


def _data(member: Member, numbers: tuple[int, ...], *, is_released: bool = False) -> int:
    epoch, number = next_slot(member.at)
    return intern(Link(epoch, number, member.at, 0, numbers, is_released=is_released))


def release(case: Case, world: World, index: int) -> World:
    """Stop answering, and send the link that gives the lead away, with all that is pending."""
    member = world.members[index]
    world = world._replace(left=world.left._replace(releases=world.left.releases - 1))
    grant = 0 if case.rules.drop_grant_first else member.grant
    given = member._replace(role=Role.RELEASING, grant=grant)
    carried = member.pending if case.rules.release_ships_all else ()
    return _send(world, index, given, _data(member, carried, is_released=True))


def answered(case: Case, world: World, index: int) -> World:
    """Learn what the slot of the link under way holds."""
    member = world.members[index]
    there = occupant(world, link(member.sent).slot)
    if there != member.sent:
        return _fenced(case, world, index, there=there)
    if link(member.sent).is_fence:
        return _fence_stands(case, world, index)
    if link(member.sent).epoch in world.freed:
        return replace(world, index, member.stopped())
    return _committed(case, world, index)


def _committed(case: Case, world: World, index: int) -> World:
    """Acknowledge a link, and answer without a commit for as long as its grant runs."""
    member = world.members[index]
    world = claim(world, member.sent)._replace(served=max(world.served, link(member.sent).epoch))
    released = link(member.sent).is_released
    if released and case.rules.after_released == "follows":
        led = member._replace(at=member.sent)
        return replace(world, index, led.follower()._replace(phantom=led.pending))
    age = member.sent_age if case.rules.grant_from == "first sent" else 0
    grant = 0 if released and case.rules.after_released == "ships" else max(case.bounds.grant - age, member.grant)
    led = member._replace(role=Role.LEADING, at=member.sent, sent=NONE, sent_age=0, grant=max(grant, 0))
    return replace(world, index, led._replace(asked=tuple(n for n in member.asked if n in led.pending)))


def _fence_stands(case: Case, world: World, index: int) -> World:
    """Look for the mark after the create; then the epoch is this member's."""
    member = world.members[index]
    leads = member.role == Role.LEADING
    if link(member.sent).epoch in world.freed:
        return replace(world, index, member.stopped()) if leads else begin_anew(case, world, index)
    won = member._replace(at=member.sent, sent=NONE, sent_age=0)
    if not leads:
        won = won._replace(role=Role.OPENING, opening=case.bounds.opening)
    return claim(replace(world, index, won), member.sent)


def _fenced(case: Case, world: World, index: int, *, there: int) -> World:
    """Follow on, where another directory's fence proves that nothing happened; else the process ends."""
    member, rules = world.members[index], case.rules
    if member.role == Role.FENCING:
        return replace(world, index, member._replace(role=Role.FOLLOWING, sent=NONE, sent_age=0))
    foreign = link(there).is_fence and link(there).directory != member.directory
    if not foreign or link(there).epoch in world.freed:
        return replace(world, index, member.stopped())
    phantom = () if rules.drop_state else member.pending
    world = replace(world, index, member.follower()._replace(phantom=phantom))
    return deny(world, tuple(n for n in member.asked if n in member.pending))


def checkpoint(world: World, index: int) -> World:
    """Write a checkpoint of the committed history."""
    return world._replace(checkpoint=world.members[index].at)


def freeable(world: World) -> list[int]:
    """Return the epochs below the checkpoint that are closed and not yet freed."""
    closed = {link(fence).epoch for fence in fences(world.checkpoint) if link(fence).number > 0}
    return sorted(closed.difference(world.freed))


def free(world: World, epoch: int) -> World:
    """Mark an epoch and delete its data links; the order of the two is explored in the other model."""
    slots = tuple(n for n in world.slots if link(n).is_fence or link(n).epoch != epoch)
    return world._replace(slots=slots, freed=tuple(sorted((*world.freed, epoch))))
