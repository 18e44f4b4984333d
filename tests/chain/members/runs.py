"""Play a seed, and play it again with fewer steps."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.chain.members.life import STEPS, Life
from tests.chain.worlds.runs import Found
from tests.lives.anomaly import Anomaly

__all__ = ["run", "shrink"]


def run(
    seed: int,
    *,
    steps: Sequence[int] = range(STEPS),
    traits: Iterable[str] | None = None,
    tally: Counter[str] | None = None,
) -> Found | None:
    """Play one seed; None where nothing happened that must not. What did happen is added to ``tally``."""
    gc.disable()  # what is collected in the middle of a life would make it differ from the next run
    life = Life(seed, traits=traits)
    try:
        life.play(steps)
    except Anomaly as anomaly:
        return Found(seed, anomaly.kind, anomaly.message, tuple(steps), (f"traits {sorted(life.traits)}", *life.story))
    finally:
        gc.enable()
        if tally is not None:
            tally.update(life.tally())
    return None


def shrink(found: Found, *, traits: Iterable[str] | None = None) -> Found:
    """Play a life again without some of its steps, as long as it ends in the same kind of anomaly."""
    size = max(1, len(found.steps) // 2)
    while size:
        for start in range(0, len(found.steps), size):
            steps = found.steps[:start] + found.steps[start + size :]
            again = run(found.seed, steps=steps, traits=traits)
            if again is not None and again.kind == found.kind:
                found = again
                break
        else:
            size //= 2
    return found
