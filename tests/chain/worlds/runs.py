"""Play a seed, and play it again with fewer steps."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.chain.worlds.world import STEPS, World
from tests.lives.anomaly import Anomaly

__all__ = ["Found", "run", "shrink"]


class Found(NamedTuple):
    """An anomaly, the steps that led to it, and the story of that world."""

    seed: int
    kind: str
    message: str
    steps: tuple[int, ...]
    story: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {len(self.steps)} steps: {self.kind}", *self.story, f"=> {self.message}"]
        return "\n".join(lines)


def run(
    seed: int,
    *,
    steps: Sequence[int] = range(STEPS),
    traits: Iterable[str] | None = None,
    is_whole: bool | None = None,
    tally: Counter[str] | None = None,
) -> Found | None:
    """Play one seed; None where nothing happened that must not. What did happen is added to ``tally``."""
    gc.disable()  # what is collected in the middle of a world would make it differ from the next run
    world = World(seed, traits=traits, is_whole=is_whole)
    try:
        world.play(steps)
    except Anomaly as anomaly:
        about = f"traits {sorted(world.traits)}, {'whole' if world.is_whole else 'bare'}"
        return Found(seed, anomaly.kind, anomaly.message, tuple(steps), (about, *world.story))
    finally:
        gc.enable()
        if tally is not None:
            tally.update(world.tally())
    return None


def shrink(found: Found, *, traits: Iterable[str] | None = None, is_whole: bool | None = None) -> Found:
    """Play a world again without some of its steps, as long as it ends in the same kind of anomaly."""
    size = max(1, len(found.steps) // 2)
    while size:
        for start in range(0, len(found.steps), size):
            steps = found.steps[:start] + found.steps[start + size :]
            again = run(found.seed, steps=steps, traits=traits, is_whole=is_whole)
            if again is not None and again.kind == found.kind:
                found = again
                break
        else:
            size //= 2
    return found
