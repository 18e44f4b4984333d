"""Forwarding: the routers that have something to copy, each owner's in a line of its own, one step of an owner in turn.

One append can become thousands of copies, and copies take the disk from the appends of others. So three bounds hold for
all of them together, whoever owns the routers: a step copies so many records and bytes (`router_step_records`,
`router_step_bytes`), a turn of the loop goes on for so long (`turn_ms_max`), and so many bytes may wait for a sync
(`router_pending_bytes_max`): at that, copying goes on after the sync. What waits costs nothing: it is the distance
between a router's cursor and the head of its source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tenure.broker.durability.committer import Committer
from tenure.broker.engine import Engine
from tenure.contract.share import Unsynced
from tenure.core.decide.forward import forward
from tenure.core.level import Level
from tenure.core.state.router import Router
from tenure.core.state.topic import Topic
from tenure.errors import TenureError

__all__ = ["Forwarding", "OwnerOf"]

OwnerOf = Callable[[Router], Unsynced | None]
"""Return the account of a router's owner, which its copies are charged to; None where that is not known."""


def _unknown(_: Router) -> Unsynced | None:
    return None


class Forwarding:
    """The routers that have something to copy; ``lines`` is empty where none has.

    ``begin_turn`` returns a function that says whether a turn that begins now is over. ``may_serve`` returns whether
    anything may be copied now. ``after`` is called at the end of a turn that forwarding had for itself.
    """

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        *,
        committer: Committer,
        begin_turn: Callable[[], Callable[[], bool]],
        may_serve: Callable[[], bool],
        after: Callable[[], None],
    ) -> None:
        self.owner_of: OwnerOf = _unknown
        self._engine = engine
        self._loop = loop
        self._committer = committer
        self._begin_turn = begin_turn
        self._may_serve = may_serve
        self._after = after
        #: Lines by owner: an account, or the name of the source where the owner is not known. Both orders are turns.
        self.lines: dict[Unsynced | str, dict[str, None]] = {}
        self._owner_in_line: dict[str, Unsynced | str] = {}
        self._copied = Unsynced(engine.settings.router_pending_bytes_max)
        self._is_over: Callable[[], bool] | None = None
        self._awaits_sync = False

    def run(self, source: Topic) -> None:
        """Copy what is new in a topic, as much of it as this turn allows; the rest follows in its turn."""
        for router in self._engine.state.routers_from[source.name]:
            if router.cursor < source.visible_seq and router.name not in self._owner_in_line:
                self._enter(router)
        self.go_on()

    def go_on(self) -> None:
        """Take steps until there is nothing to copy, this turn is over, or a sync has to come first."""
        if not self.lines or not self._may_serve() or self._committer.failed is not None:
            return
        is_over = self._is_over
        if is_over is None:
            is_over = self._is_over = self._begin_turn()
            self._loop.call_soon(self._end_turn)
            if not self._step():
                return
        while self.lines and not is_over() and self._step():
            pass

    def _end_turn(self) -> None:
        self._is_over = None
        if self.lines and not self._awaits_sync and self._may_serve():
            self.go_on()
            self._after()

    def _enter(self, router: Router) -> None:
        owner = self.owner_of(router) or router.source
        self._owner_in_line[router.name] = owner
        self.lines.setdefault(owner, {})[router.name] = None

    def _step(self) -> bool:
        """Take a step of the owner whose turn it is; return False where a sync has to come before anyone's."""
        synced, owner = self._engine.state.synced_bytes, None
        if not self._copied.is_full(synced):
            owner = next((owner for owner in self.lines if isinstance(owner, str) or not owner.is_full(synced)), None)
        if owner is None:
            self._wait_for_sync()
            return False
        line = self.lines.pop(owner)
        name = next(iter(line))
        del line[name], self._owner_in_line[name]
        if line:
            self.lines[owner] = line
        router = self._engine.state.routers.get(name)
        if router is not None:
            self._copy(router, owner)
        return True

    def _copy(self, router: Router, owner: Unsynced | str) -> None:
        """Take one step of a router; one whose destination is in the way goes on when that changes."""
        engine, state = self._engine, self._engine.state
        more, size, blocked = engine.carry_out(forward(state, router, engine.now(), engine.reader)).reply
        self._copied.add(size, state.appended_bytes)
        if isinstance(owner, Unsynced):
            owner.add(size, state.appended_bytes)
        if blocked:
            engine.stalled_routers.setdefault(router.dest, set()).add(router.source)
        if more:
            self._enter(router)

    def _wait_for_sync(self) -> None:
        """Go on after the sync of everything appended so far, which begins as soon as it can; never on a failed log."""
        if self._awaits_sync:
            return
        committer, self._awaits_sync = self._committer, True
        with suppress(TenureError):
            batch = self._engine.write()
            if committer.reached(batch, Level.SYNCED):
                self._awaits_sync = False
            else:
                committer.when_reached(batch, Level.SYNCED, self._synced)

    def _synced(self, error: TenureError | None) -> None:
        if error is None:
            self._awaits_sync = False
            if self._is_over is None:
                self._loop.call_soon(self._end_turn)
