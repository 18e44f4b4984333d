"""Back-off: how long to wait before something that failed for now is tried again.

One kind of jitter for all: full jitter, a wait drawn evenly from 0 up to a bound that doubles with each failure. Many
callers that failed together then come back spread over the whole bound, which is what a server that restarts needs;
half jitter would leave half of the bound empty, and no jitter would bring them back in one moment. A caller that is
alone loses nothing by it.

Two rules are not this one. `tenure.core.backoff` delays a job between two deliveries: its result is folded, so it must
come out the same on replay, and its jitter is a hash. `tenure.worker.Exponential` and `Fixed` are the same rule, chosen
by a user for a task.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

__all__ = ["backoff_ms"]

_DOUBLINGS_MAX: Final = 64


def backoff_ms(failures: int, *, min_ms: float, max_ms: float, chance: Callable[[], float] = random.random) -> float:
    """Return the wait after the ``failures``-th failure in a row, counted from 1.

    It lies between 0 and ``min_ms * 2 ** (failures - 1)``, and never above ``max_ms``. ``chance`` gives numbers from 0
    to 1; the default is that of the process, which a forked child seeds again, so that twins do not wait alike.
    """
    doublings = min(max(failures - 1, 0), _DOUBLINGS_MAX)
    return chance() * min(min_ms * 2.0**doublings, max_ms)
