"""Back-off for refused requests: the answers of a peer that is refused over and over are held back.

A refusal costs the server time. Each account has an allowance of that time; after it is used up, the answer is held
back until the debt is paid, and nothing more is read of the connection meanwhile. So a peer that sends refused requests
as fast as it can takes a few hundredths of the loop and not all of it. A request that is granted never waits, and
neither does one refusal after another at the pace of a program with a mistake in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tenure.http.wire.limits import WireLimits

__all__ = ["HTTP2_MS", "Refusals", "is_paced"]

HTTP1_MS: Final = 0.2
HTTP2_MS: Final = 0.8
"""What the head and the answer of a refused request cost, as measured; HTTP/2 is read in Python."""
_MS_PER_BYTE: Final = 5 / (1 << 20)
"""What a byte of a body costs that was read before the request was refused."""
_OUTCOMES: Final = frozenset({409, 412})
"""Errors that are the normal end of a race between honest callers: a conflict, a lease that was lost."""


def is_paced(status: int) -> bool:
    """Return whether a response of this status counts as a refusal."""
    return 400 <= status < 500 and status not in _OUTCOMES


class Refusals:
    """The debt of each account (a key, or the address of a request without a valid one), in ms of the loop.

    At most ``refused_accounts_max`` are kept; beyond that, the one refused longest ago is dropped.
    """

    def __init__(self, limits: WireLimits, *, now_s: Callable[[], float]) -> None:
        self._limits = limits
        self._now_s = now_s
        self._debts: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._debts)

    def delay_s(self, account: str, body_bytes: int = 0, *, request_ms: float = HTTP1_MS) -> float:
        """Charge a refusal to an account; return for how long its answer is held back."""
        limits, now_s = self._limits, self._now_s()
        debt_ms, at_s = self._debts.pop(account, (0.0, now_s))
        debt_ms = max(0.0, debt_ms - (now_s - at_s) * limits.refused_ms_per_s) + request_ms + body_bytes * _MS_PER_BYTE
        delay_s = max(0.0, debt_ms - limits.refused_burst_ms) / limits.refused_ms_per_s
        if delay_s > limits.refused_delay_ms_max / 1000:
            delay_s = limits.refused_delay_ms_max / 1000
            debt_ms = limits.refused_burst_ms + delay_s * limits.refused_ms_per_s
        if len(self._debts) >= limits.refused_accounts_max:
            del self._debts[next(iter(self._debts))]
        self._debts[account] = debt_ms, now_s
        return delay_s
