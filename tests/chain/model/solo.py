"""What must hold in every state: a member that is left alone comes to lead the one history, and has every payload.

The member runs with an empty directory (all local disks are gone), and with the directory of each member. The same
rules are run as in the exploration, so a history that leads elsewhere is a violation here, before anybody takes it.
"""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Final

from tests.chain.model.explore import Violation
from tests.chain.model.links import NONE, link
from tests.chain.model.rules import Case
from tests.chain.model.steps import member_steps
from tests.chain.model.world import Left, Member, Role, World, occupant, put, replace

__all__ = ["Solo"]

STEPS_MAX: Final = 80
FENCES: Final = 6


class Solo:
    """A check of each state; equal stores and directories are checked once."""

    def __init__(self, case: Case) -> None:
        self._case = with_fields(case, bounds=with_fields(case.bounds, fences=case.bounds.fences + FENCES))
        self._done: set[tuple[object, ...]] = set()
        self._restarted: dict[Member, Member] = {}

    def __call__(self, world: World) -> None:
        store = (world.slots, world.marks, world.checkpoint, world.segments, world.top, world.denied)
        for member in (Member(), *world.members):
            restarted = self._restarted.get(member)
            if restarted is None:
                restarted = self._restarted[member] = member.stopped()._replace(snapshot=(), sure=True)
            key = (store, restarted, world.left.forgets)
            if key not in self._done:
                self._done.add(key)
                left = Left(fences=world.left.fences + FENCES, forgets=world.left.forgets)
                self._check(world._replace(air=(), left=left, members=(restarted,)))

    def _check(self, world: World) -> None:
        for _ in range(STEPS_MAX):
            if world.members[0].role in (Role.LEADING, Role.CORRUPT):
                return
            world = self._step(world)
        raise Violation("stuck", f"a member alone never comes to lead: {world}")

    def _step(self, world: World) -> World:
        member = world.members[0]
        if member.role == Role.FENCING and occupant(world, link(member.sent).slot) == NONE:
            return replace(put(self._case, world, member.sent), 0, member._replace(replied=True))
        for _, act in member_steps(self._case, world, 0):
            return act()
        raise Violation("stuck", f"a member alone can do nothing: {world}")
