"""The calls of a simulated store, and the faults that one can have."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from tenure.errors import TenureError

__all__ = ["FAULTS", "Call", "Fault", "Hold"]

Fault = Literal[
    "lost_request", "lost_reply", "duplicate", "late", "refused", "false_exists", "crash_before", "crash_after"
]
"""The fault of a call: it never arrives; it is carried out but its answer is lost; it arrives twice and the second
answer is returned; it fails now and is carried out later (see ``deliver_late``); it is refused; it is a create that is
answered with "exists" and stores nothing, as S3 does (409) where another create of the key is under way; the caller's
process ends before the call arrives, or after it was carried out: this call and all later ones raise `PowerLoss`."""
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it arrived."""

    number: int
    kind: str
    key: str
    bytes: int
    client: str = ""


@dataclass(slots=True)
class Hold:
    """A call that is held: ``reached`` is set once it arrives, ``release()`` lets it go on.

    It is held before it is carried out, or afterwards, before its answer: ``is_done``. If its caller gives up
    meanwhile, it is carried out when it is released: a request that was sent cannot be taken back.
    """

    is_done: bool = False
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    _go: asyncio.Event = field(default_factory=asyncio.Event)
    _given_up: list[Callable[[], None]] = field(default_factory=list)

    def release(self) -> None:
        self._go.set()
        for act in self._given_up:
            with contextlib.suppress(TenureError):
                act()
        self._given_up.clear()

    async def carry_out(self, act: Callable[[], None]) -> None:
        """Wait until released, and carry the call out before or after that."""
        self.reached.set()
        if self.is_done:
            try:
                act()
            finally:
                await self._go.wait()
            return
        try:
            await self._go.wait()
        except asyncio.CancelledError:
            self._given_up.append(act)
            raise
        act()
