"""Commands: each has a decision, and its fields are those of the wire."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenure.client.config import ConfigFields, PatchFields
from tenure.contract import commands
from tenure.contract.commands import Ack, Claim, Command
from tenure.contract.config import TopicConfig
from tenure.contract.config_body import ConfigBody, PatchBody
from tenure.core.decide.table import DECIDES


def leaves(kind: type[Command[Any]]) -> set[type[Command[Any]]]:
    """The commands that can be run: those without another command below them."""
    below = [leaf for child in kind.__subclasses__() for leaf in leaves(child)]
    return set(below) or {kind}


def test_every_command_has_its_decision():
    assert set(DECIDES) == leaves(Command)


@pytest.mark.parametrize("kind", sorted(DECIDES, key=str))
def test_every_command_is_public_and_frozen(kind: type[Command[Any]]):
    assert kind.__name__ in commands.__all__
    assert kind.__struct_config__.frozen


def test_a_body_cannot_name_another_topic_than_its_path():
    """The topic is no field of the wire: under its own name any value is ignored."""
    command = msgspec.json.decode(b'{"node":"w","topic":5,"seqs":[1]}', type=Ack)
    assert command == Ack(topic="", node="w", seqs=[1])


def test_a_claim_is_written_with_the_names_of_the_wire():
    claim = msgspec.json.decode(b'{"node":"w","max":5,"claim_id":"c"}', type=Claim)
    assert claim == Claim(node="w", max_count=5, claim_id="c")


def test_a_config_has_the_same_fields_wherever_it_is_declared():
    logged = set(TopicConfig.__struct_fields__) | {"durable"}
    assert set(ConfigBody.__struct_fields__) == set(PatchBody.__struct_fields__) == logged
    assert set(ConfigFields.__optional_keys__) == logged
    assert set(PatchFields.__optional_keys__) == logged - {"type"}, "the type of a topic does not change"
