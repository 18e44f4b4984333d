"""The hello of a worker: one request, or one for each queue where the process before it had begun many jobs."""

from __future__ import annotations

from tenure import AsyncClient, Broker
from tenure.contract.bodies import Gone
from tenure.testing import AppWire, memory_broker


async def held(broker: Broker, *names: str, count: int) -> None:
    """Queues whose jobs a worker holds."""
    for name in names:
        await broker.put_topic(name, {"type": "queue"})
        await broker.produce(name, [b"1"] * count)
        await broker.claim(name, node="dead", max_count=count, isolate=True)


async def test_a_hello_ends_what_the_process_before_it_held_on_every_queue() -> None:
    async with memory_broker() as broker, AsyncClient(wire=AppWire(broker), node="new") as client:
        await held(broker, "a", "b", count=3)
        reply = await client.hello(["a", "b"], gone=[Gone(node="dead", exit_code=-9, begun={"a": [2]})])
        assert (reply.returns, reply.suspects) == (True, {"a": 1})
        assert [broker.job("a", seq).history[-1].end for seq in (1, 2, 3)] == ["returned", "lost", "returned"]
        assert [broker.job("b", seq).history[-1].end for seq in (1, 2, 3)] == ["returned"] * 3


async def test_a_hello_that_names_many_jobs_goes_in_one_request_for_each_queue_and_says_the_same() -> None:
    async with memory_broker() as broker, AsyncClient(wire=AppWire(broker), node="new") as client:
        names = [f"q{number}" for number in range(5)]
        await held(broker, *names, count=1_000)
        begun = {name: list(range(1, 1_000)) for name in names}
        reply = await client.hello(names, gone=[Gone(node="dead", begun=begun)])
        assert reply.suspects == dict.fromkeys(names, 999)
        assert [broker.job(name, 1_000).history[-1].end for name in names] == ["returned"] * 5
