"""Each broken variant of the protocol is found: the model is not blind to the property that the rule protects."""

from __future__ import annotations

import pytest

from tests.chain.model.protocol import run
from tests.chain.model.variants import VARIANTS


@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_variant_is_found(name: str):
    case, breaks = VARIANTS[name]
    explored = run(case, states_max=100_000)
    assert explored.violation is not None, str(explored)
    assert explored.violation.kind == breaks, str(explored)
