"""`Link`: log an outage of the broker once per change, not per attempt. `Ages`: how long jobs were under way."""

from __future__ import annotations

import logging

from tenure.errors import Closed, Indeterminate, Overloaded, TenureError

__all__ = ["Ages", "Link"]

log = logging.getLogger("tenure.worker")

# Every error that means the broker is unreachable or shutting down.
_AWAY = (Overloaded, Closed, Indeterminate)


class Link:
    """The state of the connection to the broker, or to ``what``, shared by the sources of one worker."""

    def __init__(self, url: str, what: str = "broker") -> None:
        self._where = f"the {what} at {url}"
        self._down: dict[str, str] = {}
        self._opened: set[str] = set()

    def down(self, queue: str, error: TenureError) -> None:
        """Note that a source failed. Logs the first queue of an outage, and again only where the reason changes."""
        why = "away" if isinstance(error, _AWAY) else error.code
        is_news = why not in self._down.values()
        self._down[queue] = why
        if is_news:
            log.warning("waiting for %s, for %s and others: %s", self._where, queue, error.message)

    def up(self, queue: str) -> None:
        """Note that a source gets jobs again. Logs the end of the outage after the last source."""
        was_down = self._down.pop(queue, None)
        if was_down is not None and not self._down:
            log.info("%s is back", self._where)
        if queue not in self._opened:
            log.info("working at %s", queue)
        self._opened.add(queue)

    def is_up(self, queue: str) -> bool:
        """Return whether the source of a queue was opened and gets jobs."""
        return queue in self._opened and queue not in self._down


class Ages:
    """How long a job was under way, without trusting that two machines agree on the time.

    The difference between the moment of the claim on the broker's clock and of the arrival on ours is the transport
    time plus a constant; its least value so far stands for no transport time at all. A wall clock that was set makes
    all jobs look old at once: a caller that confirms that they are not calls `reset`.
    """

    def __init__(self) -> None:
        self._least_ms: int | None = None

    def age_ms(self, claimed_wall_ms: int, now_ms: int) -> int:
        """Return how old a claim is on arrival."""
        gap_ms = now_ms - claimed_wall_ms
        if self._least_ms is None or gap_ms < self._least_ms:
            self._least_ms = gap_ms
        return gap_ms - self._least_ms

    def reset(self) -> None:
        """Forget the least difference, and learn it again."""
        self._least_ms = None
