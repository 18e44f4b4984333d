"""The page on the model lists what is explored and what is found, with the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chain.model.configurations import LONG, SHORT
from tests.chain.model.takeover import configurations as takeover
from tests.chain.model.takeover.variants import VARIANTS as TAKEOVERS
from tests.chain.model.test_genesis import VARIANTS as BEGINNINGS
from tests.chain.model.variants import VARIANTS

PAGE = (Path(__file__).parents[3] / "docs" / "design" / "chain-model.md").read_text()
FOUND = {
    **{name: variant.breaks for name, variant in VARIANTS.items()},
    **{name: kind for name, (_, kind) in BEGINNINGS.items()},
    **{name: variant.breaks for name, variant in TAKEOVERS.items()},
}
EXPLORED = {
    name: configuration.states
    for configurations in (SHORT, LONG, takeover.SHORT, takeover.LONG)
    for name, configuration in configurations.items()
}


@pytest.mark.parametrize("name", EXPLORED)
def test_the_page_has_every_configuration_with_its_number_of_states(name: str):
    assert f"| {name} | {EXPLORED[name]:,} |" in PAGE


@pytest.mark.parametrize("name", FOUND)
def test_the_page_has_every_variant_with_the_property_that_it_breaks(name: str):
    assert f"| {name} | {FOUND[name]} |" in PAGE
