"""Bad input at the broker's surface: refused by the call itself, before anything waits, and nothing has changed.

What each command refuses is tested on the rules (`tests/core/decide/test_bad_input.py`). Here, every method hands every
argument on, and what the broker checks by itself is refused as well.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

import pytest

from tenure import Broker, Invalid, Record
from tenure.testing.clock import ManualClock
from tests.kit.brokers import make_queue, snapshot
from tests.kit.nonsense import BAD, GOOD, HELD_ALONE, arguments_for
from tests.kit.rules import Rules

NAN = float("nan")
CASES = [(method, argument) for method, arguments in BAD.items() for argument in arguments]
HANDED_ON = 1
"""How many bad values of an argument show that a method hands it on to its command."""


async def prepare(broker: Broker) -> None:
    """A broker with something of everything in it."""
    await make_queue(broker, "i", jobs=1)
    assert (await broker.claim("i", node="w", isolate=True)).lease_id == HELD_ALONE
    await make_queue(broker, jobs=9, dlq_strategy="block", dead_letter="dead", retry_backoff={"min_ms": 100})
    await broker.produce("q", [Record(data=b"t", tag="x", meta=b"{}", unique_key="u")], idempotency_key="k")
    await broker.produce("q", [b"c"], client_id="c", client_seq=1)
    await broker.claim("q", node="w", max_count=4, claim_id="c")
    await broker.nack("q", node="w", seqs=[2], dead=True)
    await broker.nack("q", node="w", seqs=[3])
    await broker.put_topic("dead")
    await broker.put_router("r", source="q", dest="u")


async def attempt(broker: Broker, method: str, arguments: dict[str, Any]) -> object:
    """Call a command as its signature asks, and wait for the answer if there is one to wait for."""
    given = dict(arguments)
    target = getattr(broker, method)
    positional = [
        given.pop(name)
        for name, parameter in inspect.signature(target).parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name in given
    ]
    answer = target(*positional, **given)
    if isinstance(answer, Awaitable):
        return await asyncio.wait_for(_finish(answer), 5)
    return answer


async def _finish(answer: Awaitable[object]) -> object:
    return await answer


@pytest.mark.parametrize(("method", "argument"), CASES, ids=[f"{method}-{argument}" for method, argument in CASES])
async def test_nonsense_is_refused_and_changes_nothing(broker: Broker, method: str, argument: str) -> None:
    await prepare(broker)
    good, is_rule = arguments_for(method, argument), hasattr(Rules, method) and argument != "wait_ms"
    before, counted = snapshot(broker), broker.metrics.as_dict() | {"syncs": 0}
    for bad in BAD[method][argument][: HANDED_ON if is_rule else None]:
        with pytest.raises(Invalid):
            await attempt(broker, method, {**good, argument: bad})
        assert snapshot(broker) == before
    assert broker.metrics.as_dict() | {"syncs": 0} == counted
    assert broker._serving.coordinator.waiting == 0
    assert broker._serving.lines._reads == {}


@pytest.mark.parametrize(
    "argument", ["node", "max_count", "lease_ms", "claim_id", "auto_ack", "isolate", "group", "suspects"]
)
@pytest.mark.parametrize("how", ["wait", "cohort", "beside a stream"])
async def test_a_claim_that_would_wait_is_refused_at_once(broker: Broker, argument: str, how: str) -> None:
    await make_queue(broker, claim_jitter_ms=100 if how == "cohort" else 0)
    stream = broker.work("q", node="s") if how == "beside a stream" else None
    before = snapshot(broker)
    for bad in BAD["claim"][argument]:
        with pytest.raises(Invalid):
            broker.claim("q", wait_ms=1000, **{"node": "w", argument: bad})
    assert snapshot(broker) == before
    assert broker._serving.coordinator.waiting == (1 if stream else 0)
    if stream:
        stream.close()


@pytest.mark.parametrize("method", GOOD)
async def test_what_the_table_calls_good_is_taken(broker: Broker, method: str) -> None:
    """Without this, a mistake in the table would make every attempt fail for a reason that nobody meant."""
    await prepare(broker)
    answer = await attempt(broker, method, GOOD[method])
    if method == "work":
        answer.close()  # type: ignore[attr-defined]


NOT_COMMANDS = ("open", "charge_copies", "close", "give_up", "when_failed")


def test_every_command_and_every_argument_is_in_the_table() -> None:
    for method in (name for name in dir(Broker) if not name.startswith("_") and name not in NOT_COMMANDS):
        if isinstance(getattr(Broker, method), property):
            continue
        arguments = set(inspect.signature(getattr(Broker, method)).parameters) - {"self"}
        assert set(BAD[method]) == arguments, method


async def test_a_log_of_odd_but_legal_values_can_be_read_back(clock: ManualClock) -> None:
    """The other side of the border: the strangest values that are taken survive a restart."""
    from tenure.log.memory import MemoryLog

    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    name, node, tag = "a" * 255, "é" * 64, "\0" + "é" * 127
    await broker.put_topic(name, {"type": "queue", "ttl_ms": 2**64 - 1, "cap_records": 2**64 - 1, "extra": NAN})
    await broker.put_router("r>" + "x" * 253, source=name, dest="u", filter=["tag", "Glob", "\0*"])
    meta = b'{"":{"$":[1e999,-0,"\\u0000"]}}'
    await broker.produce(
        name,
        [Record(data=b"\xff\x00", tag=tag, node=node, meta=meta, unique_key="\0", deliver_at=2**53 - 1)],
        idempotency_key="\0" * 256,
        client_id="\U0010ffff" * 64,
        client_seq=2**63 - 1,
    )
    await broker.produce(name, [b""])
    await broker.claim(name, node=node, claim_id="\n", lease_ms=2**70, max_count=2**70)
    await broker.nack(name, node=node, seqs=[2], reason="\0", delay_ms=2**70)
    before = snapshot(broker)
    await broker.close()
    async with await Broker.open(log.reopen(), clock=clock) as broker:
        assert len(snapshot(broker)) == len(before)
        assert broker.job(name, 2).reason == "\0"
        assert (await broker.diff("u")).records[0].data == b"\xff\x00"


@pytest.mark.parametrize("home", [5, True, b"data", ["data"], object(), "da\0ta", ""])
async def test_a_home_that_is_none_is_refused(home: Any, clock: ManualClock) -> None:
    with pytest.raises(Invalid):
        await Broker.open(home, clock=clock)
