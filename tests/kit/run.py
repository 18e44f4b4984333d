"""Commands against an engine without a broker, in one line each: writes return the answer, looks return the reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tenure import Record
from tenure.broker.answer import Answer
from tenure.broker.engine import Engine
from tenure.contract import commands as c
from tenure.contract import replies
from tenure.core.decide.decision import Refused, Steps
from tenure.core.decide.evict import evict_over_cap as over_cap
from tenure.core.decide.evict import evict_over_ttl as over_ttl
from tenure.core.decide.forward import forward as forwarding
from tenure.core.decide.holding import release as releasing
from tenure.core.decide.losses import lose as losing
from tenure.core.level import Level
from tenure.core.state.router import Router
from tenure.core.state.topic import Topic

T = TypeVar("T")


def _run(engine: Engine, command: c.Command[T]) -> Answer[T]:
    """Run a command whose topic is not behind."""
    outcome = engine.run(command)
    if isinstance(outcome, Refused):
        raise outcome.error
    assert isinstance(outcome, Answer), outcome
    return outcome


def produce(
    engine: Engine, topic: str, records: Sequence[bytes | Record], node: str | None = None, **fields: Any
) -> Answer[replies.Produced]:
    return _run(engine, c.Append(topic=topic, records=records, node=node, **fields))


def diff(engine: Engine, topic: str, **fields: Any) -> replies.Difference:
    return _run(engine, c.Diff(topic=topic, **fields)).reply


def delete_records(engine: Engine, topic: str, **fields: Any) -> Answer[replies.DeletedRecords]:
    return _run(engine, c.DeleteRecords(topic=topic, **fields))


def claim(engine: Engine, topic: str, node: str, max_count: int = 1, **fields: Any) -> Answer[replies.Grant]:
    return _run(engine, c.Claim(topic=topic, node=node, max_count=max_count, **fields))


def ack(
    engine: Engine, topic: str, node: str, seqs: Sequence[int] | None = None, **fields: Any
) -> Answer[replies.Settled]:
    return _run(engine, c.Ack(topic=topic, node=node, seqs=seqs, **fields))


def nack(
    engine: Engine, topic: str, node: str, seqs: Sequence[int] | None = None, **fields: Any
) -> Answer[replies.Settled]:
    return _run(engine, c.Nack(topic=topic, node=node, seqs=seqs, **fields))


def extend(
    engine: Engine, topic: str, node: str, seqs: Sequence[int] | None = None, **fields: Any
) -> Answer[replies.Extended]:
    return _run(engine, c.Extend(topic=topic, node=node, seqs=seqs, **fields))


def release(engine: Engine, topic: Topic, numbers: Sequence[int]) -> None:
    engine.state.advance(topic, engine.now())
    engine.carry_out(releasing(engine.state, topic, numbers, engine.now()))


def return_jobs(
    engine: Engine, topic: str, node: str, seqs: Sequence[int] | None = None, **fields: Any
) -> Answer[replies.Settled]:
    return _run(engine, c.Return(topic=topic, node=node, seqs=seqs, **fields))


def begin(engine: Engine, topic: str, **fields: Any) -> Answer[replies.BegunJob]:
    return _run(engine, c.Begin(topic=topic, **fields))


def end_node(engine: Engine, topic: str, **fields: Any) -> Answer[replies.EndedNode]:
    return _run(engine, c.EndNode(topic=topic, **fields))


def lose(engine: Engine, topic: Topic, numbers: Sequence[int]) -> None:
    engine.state.advance(topic, engine.now())
    engine.carry_out(losing(engine.state, topic, numbers, engine.now()))


def redrive(engine: Engine, topic: str, **fields: Any) -> Answer[replies.Redriven]:
    return _run(engine, c.Redrive(topic=topic, **fields))


def put_topic(
    engine: Engine, topic: str, config: Mapping[str, Any], **fields: Any
) -> Answer[tuple[replies.TopicInfo, bool]]:
    return _run(engine, c.PutTopic(topic=topic, config=config, **fields))


def patch_topic(engine: Engine, topic: str, config: Mapping[str, Any]) -> Answer[replies.TopicInfo]:
    return _run(engine, c.PatchTopic(topic=topic, config=config))


def delete_topic(engine: Engine, topic: str, **fields: Any) -> Answer[tuple[bool, list[str]]]:
    return _run(engine, c.DeleteTopic(topic=topic, **fields))


def topic_info(engine: Engine, topic: str, **fields: Any) -> replies.TopicInfo:
    return _run(engine, c.GetTopic(topic=topic, **fields)).reply


def list_topics(engine: Engine, **fields: Any) -> replies.Page[str]:
    return _run(engine, c.ListTopics(**fields)).reply


def put_router(engine: Engine, router: str, **fields: Any) -> Answer[tuple[Router, bool]]:
    return _run(engine, c.PutRouter(router=router, **fields))


def delete_router(engine: Engine, router: str) -> Answer[bool]:
    return _run(engine, c.DeleteRouter(router=router))


def get_router(engine: Engine, router: str) -> Router:
    found: Router = _run(engine, c.GetRouter(router=router)).reply
    return found


def forward(engine: Engine, source: Topic) -> bool:
    """Let the routers of a topic go a step; returns whether some have more to do."""
    more = False
    for router in list(engine.state.routers_from.get(source.name, ())):
        more |= engine.carry_out(forwarding(engine.state, router, engine.now(), engine.reader)).reply.more
    return more


def evict_over_cap(engine: Engine, topic: Topic, now: int) -> None:
    engine.carry_out(_alone(over_cap(engine.state, topic, now, engine.reader)))


def evict_over_ttl(engine: Engine, topic: Topic, now: int) -> None:
    engine.carry_out(_alone(over_ttl(engine.state, topic, now, engine.reader)))


def _alone(steps: Steps[object]) -> Steps[tuple[None, int]]:
    yield from steps
    return None, Level.NOW


def jobs(engine: Engine, topic: str, **fields: Any) -> replies.Page[replies.JobRow]:
    return _run(engine, c.ListJobs(topic=topic, **fields)).reply


def job(engine: Engine, topic: str, seq: int) -> replies.JobInfo:
    return _run(engine, c.GetJob(topic=topic, seq=seq)).reply


def leases(engine: Engine, topic: str, **fields: Any) -> replies.Page[replies.LeaseRow]:
    return _run(engine, c.ListLeases(topic=topic, **fields)).reply


def strip(engine: Engine, topic: str, **fields: Any) -> replies.QueueStrip:
    return _run(engine, c.Strip(topic=topic, **fields)).reply
