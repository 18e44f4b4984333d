"""`Hello`: report this process to the broker before it takes jobs, and with it the death of the one before it.

The broker keeps the leases of a process that is cut off for a while, because it may come back. The hello of its
successor ends that wait at once: what the dead process had begun may be why it died, and all else is given out again.
So it is repeated until it is answered. Only then the board is taken over; a process that is killed before that leaves
the report to the next one.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tenure import __version__
from tenure.backoff import backoff_ms
from tenure.contract.bodies import Gone
from tenure.contract.replies import HelloReply
from tenure.errors import Closed, Indeterminate, Overloaded, TenureError
from tenure.worker.processes.board import Board, Places, State
from tenure.worker.processes.deaths import shell_exit_code
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.timing import Timing
from tenure.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tenure.client.client import AsyncClient

__all__ = ["Hello"]

log = logging.getLogger("tenure.worker")


class Hello:
    """The hello of a process that works at ``slots``: its queues of one broker, each with how many jobs run at once.

    ``board`` is None where the process has no supervisor. ``on_suspects`` is called with each queue that has suspects.
    """

    def __init__(
        self,
        client: AsyncClient,
        slots: Mapping[str, int],
        *,
        link: Link,
        board: Board | None,
        group: str | None,
        timing: Timing,
        settings: WorkerSettings,
        on_suspects: Callable[[str, int], None],
    ) -> None:
        self._client = client
        self._slots = slots
        self._link = link
        self._board = board
        self._group = group
        self._timing = timing
        self._settings = settings
        self._on_suspects = on_suspects

    async def say(self) -> None:
        """Say hello until it is answered, and log where the broker does not keep tries apart from deliveries."""
        gone = self._gone()
        failures = 0
        while True:
            try:
                return self._hear(await self._ask(gone))
            except (Overloaded, Closed, Indeterminate) as error:
                self._link.down(next(iter(self._slots)), error)
            except TenureError as error:  # an older server, or one that refuses the work too
                log.debug("the broker took no hello: %s", error)
                return self._hear(None)
            failures += 1
            min_ms, max_ms = self._settings.reconnect_min_ms, self._settings.reconnect_max_ms
            await self._timing.sleep_ms(backoff_ms(failures, min_ms=min_ms, max_ms=max_ms))

    async def _ask(self, gone: list[Gone]) -> HelloReply:
        return await self._client.hello(
            list(self._slots), group=self._group, host=socket.gethostname(), version=__version__, gone=gone
        )

    def _hear(self, answer: HelloReply | None) -> None:
        if answer is None or not answer.returns:
            log.info(
                "the broker counts every delivery as a try, also of jobs that a dying or draining worker held: it is "
                "an older one, or its upgrade is not finalized"
            )
        for queue, count in ({} if answer is None else answer.suspects).items():
            self._on_suspects(queue, count)

    def _gone(self) -> list[Gone]:
        """Return the process before this one, unless it ended well."""
        left = None if self._board is None else self._board.read()
        if left is None or left.state is not State.GONE:
            return []
        return [Gone(node=left.node, exit_code=shell_exit_code(left.exit_code), begun=left.running)]

    def take_board(self) -> dict[str, Places]:
        """Take over the board and return the places of each queue; none without a board."""
        return {} if self._board is None else self._board.take(self._client.node, self._slots)

    def leave(self) -> None:
        """Leave nothing to report: every job was settled or given back."""
        if self._board is not None:
            self._board.clear()
