"""What waits in the line of a topic: claims for jobs or for their cohort, and reads for their first record."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tenure.broker.answer import Answer, Promise
from tenure.broker.serving.alarms import Alarm
from tenure.broker.serving.durable_claims import PromisedGrant, UnsyncedClaims
from tenure.contract.commands import Claim, Diff
from tenure.contract.replies import Difference, Grant

__all__ = ["WaitingClaim", "WaitingRead"]


class WaitingClaim(PromisedGrant):
    """A taker that wants one claim, and waits in line until it comes or its time is up.

    ``leave_line`` takes it out of the line; it is called once more after that.
    """

    __slots__ = ("_leave_line", "_max_count", "alarm", "claim")

    def __init__(
        self, claims: UnsyncedClaims, claim: Claim, *, max_count: int, leave_line: Callable[[WaitingClaim], None]
    ) -> None:
        super().__init__(claims)
        self.claim = claim
        self.alarm: Alarm | None = None
        self._max_count = max_count
        self._leave_line = leave_line

    def wants(self) -> int:
        """Return how many jobs it would take now."""
        return self._max_count if self.is_open else 0

    def hand(self, answer: Answer[Grant]) -> None:
        """Hand over a claim; it wants no other one, and so leaves the line."""
        self.give(answer)

    def announce(self, suspects: int) -> None:
        """Do nothing: the reply to a claim says how many suspects wait."""

    def withdraw(self) -> None:
        if self.alarm is not None:
            self.alarm.cancel()
        self._leave_line(self)
        super().withdraw()


class WaitingRead(Promise[Difference]):
    """A read that is run again after each event on its topic, until there is something to read."""

    __slots__ = ("_leave_line", "alarm", "command", "is_time_up")
    ends_with_caller = True

    def __init__(self, command: Diff, *, leave_line: Callable[[WaitingRead], None]) -> None:
        super().__init__()
        self.command = command
        self.alarm: Alarm | None = None
        self.is_time_up = False
        self._leave_line = leave_line

    def pass_over(self, found: Difference) -> None:
        """Read after this from now on: what was left out, such as the reader's own records, need not be read again."""
        self.command = replace(self.command, from_seq=max(self.command.from_seq, found.next_from_seq))

    def withdraw(self) -> None:
        if self.alarm is not None:
            self.alarm.cancel()
        self._leave_line(self)
