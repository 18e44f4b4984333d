"""Living a seed, and telling a life again with fewer steps."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.lives.anomaly import Anomaly
from tests.lives.fates import live
from tests.lives.life import Life
from tests.lives.thresholds import small_thresholds

__all__ = ["Found", "run", "shrink"]


class Found(NamedTuple):
    """An anomaly, the steps that led to it, and the story of that life."""

    seed: int
    kind: str
    message: str
    steps: tuple[int, ...]
    story: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {len(self.steps)} steps: {self.kind}", *self.story, f"=> {self.message}"]
        return "\n".join(lines)


def run(seed: int, *, steps: int | Sequence[int], without: Iterable[str] = ()) -> Found | None:
    """Live one seed; None where nothing happened that must not."""
    numbers = list(range(steps)) if isinstance(steps, int) else list(steps)
    life: Life | None = None
    gc.disable()  # a future reports an exception that nobody asked for when it is collected: always at the end
    with small_thresholds():
        try:
            life = Life(seed, without=without)
            live(life, numbers)
        except Anomaly as anomaly:
            story = tuple(life.story) if life is not None else ()
            return Found(seed, anomaly.kind, anomaly.message, tuple(numbers), story)
        finally:
            if life is not None and not life.loop.is_dead:
                life.loop.die()
            gc.enable()
    return None


def shrink(found: Found, *, without: Iterable[str] = (), tries_max: int = 400) -> Found:
    """Tell a life again without some of its steps, as long as it ends in the same kind of anomaly."""
    size = max(1, len(found.steps) // 2)
    tries = 0
    while size and tries < tries_max:
        shorter: Found | None = None
        for start in range(0, len(found.steps), size):
            tries += 1
            steps = found.steps[:start] + found.steps[start + size :]
            again = run(found.seed, steps=steps, without=without)
            if again is not None and again.kind == found.kind:
                shorter = again
                break
        if shorter is not None:
            found = shorter
        else:
            size //= 2
    return found
