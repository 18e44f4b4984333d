"""Commands: each has a decision, and its fields are those of the wire."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenure.client.config import ConfigFields, PatchFields
from tenure.contract import commands
from tenure.contract.commands import Ack, Claim, Command
from tenure.contract.config import TopicConfig
from tenure.contract.config_body import ConfigBody, PatchBody, config_fields
from tenure.contract.options import AppendOptions, ClaimOptions, LeaseOptions, RedriveOptions, RouterOptions
from tenure.contract.repeat import Repeat
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


def test_a_command_is_written_as_a_body_without_its_topic_and_its_defaults() -> None:
    """The path names the topic, and the server has the same defaults."""
    assert msgspec.json.encode(Ack(topic="", node="w", seqs=[1, 2])) == b'{"node":"w","seqs":[1,2]}'
    assert msgspec.json.encode(Claim(node="w", max_count=5)) == b'{"node":"w","max":5}'


def test_a_command_says_what_a_second_copy_of_it_does() -> None:
    never = {kind for kind in DECIDES if kind.repeat is Repeat.NEVER}
    assert never == {commands.DeleteRecords, commands.Redrive, commands.DeleteTopic, commands.DeleteRouter}
    changing = {commands.Append, commands.Claim, Ack, commands.Nack, commands.Extend}
    changing |= {commands.Return, commands.Begin, commands.EndNode}
    changing |= {commands.PutTopic, commands.PatchTopic, commands.PutRouter}
    assert {kind for kind in DECIDES if kind.repeat is Repeat.SAFE} == changing


OPTIONS = [
    (AppendOptions, commands.AppendFields),
    (ClaimOptions, Claim),
    (LeaseOptions, Ack),
    (RedriveOptions, commands.RedriveFields),
    (RouterOptions, commands.RouterFields),
]


@pytest.mark.parametrize(("options", "kind"), OPTIONS)
def test_options_of_a_call_are_fields_of_its_command(options: Any, kind: type[Command[Any]]) -> None:
    assert options.__optional_keys__ <= set(kind.__struct_fields__)


def test_a_body_checks_the_bounds_of_the_config_that_it_is_derived_from() -> None:
    for body in (ConfigBody, PatchBody):
        for text in (b'{"lease_ms":-1}', b'{"priority":1001}', b'{"retry_backoff":{"factor":0.5}}', b'{"type":"x"}'):
            with pytest.raises(msgspec.ValidationError):
                msgspec.json.decode(text, type=body)
    assert config_fields(msgspec.json.decode(b'{"durability":"ephemeral"}', type=PatchBody)) == {
        "durability": "ephemeral"
    }
