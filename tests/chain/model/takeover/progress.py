"""What must hold in every state: members that are left in peace come to one leader, soon and with few fences.

All members run in lockstep, one step each in turn, and a tick passes when nobody has anything to do. No request is lost
any more. So two candidates that fence each other for ever are found here, although a luckier order would end it.
"""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Final

from tests.chain.model.explore import Violation
from tests.chain.model.links import NONE, fences, link, next_slot
from tests.chain.model.takeover.rules import Case
from tests.chain.model.takeover.steps import own_steps, tick
from tests.chain.model.takeover.world import Left, Role, World, canonical, check_answers, occupant, put

__all__ = ["Progress"]

STEPS_MAX: Final = 120
PEACE: Final = Left(fences=STEPS_MAX, beats=STEPS_MAX)


class Progress:
    """A check of each state: of its answers, and of what follows from it in peace."""

    def __init__(self, case: Case) -> None:
        self._case = with_fields(case, bounds=with_fields(case.bounds, fences=case.bounds.fences + STEPS_MAX))
        self._done: set[World] = set()
        self._first_nonce = case.bounds.fences + 2  # of fences that are sent in peace

    def __call__(self, world: World) -> None:
        check_answers(world)
        self._run(world._replace(air=(), left=PEACE))
        for member in world.members:
            self._run(world._replace(air=(), left=PEACE, members=(member,)))

    def _run(self, world: World) -> None:
        way: set[World] = set()
        for _ in range(STEPS_MAX):
            if (key := self._key(world)) in self._done or self._is_led(world):
                self._done |= way
                return
            way.add(key)
            world = self._round(world)
        raise Violation("restless", f"members in peace never come to a leader: {world}")

    def _key(self, world: World) -> World:
        return canonical(world)._replace(denied=(), top=NONE, served=0, air=(), left=PEACE)

    def _is_led(self, world: World) -> bool:
        return any(
            member.role == Role.LEADING and member.grant and occupant(world, next_slot(member.at)) == NONE
            for member in world.members
        )

    def _round(self, world: World) -> World:
        """Let each member make one step; let time pass if there is none."""
        moved = False
        for index in range(len(world.members)):
            world = self._land(world, index)
            for _, act in own_steps(self._case, world, index):
                world, moved = act(), True
                self._check_fence(world, world.members[index].sent)
                break
        return world if moved else tick(self._case, world)

    def _land(self, world: World, index: int) -> World:
        sent = world.members[index].sent
        return put(world, sent) if sent and occupant(world, link(sent).slot) == NONE else world

    def _check_fence(self, world: World, sent: int) -> None:
        """Check that a fence sent in peace can begin something, and does not end what another one began in peace."""
        if not link(sent).is_fence:
            return
        if link(sent).epoch in world.freed:
            raise Violation("void", f"{link(sent)} can begin nothing: its epoch was freed before it was sent")
        if link(fences(link(sent).prev)[-1]).nonce >= self._first_nonce:
            raise Violation("restless", f"{link(sent)} ends an epoch whose leader has done nothing wrong")
