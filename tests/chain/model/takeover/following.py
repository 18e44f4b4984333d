"""A standby: it reads on, begins again at a checkpoint, and decides when to challenge and when to serve."""

from __future__ import annotations

from tests.chain.model.links import GENESIS, NONE, link, newest_data, next_slot
from tests.chain.model.takeover.rules import Case
from tests.chain.model.takeover.world import Member, World, is_released, occupant, replace

__all__ = ["begin_anew", "is_behind", "is_silent", "may_serve", "read"]


def read(case: Case, world: World, index: int) -> World:
    """Receive the link in the next slot and fold it."""
    member = world.members[index]
    found = occupant(world, next_slot(member.at))
    if not link(found).is_fence:
        return replace(world, index, member._replace(at=found, any_age=0, data_age=0))
    if link(found).epoch in world.freed:
        return begin_anew(case, world, index)
    member = member._replace(at=found, any_age=0)
    if link(found).nonce not in member.nonces and case.rules.tail_aside:
        member = member._replace(tail=())
    return replace(world, index, member)


def is_behind(world: World, member: Member) -> bool:
    """Report whether the next slot is free because its epoch was freed."""
    slot = next_slot(member.at)
    return occupant(world, slot) == NONE and slot[0] in world.freed


def begin_anew(case: Case, world: World, index: int) -> World:
    """Take the newest checkpoint for the state; the directory keeps its name, and nothing else."""
    member = world.members[index]
    ages = (0, 0) if case.rules.fresh_bootstrap else (member.any_age, member.data_age)
    fresh = Member(at=world.checkpoint or GENESIS, any_age=ages[0], data_age=ages[1], nonces=member.nonces)
    return replace(world, index, fresh._replace(is_copy=member.is_copy, phantom=member.phantom))


def is_silent(case: Case, member: Member) -> bool:
    """Decide whether a standby may challenge: after silence, or at once if the lead was given up or was its own."""
    rules, bounds = case.rules, case.bounds
    if link(member.at).is_released or (not rules.released_newest and is_released(member.at)):
        return True
    if _was_mine(member, member.at) and _was_mine(member, _last_grant(case, member.at)):
        return True
    if rules.silence_from == "data":
        return member.data_age >= bounds.silence
    silence = bounds.silence
    if link(member.at).is_fence and rules.state_opening:
        silence = max(bounds.silence, _wait(case)) + bounds.opening
    return member.any_age >= silence


def may_serve(case: Case, member: Member) -> bool:
    """Decide whether a new leader may answer: no former leader's grant can run any more."""
    before = link(member.at).prev
    if not case.rules.wait_for_grant or is_released(before):
        return True
    mine = _was_mine(member, _last_grant(case, before), copies_too=case.rules.exempt_copies)
    return mine or member.data_age >= _wait(case)


def _last_grant(case: Case, number: int) -> int:
    """Return the link whose writer may still have a grant: a data link, since fences give none."""
    return number if case.rules.wait_from == "fence" else newest_data(number)


def _wait(case: Case) -> int:
    return case.bounds.grant + (case.bounds.skips if case.rules.margin else 0)


def _was_mine(member: Member, number: int, *, copies_too: bool = False) -> bool:
    """Decide whether the writer of a link is dead for sure: a former process of this directory, whose lock is held."""
    if not member.restarted or (member.is_copy and not copies_too) or number == NONE:
        return False
    return member.led(next_slot(number)[0])
