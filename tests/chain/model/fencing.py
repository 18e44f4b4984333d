"""A candidate: it creates its fence in the first free slot, looks around (R4), and leads the next epoch."""

from __future__ import annotations

from tests.chain.model.explore import Violation
from tests.chain.model.links import GENESIS, NONE, Link, ancestors, intern, link, next_slot, operations, path
from tests.chain.model.reading import begin_anew, corrupt
from tests.chain.model.rules import Case
from tests.chain.model.world import Member, Role, World, claim, occupant, replace, settle

__all__ = ["challenge", "fence_created", "prove", "read_link_before"]


def read_link_before(case: Case, world: World, index: int) -> World:
    """Read the last link applied again, before the fence is sent."""
    member = world.members[index]
    if occupant(world, link(member.at).slot) != member.at:
        return corrupt(case, world, index, epoch=link(member.at).epoch)
    return replace(world, index, member._replace(role=Role.READY))


def challenge(case: Case, world: World, index: int) -> World:
    """Write a nonce beside the log (T1) and send a fence for the next slot."""
    member, left = world.members[index], world.left
    nonce = case.bounds.fences - left.fences + 2
    epoch, number = next_slot(member.at)
    fence = intern(Link(epoch, number, member.at, nonce, (), member.directory or nonce))
    nonces = (*member.nonces, nonce) if case.rules.nonce_first else member.nonces
    sender = member._replace(
        role=Role.FENCING, sent=fence, leads=member.role == Role.LEADING, nonces=nonces, made=(*member.made, nonce)
    )
    left = left._replace(fences=left.fences - 1, renewals=left.renewals - sender.leads)
    air = tuple(sorted({*world.air, fence}))
    return replace(settle(case, world._replace(air=air, left=left)), index, sender)


def fence_created(case: Case, world: World, index: int) -> World:
    """Go on with a fence that is in its slot."""
    member = world.members[index]
    nonces = tuple(sorted({*member.nonces, link(member.sent).nonce}))
    proving = member._replace(role=Role.PROVING, replied=False, step=0, nonces=nonces, sure=True)
    proved = replace(world, index, proving)
    return proved if case.bounds.forgets else prove(case, proved, proved.members.index(proving))


def prove(case: Case, world: World, index: int) -> World:
    """Make the next look of R4: the fence itself, the slot behind it, the link before it, the mark."""
    member = world.members[index]
    epoch, number = link(member.sent).slot
    looks = _looks(case)
    sound = True
    match looks[member.step]:
        case "fence":
            sound = occupant(world, (epoch, number)) == member.sent
        case "slot behind":
            sound = occupant(world, (epoch, number + 1)) == NONE
        case "link before":
            sound = _are_there(world, [member.at])
        case "links before":
            sound = _are_there(world, [member.place or GENESIS, *path(member.at, member.place)])
        case "mark":
            return _after_mark(case, world, index)
    if not sound:
        return corrupt(case, world, index, epoch=epoch)
    return replace(world, index, member._replace(step=member.step + 1))


def _are_there(world: World, numbers: list[int]) -> bool:
    return all(occupant(world, link(number).slot) == number for number in numbers)


def _looks(case: Case) -> list[str]:
    """Return the looks in their order. A store that forgets nothing makes all but the last superfluous."""
    rules = case.rules
    if not case.bounds.forgets:
        return ["mark"]
    return [
        *(["fence"] if rules.read_back else []),
        "slot behind",
        *({"one": ["link before"], "all": ["links before"]}.get(rules.links_before, [])),
        "mark",
    ]


def _after_mark(case: Case, world: World, index: int) -> World:
    member = world.members[index]
    if case.rules.look_after_fence and link(member.sent).epoch in world.marks:
        return replace(world, index, member.stopped()) if member.leads else begin_anew(case, world, index)
    return _lead(case, world, index)


def _lead(case: Case, world: World, index: int) -> World:
    """Lead the epoch that the fence begins, with the local tail or without it."""
    member = world.members[index]
    fence = member.sent
    led = member._replace(role=Role.LEADING, at=fence, sent=NONE, step=0, leads=False)
    lapsed = member.lapsed and case.rules.lapse_since_fence
    led = led._replace(lapsed=lapsed or (case.rules.first_link_looks and case.bounds.forgets > 0))
    if not member.leads:
        _check_payloads(case, member)
        led = led._replace(place=fence, tail=_tail(case, member), missing=(), clean=True)
    world = replace(world, index, led)
    return claim(world, fence) if member.sure else world


def _tail(case: Case, member: Member) -> tuple[int, ...]:
    """Return the operations of the local tail that the new leader ships (T2)."""
    rules, fence = case.rules, member.sent
    history = operations(fence)
    unshipped = tuple(number for number in member.tail if number not in history)
    kept = bool(unshipped) and _continues(member)
    if rules.tail != "own":
        kept = rules.tail == "always"
    if unshipped and not kept and rules.tail_before_place and _alone(member):
        raise Violation("disk", f"{unshipped} were on the disk of the only directory that led")
    return unshipped if kept else ()


def _continues(member: Member) -> bool:
    """Decide T2 as a member can: only own fences on an unbroken walk, and the same bytes where both have some."""
    if not member.clean:
        return False
    added = operations(member.sent)[len(operations(member.place)) :]
    both = min(len(added), len(member.tail))
    return added[:both] == member.tail[:both]


def _check_payloads(case: Case, member: Member) -> None:
    """Check that the directory holds every operation of the history: what it had, and what the walk wrote."""
    if member.missing:
        raise Violation("payload", f"the durable place covers {member.missing}, which a power loss took")
    if member.clean and not case.rules.write_own_links:
        added = operations(member.sent)[len(operations(member.place)) :]
        if absent := set(added).difference(member.tail):
            raise Violation("payload", f"{absent} were taken to be in the directory, as its own epochs have them")


def _alone(member: Member) -> bool:
    """Report whether every fence since the durable place was this directory's, as only the model can know."""
    if member.went_back or member.place not in ancestors(member.sent):
        return False
    fences = (link(number).nonce for number in path(member.sent, member.place) if link(number).is_fence)
    return all(nonce in member.made for nonce in fences)
