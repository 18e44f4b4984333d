"""All steps that can happen in a world."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from tests.chain.model import collecting, faults, fencing, leading, reading
from tests.chain.model.links import GENESIS, NONE, link, next_slot
from tests.chain.model.rules import Case
from tests.chain.model.world import Member, Role, World, occupant, put, replace

__all__ = ["Step", "all_steps", "member_steps"]

Step: TypeAlias = tuple[str, Callable[[], World]]


def all_steps(case: Case, world: World) -> Iterator[Step]:
    """Yield every step that is possible, each as its name and a function that makes it."""
    yield from _landings(case, world)
    before = None
    for index, member in enumerate(world.members):
        if member != before:  # equal members are interchangeable
            yield from member_steps(case, world, index)
            yield from _leader_steps(case, world, index)
            yield from _collector_steps(case, world, member)
            yield from _standby_steps(case, world, member)
            yield from _fault_steps(case, world, index)
        before = member
    for number in world.uploads:
        yield f"the checkpoint of {_named(number)} lands", partial(collecting.land, case, world, number)
    if world.left.forgets and world.slots[-1] != GENESIS:
        yield f"the store forgets {_named(world.slots[-1])}", partial(faults.forget, case, world)


def _landings(case: Case, world: World) -> Iterator[Step]:
    """Yield the requests under way that find a free slot, with a reply that arrives and with one that is lost."""
    replies = case.bounds.collector or case.bounds.forgets
    for number in world.air:
        if occupant(world, link(number).slot) != NONE:
            continue
        yield f"{_named(number)} lands", partial(put, case, world, number)
        if replies:
            for index, member in enumerate(world.members):
                if member.sent == number and member.role in (Role.FENCING, Role.LEADING):
                    yield f"{_named(number)} lands, with a reply", partial(_land, case, world, index)


def _land(case: Case, world: World, index: int) -> World:
    member = world.members[index]
    return replace(put(case, world, member.sent), index, member._replace(replied=True))


def member_steps(case: Case, world: World, index: int) -> Iterator[Step]:
    """Yield what a member does to come to lead."""
    member = world.members[index]
    match member.role:
        case Role.OFF:
            yield "start with an empty directory", partial(reading.begin_anew, case, world, index)
        case Role.WALKING:
            yield from _walking(case, world, index)
        case Role.READY:
            if world.left.fences:
                yield "challenge", partial(fencing.challenge, case, world, index)
        case Role.FENCING:
            yield from _outcomes(case, world, index)
        case Role.PROVING:
            yield f"look {member.step} of {_named(member.sent)}", partial(fencing.prove, case, world, index)


def _walking(case: Case, world: World, index: int) -> Iterator[Step]:
    member = world.members[index]
    slot = next_slot(member.at)
    if occupant(world, slot) != NONE:
        yield f"read {_named(occupant(world, slot))}", partial(reading.read, case, world, index)
        return
    if slot[0] in world.marks:
        yield f"find epoch {slot[0]} freed", partial(reading.begin_anew, case, world, index)
    if not world.left.fences:
        return
    if case.bounds.forgets and case.rules.links_before == "one, too early":
        yield "read the link before", partial(fencing.read_link_before, case, world, index)
    else:
        yield f"challenge at {slot}", partial(fencing.challenge, case, world, index)


def _outcomes(case: Case, world: World, index: int) -> Iterator[Step]:
    """Yield what a member may learn of the link that it sent. A slot that is empty says nothing."""
    member = world.members[index]
    if member.replied or occupant(world, link(member.sent).slot) != NONE:
        yield f"outcome of {_named(member.sent)}", partial(leading.answered, case, world, index)
    elif case.rules.conflict == "another's":
        yield f"409 for {_named(member.sent)}", partial(leading.conflicting, case, world, index)


def _leader_steps(case: Case, world: World, index: int) -> Iterator[Step]:
    member, left = world.members[index], world.left
    if member.role != Role.LEADING:
        return
    if left.operations:
        yield "write", partial(leading.write, case, world, index)
    if case.bounds.collector and collecting.place_due(case, world, member):
        yield f"note the place {_named(member.at)}", partial(leading.note_place, case, world, index)
    if not member.sure and not member.replied:
        yield f"read back {_named(member.at)}", partial(leading.read_back, case, world, index)
    if member.sent:
        yield from _outcomes(case, world, index)
        return
    if member.pending:
        yield f"ship {member.pending} at {next_slot(member.at)}", partial(leading.ship, case, world, index)
    if left.renewals and left.fences:
        yield f"fence itself at {next_slot(member.at)}", partial(fencing.challenge, case, world, index)


def _collector_steps(case: Case, world: World, member: Member) -> Iterator[Step]:
    if not case.bounds.collector or member.role != Role.LEADING:
        return
    if next_slot(member.at) > next_slot(world.checkpoint):
        yield f"checkpoint {_named(member.at)}", partial(collecting.checkpoint, case, world, member)
    living = next_slot(member.at)[0]
    if not case.rules.closed_epochs_only and living not in world.marks and collecting.reaches(case, world, living):
        yield f"mark the living epoch {living}", partial(collecting.mark, case, world, living)
    deletable = list(collecting.deletable(case, world, member))
    for fence in collecting.freeable(case, world, member):
        epoch = link(fence).epoch
        late = not case.rules.mark_first and any(link(number).epoch == epoch for number in deletable)
        if epoch not in world.marks and not late:
            yield f"mark epoch {epoch}", partial(collecting.mark, case, world, epoch)
    for number in deletable:
        yield f"delete {_named(number)}", partial(collecting.delete, world, number)
    if not case.rules.keep_unnamed and world.checkpoint:
        for number in collecting.unnamed(case, world):
            yield f"delete the segment of {_named(number)}", partial(collecting.delete_segment, world, number)


def _standby_steps(case: Case, world: World, member: Member) -> Iterator[Step]:
    if not case.bounds.standbys or member.role != Role.WALKING or member.at in world.uploads:
        return
    if next_slot(member.at) > next_slot(world.checkpoint):
        yield f"send a checkpoint of {_named(member.at)}", partial(collecting.upload, case, world, member)


def _fault_steps(case: Case, world: World, index: int) -> Iterator[Step]:
    member, left = world.members[index], world.left
    if (left.crashes or left.power_losses) and member.role != Role.CORRUPT and member != member.stopped():
        if left.crashes:
            yield f"crash of {_described(member)}", partial(faults.crash, case, world, index)
        if left.power_losses:
            yield f"power loss of {_described(member)}", partial(faults.lose_power, case, world, index)
    if member.place and left.burns:
        yield f"disk of {_described(member)} burns", partial(faults.burn, case, world, index)
    if left.snapshots and (member.role == Role.LEADING or _is_candidate(case, member)):
        yield f"snapshot of {_described(member)}", partial(faults.take_snapshot, case, world, index)
    if member.snapshot and left.clones:
        yield f"a clone of {_described(member)} runs", partial(faults.clone, case, world, index)
    if member.snapshot and left.restores:
        yield f"{_described(member)} goes back", partial(faults.restore, case, world, index)


def _is_candidate(case: Case, member: Member) -> bool:
    return case.bounds.restored_candidates and member.role == Role.FENCING


def _named(number: int) -> str:
    if number == NONE:
        return "nothing"
    what = link(number)
    return f"fence {what.nonce}@{what.slot}" if what.is_fence else f"data {what.operations}@{what.slot}"


def _described(member: Member) -> str:
    return f"{member.role.name.lower()} after {_named(member.at)}"
