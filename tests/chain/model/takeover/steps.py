"""All steps that can happen in a world of members that take over from each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from tests.chain.model.links import NONE, link, next_slot
from tests.chain.model.takeover import following, leading
from tests.chain.model.takeover.rules import Case
from tests.chain.model.takeover.world import Member, Role, World, canonical, occupant, put, replace

__all__ = ["Step", "all_steps", "own_steps", "tick"]

Step: TypeAlias = tuple[str, Callable[[], World]]


def all_steps(case: Case, world: World) -> Iterator[Step]:
    """Yield every step that is possible, each as its name and a function that makes it."""
    for name, act in _steps(case, world):
        yield name, partial(_canonical, act)


def _canonical(act: Callable[[], World]) -> World:
    return canonical(act())


def _steps(case: Case, world: World) -> Iterator[Step]:
    yield "a tick", partial(tick, case, world)
    if world.left.skips:
        for index in range(len(world.members)):
            yield f"a tick that the clock of {index} misses", partial(_skip, case, world, index)
    for number in world.air:
        if occupant(world, link(number).slot) == NONE:
            yield f"{_named(number)} lands", partial(put, world, number)
    before = None
    for index, member in enumerate(world.members):
        if member != before:  # equal members are interchangeable
            who = f"{member.role.name.lower()} after {_named(member.at)}"
            for name, act in (
                *own_steps(case, world, index),
                *_leader_steps(case, world, index),
                *_faults(world, index),
            ):
                yield f"{who}: {name}", act
        before = member


def tick(case: Case, world: World) -> World:
    """Let time pass, by every clock."""
    return world._replace(members=tuple(_older(case, member) for member in world.members))


def _skip(case: Case, world: World, index: int) -> World:
    """Let time pass by every clock but one."""
    left = world.left._replace(skips=world.left.skips - 1)
    return replace(tick(case, world), index, world.members[index])._replace(left=left)


def _older(case: Case, member: Member) -> Member:
    bounds, follows = case.bounds, member.role in (Role.FOLLOWING, Role.FENCING, Role.OPENING)
    longest = max(bounds.silence, bounds.grant + bounds.skips) + bounds.opening
    return member._replace(
        sent_age=min(member.sent_age + 1, bounds.grant) if member.sent else 0,
        grant=max(member.grant - 1, 0),
        any_age=min(member.any_age + 1, longest) if member.role == Role.FOLLOWING else 0,
        data_age=min(member.data_age + 1, longest) if follows else 0,
        opening=max(member.opening - 1, 0),
    )


def own_steps(case: Case, world: World, index: int) -> Iterator[Step]:
    """Yield what a member does by itself to follow, to come to lead, and to go on leading."""
    member, left = world.members[index], world.left
    if member.sent:
        if occupant(world, link(member.sent).slot) != NONE:
            yield f"outcome of {_named(member.sent)}", partial(leading.answered, case, world, index)
        return
    match member.role:
        case Role.FOLLOWING:
            yield from _following(case, world, index)
        case Role.OPENING:
            if not member.opening and following.may_serve(case, member):
                yield "open", partial(leading.open_log, case, world, index)
        case Role.LEADING:
            if member.pending or link(member.at).is_fence or left.beats:
                yield f"ship {member.pending}", partial(leading.ship, case, world, index)


def _following(case: Case, world: World, index: int) -> Iterator[Step]:
    member = world.members[index]
    slot = next_slot(member.at)
    if occupant(world, slot) != NONE:
        yield f"read {_named(occupant(world, slot))}", partial(following.read, case, world, index)
        return
    if following.is_behind(world, member) and case.rules.look_before_fence:
        yield f"find epoch {slot[0]} freed", partial(following.begin_anew, case, world, index)
    elif world.left.fences and following.is_silent(case, member):
        yield f"challenge at {slot}", partial(leading.challenge, case, world, index)


def _leader_steps(case: Case, world: World, index: int) -> Iterator[Step]:
    member, left = world.members[index], world.left
    if member.role != Role.LEADING:
        return
    if left.operations and member.grant:
        yield "write", partial(leading.write, case, world, index)
    if not member.sent and left.releases:
        yield "release", partial(leading.release, case, world, index)
    if not member.sent and left.renewals and left.fences:
        yield "fence itself", partial(leading.challenge, case, world, index)
    if case.bounds.collector:
        if next_slot(member.at) > next_slot(world.checkpoint):
            yield "checkpoint", partial(leading.checkpoint, world, index)
        for epoch in leading.freeable(world):
            yield f"free epoch {epoch}", partial(leading.free, world, epoch)


def _faults(world: World, index: int) -> Iterator[Step]:
    member, left = world.members[index], world.left
    if left.crashes and member != member.stopped():
        lived = world._replace(left=left._replace(crashes=left.crashes - 1))
        yield "crash", partial(replace, lived, index, member.stopped())
    if left.burns:
        lived = world._replace(left=left._replace(burns=left.burns - 1))
        yield "its disk burns", partial(replace, lived, index, Member(at=world.checkpoint or 1))
    if left.clones:
        lived = world._replace(left=left._replace(clones=left.clones - 1))
        copy = member.stopped()._replace(is_copy=True)
        yield "a copy of it starts", partial(lived._replace, members=(*world.members, copy))


def _named(number: int) -> str:
    if number == NONE:
        return "nothing"
    what = link(number)
    kind = f"fence {what.nonce}" if what.is_fence else "released" if what.is_released else f"data {what.operations}"
    return f"{kind}@{what.slot}"
