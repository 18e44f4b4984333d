"""The exploration of a case."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.chain.model.explore import Explored, explore
from tests.chain.model.takeover.progress import Progress
from tests.chain.model.takeover.rules import Case
from tests.chain.model.takeover.steps import all_steps
from tests.chain.model.takeover.world import first_world

__all__ = ["run"]

STATES_MAX: Final = 8_000_000


def run(case: Case, *, states_max: int = STATES_MAX) -> Explored:
    """Explore a case whole, or up to its first violation."""
    return explore(first_world(case), partial(all_steps, case), check=Progress(case), states_max=states_max)
