"""Back-off between two deliveries of a job: exponential, capped, and with a jitter that is not random.

A delay is part of what the fold computes, so it must come out the same on replay. The jitter is therefore a hash of
the job and of its delivery count: as good as random between jobs, fixed for each.
"""

from __future__ import annotations

from typing import Final

from tenure.contract.config import Backoff

__all__ = ["delay_ms"]

_U64_MASK: Final = 2**64 - 1


def delay_ms(backoff: Backoff, *, deliveries: int, seq: int) -> int:
    """Return how long to hold back the job ``seq`` that was delivered ``deliveries`` times (at least once).

    With jitter the result lies in [half, full] of the computed delay, spread evenly.
    """
    full = _full_delay_ms(backoff, deliveries)
    if not backoff.jitter:
        return full
    spread = full // 2
    return full - _hash64(seq, deliveries) % (spread + 1)


def _full_delay_ms(backoff: Backoff, deliveries: int) -> int:
    """Return ``min(min_ms * factor ** (deliveries - 1), max_ms)``."""
    if backoff.min_ms <= 0:
        return 0
    grown_ms = backoff.min_ms * _power(backoff.factor, max(deliveries - 1, 0))
    return int(grown_ms) if grown_ms < backoff.max_ms else backoff.max_ms


def _power(base: float, exponent: int) -> float:
    """Return ``base ** exponent`` by squaring, or infinity.

    ``**`` raises where it overflows and leaves its last bit to the C library; a product does neither, so a log
    replays to the same delays on every machine.
    """
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


def _hash64(seq: int, deliveries: int) -> int:
    """Return 64 well-mixed bits of the two numbers (the finaliser of splitmix64)."""
    bits = (seq * 0x9E3779B97F4A7C15 + deliveries * 0xD1B54A32D192ED03) & _U64_MASK
    bits = ((bits ^ bits >> 30) * 0xBF58476D1CE4E5B9) & _U64_MASK
    bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & _U64_MASK
    return bits ^ bits >> 31
