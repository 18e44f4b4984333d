"""The exploration of a case."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.chain.model.explore import Explored, explore
from tests.chain.model.rules import Case
from tests.chain.model.solo import Solo
from tests.chain.model.steps import all_steps
from tests.chain.model.world import first_world

__all__ = ["run"]

STATES_MAX: Final = 8_000_000


def run(case: Case, *, states_max: int = STATES_MAX) -> Explored:
    """Explore a case whole, or up to its first violation."""
    return explore(first_world(case), partial(all_steps, case), check=Solo(case), states_max=states_max)
